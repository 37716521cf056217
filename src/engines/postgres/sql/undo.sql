-- Takes the locks of @''@ out of the database: whoever holds one has lost it, and tokens are forgotten.
-- If there are locks here again: before the next one say holdfast floor, with a token above all that were given.
DROP FUNCTION IF EXISTS @^_enter_held@(text,text,bigint),
    @_acquire@(text,integer,bytea,bytea,bytea,"char",integer,bigint,bigint,bigint,boolean,boolean,boolean,boolean,bigint,text,bigint,bigint[],bigint[],bigint),
    @_renew@(text,integer,bytea[],bytea[],bigint[],bigint[],bigint[],bigint[],text,bigint),
    @_release@(text,integer,bytea,bytea,bigint,bigint,text,bigint[],bigint[],bigint[]), @_end_lease@(bytea,bytea,bigint), @_mark_ended@(bytea,bytea[],bigint[]),
    @_note@(text,bytea,text,bigint[],bigint[],bigint[]), @_take_notes@(bytea,text,bigint[],bigint[],bigint[]), @_add_note@(jsonb,text,bigint),
    @_sweep@(text,integer,bytea,bigint[],bigint[],bigint), @_bury@(bytea,bigint[],bigint[]), @_show_claim@(bytea,bigint), @_is_entered@(bytea,bigint),
    @_entered_key@(bytea,bigint), @_break@(text,integer,bytea,boolean), @_floor@(text,integer,bigint,boolean),
    @_observe@(text,integer,bytea,bytea,bytea,bigint,bigint,text,bigint), @_finish@(text,integer,bytea,bytea,bigint,bytea,bigint,text,bigint),
    @_row_grant@(text,integer,bytea,bytea,bytea,integer), @_row_is_held@(bytea), @_next_token@(bigint,text,text), @_wake@(bytea,bigint,boolean,boolean),
    @_notify@(text,bigint[]), @_begin@(integer), @_settle@(integer), @_first_beat@(), @_await_standby@(bytea), @_once_read@(bytea,integer,text), @_once_page@(),
    @_note_records@(text,text,bytea[],bigint[],bigint), @_incarnation@(), @_server@(), @_clock@(), @_above_forgotten@(bigint),
    @_revision@(), @_page@(regclass), @_some_claims@(integer,text), @_note_many@(text,text,bytea[],bigint[],bigint[],bigint[]),
    @_sweep_many@(text,integer,bytea[],bigint[],bigint[]), @_once_unnoted@(text);
DROP VIEW IF EXISTS @_shown@;
DROP TABLE IF EXISTS @_once@, @_claims@, @_rows@, @@, @_meta@;
