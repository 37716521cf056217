-- Holdfast's guard for SQLite: it refuses whoever comes with an older token.
-- Applying it again is harmless, and forgets nothing.
SAVEPOINT holdfast;

-- The greatest token seen, for each key. guard: '' for holdfast_enter, else the table.
CREATE TABLE IF NOT EXISTS main.holdfast_marks (
    guard TEXT NOT NULL,
    key TEXT NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (guard, key)
) WITHOUT ROWID;
-- Of the keys in which column a table's marks are, and how they are compared; also when its guard was undone. collation: ROWID if
-- the column is the table's rowid.
CREATE TABLE IF NOT EXISTS main.holdfast_guards (
    guard TEXT NOT NULL PRIMARY KEY,
    key_column TEXT NOT NULL,
    collation TEXT NOT NULL
) WITHOUT ROWID;
-- Every mark that was lowered.
CREATE TABLE IF NOT EXISTS main.holdfast_resets (
    at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    who TEXT,
    guard TEXT NOT NULL,
    key TEXT NOT NULL,
    old_mark INTEGER NOT NULL,
    new_mark INTEGER NOT NULL
);

-- What all ways in have in common; mode 'keep' never refuses. A token that comes as text or as a real is as good as a whole
-- number, if it looks like one: compared as they are, any text is greater than any number. No statement here can meet a
-- conflict, because the word of an outer INSERT OR IGNORE would count for it.
DROP VIEW IF EXISTS main.holdfast_raise;
CREATE VIEW main.holdfast_raise (guard, key, token, mode) AS SELECT guard, key, token, NULL FROM holdfast_marks;
CREATE TRIGGER main.holdfast_raise_insert INSTEAD OF INSERT ON holdfast_raise
BEGIN
    SELECT RAISE(ABORT, 'not a key: a text of 1 to 400 bytes')
        WHERE coalesce(length(CAST(NEW.key AS BLOB)), 0) NOT BETWEEN 1 AND 400;
    SELECT RAISE(ABORT, 'not a fencing token: a number from 1 to 9007199254740991')
        WHERE NOT coalesce(CAST(NEW.token AS INTEGER) BETWEEN 1 AND 9007199254740991 AND CASE typeof(NEW.token)
            WHEN 'real' THEN CAST(NEW.token AS INTEGER) = NEW.token
            ELSE CAST(CAST(NEW.token AS INTEGER) AS TEXT) = CAST(NEW.token AS TEXT) END, 0);
    SELECT RAISE(ABORT, @stale@)
        FROM holdfast_marks AS m WHERE m.guard = NEW.guard AND m.key = CAST(NEW.key AS TEXT) AND NEW.mode IS NOT 'keep'
        AND (m.token > CAST(NEW.token AS INTEGER) OR (m.token = CAST(NEW.token AS INTEGER) AND NEW.mode = 'newer'));
    UPDATE holdfast_marks SET token = CAST(NEW.token AS INTEGER)
        WHERE guard = NEW.guard AND key = CAST(NEW.key AS TEXT) AND token < CAST(NEW.token AS INTEGER);
    INSERT INTO holdfast_marks (guard, key, token) SELECT NEW.guard, CAST(NEW.key AS TEXT), CAST(NEW.token AS INTEGER)
        WHERE NOT EXISTS (SELECT 1 FROM holdfast_marks AS m WHERE m.guard = NEW.guard AND m.key = CAST(NEW.key AS TEXT));
END;

