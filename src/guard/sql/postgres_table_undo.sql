-- Takes the guard off the table. The column stays, and so do the marks: applying the guard again goes on where it was.
DO @outer@
BEGIN
IF to_regclass(@table_name@) IS NOT NULL THEN
    DROP TRIGGER IF EXISTS zz_holdfast_1_named ON @table@;
    DROP TRIGGER IF EXISTS zz_holdfast_2 ON @table@;
    DROP TRIGGER IF EXISTS zz_holdfast_3_truncate ON @table@;
END IF;
DROP FUNCTION IF EXISTS @guard_function@();
DROP FUNCTION IF EXISTS @truncate_function@();
IF to_regclass(@guards_name@) IS NOT NULL THEN
    DELETE FROM @own@.holdfast_guards WHERE guard = @guard@;
END IF;
END
@outer@;
-- If nothing else uses the column:  ALTER TABLE @table@ DROP COLUMN @column@;
