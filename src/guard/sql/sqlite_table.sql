
-- The table: triggers that refuse stale tokens.
SAVEPOINT holdfast;
@if_add@ALTER TABLE @table@ ADD COLUMN @column@ INTEGER;
-- Both columns must be there. SQLite cannot add one only if it is missing: --add-column prints that statement, too.
SELECT @table@.@key@, @table@.@column@ FROM @table@ LIMIT 0;

DROP TRIGGER IF EXISTS @insert_trigger@;
CREATE TRIGGER @insert_trigger@ AFTER INSERT ON @table@
BEGIN
@if_require@    SELECT RAISE(ABORT, 'no fencing token') WHERE @inserted@ IS NULL;
    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT @guard@, NEW.@key@, @inserted@, @mode@
        WHERE @inserted@ IS NOT NULL;
END;

-- INSERT ... ON CONFLICT DO UPDATE: the token of the INSERT counts, too.
DROP TRIGGER IF EXISTS @upsert_trigger@;
CREATE TRIGGER @upsert_trigger@ BEFORE INSERT ON @table@
    WHEN NEW.@column@ IS NOT NULL AND EXISTS (SELECT 1 FROM @table@ WHERE @key@ = NEW.@key@)
BEGIN
@if_older@    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT @guard@, NEW.@key@, NEW.@column@, @mode@;
@if_newer@    SELECT RAISE(ABORT, @stale_row@) FROM holdfast_marks AS m
@if_newer@        WHERE m.guard = @guard@ AND m.key = CAST(NEW.@key@ AS TEXT) AND m.token >= CAST(NEW.@column@ AS INTEGER);
END;

-- This trigger fires if the statement names the column, also with the value that is there.
DROP TRIGGER IF EXISTS @named_trigger@;
CREATE TRIGGER @named_trigger@ BEFORE UPDATE OF @column@ ON @table@ WHEN NEW.@column@ IS NOT NULL
BEGIN
    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT @guard@, OLD.@key@, NEW.@column@, @mode@;
    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT @guard@, NEW.@key@, NEW.@column@, @mode@
        WHERE NEW.@key@ IS NOT OLD.@key@;
@if_after@    -- For the next trigger, which fires for every UPDATE: this row has brought its token.
@if_after@    DELETE FROM holdfast_named WHERE guard = @guard@;
@if_after@    INSERT INTO holdfast_named (guard, key, token) VALUES (@guard@, OLD.@key@, NEW.@column@);
END;

DROP TRIGGER IF EXISTS @update_trigger@;
DROP TRIGGER IF EXISTS @delete_trigger@;
@if_after@CREATE TABLE IF NOT EXISTS holdfast_named (guard TEXT NOT NULL PRIMARY KEY, key, token) WITHOUT ROWID;
@if_after@CREATE TRIGGER @update_trigger@ AFTER UPDATE ON @table@
@if_after@BEGIN
@if_require@    SELECT RAISE(ABORT, 'no fencing token') WHERE @set@ IS NULL AND NOT EXISTS (
@if_require@        SELECT 1 FROM holdfast_named WHERE guard = @guard@ AND key IS OLD.@key@ AND token IS NEW.@column@);
@if_setting@    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT @guard@, OLD.@key@, @set@, @mode@
@if_setting@        WHERE @set@ IS NOT NULL AND NOT EXISTS (
@if_setting@        SELECT 1 FROM holdfast_named WHERE guard = @guard@ AND key IS OLD.@key@ AND token IS NEW.@column@);
@if_setting@    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT @guard@, NEW.@key@, @set@, @mode@
@if_setting@        WHERE NEW.@key@ IS NOT OLD.@key@ AND @set@ IS NOT NULL AND NOT EXISTS (
@if_setting@        SELECT 1 FROM holdfast_named WHERE guard = @guard@ AND key IS OLD.@key@ AND token IS NEW.@column@);
@if_after@    DELETE FROM holdfast_named WHERE guard = @guard@;
@if_after@END;
@if_after@CREATE TRIGGER @delete_trigger@ AFTER DELETE ON @table@
@if_after@BEGIN
@if_require@    SELECT RAISE(ABORT, 'no fencing token') WHERE @set@ IS NULL;
@if_setting@    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT @guard@, OLD.@key@, @set@, @mode@ WHERE @set@ IS NOT NULL;
@if_after@END;

-- Rows that carry tokens from before: those are marks.
INSERT INTO holdfast_marks (guard, key, token)
    SELECT @guard@, CAST(t.@key@ AS TEXT), max(t.@column@) FROM @table@ AS t
    WHERE typeof(t.@column@) = 'integer' AND t.@column@ BETWEEN 1 AND 9007199254740991 AND t.@key@ IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM holdfast_marks AS m WHERE m.guard = @guard@ AND m.key = CAST(t.@key@ AS TEXT))
    GROUP BY 2;
RELEASE holdfast;
