"""The guard of a table of SQLite: which keys are one key, what cannot be guarded, and what else may stand in its way: attached
databases, temporary tables, other journals, renamed tables, and programs that are killed."""
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from sqlite_tools import (MISSING, SHELL, STALE, TABLE, Connection, connect, folder, guarded, module, printed,  # noqa: F401
                          refused)

NOT_A_KEY = "not a key: a real number"
WITH_NUL = "not a key: a text with a NUL in it"


@pytest.fixture
def table(connect):
    """Makes a table with this column for the key, and its guard."""
    def make(column, *options, end="", more=""):
        db = connect(helper="--setting" in options)
        db(f"CREATE TABLE batches ({column}, state TEXT, fence_token INTEGER {more}) {end}")
        db.apply("--table", "batches", *options)
        return db

    return make


# ---- keys that the column takes for equal have one mark


UPSERTS = ["INSERT INTO batches (id, state, fence_token) VALUES (?, 'late', ?) ON CONFLICT (id) DO UPDATE SET state = 'late'",
           "INSERT INTO batches (id, state, fence_token) VALUES (?, 'late', ?)"
           " ON CONFLICT (id) DO UPDATE SET state = 'late', fence_token = excluded.fence_token",
           "REPLACE INTO batches (id, state, fence_token) VALUES (?, 'late', ?)",
           "INSERT OR IGNORE INTO batches (id, state, fence_token) VALUES (?, 'late', ?)"]
EQUAL = [("id TEXT COLLATE NOCASE PRIMARY KEY", "a", "A"), ("id TEXT COLLATE RTRIM PRIMARY KEY", "a", "a  "),
         ("id TEXT COLLATE nocase UNIQUE", "Straße", "STRAße"), ("id VARCHAR(9) COLLATE 'RTrim' UNIQUE", "a ", "a"),
         ("id INTEGER PRIMARY KEY", 1, "1"), ("id INT UNIQUE", 1, "1.0"), ("id NUMERIC UNIQUE", 1, " 1e0 "),
         ("id TEXT UNIQUE", "1", 1)]


@pytest.mark.parametrize("options", [[], ["--mode", "newer"], ["--setting"]])
@pytest.mark.parametrize("end", ["", "WITHOUT ROWID"])
@pytest.mark.parametrize("column, key, same", EQUAL)
@pytest.mark.parametrize("statement", UPSERTS)
def test_equal_keys_have_one_mark(table, options, end, column, key, same, statement):
    if end:
        column = column.replace("UNIQUE", "PRIMARY KEY")
    db = table(column, *options, end=end)
    db("INSERT INTO batches VALUES (?, 'new', 40)", key)
    with refused(STALE):
        db(statement, same, 30)
    assert db("SELECT state, fence_token FROM batches") == [("new", 40)]
    db(statement, same, 41)
    for text in (key, same):
        with refused(STALE):
            db("UPDATE batches SET fence_token = 40 WHERE id = ?", text)
    assert db("SELECT count(*), max(token) FROM holdfast_marks") == [(1, 41)]


@pytest.mark.parametrize("column, key, same", EQUAL)
def test_equal_keys_have_one_mark_after_a_delete(table, column, key, same):
    db = table(column)
    db("INSERT INTO batches VALUES (?, 'new', 40)", key)
    db("DELETE FROM batches")
    with refused(STALE):
        db("INSERT INTO batches VALUES (?, 'late', 30)", same)
    db("INSERT INTO batches VALUES (?, 'bare', NULL)", same)
    with refused(STALE):
        db("UPDATE batches SET fence_token = 39")


def test_equal_keys_and_the_setting(table):
    db = table("id TEXT COLLATE NOCASE PRIMARY KEY", "--setting", "--require")
    db("INSERT INTO batches VALUES ('a', 'new', 40)")
    for statement in ("UPDATE batches SET id = 'A'", "DELETE FROM batches WHERE id = 'A'", "REPLACE INTO batches (id) VALUES ('A')"):
        with refused(STALE):
            db(statement, token=39)
    db("UPDATE batches SET id = 'A'", token=41)
    assert db.mark("a", "batches") == 41


