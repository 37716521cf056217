"""The triggers that guard a table of SQLite, and the setting of a transaction."""
import sqlite3

import pytest
from sqlite_tools import MISSING, NOT_A_TOKEN, STALE, TOKEN_MAX, connect, folder, guarded, module, refused  # noqa: F401


# ---- a table


def test_an_update_that_names_the_column(guarded):
    db = guarded()
    with refused(STALE):
        db("UPDATE batches SET state = 'late', fence_token = 33 WHERE id = 7")
    db("UPDATE batches SET state = 'again', fence_token = 34 WHERE id = 7")
    db("UPDATE batches SET state = 'next', fence_token = 35 WHERE id = 7")
    with refused(STALE):
        db("UPDATE batches SET state = 'late', fence_token = '34' WHERE id = 7")
    assert db.row() == ("next", 35)


def test_an_insert(guarded):
    db = guarded()
    db("DELETE FROM batches")
    with refused(STALE):
        db("INSERT INTO batches VALUES (7, 'late', 0, 33)")
    assert db.row() is None
    db("INSERT INTO batches VALUES (7, 'next', 0, 35)")
    db("INSERT INTO batches (state, fence_token) VALUES ('a key of its own', 1)")
    assert db.mark(8, "batches") == 1


@pytest.mark.parametrize("token", [0, -1, TOKEN_MAX + 1, "abc", 3.5])
@pytest.mark.parametrize("options", [[], ["--require"], ["--mode", "newer"], ["--setting"]])
def test_a_column_that_is_given_no_token(guarded, options, token):
    db = guarded(*options)
    for statement in ("UPDATE batches SET fence_token = ?", "INSERT INTO batches VALUES (8, 'x', 0, ?)"):
        with refused(NOT_A_TOKEN):
            db(statement, token)
    assert db.row() == ("new", 34) and db.row(8) is None


def test_a_write_without_a_token_is_let_through_and_changes_no_mark(guarded):
    db = guarded()
    db("UPDATE batches SET state = 'bare'")
    db("UPDATE batches SET fence_token = NULL")
    db("INSERT INTO batches (id, state) VALUES (8, 'bare')")
    db("DELETE FROM batches WHERE id = 8")
    assert db("SELECT * FROM holdfast_marks") == [("batches", "7", 34)]
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33")


def test_delete_and_insert_cannot_lower_a_mark(guarded):
    db = guarded()
    db("DELETE FROM batches")
    with refused(STALE):
        db("INSERT INTO batches VALUES (7, 'late', 0, 33)")
    db("INSERT INTO batches (id) VALUES (7)")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33")


def test_an_update_of_the_key_checks_both_keys(guarded):
    db = guarded("--setting")
    db("INSERT INTO batches VALUES (8, 'x', 0, 40)")
    db("DELETE FROM batches WHERE id = 8")
    for token in (33, 39):
        with refused(STALE):
            db("UPDATE batches SET id = 8, fence_token = ? WHERE id = 7", token)
        with refused(STALE):
            db("UPDATE batches SET id = 8 WHERE id = 7", token=token)
    db("UPDATE batches SET id = 8, fence_token = 41 WHERE id = 7")
    db("UPDATE batches SET id = 9 WHERE id = 8", token=42)
    assert [db.mark(key, "batches") for key in (7, 8, 9)] == [41, 42, 42]


def test_newer(guarded):
    db = guarded("--mode", "newer", "--setting")
    for statement in ("UPDATE batches SET fence_token = 34", "UPDATE batches SET fence_token = fence_token",
                      "UPDATE batches SET fence_token = 33"):
        with refused(STALE):
            db(statement)
    for statement in ("UPDATE batches SET state = 'x'", "DELETE FROM batches"):
        with refused(STALE):
            db(statement, token=34)
    db("UPDATE batches SET state = 'a', fence_token = 35")
    db("UPDATE batches SET state = 'b'", token=36)
    db("DELETE FROM batches", token=37)
    with refused(STALE):
        db("INSERT INTO batches VALUES (7, 'x', 0, 37)")
    db("INSERT INTO batches VALUES (7, 'x', 0, 38)")
    assert db.mark(7, "batches") == 38


# ---- --require


