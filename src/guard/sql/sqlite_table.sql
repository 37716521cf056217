
-- The table: triggers that refuse stale tokens.
SAVEPOINT holdfast;
@if_add@ALTER TABLE main.@table@ ADD COLUMN @column@ INTEGER;
-- Both columns must be there. SQLite cannot add one only if it is missing: --add-column prints that statement, too.
SELECT @table@.@key@, @table@.@column@ FROM main.@table@ LIMIT 0;

-- What was here before, and what cannot be guarded, is collected here; the latter is said at the end.
CREATE TABLE main.holdfast_applying (word TEXT);
CREATE TRIGGER main.holdfast_applying_delete BEFORE DELETE ON holdfast_applying
BEGIN
    SELECT RAISE(ROLLBACK, 'the triggers of this guard are on a table that was renamed: rename it back, and undo its guard first')
        WHERE OLD.word = 'renamed';
    SELECT RAISE(ROLLBACK, 'the marks of this table are of the keys in another column: see holdfast_guards and holdfast-guard-sql(1)')
        WHERE OLD.word = 'key';
    SELECT RAISE(ROLLBACK, 'the key column has a collation of its own: only BINARY, NOCASE and RTRIM can be guarded')
        WHERE OLD.word = 'collation';
    SELECT RAISE(ROLLBACK, 'the keys of this table were compared otherwise before: see holdfast_guards and holdfast-guard-sql(1)')
        WHERE OLD.word = 'compared';
    SELECT RAISE(ROLLBACK, 'a unique index on the key column has another collation than the column')
        WHERE OLD.word = 'index';
END;
INSERT INTO main.holdfast_applying SELECT 'renamed' FROM main.sqlite_master
    WHERE type = 'trigger' AND name = @trigger_name@ COLLATE NOCASE AND tbl_name <> @guard@ COLLATE NOCASE;
INSERT INTO main.holdfast_applying SELECT 'on' FROM main.sqlite_master WHERE type = 'trigger' AND name = @trigger_name@ COLLATE NOCASE;
INSERT INTO main.holdfast_applying SELECT 'was ' || g.collation FROM main.holdfast_guards AS g WHERE g.guard = @guard@;
INSERT INTO main.holdfast_applying SELECT 'key' FROM main.holdfast_guards AS g
    WHERE g.guard = @guard@ AND g.key_column <> @key_name@ COLLATE NOCASE
    AND EXISTS (SELECT 1 FROM main.holdfast_marks AS m WHERE m.guard = @guard@);

DROP TRIGGER IF EXISTS main.@insert_trigger@;
CREATE TRIGGER main.@insert_trigger@ AFTER INSERT ON @table@
BEGIN
@if_require@    SELECT RAISE(ABORT, 'no fencing token') WHERE @inserted@ IS NULL;
@if_older@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, NEW.@key@, @inserted@, NULL
@if_newer@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, NEW.@key@, @inserted@, CASE WHEN NOT EXISTS (
@if_newer@        SELECT 1 FROM holdfast_inserted WHERE guard = @guard@ AND NEW.@key@ IS key AND token IS @inserted@) THEN 'newer' END
        WHERE @inserted@ IS NOT NULL;
@if_newer@    DELETE FROM holdfast_inserted WHERE guard = @guard@;
END;

-- An INSERT that finds its row there: REPLACE, ON CONFLICT DO UPDATE, or nothing comes of it. Its token counts all the same.
DROP TRIGGER IF EXISTS main.@upsert_trigger@;
CREATE TRIGGER main.@upsert_trigger@ BEFORE INSERT ON @table@
    WHEN @inserted@ IS NOT NULL AND EXISTS (SELECT 1 FROM @table@ WHERE @key@ = NEW.@key@)
    AND (NEW.@key@ IS NOT -1 OR (SELECT g.collation FROM holdfast_guards AS g WHERE g.guard = @guard@) IS NOT 'ROWID')
BEGIN
    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, NEW.@key@, @inserted@, @mode@;