def test_keys_that_are_not_equal_have_their_own(table):
    db = table("id TEXT PRIMARY KEY")
    for key, token in (("a", 40), ("A", 30), ("a ", 20)):
        db("INSERT INTO batches VALUES (?, 'new', ?)", key, token)
        db("REPLACE INTO batches VALUES (?, 'new', ?)", key, token)
    assert db("SELECT key, token FROM holdfast_marks ORDER BY 2") == [("a ", 20), ("A", 30), ("a", 40)]


def test_a_real_number_is_no_key(table):
    """1.0 is equal to 1, and would be another text."""
    db = table("id PRIMARY KEY")
    db("INSERT INTO batches VALUES (1, 'new', 40)")
    for statement in UPSERTS:
        with refused(NOT_A_KEY):
            db(statement, 1.0, 30)
    assert db("SELECT id, typeof(id), state FROM batches") == [(1, "integer", "new")]


@pytest.mark.parametrize("collation", ["NOCASE", "RTRIM", "BINARY"])
@pytest.mark.parametrize("options", [[], ["--mode", "newer"], ["--require", "--setting"]])
def test_a_text_with_a_nul_is_no_key(table, collation, options):
    """NOCASE compares up to the NUL only: keys of different text are equal, and one writer would replace the other's row."""
    db = table(f"id TEXT COLLATE {collation} PRIMARY KEY", *options)
    for statement in UPSERTS:
        for key in ("a\0X", "a\0", "\0"):
            with refused(WITH_NUL):
                db(statement, key, 40)
    db("INSERT INTO batches VALUES ('a', 'new', 40)")
    with refused(WITH_NUL):
        db("UPDATE batches SET id = ?, fence_token = 41", "a\0X")
    assert db("SELECT id, state, fence_token FROM batches") == [("a", "new", 40)] and db.mark("a", "batches") == 40


def test_a_row_whose_key_has_a_nul_takes_no_token(table):
    db = table("id TEXT COLLATE NOCASE PRIMARY KEY", "--setting")
    db("INSERT INTO batches VALUES (?, 'bare', NULL)", "a\0X")
    for statement in ("UPDATE batches SET state = 'late', fence_token = 41", "UPDATE batches SET id = 'b', fence_token = 41"):
        with refused(WITH_NUL):
            db(statement)
    for statement in ("UPDATE batches SET state = 'late'", "DELETE FROM batches"):
        with refused(WITH_NUL):
            db(statement, token=41)
    assert db("SELECT state, fence_token FROM batches") == [("bare", None)]
    db("DELETE FROM batches")


def test_a_blob_with_a_zero_is_a_key(table):
    """As the 16 bytes of an UUID are: no collation is asked for a blob."""
    db = table("id BLOB PRIMARY KEY")
    db("INSERT INTO batches VALUES (?, 'new', 40)", b"a\0X")
    db("INSERT INTO batches VALUES (?, 'new', 30)", b"a\0Y")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 39 WHERE id = ?", b"a\0X")


def test_a_key_that_is_generated(connect):
    db = connect()
    db("CREATE TABLE batches (code TEXT, id TEXT COLLATE NOCASE AS (trim(code)) UNIQUE, fence_token INTEGER)")
    db.apply("--table", "batches")
    db("INSERT INTO batches VALUES ('a', 40)")
    with refused(STALE):
        db("REPLACE INTO batches VALUES (' A', 30)")
    with refused(STALE):
        db("UPDATE batches SET code = 'A ', fence_token = 30")
    assert db("SELECT * FROM batches") == [("a", "a", 40)]


def test_a_key_that_is_a_part_of_the_tables(connect):
    db = connect()
    db("CREATE TABLE parts (batch TEXT COLLATE NOCASE, part INT, fence_token INTEGER, PRIMARY KEY (batch, part)) WITHOUT ROWID")
    db.apply("--table", "parts", "--key-column", "batch")
    db("INSERT INTO parts VALUES ('a', 1, 40)")
    for statement in ("REPLACE INTO parts VALUES ('A', 1, 30)", "INSERT INTO parts VALUES ('A', 2, 30)"):
        with refused(STALE):
            db(statement)