@pytest.mark.parametrize("options", [[], ["--setting"]])
@pytest.mark.parametrize("statement", [
    "UPDATE batches SET state = 'bare'", "UPDATE batches SET state = 'bare', fence_token = NULL", "DELETE FROM batches",
    "DELETE FROM batches WHERE id = 7", "INSERT INTO batches (id) VALUES (8)", "UPDATE batches SET id = 8",
    "REPLACE INTO batches (id, state) VALUES (7, 'bare')", "UPDATE OR IGNORE batches SET state = 'bare'",
    "UPDATE OR REPLACE batches SET state = 'bare'", "INSERT OR IGNORE INTO batches (id) VALUES (8)"])
def test_require_refuses_what_brings_no_token(guarded, options, statement):
    """Also a DELETE of all rows: there is no TRUNCATE in SQLite, and its shortcut is not taken."""
    db = guarded("--require", *options)
    with refused(MISSING):
        db(statement)
    assert db.row() == ("new", 34) and db.row(8) is None


def test_require_takes_what_brings_one(guarded):
    db = guarded("--require", "--setting")
    db("UPDATE batches SET state = 'a', fence_token = 34")
    db("UPDATE batches SET state = 'b', fence_token = fence_token")
    db("UPDATE batches SET state = 'c'", token=34)
    db("UPDATE batches SET state = 'd', fence_token = 35")
    db("UPDATE batches SET state = 'e'", token=36)
    db("INSERT INTO batches VALUES (8, 'f', 0, 1), (9, 'g', 0, 1)")
    db("INSERT INTO batches (id) VALUES (10)", token=2)
    db("DELETE FROM batches WHERE id = 8", token=1)
    assert [db.mark(key, "batches") for key in (7, 8, 9, 10)] == [36, 1, 1, 2]
    for token in (33, 35):
        for statement in ("UPDATE batches SET state = 'late' WHERE id = 7", "DELETE FROM batches WHERE id = 7"):
            with refused(STALE):
                db(statement, token=token)
    assert db("SELECT * FROM holdfast_named") == []


def test_require_many_rows_each_with_its_own(guarded):
    db = guarded("--require")
    db("INSERT INTO batches WITH RECURSIVE i(n) AS (SELECT 10 UNION ALL SELECT n + 1 FROM i WHERE n < 40) SELECT n, 'x', 0, n FROM i")
    db("UPDATE batches SET n = n + 1, fence_token = fence_token WHERE id >= 10")
    assert db("SELECT count(*) FROM batches WHERE n = 1 AND fence_token = id") == [(31,)]
    with refused(MISSING):
        db("UPDATE batches SET n = n + 1")


def test_require_tells_the_statement_that_brings_one_from_the_next(guarded):
    db = guarded("--require")
    db("BEGIN")
    db("UPDATE batches SET state = 'a', fence_token = 34")
    with refused(MISSING):
        db("UPDATE batches SET state = 'b'")
    db("COMMIT")
    assert db.row() == ("a", 34)


def test_require_a_row_that_was_skipped_leaves_nothing_over(guarded):
    """Its token was seen before it turned out that it could not be written."""
    db = guarded("--require")
    db("CREATE UNIQUE INDEX states ON batches (state)")
    db("INSERT INTO batches VALUES (8, 'other', 0, 34)")
    db("UPDATE OR IGNORE batches SET state = 'new', fence_token = 35 WHERE id = 8")
    assert db.row(8) == ("other", 34)
    for key in (7, 8):
        with refused(MISSING):
            db("UPDATE batches SET n = 1 WHERE id = ?", key)


# ---- other statements


UPSERT = "INSERT INTO batches VALUES (7, 'upsert', 0, ?) ON CONFLICT (id) DO UPDATE SET state = 'upsert'"
NAMING = UPSERT + ", fence_token = excluded.fence_token"


@pytest.mark.parametrize("options, statement", [([], UPSERT), ([], NAMING), (["--require"], NAMING), (["--mode", "newer"], NAMING),
                                                (["--setting"], UPSERT), ([], "REPLACE INTO batches VALUES (7, 'upsert', 0, ?)"),
                                                (["--mode", "newer"], "REPLACE INTO batches VALUES (7, 'upsert', 0, ?)")])
def test_insert_on_conflict(guarded, options, statement):
    db = guarded(*options)
    with refused(STALE):
        db(statement, 33)
    db(statement, 36)
    assert db.row()[0] == "upsert"
    with refused(STALE):
        db("UPDATE batches SET fence_token = 35")
    assert db.mark(7, "batches") == 36


