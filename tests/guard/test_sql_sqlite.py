"""The guard in SQLite: holdfast_enter, the triggers that guard a table, and the setting of a transaction."""
import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests/cli"))
from holdfast_cli import BIN, PATIENCE, SOAK, eventually  # noqa: E402,F401

TOKEN_MAX = 2**53 - 1
STALE, MISSING = "stale fencing token (see holdfast_marks)", "no fencing token"
NOT_A_TOKEN = "not a fencing token: a number from 1 to 9007199254740991"
SHELL = shutil.which("sqlite3")


def module():
    """The extension, as load_extension takes it."""
    for folder in os.environ.get("HOLDFAST_MODULE_DIR", "").split(":"):
        if os.path.exists(folder + "/holdfast-sqlite.so"):
            return folder + "/holdfast-sqlite"
    pytest.skip("the module holdfast-sqlite is not built")


def printed(*options):
    done = subprocess.run([BIN, "guard", "sql", "--dialect", "sqlite", *options], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def refused(message):
    """A constraint failed, and this is its message."""
    with pytest.raises(sqlite3.IntegrityError) as failure:
        yield
    assert str(failure.value) == message
    if sys.version_info >= (3, 11):
        assert failure.value.sqlite_errorname == "SQLITE_CONSTRAINT_TRIGGER"


class Connection:
    """Each statement is committed, until a BEGIN."""

    def __init__(self, path, helper=False, patience=PATIENCE):
        self.db = sqlite3.connect(path, isolation_level=None, timeout=patience, check_same_thread=False)
        if helper:
            self.db.enable_load_extension(True)
            self.db.load_extension(module())
            self.db.enable_load_extension(False)

    def __call__(self, statement, *values, token=None):
        """With a token: in a transaction of its own, which has it set."""
        if token is None:
            return self.db.execute(statement, values).fetchall()
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self.db.execute("SELECT holdfast_token(?)", (token,))
            return self.db.execute(statement, values).fetchall()
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        finally:
            if self.db.in_transaction:
                self.db.execute("COMMIT")

    def enter(self, key, token, mode=None):
        if mode is None:
            return self("INSERT INTO holdfast_enter(key, token) VALUES(?, ?)", key, token)
        return self("INSERT INTO holdfast_enter(key, token, mode) VALUES(?, ?, ?)", key, token, mode)

    def mark(self, key, guard=""):
        rows = self("SELECT token FROM holdfast_marks WHERE guard = ? AND key = ?", guard, str(key))
        return rows[0][0] if rows else None

    def apply(self, *options):
        self.db.executescript(printed(*options))

    def row(self, key=7):
        rows = self("SELECT state, fence_token FROM batches WHERE id = ?", key)
        return rows[0] if rows else None


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="sqlite-", dir=os.environ.get("HF_TEST_TMP"))
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def connect(folder):
    """Connections to one file."""
    with contextlib.ExitStack() as stack:
        def start(**options):
            connection = Connection(folder / "shop.db", **options)
            stack.callback(connection.db.close)
            return connection

        start()("PRAGMA journal_mode = WAL")
        yield start


@pytest.fixture
def db(connect):
    connection = connect()
    connection.apply()
    return connection


TABLE = "CREATE TABLE batches (id INTEGER PRIMARY KEY, state TEXT, n INT DEFAULT 0, fence_token INTEGER)"


@pytest.fixture
def guarded(connect):
    """Makes a table with row 7, written with token 34, and its guard. With the helper if it is needed."""
    def make(*options):
        connection = connect(helper="--setting" in options)
        connection(TABLE)
        connection.apply("--table", "batches", *options)
        connection("INSERT INTO batches VALUES (7, 'new', 0, 34)")
        return connection

    return make


# ---- enter


def test_a_mark_rises_and_refuses_what_is_older(db):
    for token in (34, 35, 35):
        db.enter("batch:4472", token)
        assert db.mark("batch:4472") == token
    with refused(STALE):
        db.enter("batch:4472", 34)
    assert db.mark("batch:4472") == 35
    db.enter("another", 1)