def test_what_the_guard_knew_before_is_folded(connect):
    """Also marks that were kept for 'a' and 'A' apart."""
    db = connect()
    db("CREATE TABLE batches (id TEXT COLLATE NOCASE, fence_token INTEGER)")
    db.apply()
    db("INSERT INTO holdfast_marks VALUES ('batches', 'X', 40), ('batches', 'x', 30)")
    db("INSERT INTO batches VALUES ('Y', 50), ('y', 20)")
    db.apply("--table", "batches")
    for key, token in (("x", 39), ("X", 39), ("y", 49), ("Y", 49)):
        with refused(STALE):
            db("INSERT INTO batches VALUES (?, ?)", key, token)


def test_tokens_that_were_written_while_it_was_off_count(guarded):
    db = guarded()
    db.apply("--table", "batches", "--undo")
    db("UPDATE batches SET fence_token = 50")
    db.apply("--table", "batches")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 49")
    db("INSERT INTO holdfast_reset (key, token, guard) VALUES (7, 20, 'batches')")
    db.apply("--table", "batches")
    assert db.mark(7, "batches") == 20, "it was lowered on purpose"


def test_what_is_written_while_it_was_off_counts_also_where_a_mark_was_lowered(guarded):
    db = guarded()
    db("INSERT INTO holdfast_reset (key, token, guard) VALUES (7, 0, 'batches')")
    db.apply("--table", "batches")
    assert db.mark(7, "batches") == 0, "the row still carries 34, which was taken back on purpose"
    db("UPDATE batches SET fence_token = 20")
    db.apply("--table", "batches", "--undo")
    db("UPDATE batches SET fence_token = 30")
    db.apply("--table", "batches")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 29")


@pytest.mark.parametrize("column", ["id TEXT COLLATE NOCASE PRIMARY KEY", "id TEXT COLLATE RTRIM PRIMARY KEY"])
def test_functions_that_a_connection_has_of_its_own(table, connect, column):
    """ICU brings a lower() that folds more letters than NOCASE does."""
    db, other = table(column), connect()
    other.db.create_function("lower", 1, lambda text: text and text.lower(), deterministic=True)
    other.db.create_function("upper", 1, lambda text: text and text.upper(), deterministic=True)
    other.db.create_function("rtrim", 1, lambda text: text and text.rstrip("r "), deterministic=True)
    other("INSERT INTO batches VALUES ('Ärger', 'new', 50), ('ärger', 'other', 30)")
    with refused(STALE):
        db("UPDATE batches SET state = 'late', fence_token = 40 WHERE id = 'Ärger'")
    db("UPDATE batches SET fence_token = 60 WHERE id = 'Ärger'")
    with refused(STALE):
        other("UPDATE batches SET state = 'late', fence_token = 55 WHERE id = 'Ärger'")
    other.apply("--table", "batches")
    other("UPDATE batches SET fence_token = 31 WHERE id = 'ärger'")
    assert db("SELECT token FROM holdfast_marks ORDER BY 1") == [(31,), (60,)]


def test_keys_that_were_compared_otherwise_before(table):
    """One mark of 'a' and 'A' cannot be told in two."""
    db = table("id TEXT COLLATE NOCASE PRIMARY KEY")
    db("INSERT INTO batches VALUES ('a', 'new', 40)")
    db("DROP TABLE batches")
    db("CREATE TABLE batches (id TEXT PRIMARY KEY, state TEXT, fence_token INTEGER)")
    assert "were compared otherwise" in refusal(db)
    db("DELETE FROM holdfast_marks")
    db.apply("--table", "batches")


# ---- the number that stands for an id that is not known yet


