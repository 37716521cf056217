-- Takes the guard off the table. The column stays, and so do the marks: applying the guard again goes on where it was.
DO @outer@
DECLARE
    this regclass := to_regclass(@table_name@); -- or what it is called now
    columns bigint;
BEGIN
IF to_regclass(@guards_name@) IS NOT NULL THEN
    SELECT c.oid, (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname IN (g.key_column, g.token_column)
            AND NOT a.attisdropped) INTO this, columns
        FROM @own@.holdfast_guards AS g JOIN pg_class AS c ON c.oid = g.target WHERE g.guard = @guard@;
END IF;
IF this IS NOT NULL THEN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', this);
    IF columns = 2 THEN
        PERFORM @own@.holdfast_remember(@guard@); -- from here on anybody may write anything into the column
    END IF;
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_0_moving ON %s', this);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_1_named ON %s', this);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_2 ON %s', this);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_2_update ON %s', this);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_3_truncate ON %s', this);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_4_found ON %s', this);
    EXECUTE format('DROP TRIGGER IF EXISTS zz_holdfast_5_moved ON %s', this);
END IF;
IF to_regclass(@guards_name@) IS NOT NULL THEN
    UPDATE @own@.holdfast_guards SET target = 0 WHERE guard = @guard@;
END IF;
DROP FUNCTION IF EXISTS @guard_function@();
DROP FUNCTION IF EXISTS @truncate_function@();
END
@outer@;
-- If nothing else uses the column:  ALTER TABLE @table@ DROP COLUMN @column@;
