-- Holdfast's guard for SQLite: it refuses whoever comes with an older token.
-- Applying it again is harmless, and forgets nothing.
SAVEPOINT holdfast;

-- The greatest token seen, for each key. guard: '' for holdfast_enter, else the table.
CREATE TABLE IF NOT EXISTS holdfast_marks (
    guard TEXT NOT NULL,
    key TEXT NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (guard, key)
) WITHOUT ROWID;
-- Every mark that was lowered.
CREATE TABLE IF NOT EXISTS holdfast_resets (
    at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    who TEXT,
    guard TEXT NOT NULL,
    key TEXT NOT NULL,
    old_mark INTEGER NOT NULL,
    new_mark INTEGER NOT NULL
);

-- What both ways in have in common. A token that comes as text or as a real is as good as a whole number, if it looks like one:
-- compared as they are, any text is greater than any number. No statement here can meet a conflict, because the word
-- of an outer INSERT OR IGNORE would count for it.
DROP VIEW IF EXISTS holdfast_raise;
CREATE VIEW holdfast_raise (guard, key, token, mode) AS SELECT guard, key, token, NULL FROM holdfast_marks;
CREATE TRIGGER holdfast_raise_insert INSTEAD OF INSERT ON holdfast_raise
BEGIN
    SELECT RAISE(ABORT, 'not a key: a text of 1 to 400 bytes')
        WHERE coalesce(length(CAST(NEW.key AS BLOB)), 0) NOT BETWEEN 1 AND 400;
    SELECT RAISE(ABORT, 'not a fencing token: a number from 1 to 9007199254740991')
        WHERE NOT coalesce(CAST(NEW.token AS INTEGER) BETWEEN 1 AND 9007199254740991 AND CASE typeof(NEW.token)
            WHEN 'real' THEN CAST(NEW.token AS INTEGER) = NEW.token
            ELSE CAST(CAST(NEW.token AS INTEGER) AS TEXT) = CAST(NEW.token AS TEXT) END, 0);
    SELECT RAISE(ABORT, 'not a mode: there are not-older and newer')
        WHERE coalesce(NEW.mode, 'not-older') NOT IN ('not-older', 'newer');
    SELECT RAISE(ABORT, @stale@)
        FROM holdfast_marks AS m WHERE m.guard = NEW.guard AND m.key = CAST(NEW.key AS TEXT)
        AND (m.token > CAST(NEW.token AS INTEGER) OR (m.token = CAST(NEW.token AS INTEGER) AND NEW.mode = 'newer'));
    UPDATE holdfast_marks SET token = CAST(NEW.token AS INTEGER)
        WHERE guard = NEW.guard AND key = CAST(NEW.key AS TEXT) AND token < CAST(NEW.token AS INTEGER);
    INSERT INTO holdfast_marks (guard, key, token) SELECT NEW.guard, CAST(NEW.key AS TEXT), CAST(NEW.token AS INTEGER)
        WHERE NOT EXISTS (SELECT 1 FROM holdfast_marks AS m WHERE m.guard = NEW.guard AND m.key = CAST(NEW.key AS TEXT));
END;

-- BEGIN IMMEDIATE; INSERT INTO holdfast_enter(key, token) VALUES('batch:4472', 35); before anything is read.
DROP VIEW IF EXISTS holdfast_enter;
CREATE VIEW holdfast_enter (key, token, mode) AS SELECT key, token, NULL FROM holdfast_marks WHERE guard = '';
CREATE TRIGGER holdfast_enter_insert INSTEAD OF INSERT ON holdfast_enter
BEGIN
    INSERT INTO holdfast_raise (guard, key, token, mode) VALUES ('', NEW.key, NEW.token, NEW.mode);
END;

-- For operators: lowers a mark, and writes it down.
DROP VIEW IF EXISTS holdfast_reset;
CREATE VIEW holdfast_reset (key, token, guard, who) AS SELECT key, token, guard, NULL FROM holdfast_marks;
CREATE TRIGGER holdfast_reset_insert INSTEAD OF INSERT ON holdfast_reset
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