@pytest.mark.parametrize("options", [[], ["--mode", "newer"], ["--setting"]])
def test_an_id_that_sqlite_chooses_is_not_the_row_minus_one(table, options):
    """Before it is inserted, such a row has the id -1."""
    db = table("id INTEGER PRIMARY KEY", *options)
    db("INSERT INTO batches VALUES (-1, 'bare', NULL)")
    db("INSERT INTO batches (state, fence_token) VALUES ('one', 50)")
    db("INSERT INTO batches (state, fence_token) VALUES ('two', 40)")
    assert db("SELECT key, token FROM holdfast_marks ORDER BY 2") == [("1", 40), ("0", 50)]
    for statement in ("UPDATE batches SET fence_token = 60 WHERE id = -1", "REPLACE INTO batches VALUES (-1, 'x', 60)",
                      "INSERT INTO batches VALUES (-1, 'x', 60) ON CONFLICT DO UPDATE SET fence_token = excluded.fence_token",
                      "UPDATE batches SET id = -1, fence_token = 60 WHERE state = 'one'"):
        with refused("not a key: -1, which stands for an id that SQLite has yet to choose"):
            db(statement)
    db("UPDATE batches SET state = 'still bare' WHERE id = -1")


@pytest.mark.parametrize("column", ["id INT PRIMARY KEY", "id INTEGER UNIQUE", "id INTEGER PRIMARY KEY DESC", "id TEXT PRIMARY KEY"])
def test_minus_one_is_a_key_elsewhere(table, column):
    db = table(column)
    db("INSERT INTO batches VALUES (-1, 'new', 40)")
    for statement in UPSERTS:
        with refused(STALE):
            db(statement, -1, 39)
    db(UPSERTS[0], -1, 41)
    assert db.mark(-1, "batches") == 41


# ---- one rule: what was seen is the mark, whatever came of it


@pytest.mark.parametrize("options", [[], ["--mode", "newer"], ["--setting"], ["--mode", "newer", "--setting"]])
def test_an_insert_of_which_nothing_comes_raises_the_mark(guarded, options):
    db = guarded(*options)
    for number, words in enumerate(("INSERT OR IGNORE INTO batches VALUES (7, 'x', 0, {})",
                                    "INSERT INTO batches VALUES (7, 'x', 0, {}) ON CONFLICT DO NOTHING")):
        token = 90 + 10 * number
        db(words.format(token))
        assert db.row() == ("new", 34) and db.mark(7, "batches") == token
        for statement in ("UPDATE batches SET fence_token = 50", "REPLACE INTO batches VALUES (7, 'late', 0, 50)"):
            with refused(STALE):
                db(statement)
        if "--setting" in options:
            for statement in ("UPDATE batches SET state = 'late'", "DELETE FROM batches",
                              "INSERT OR IGNORE INTO batches (id) VALUES (7)"):
                with refused(STALE):
                    db(statement, token=50)


@pytest.mark.parametrize("options", [["--mode", "newer"], ["--mode", "newer", "--setting"]])
@pytest.mark.parametrize("statement", UPSERTS[1:3])
def test_newer_takes_the_token_of_an_upsert_once(guarded, options, statement):
    db = guarded(*options)
    db(statement, 7, 36)
    for again in ("UPDATE batches SET fence_token = 36", statement.replace("?", "7", 1).replace("?", "36")):
        with refused(STALE):
            db(again)
    if "--setting" in options:
        db("INSERT INTO batches (id) VALUES (7) ON CONFLICT DO UPDATE SET state = 'x'", token=37)
        with refused(STALE):
            db("UPDATE batches SET state = 'late'", token=37)


def test_require_what_a_skipped_row_left_is_nobodys_token(guarded):
    """Also if it named the token that the row has."""
    db = guarded("--require")
    db("CREATE UNIQUE INDEX states ON batches (state)")
    db("INSERT INTO batches VALUES (8, 'other', 0, 34)")
    db("UPDATE OR IGNORE batches SET state = 'new', fence_token = 34 WHERE id = 8")
    with refused(MISSING):
        db("UPDATE batches SET n = 1 WHERE id = 8")


# ---- what cannot be guarded is refused