-- Keys that a table's column takes for equal ('a' and 'A' with NOCASE) have one mark, under the spelling that came first. It is
-- found by comparing: functions like lower() may be another one's in each connection.
CREATE TABLE IF NOT EXISTS main.holdfast_nocase (
    guard TEXT NOT NULL,
    key TEXT NOT NULL COLLATE NOCASE,
    PRIMARY KEY (guard, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS main.holdfast_rtrim (
    guard TEXT NOT NULL,
    key TEXT NOT NULL COLLATE RTRIM,
    PRIMARY KEY (guard, key)
) WITHOUT ROWID;
DROP VIEW IF EXISTS main.holdfast_spelling;
CREATE VIEW main.holdfast_spelling (guard, key, collation) AS SELECT guard, key, NULL FROM holdfast_nocase;
CREATE TRIGGER main.holdfast_spelling_insert INSTEAD OF INSERT ON holdfast_spelling
BEGIN
    INSERT INTO holdfast_nocase (guard, key) SELECT NEW.guard, NEW.key WHERE NEW.collation = 'NOCASE'
        AND NOT EXISTS (SELECT 1 FROM holdfast_nocase AS n WHERE n.guard = NEW.guard AND n.key = NEW.key);
    INSERT INTO holdfast_rtrim (guard, key) SELECT NEW.guard, NEW.key WHERE NEW.collation = 'RTRIM'
        AND NOT EXISTS (SELECT 1 FROM holdfast_rtrim AS r WHERE r.guard = NEW.guard AND r.key = NEW.key);
END;

-- The same as holdfast_raise, for a row of a table.
DROP VIEW IF EXISTS main.holdfast_row;
CREATE VIEW main.holdfast_row (guard, key, token, mode) AS SELECT guard, key, token, NULL FROM holdfast_marks;
CREATE TRIGGER main.holdfast_row_insert INSTEAD OF INSERT ON holdfast_row
BEGIN
    SELECT RAISE(ABORT, 'not a key: a real number') WHERE typeof(NEW.key) = 'real'; -- 1.0 is equal to 1, and its text is not
    SELECT RAISE(ABORT, 'not a key: a text with a NUL in it') -- NOCASE compares up to there, the mark's key goes on
        WHERE typeof(NEW.key) = 'text' AND instr(CAST(NEW.key AS BLOB), x'00') > 0;
    SELECT RAISE(ABORT, 'not a key: -1, which stands for an id that SQLite has yet to choose') FROM holdfast_guards AS g
        WHERE NEW.key IS -1 AND g.guard = NEW.guard AND g.collation = 'ROWID' AND NEW.mode IS NOT 'keep';
    INSERT INTO holdfast_spelling (guard, key, collation) SELECT NEW.guard, CAST(NEW.key AS TEXT), g.collation
        FROM holdfast_guards AS g WHERE g.guard = NEW.guard AND g.collation IN ('NOCASE', 'RTRIM') AND NEW.key IS NOT NULL;
    INSERT INTO holdfast_raise (guard, key, token, mode) SELECT NEW.guard, CASE g.collation
            WHEN 'NOCASE' THEN (SELECT n.key FROM holdfast_nocase AS n WHERE n.guard = NEW.guard AND n.key = CAST(NEW.key AS TEXT))
            WHEN 'RTRIM' THEN (SELECT r.key FROM holdfast_rtrim AS r WHERE r.guard = NEW.guard AND r.key = CAST(NEW.key AS TEXT))
            ELSE NEW.key END,
            NEW.token, NEW.mode
        FROM (SELECT 1) LEFT JOIN holdfast_guards AS g ON g.guard = NEW.guard;
END;

-- BEGIN IMMEDIATE; INSERT INTO holdfast_enter(key, token) VALUES('batch:4472', 35); before anything is read.
DROP VIEW IF EXISTS main.holdfast_enter;
CREATE VIEW main.holdfast_enter (key, token, mode) AS SELECT key, token, NULL FROM holdfast_marks WHERE guard = '';
CREATE TRIGGER main.holdfast_enter_insert INSTEAD OF INSERT ON holdfast_enter
BEGIN
    SELECT RAISE(ABORT, 'not a mode: there are not-older and newer')
        WHERE coalesce(NEW.mode, 'not-older') NOT IN ('not-older', 'newer');
    INSERT INTO holdfast_raise (guard, key, token, mode) VALUES ('', NEW.key, NEW.token, NEW.mode);
END;

-- For operators: lowers a mark, and writes it down. The key is as in holdfast_marks.
DROP VIEW IF EXISTS main.holdfast_reset;
CREATE VIEW main.holdfast_reset (key, token, guard, who) AS SELECT key, token, guard, NULL FROM holdfast_marks;
CREATE TRIGGER main.holdfast_reset_insert INSTEAD OF INSERT ON holdfast_reset
BEGIN
    SELECT RAISE(ABORT, 'this key has no mark (see holdfast_marks)')
        WHERE NOT EXISTS (SELECT 1 FROM holdfast_marks AS m WHERE m.guard = coalesce(NEW.guard, '') AND m.key = CAST(NEW.key AS TEXT));
    SELECT RAISE(ABORT, 'the mark can only be lowered, to a number from 0 on (see holdfast_marks)')
        FROM holdfast_marks AS m WHERE m.guard = coalesce(NEW.guard, '') AND m.key = CAST(NEW.key AS TEXT)
        AND (typeof(coalesce(NEW.token, 0)) <> 'integer' OR coalesce(NEW.token, 0) NOT BETWEEN 0 AND m.token);
    INSERT INTO holdfast_resets (who, guard, key, old_mark, new_mark)
        SELECT NEW.who, m.guard, m.key, m.token, coalesce(NEW.token, 0)
        FROM holdfast_marks AS m WHERE m.guard = coalesce(NEW.guard, '') AND m.key = CAST(NEW.key AS TEXT);
    UPDATE holdfast_marks SET token = coalesce(NEW.token, 0) WHERE guard = coalesce(NEW.guard, '') AND key = CAST(NEW.key AS TEXT);
END;

RELEASE holdfast;
