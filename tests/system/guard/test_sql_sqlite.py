"""holdfast_enter in SQLite, and what the command prints: names, undo, applying it again."""
import contextlib
import sqlite3
import subprocess
import threading

import pytest
from sqlite_tools import (MISSING, NOT_A_TOKEN, PATIENCE, SHELL, STALE, TABLE, TOKEN_MAX, connect, db, folder,  # noqa: F401
                          guarded, printed, refused)


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
        "holdfast_enter_insert", "holdfast_raise_insert", "holdfast_reset_insert", "holdfast_row_insert", "holdfast_spelling_insert"]
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