def refusal(db, *options):
    """What it says, and that it left nothing behind."""
    before = db("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'holdfast%' ORDER BY 1")
    with pytest.raises(sqlite3.DatabaseError) as failure:
        db.apply("--table", "batches", *options)
    if db.db.in_transaction:
        db("ROLLBACK")
    assert db("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'holdfast%' ORDER BY 1") == before
    assert db("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'batches'") == []
    return str(failure.value)


def test_a_collation_of_a_program_is_refused(connect):
    db = connect()
    db.db.create_collation("backwards", lambda a, b: (a[::-1] > b[::-1]) - (a[::-1] < b[::-1]))
    db("CREATE TABLE batches (id TEXT COLLATE backwards, fence_token INT)")
    assert "has a collation of its own" in refusal(db)


@pytest.mark.parametrize("index", ["id COLLATE NOCASE", "part, id COLLATE RTRIM", "id COLLATE NOCASE) WHERE (part > 0"])
def test_a_unique_index_with_another_collation_is_refused(connect, index):
    db = connect()
    db("CREATE TABLE batches (id TEXT PRIMARY KEY, part INT, fence_token INT)")
    db(f"CREATE UNIQUE INDEX other ON batches ({index})")
    assert refusal(db) == "a unique index on the key column has another collation than the column"
    db("DROP INDEX other")
    db("CREATE INDEX other ON batches (id COLLATE NOCASE)")
    db.apply("--table", "batches")


@pytest.mark.skipif(not SHELL, reason="needs sqlite3")
def test_refused_in_the_shell_also_where_it_goes_on_after_errors(folder):
    path = str(folder / "shell.db")
    subprocess.run([SHELL, path, "CREATE TABLE batches (id TEXT PRIMARY KEY, fence_token INT);"
                    "CREATE UNIQUE INDEX other ON batches (id COLLATE NOCASE)"], check=True)
    done = subprocess.run([SHELL, path], input=printed("--table", "batches"), capture_output=True, text=True)
    assert "another collation than the column" in done.stderr
    left = subprocess.run([SHELL, path, "SELECT count(*) FROM sqlite_master WHERE tbl_name = 'batches' AND type = 'trigger'"],
                          capture_output=True, text=True, check=True)
    assert left.stdout == "0\n"


# ---- renamed and rebuilt


def test_a_renamed_table_and_renamed_columns_stay_guarded(guarded):
    db = guarded("--require")
    db("ALTER TABLE batches RENAME COLUMN fence_token TO token")
    db("ALTER TABLE batches RENAME COLUMN id TO number")
    db("ALTER TABLE batches RENAME TO lots")
    with refused(STALE):
        db("UPDATE lots SET token = 33")
    with refused(MISSING):
        db("UPDATE lots SET state = 'bare'")
    db("DELETE FROM lots WHERE number = 8")
    db("UPDATE lots SET state = 'next', token = 35")


def test_the_guard_of_a_renamed_table_is_not_taken_away(guarded):
    """By that of a new table with the old name."""
    db = guarded()
    db("ALTER TABLE batches RENAME TO lots")
    db(TABLE)
    with pytest.raises(sqlite3.IntegrityError, match="on a table that was renamed"):
        db.apply("--table", "batches")
    with refused(STALE):
        db("UPDATE lots SET fence_token = 33")


def test_a_table_that_is_made_anew_goes_on_where_it_was(guarded):
    """As one changes a table in SQLite. Its triggers go with the old one; the marks stay, and count when it is applied again."""
    db = guarded()
    db("CREATE TABLE other (id INTEGER PRIMARY KEY, state TEXT, n INT DEFAULT 0, fence_token INTEGER, more TEXT)")
    db("INSERT INTO other SELECT *, NULL FROM batches")
    db("DROP TABLE batches")
    db("ALTER TABLE other RENAME TO batches")
    db("UPDATE batches SET fence_token = NULL")
    db.apply("--table", "batches")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33")


# ---- other databases, and temporary things


@pytest.fixture
def two(guarded, folder):
    """A guarded file, attached to a connection whose own file has a table of the same name."""
    guarded()
    db = Connection(folder / "other.db")
    db("ATTACH ? AS shop", str(folder / "shop.db"))
    db("CREATE TABLE main.batches (id INTEGER PRIMARY KEY, state TEXT, n INT DEFAULT 0, fence_token INTEGER)")
    yield db
    db.db.close()