@if_newer@    -- What follows in this statement must know that the token is not here for the second time. The note is good for one
@if_newer@    -- write, of whichever statement, and only as long as the token is the mark.
@if_newer@    DELETE FROM holdfast_inserted WHERE guard = @guard@;
@if_newer@    INSERT INTO holdfast_inserted (guard, key, token) VALUES (@guard@, NEW.@key@, @inserted@);
END;
@if_newer@CREATE TABLE IF NOT EXISTS main.holdfast_inserted (guard TEXT NOT NULL PRIMARY KEY, key, token) WITHOUT ROWID;
@if_newer@DELETE FROM main.holdfast_inserted WHERE guard = @guard@;

-- This trigger fires if the statement names the column, also with the value that is there.
DROP TRIGGER IF EXISTS main.@named_trigger@;
CREATE TRIGGER main.@named_trigger@ BEFORE UPDATE OF @column@ ON @table@ WHEN NEW.@column@ IS NOT NULL
BEGIN
@if_older@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, OLD.@key@, NEW.@column@, NULL;
@if_newer@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, OLD.@key@, NEW.@column@, CASE WHEN NOT EXISTS (
@if_newer@        SELECT 1 FROM holdfast_inserted WHERE guard = @guard@ AND OLD.@key@ IS key AND token IS NEW.@column@) THEN 'newer' END;
    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, NEW.@key@, NEW.@column@, @mode@
        WHERE NEW.@key@ IS NOT OLD.@key@;
@if_newer@    DELETE FROM holdfast_inserted WHERE guard = @guard@;
@if_after@    -- For the trigger after every UPDATE: this row has brought its token.
@if_after@    DELETE FROM holdfast_named WHERE guard = @guard@;
@if_after@    INSERT INTO holdfast_named (guard, key, token) VALUES (@guard@, OLD.@key@, NEW.@column@);
END;

DROP TRIGGER IF EXISTS main.@clear_trigger@;
DROP TRIGGER IF EXISTS main.@update_trigger@;
DROP TRIGGER IF EXISTS main.@delete_trigger@;
@if_after@CREATE TABLE IF NOT EXISTS main.holdfast_named (guard TEXT NOT NULL PRIMARY KEY, key, token) WITHOUT ROWID;
@if_after@-- What a row left that was skipped (UPDATE OR IGNORE). SQLite fires the trigger first that was created last; were it
@if_after@-- otherwise, every UPDATE would be refused.
@if_after@CREATE TRIGGER main.@clear_trigger@ BEFORE UPDATE ON @table@
@if_after@BEGIN
@if_after@    DELETE FROM holdfast_named WHERE guard = @guard@;
@if_after@END;
@if_update@CREATE TRIGGER main.@update_trigger@ AFTER UPDATE ON @table@
@if_update@BEGIN
@if_require@    SELECT RAISE(ABORT, 'no fencing token') WHERE @set@ IS NULL AND NOT EXISTS (
@if_require@        SELECT 1 FROM holdfast_named WHERE guard = @guard@ AND key IS OLD.@key@ AND token IS NEW.@column@);
@if_setting_older@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, OLD.@key@, @set@, NULL
@if_setting_newer@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, OLD.@key@, @set@, CASE WHEN NOT EXISTS (
@if_setting_newer@        SELECT 1 FROM holdfast_inserted WHERE guard = @guard@ AND OLD.@key@ IS key AND token IS @set@) THEN 'newer' END
@if_setting@        WHERE @set@ IS NOT NULL AND NOT EXISTS (
@if_setting@        SELECT 1 FROM holdfast_named WHERE guard = @guard@ AND key IS OLD.@key@ AND token IS NEW.@column@);
@if_setting@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, NEW.@key@, @set@, @mode@
@if_setting@        WHERE NEW.@key@ IS NOT OLD.@key@ AND @set@ IS NOT NULL AND NOT EXISTS (
@if_setting@        SELECT 1 FROM holdfast_named WHERE guard = @guard@ AND key IS OLD.@key@ AND token IS NEW.@column@);
@if_after@    DELETE FROM holdfast_named WHERE guard = @guard@;
@if_newer@    DELETE FROM holdfast_inserted WHERE guard = @guard@; -- ON CONFLICT DO UPDATE may write without naming the token
@if_update@END;
@if_after@CREATE TRIGGER main.@delete_trigger@ AFTER DELETE ON @table@
@if_after@BEGIN
@if_require@    SELECT RAISE(ABORT, 'no fencing token') WHERE @set@ IS NULL;
@if_setting@    INSERT INTO holdfast_row (guard, key, token, mode) SELECT @guard@, OLD.@key@, @set@, @mode@ WHERE @set@ IS NOT NULL;
@if_after@END;

