-- Takes the guard off the table. The column stays, and so do the marks: applying the guard again goes on where it was.
DO @outer@
DECLARE
    target regclass := to_regclass(@table_name@); -- or what it is called now
BEGIN
IF to_regclass(@guards_name@) IS NOT NULL THEN
    SELECT oid INTO target FROM @own@.holdfast_guards AS g JOIN pg_class AS c ON c.oid = g.target WHERE g.guard = @guard@;
    DELETE FROM @own@.holdfast_guards WHERE guard = @guard@;
END IF;
IF target IS NOT NULL THEN
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_1_named ON %s', target);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_2 ON %s', target);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_2_update ON %s', target);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_3_truncate ON %s', target);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_4_found ON %s', target);
END IF;
DROP FUNCTION IF EXISTS @guard_function@();
DROP FUNCTION IF EXISTS @truncate_function@();
END
@outer@;
-- If nothing else uses the column:  ALTER TABLE @table@ DROP COLUMN @column@;