def test_newer_takes_no_token_twice(db):
    db.enter("x", 34, "newer")
    for token in (34, 33):
        with refused(STALE):
            db.enter("x", token, "newer")
    db.enter("x", 34, "not-older")
    db.enter("x", 35, "newer")
    assert db.mark("x") == 35
    with refused("not a mode: there are not-older and newer"):
        db.enter("x", 36, "older")


@pytest.mark.parametrize("token", [None, 0, -1, TOKEN_MAX + 1, 2**63 - 1, "", "abc", "35x", " 35", "035", "3.5", 3.5, "-1", b"\xff",
                                   1e300, float("inf")])
@pytest.mark.parametrize("word", ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE"])
def test_what_is_no_token_is_refused(db, token, word):
    db.enter("x", 1)
    with refused(NOT_A_TOKEN):
        db(f"{word} INTO holdfast_enter(key, token) VALUES('x', ?)", token)
    assert db.mark("x") == 1


@pytest.mark.parametrize("as_sent", [int, str, float])
def test_tokens_are_compared_as_numbers_however_they_are_sent(db, as_sent):
    """Compared as SQLite does, any text would be greater than any number."""
    db.enter("x", as_sent(100))
    for token in (99, "99", 99.0, 9, "9"):
        with refused(STALE):
            db.enter("x", token)
    db.enter("x", as_sent(TOKEN_MAX))
    assert db("SELECT typeof(token), token FROM holdfast_marks") == [("integer", TOKEN_MAX)]


@pytest.mark.parametrize("key", [None, "", "k" * 401, "é" * 201])
def test_what_is_no_key_is_refused(db, key):
    with refused("not a key: a text of 1 to 400 bytes"):
        db.enter(key, 35)
    assert db("SELECT * FROM holdfast_marks") == []


def test_any_other_text_is_a_key(db):
    for key in ("k" * 400, "é" * 200, "'; DROP TABLE holdfast_marks; --", 'a"b', "a\nb", " ", 7):
        db.enter(key, 35)
        assert db.mark(key) == 35


@pytest.mark.parametrize("word", ["OR IGNORE", "OR REPLACE", "OR FAIL", "OR ROLLBACK"])
def test_no_word_of_the_outer_statement_lets_a_stale_one_pass(db, word):
    db.enter("x", 34)
    with refused(STALE):
        db(f"INSERT {word} INTO holdfast_enter(key, token) VALUES('x', 33)")
    db(f"INSERT {word} INTO holdfast_enter(key, token) VALUES('x', 35)")
    assert db.mark("x") == 35


# ---- until commit


def start(function, *words):
    """In a thread; a function that waits for its end, and raises here what it raised there."""
    outcome = []

    def run():
        try:
            outcome.append((function(*words), None))
        except sqlite3.Error as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end():
        thread.join(PATIENCE)
        assert outcome, "it still waits"
        if outcome[0][1]:
            raise outcome[0][1]
        return outcome[0][0]

    end.waits = thread.is_alive
    return end


@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN"])
def test_whoever_is_inside_is_waited_for(connect, db, begin):
    """Also if its mark does not rise."""
    db.enter("x", 33)
    db(begin)
    db.enter("x", 33)
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        connect(patience=0).enter("x", 34)
    other = connect()
    waiting = start(other.enter, "x", 34)
    db("COMMIT")
    waiting()
    with refused(STALE):
        db.enter("x", 33)


def test_a_late_holder_waits_for_the_newer_one_and_is_stale(connect, db):
    db("BEGIN IMMEDIATE")
    db.enter("x", 34)
    late = connect()
    late("SELECT * FROM holdfast_marks")
    waiting = start(late.enter, "x", 33)
    assert waiting.waits()
    db("COMMIT")
    with refused(STALE):
        waiting()


def test_a_snapshot_from_before_cannot_be_entered_from(connect, db):
    db("CREATE TABLE stock (n INT)")
    late = connect(patience=0)
    late("BEGIN")
    late("SELECT * FROM stock")
    db("BEGIN IMMEDIATE")
    db.enter("x", 33)
    db("INSERT INTO stock VALUES (1)")
    db("COMMIT")
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        late.enter("x", 34)


def test_a_rollback_leaves_no_mark(db):
    db("BEGIN IMMEDIATE")
    db.enter("x", 34)
    db("SAVEPOINT a")
    db.enter("x", 35)
    db("ROLLBACK TO a")
    assert db.mark("x") == 34
    db("ROLLBACK")
    assert db.mark("x") is None
    db.enter("x", 33)


# ---- reset


def test_reset_lowers_a_mark_and_writes_it_down(db):
    db.enter("x", 34)
    db("INSERT INTO holdfast_reset(key, token, who) VALUES('x', 20, 'me')")
    db.enter("x", 21)
    db("INSERT INTO holdfast_reset(key) VALUES('x')")
    assert db.mark("x") == 0
    assert db("SELECT who, guard, key, old_mark, new_mark, at >= datetime('now', '-1 hour') FROM holdfast_resets") == [
        ("me", "", "x", 34, 20, 1), (None, "", "x", 21, 0, 1)]
    db.enter("x", 1)


def test_reset_only_lowers(db):
    db.enter("x", 34)
    for mark in (35, -1, "9", 1.5):
        with refused("the mark can only be lowered, to a number from 0 on (see holdfast_marks)"):
            db("INSERT INTO holdfast_reset(key, token) VALUES('x', ?)", mark)
    with refused("this key has no mark (see holdfast_marks)"):
        db("INSERT INTO holdfast_reset(key, token) VALUES('y', 0)")
    assert db("SELECT * FROM holdfast_resets") == []


def test_reset_of_a_row(guarded):
    db = guarded()
    db("INSERT INTO holdfast_reset(key, token, guard) VALUES(7, 20, 'batches')")
    db("UPDATE batches SET fence_token = 21")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 20")


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


# ---- applying it


def objects(db):
    return db("SELECT type, name FROM sqlite_master ORDER BY 1, 2")


def test_applying_it_twice_is_harmless(db):
    db.enter("x", 34)
    before = objects(db)
    db.apply()
    assert objects(db) == before
    with refused(STALE):
        db.enter("x", 33)


@pytest.mark.skipif(not SHELL, reason="needs sqlite3")
def test_the_shell_applies_it(folder):
    path = str(folder / "shell.db")
    for options in ([], [], ["--table", "batches", "--require"], ["--table", "batches"], ["--table", "batches", "--undo"], ["--undo"]):
        if options and "--require" in options:
            subprocess.run([SHELL, path, TABLE], check=True)
        done = subprocess.run([SHELL, "-bail", path], input=printed(*options), capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with contextlib.closing(sqlite3.connect(path)) as left:
        assert left.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall() == [("batches",)]


def test_inside_a_transaction_of_ones_own(connect):
    db = connect()
    db("BEGIN")
    for statement in split(printed()):
        db(statement)
    db("ROLLBACK")
    assert objects(db) == []


def split(text):
    """Statements one by one."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def test_the_later_options_win_and_forget_nothing(guarded):
    db = guarded("--require")
    with refused(MISSING):
        db("UPDATE batches SET state = 'bare'")
    db.apply("--table", "batches", "--mode", "newer")
    db("UPDATE batches SET state = 'bare'")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 34")
    db.apply("--table", "Batches")
    db("UPDATE batches SET fence_token = 34")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33")


def test_undo_leaves_nothing_behind(connect):
    db = connect()
    db(TABLE)
    before = objects(db)
    db.apply("--table", "batches", "--require")
    db.apply("--table", "batches", "--undo")
    db.apply("--undo")
    assert objects(db) == before
    db.apply("--table", "batches", "--undo")
    db.apply("--undo")


def test_tokens_that_were_there_before_are_marks(connect):
    db = connect()
    db(TABLE)
    db("INSERT INTO batches VALUES (7, 'x', 0, 34), (8, 'x', 0, NULL)")
    db.apply("--table", "batches")
    assert db("SELECT guard, key, token FROM holdfast_marks") == [("batches", "7", 34)]
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33 WHERE id = 7")


def test_the_column_can_be_added(connect):
    db = connect()
    db("CREATE TABLE batches (id INTEGER PRIMARY KEY)")
    with pytest.raises(sqlite3.OperationalError, match="no such column: batches.fence_token"):
        db.apply("--table", "batches")
    db("ROLLBACK")
    db.apply("--table", "batches", "--add-column")
    db.apply("--table", "batches")
    db("INSERT INTO batches VALUES (7, 34)")
    with refused(STALE):
        db("UPDATE batches SET fence_token = 33")


ODD = ["my table", 'quo"te', "quo'te", "back\\slash", "dot.ted", "Upper", "order", "-- comment", "/* comment", "[x]", "`x`",
       "x; DROP TABLE victim; --", "'; DROP TABLE victim; --", '"; DROP TABLE victim; --', "tableau_é", "%s", "@table@", "a" * 63,
       "guard", "key", "token", "m", "NEW", "old"]


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_tables_and_columns(connect, name):
    db = connect()
    db("CREATE TABLE victim (x)")
    names = [name[:61] + end for end in ("_k", "_t")]
    table, (key, column) = quoted(name), map(quoted, names)
    db(f"CREATE TABLE {table} ({key} PRIMARY KEY, {column} INTEGER, v)")
    options = ["--table", table, "--key-column", names[0], "--column", names[1]]
    for more in ([], ["--require", "--mode", "newer"], []):
        db.apply(*options, *more)
    db(f"INSERT INTO {table} VALUES ('7', 34, 'a')")
    db(f"UPDATE {table} SET v = 'b', {column} = 34")
    for statement in (f"UPDATE {table} SET v = 'c', {column} = 33", f"INSERT INTO {table} VALUES ('7', 33, 'd')"):
        with refused(STALE):
            db(statement)
    db.apply(*options, "--undo")
    db(f"UPDATE {table} SET {column} = 1")
    assert [name for kind, name in objects(db) if kind == "trigger" and "holdfast_" in name[:9]] == [
        "holdfast_enter_insert", "holdfast_raise_insert", "holdfast_reset_insert"]
    assert db("SELECT * FROM victim") == []


# ---- SQLite 3.47 and later


NAMES_BOTH = ["--sqlite-version", "3.47"]


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 47), reason="RAISE takes expressions from SQLite 3.47 on")
@pytest.mark.parametrize("mode", [None, "newer"])
def test_later_versions_name_both_tokens(connect, mode):
    db = connect()
    db(TABLE)
    db.apply("--table", "batches", *NAMES_BOTH, *(["--mode", mode] if mode else []))
    db.enter("x", 34, mode)
    with refused('stale fencing token 33 for "x": 34 was seen'):
        db.enter("x", 33, mode)
    db("INSERT INTO batches VALUES (7, 'new', 0, 34)")
    for statement in ("UPDATE batches SET fence_token = 33", "INSERT INTO batches VALUES (7, 'late', 0, 33)"):
        with refused('stale fencing token 33 for "batches:7": 34 was seen'):
            db(statement)


@pytest.mark.skipif(sqlite3.sqlite_version_info >= (3, 47), reason="for earlier versions")
def test_earlier_versions_take_only_the_literal(connect):
    with pytest.raises(sqlite3.OperationalError):
        connect().apply(*NAMES_BOTH)
    assert printed("--sqlite-version", "3.46.1") == printed()
    assert printed("--sqlite-version", "3.47.0") == printed(*NAMES_BOTH) != printed()
