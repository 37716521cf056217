"""Connections to a file of SQLite, for the tests of the SQL guard.

    db.apply("--table", "batches")            what `holdfast guard sql` prints
    db("UPDATE ...", token=35)                in a transaction of its own, which has this token set
    with refused(STALE): ...                  a constraint failed, and this is its message
"""
import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(1, str(ROOT / "tests/system/cli"))
from holdfast_cli import BIN, PATIENCE  # noqa: E402

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
