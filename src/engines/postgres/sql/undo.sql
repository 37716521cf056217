-- Takes the locks of @''@ out of the database: whoever holds one has lost it, and tokens are forgotten.
-- If there are locks here again: before the next one say holdfast floor, with a token above all that were given.
DROP FUNCTION IF EXISTS @^_enter_held@, @_acquire@, @_renew@, @_release@, @_end_lease@, @_note@, @_take_notes@, @_add_note@, @_sweep@, @_bury@, @_show_claim@,
    @_is_entered@, @_entered_key@, @_break@, @_floor@, @_observe@, @_finish@, @_row_grant@, @_row_is_held@, @_next_token@, @_wake@, @_notify@, @_begin@, @_settle@, @_first_beat@,
    @_await_standby@, @_once_read@, @_once_page@, @_note_records@, @_incarnation@, @_server@, @_clock@, @_above_forgotten@;
DROP VIEW IF EXISTS @_shown@;
DROP TABLE IF EXISTS @_once@, @_claims@, @_rows@, @@, @_meta@;