def test_an_attached_table_is_guarded(two):
    with refused(STALE):
        two("UPDATE shop.batches SET fence_token = 33")
    two("UPDATE shop.batches SET fence_token = 35")
    with refused(STALE):
        two("REPLACE INTO shop.batches VALUES (7, 'late', 0, 34)")
    with refused(STALE):
        two("INSERT INTO shop.holdfast_raise (guard, key, token) VALUES ('batches', '7', 34)")


@pytest.mark.parametrize("options", [["--table", "batches"], ["--table", "batches", "--undo"], ["--undo"]])
def test_applied_and_undone_in_the_main_file_alone(two, options):
    """An unqualified DROP would find what is in the attached file."""
    two.apply(*options)
    with refused(STALE):
        two("UPDATE shop.batches SET fence_token = 33")
    two("UPDATE shop.batches SET fence_token = 35")
    assert two("SELECT count(*) FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = 'batches'") == [
        (3 if len(options) == 2 else 0,)]


def test_temporary_things_of_the_same_names_hide_nothing(guarded):
    db = guarded()
    for name in ("holdfast_marks", "holdfast_raise", "holdfast_row", "holdfast_guards"):
        db(f"CREATE TEMP TABLE {name} (guard, key, token, mode, collation)")
    db("CREATE TEMP TRIGGER t AFTER UPDATE ON main.batches BEGIN SELECT 1; END")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33")
    db("UPDATE batches SET fence_token = 35")
    assert db("SELECT token FROM main.holdfast_marks") == [(35,)] and db("SELECT * FROM temp.holdfast_marks") == []
    db("CREATE TEMP TABLE batches (id, state, n, fence_token)")
    db("INSERT INTO batches VALUES (7, 'not the guarded one', 0, 1)")
    with refused(STALE):
        db("UPDATE main.batches SET fence_token = 34")


def test_it_is_applied_to_the_file_though_a_temporary_table_has_the_name(connect):
    db = connect()
    db(TABLE)
    db("CREATE TEMP TABLE batches (id, state, n, fence_token)")
    db.apply("--table", "batches")
    db("INSERT INTO main.batches VALUES (7, 'new', 0, 34)")
    with refused(STALE):
        connect()("UPDATE batches SET fence_token = 33")


# ---- how a connection is set


@pytest.mark.parametrize("pragma", ["recursive_triggers = ON", "recursive_triggers = OFF", "foreign_keys = ON",
                                    "ignore_check_constraints = ON", "trusted_schema = OFF", "journal_mode = DELETE",
                                    "case_sensitive_like = ON", "reverse_unordered_selects = ON", "read_uncommitted = ON"])
@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"]])
def test_no_pragma_lets_a_stale_one_pass(guarded, pragma, options):
    db = guarded(*options)
    db(f"PRAGMA {pragma}")
    db("CREATE TABLE news AS SELECT 7 AS id, 33 AS token")
    for statement in ("REPLACE INTO batches VALUES (7, 'late', 0, 33)", "UPDATE OR REPLACE batches SET state = 'x', fence_token = 33",
                      "UPDATE batches SET fence_token = news.token FROM news WHERE news.id = batches.id",
                      "INSERT INTO batches VALUES (7, 'x', 0, 33) ON CONFLICT DO UPDATE SET fence_token = excluded.fence_token"):
        with refused(STALE):
            db(statement)
    db("UPDATE batches SET fence_token = news.token + 2 FROM news WHERE news.id = batches.id")
    assert db.row() == ("new", 35)


