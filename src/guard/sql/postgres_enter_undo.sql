-- Takes Holdfast's guard out of the database, and forgets all marks: a stale holder may pass afterwards.
DO @outer@
DECLARE
    guarded text;
BEGIN
IF to_regclass(@guards_name@) IS NOT NULL THEN
    SELECT string_agg(guard, ', ') INTO guarded FROM @own@.holdfast_guards WHERE target <> 0;
    IF guarded IS NOT NULL THEN
        RAISE EXCEPTION 'still guarded: %', guarded USING HINT = 'Undo each table first.';
    END IF;
END IF;
DROP FUNCTION IF EXISTS @own@.holdfast_reset(text, bigint, text);
DROP FUNCTION IF EXISTS @own@.holdfast_refuse_triggers(regclass, text);
DROP FUNCTION IF EXISTS @own@.holdfast_remember(text);
DROP FUNCTION IF EXISTS @own@.holdfast_moving();
DROP FUNCTION IF EXISTS @own@.holdfast_moves(text, text, text, text, bigint, boolean);
DROP FUNCTION IF EXISTS @own@.holdfast_in_row(text, text);
DROP FUNCTION IF EXISTS @own@.holdfast_brought(text);
DROP FUNCTION IF EXISTS @own@.holdfast_found_rows();
DROP FUNCTION IF EXISTS @own@.holdfast_carry(text, text);
DROP FUNCTION IF EXISTS @own@.holdfast_guarded(text);
DROP FUNCTION IF EXISTS @own@.holdfast_found(text, text);
DROP FUNCTION IF EXISTS @own@.holdfast_enter(text, bigint, text);
DROP FUNCTION IF EXISTS @own@.holdfast_raise(text, text, bigint, text);
DROP FUNCTION IF EXISTS @own@.holdfast_no_token(bigint);
DROP FUNCTION IF EXISTS @own@.holdfast_refuse(text, text, bigint, bigint);
DROP TABLE IF EXISTS @own@.holdfast_resets, @own@.holdfast_guards, @own@.holdfast_marks;
END
@outer@;