-- How the column compares its keys is known from an index on it.
DROP INDEX IF EXISTS main.holdfast_probe;
CREATE INDEX main.holdfast_probe ON @table@ (@key@) WHERE @key@ IS NULL AND @key@ IS NOT NULL; -- of no row
DELETE FROM main.holdfast_guards WHERE guard = @guard@;
INSERT INTO main.holdfast_guards (guard, key_column, collation)
    SELECT @guard@, @key_name@, CASE
        WHEN EXISTS (SELECT 1 FROM pragma_table_info(@guard@, 'main') AS c WHERE c.name = @key_name@ COLLATE NOCASE AND c.pk > 0)
            AND NOT EXISTS (SELECT 1 FROM pragma_index_list(@guard@, 'main') AS l WHERE l.origin = 'pk') THEN 'ROWID'
        WHEN coll = 'BINARY' COLLATE NOCASE THEN 'BINARY'
        WHEN coll = 'NOCASE' COLLATE NOCASE THEN 'NOCASE'
        WHEN coll = 'RTRIM' COLLATE NOCASE THEN 'RTRIM'
        ELSE coll END
    FROM pragma_index_xinfo('holdfast_probe', 'main') WHERE seqno = 0;
DROP INDEX main.holdfast_probe;

-- Marks and tokens from before, under their keys as they are compared now. While the guard was on, all tokens that count are
-- marks, and a row may still carry one from before its mark was lowered.
INSERT INTO main.holdfast_row (guard, key, token, mode)
    SELECT guard, key, token, 'keep' FROM main.holdfast_marks WHERE guard = @guard@ AND token > 0;
INSERT INTO main.holdfast_row (guard, key, token, mode)
    SELECT @guard@, t.@key@, t.@column@, 'keep' FROM main.@table@ AS t
    WHERE typeof(t.@column@) = 'integer' AND t.@column@ BETWEEN 1 AND 9007199254740991 AND t.@key@ IS NOT NULL
    AND NOT (EXISTS (SELECT 1 FROM main.holdfast_applying WHERE word = 'on')
        AND EXISTS (SELECT 1 FROM main.holdfast_resets AS r WHERE r.guard = @guard@ AND t.@key@ = r.key));

INSERT INTO main.holdfast_applying SELECT 'collation' FROM main.holdfast_guards
    WHERE guard = @guard@ AND collation NOT IN ('BINARY', 'NOCASE', 'RTRIM', 'ROWID');
INSERT INTO main.holdfast_applying SELECT 'compared' FROM main.holdfast_guards AS g, main.holdfast_applying AS a
    WHERE g.guard = @guard@ AND a.word IN ('was NOCASE', 'was RTRIM') AND a.word <> 'was ' || g.collation
    AND EXISTS (SELECT 1 FROM main.holdfast_marks AS m WHERE m.guard = @guard@);
INSERT INTO main.holdfast_applying SELECT 'index' FROM main.holdfast_guards AS g,
    pragma_index_list(@guard@, 'main') AS l, pragma_index_xinfo(l.name, 'main') AS x
    WHERE g.guard = @guard@ AND l."unique" AND x."key" AND x.name = @key_name@ COLLATE NOCASE
    AND x.coll <> g.collation COLLATE NOCASE AND g.collation <> 'ROWID';
DELETE FROM main.holdfast_applying; -- this fails if something cannot be, and then nothing of all this is left
DROP TABLE main.holdfast_applying;
RELEASE holdfast;