def test_insert_or_ignore(guarded):
    db = guarded()
    with refused(STALE):
        db("INSERT OR IGNORE INTO batches VALUES (7, 'x', 0, 33)")
    db("INSERT OR IGNORE INTO batches VALUES (7, 'x', 0, 34)")
    assert db.row() == ("new", 34)


def test_one_stale_row_refuses_the_whole_statement(guarded):
    db = guarded()
    db("INSERT INTO batches VALUES (8, 'x', 0, 10), (9, 'x', 0, 40)")
    with refused(STALE):
        db("UPDATE batches SET state = 'late', fence_token = 39")
    assert db("SELECT count(*) FROM batches WHERE state = 'late'") == [(0,)]
    assert db.mark(8, "batches") == 10, "nothing of it is left"


def test_rows_deleted_by_a_foreign_key(guarded):
    db = guarded("--setting", "--require")
    db("PRAGMA foreign_keys = ON")
    db("CREATE TABLE parts (id INTEGER PRIMARY KEY, batch INT REFERENCES batches ON DELETE CASCADE, fence_token INT)")
    db.apply("--table", "parts", "--require", "--setting")
    db("INSERT INTO parts VALUES (1, 7, 50)")
    with refused(STALE):
        db("DELETE FROM batches", token=49)
    db("DELETE FROM batches", token=50)
    assert db("SELECT * FROM parts") == [] and db.mark(1, "parts") == 50


def test_a_key_that_many_rows_share(connect):
    db = connect()
    db("CREATE TABLE items (id INTEGER PRIMARY KEY, batch TEXT, fence_token INT)")
    db.apply("--table", "items", "--key-column", "batch")
    db("INSERT INTO items VALUES (1, 'a', 34), (2, 'a', 34), (3, 'b', 20)")
    db("UPDATE items SET fence_token = 35 WHERE id = 1")
    with refused(STALE):
        db("UPDATE items SET fence_token = 34 WHERE id = 2")
    db("UPDATE items SET fence_token = 21 WHERE id = 3")


# ---- the setting


def test_the_setting_counts_where_the_statement_names_no_token(guarded):
    db = guarded("--setting")
    for statement in ("UPDATE batches SET state = 'late'", "DELETE FROM batches", "UPDATE batches SET fence_token = NULL"):
        with refused(STALE):
            db(statement, token=33)
    db("UPDATE batches SET state = 'next'", token=35)
    assert db.mark(7, "batches") == 35
    db("DELETE FROM batches", token=36)
    with refused(STALE):
        db("INSERT INTO batches (id) VALUES (7)", token=35)
    db("INSERT INTO batches (id) VALUES (7)", token=36)


def test_what_the_statement_names_counts_before_the_setting(guarded):
    db = guarded("--setting")
    db("UPDATE batches SET fence_token = 34", token=33)
    db("UPDATE batches SET fence_token = 35", token=33)
    with refused(STALE):
        db("UPDATE batches SET fence_token = 34", token=36)
    db("INSERT INTO batches VALUES (8, 'x', 0, 20)", token=36)
    assert db.mark(8, "batches") == 20


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_the_setting_ends_with_the_transaction(connect, end):
    db = connect(helper=True)
    assert db("SELECT holdfast_token()") == [(None,)]
    db("BEGIN")
    assert db("SELECT holdfast_token(35)") == [(35,)]
    db("SAVEPOINT a")
    db("RELEASE a")
    assert db("SELECT holdfast_token()") == [(35,)]
    assert db("SELECT holdfast_token('36')") == [(36,)]
    assert db("SELECT holdfast_token()") == [(36,)]
    db(end)
    assert db("SELECT holdfast_token()") == [(None,)]
    db("BEGIN")
    assert db("SELECT holdfast_token()") == [(None,)]
    db("SELECT holdfast_token(37)")
    assert db("SELECT holdfast_token(NULL)") == [(None,)]
    assert db("SELECT holdfast_token()") == [(None,)]
    db("ROLLBACK")


def test_the_setting_is_one_connections_alone(connect):
    first, second = connect(helper=True), connect(helper=True)
    first("BEGIN")
    first("SELECT holdfast_token(35)")
    assert second("SELECT holdfast_token()") == [(None,)]