def test_update_or_replace_onto_another_key(guarded):
    db = guarded("--require")
    db("INSERT INTO batches VALUES (8, 'x', 0, 40)")
    with refused(STALE):
        db("UPDATE OR REPLACE batches SET id = 8, fence_token = 39 WHERE id = 7")
    with refused(MISSING):
        db("UPDATE OR REPLACE batches SET id = 8 WHERE id = 7")
    db("UPDATE OR REPLACE batches SET id = 8, fence_token = 41 WHERE id = 7")
    assert db("SELECT id, fence_token FROM batches") == [(8, 41)] and db.mark(7, "batches") == 41


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE SET DEFAULT", "ON UPDATE CASCADE"])
@pytest.mark.parametrize("later", ["", "DEFERRABLE INITIALLY DEFERRED"])
def test_what_a_foreign_key_writes(connect, action, later):
    db = connect(helper=True)
    db("PRAGMA foreign_keys = ON")
    db("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
    db(f"CREATE TABLE batches (id INTEGER PRIMARY KEY, customer INT DEFAULT NULL REFERENCES customers {action} {later}, fence_token INT)")
    db.apply("--table", "batches", "--require", "--setting")
    db("INSERT INTO customers VALUES (1)")
    db("INSERT INTO batches VALUES (7, 1, 34)")
    statement = "UPDATE customers SET id = 2" if "UPDATE" in action else "DELETE FROM customers"
    with refused(MISSING):
        db(statement)
    with refused(STALE):
        db(statement, token=33)
    db(statement, token=35)
    assert db.mark(7, "batches") == 35


def test_rows_that_a_foreign_key_deletes_one_after_the_other(connect):
    """A table that refers to itself: the guard's own trigger is under way when the next row goes."""
    db = connect(helper=True)
    db("PRAGMA foreign_keys = ON")
    db("CREATE TABLE batches (id INTEGER PRIMARY KEY, parent INT REFERENCES batches ON DELETE CASCADE, fence_token INT)")
    db.apply("--table", "batches", "--require", "--setting")
    db("INSERT INTO batches VALUES (1, NULL, 30), (2, 1, 30), (3, 2, 40)")
    with refused(STALE):
        db("DELETE FROM batches WHERE id = 1", token=39)
    db("DELETE FROM batches WHERE id = 1", token=40)
    assert [db.mark(key, "batches") for key in (1, 2, 3)] == [40, 40, 40]


def test_a_copy_of_the_file_has_the_marks(guarded, folder):
    db = guarded()
    db("DELETE FROM batches")
    db("VACUUM INTO ?", str(folder / "copy.db"))
    copy = Connection(folder / "copy.db")
    with refused(STALE):
        copy("INSERT INTO batches VALUES (7, 'late', 0, 33)")
    copy.db.close()


# ---- programs that are killed


WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("PRAGMA journal_mode = " + sys.argv[2])
token = int(sys.argv[3])
while True:
    token += 1
    db.execute("BEGIN IMMEDIATE")
    if token % 2:
        db.execute("UPDATE batches SET n = ?, fence_token = ? WHERE id = 7", (token, token))
    else:
        db.execute("REPLACE INTO batches VALUES (7, 'x', ?, ?)", (token, token))
    db.execute("INSERT INTO holdfast_enter (key, token) VALUES ('x', ?)", (token,))
    db.execute("COMMIT")
    print(token, flush=True)
"""
KILLS = 8


@pytest.mark.parametrize("journal", ["WAL", "DELETE", "TRUNCATE"])
def test_a_writer_that_is_killed_leaves_mark_and_row_together(folder, journal):
    path, token = folder / "killed.db", 100
    db = Connection(path)
    db(f"PRAGMA journal_mode = {journal}")
    db(TABLE)
    db.apply("--table", "batches")
    db("INSERT INTO batches VALUES (7, 'new', 0, 34)")
    for kill in range(KILLS):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), journal, str(token)],
                                  stdout=subprocess.PIPE, text=True)
        for _ in range(3 + kill):
            acked = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        acked = max([acked, *map(int, writer.stdout.read().split())])
        writer.wait()
        token = db.mark(7, "batches")
        assert db("SELECT n, fence_token FROM batches") == [(token, token)] and db.mark("x") == token
        assert token >= acked
        with refused(STALE):
            db("UPDATE batches SET fence_token = ?", acked - 1)
    assert db("PRAGMA integrity_check") == [("ok",)]
    db.db.close()