def test_the_setting_makes_the_transaction_a_writing_one(connect):
    """So it may be the first statement of a plain BEGIN, and nobody writes between it and what is read."""
    first, second = connect(helper=True), connect(helper=True, patience=0)
    first("BEGIN")
    first("SELECT holdfast_token(35)")
    second("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        second("SELECT holdfast_token(36)")
    second("ROLLBACK")
    first("COMMIT")


def test_the_setting_needs_a_transaction(connect):
    with pytest.raises(sqlite3.OperationalError, match="BEGIN a transaction first"):
        connect(helper=True)("SELECT holdfast_token(35)")


@pytest.mark.parametrize("token", [0, -1, TOKEN_MAX + 1, "abc", "", "35x", 3.5, b"\xff", "9" * 17, 1e300])
def test_a_setting_that_is_no_token(connect, token):
    db = connect(helper=True)
    db("BEGIN")
    db("SELECT holdfast_token(35)")
    with pytest.raises(sqlite3.OperationalError, match="not a fencing token"):
        db("SELECT holdfast_token(?)", token)
    assert db("SELECT holdfast_token()") == [(35,)]


def test_the_module_can_be_loaded_again(connect):
    db = connect(helper=True)
    for _ in range(3):
        db.db.enable_load_extension(True)
        db.db.load_extension(module())
    db("BEGIN")
    db("SELECT holdfast_token(35)")
    assert db("SELECT holdfast_token()") == [(35,)]
    db("COMMIT")
    assert db("SELECT holdfast_token()") == [(None,)]


def test_without_setting_no_connection_needs_the_module(connect, guarded):
    guarded("--require")
    connect()("UPDATE batches SET state = 'next', fence_token = 35")


def test_with_setting_a_connection_without_it_cannot_write(connect, guarded):
    guarded("--setting")
    with pytest.raises(sqlite3.OperationalError, match="no such function: holdfast_token"):
        connect()("UPDATE batches SET state = 'late'")
    other = connect()
    other.db.create_function("holdfast_token", 0, lambda: 33)
    with refused(STALE):
        other("UPDATE batches SET state = 'late'")


def test_where_the_schema_is_not_trusted(guarded):
    db = guarded("--setting")
    db("PRAGMA trusted_schema = OFF")
    with refused(STALE):
        db("UPDATE batches SET state = 'late'", token=33)
    db("UPDATE batches SET state = 'next'", token=35)


def test_reset_of_a_row(guarded):
    db = guarded()
    db("INSERT INTO holdfast_reset(key, token, guard) VALUES(7, 20, 'batches')")
    db("UPDATE batches SET fence_token = 21")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 20")


# ---- applying it again, with other columns


@pytest.mark.parametrize("off", [False, True])
def test_another_key_column_is_refused(guarded, off):
    """Marks are of the keys that they were brought for: those of rows that are gone cannot be told in others."""
    db = guarded("--setting")
    db("ALTER TABLE batches ADD COLUMN code TEXT")
    db("UPDATE batches SET code = 'k7'", token=50)
    if off:
        db.apply("--table", "batches", "--undo")
    with pytest.raises(sqlite3.IntegrityError, match="the marks of this table are of the keys in another column"):
        db.apply("--table", "batches", "--setting", "--key-column", "code")
    db.apply("--table", "batches", "--setting", "--key-column", "ID")
    with refused(STALE):
        db("UPDATE batches SET state = 'late', fence_token = 49")
    db("DELETE FROM holdfast_marks WHERE guard = 'batches'")
    db.apply("--table", "batches", "--setting", "--key-column", "code")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33")  # what a row carries stays known


def test_a_key_column_that_was_renamed(guarded):
    db = guarded()
    db("DELETE FROM batches")
    db("ALTER TABLE batches RENAME COLUMN id TO number")
    with pytest.raises(sqlite3.IntegrityError, match="in another column"):
        db.apply("--table", "batches", "--key-column", "number")
    db("UPDATE holdfast_guards SET key_column = 'number' WHERE guard = 'batches'")
    db.apply("--table", "batches", "--key-column", "number")
    with refused(STALE):
        db("INSERT INTO batches VALUES (7, 'late', 0, 33)")


@pytest.mark.parametrize("options", [["--column", "token"], ["--mode", "newer"], ["--require"], ["--setting"], []])
def test_other_options_forget_no_mark(guarded, connect, options):
    guarded("--setting")
    db = connect(helper=True)
    db("ALTER TABLE batches ADD COLUMN token INTEGER")
    db("UPDATE batches SET state = 'next'", token=50)  # the row still carries 34
    db.apply("--table", "batches", *options)
    column = "token" if "token" in options else "fence_token"
    for statement in (f"UPDATE batches SET {column} = 49", f"REPLACE INTO batches (id, {column}) VALUES (7, 49)"):
        with refused(STALE):
            db(statement)


# ---- newer, and an INSERT that finds its row


UPSERT = "INSERT INTO batches (id, state, fence_token) VALUES (7, 'x', 36) ON CONFLICT (id) DO UPDATE SET state = 'first'"
IGNORED = "INSERT OR IGNORE INTO batches (id, state, fence_token) VALUES (7, 'x', 36)"
AGAIN = ["UPDATE batches SET state = 'second', fence_token = 36", "UPDATE batches SET id = 8, fence_token = 36",
         "REPLACE INTO batches (id, state, fence_token) VALUES (7, 'second', 36)", UPSERT, UPSERT + ", fence_token = 36",
         "INSERT INTO batches (id, state, fence_token) VALUES (8, 'second', 36) ON CONFLICT (id) DO UPDATE SET id = 7, fence_token = 36"]


@pytest.mark.parametrize("options", [[], ["--setting"]])
@pytest.mark.parametrize("again", AGAIN)
def test_newer_an_upsert_that_does_not_name_its_token_in_the_update(guarded, options, again):
    """It is a write of that token all the same, and there is one."""
    db = guarded("--mode", "newer", *options)
    db("INSERT INTO batches VALUES (8, 'other', 0, 34)")
    db(UPSERT)
    assert db.row() == ("first", 34) and db.mark(7, "batches") == 36
    with refused(STALE):
        db(again)
    assert db.row() == ("first", 34)
    db("UPDATE batches SET state = 'next', fence_token = 37 WHERE id = 7")


@pytest.mark.parametrize("again", AGAIN[:3])
def test_newer_an_insert_that_did_nothing_leaves_one_write(guarded, again):
    db = guarded("--mode", "newer")
    db(IGNORED)
    db("UPDATE batches SET state = 'first', fence_token = 36")
    with refused(STALE):
        db(again)
    assert db.row() == ("first", 36)


def test_newer_what_an_insert_left_lets_nobody_pass_who_became_stale(guarded):
    """The next holder deletes the row, or the guard has another mode for a while: neither writes as an INSERT or UPDATE does."""
    db = guarded("--mode", "newer", "--setting")
    db(IGNORED)
    db("DELETE FROM batches", token=40)
    with refused(STALE):
        db("INSERT INTO batches VALUES (7, 'late', 0, 36)")
    db("INSERT INTO batches VALUES (7, 'new', 0, 41)")
    db(IGNORED.replace("36", "42"))
    db.apply("--table", "batches")
    db("UPDATE batches SET state = 'next', fence_token = 50")
    db.apply("--table", "batches", "--mode", "newer")
    with refused(STALE):
        db("UPDATE batches SET state = 'late', fence_token = 42")
    assert db.row() == ("next", 50)


@pytest.mark.parametrize("options, said, with_setting", [
    (["--require"], MISSING, None), (["--require", "--setting"], MISSING, 35), (["--mode", "newer", "--setting"], None, STALE)])
def test_replace_with_recursive_triggers(guarded, connect, options, said, with_setting):
    """It deletes the row first, and whoever deletes must bring the setting: what is refused is refused before anything is lost."""
    guarded(*options)
    db = connect(helper=True)
    db("PRAGMA recursive_triggers = ON")
    if said:
        with refused(said):
            db("REPLACE INTO batches VALUES (7, 'next', 0, 35)")
        assert db.row() == ("new", 34)
    else:
        db("REPLACE INTO batches VALUES (7, 'next', 0, 35)")
    if with_setting == STALE:
        with refused(STALE):
            db("REPLACE INTO batches VALUES (7, 'next', 0, 36)", token=36)
    elif with_setting:
        db("REPLACE INTO batches VALUES (7, 'next', 0, 35)", token=with_setting)
    assert db.row() == (("new", 34) if said and not with_setting else ("next", 35))
