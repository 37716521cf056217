"""The SQL guards in the stories for which there are guards: holders that are stopped past their lease and go on.

The holders are real: `holdfast run` on a Redis store, with a shell as the job, which does what the test says on its input, and
prints the answers. A holder is stopped together with its job, as a machine would be, after it was told to write; so the write
is what it does first when it wakes. Each story is told without the guard, too, and ends badly.
"""
import contextlib
import os
import pathlib
import random
import shlex
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest
from postgres import PROGRAMS, ROOT, db, printed, server  # noqa: F401
from redis_server import Cli, eventually, redis, shared_redis, start_redis  # noqa: F401

PUPPET = 'echo in $HOLDFAST_TOKEN $$; while read -r line; do eval "$line"; done'
SQLITE = shutil.which("sqlite3")
EXAMPLES = ROOT / "examples/sql"
DIALECTS = ["postgres"] + (["sqlite"] if SQLITE else [])


# ---- the account, in either database


class Account:
    """Row 7 of a table of accounts. guard: None, "enter" or "column"."""

    def __init__(self, guard):
        self.guard = guard
        self.sql("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER, fence_token BIGINT)")
        self.sql("INSERT INTO accounts VALUES (7, 100, 1, NULL)")
        if guard:
            self.apply(*(["--table", "accounts"] if guard == "column" else []))

    @property
    def balance(self):
        return int(self.sql("SELECT balance FROM accounts").strip())

    def sql(self, text):
        done = subprocess.run(self.words(text), capture_output=True, text=True, check=True)
        return done.stdout

    def reading(self, token):
        """A command that enters, if there is a guard, and prints the balance."""
        if self.guard == "enter":
            return self.words(self.entering(token) + "SELECT balance FROM accounts WHERE id = 7; COMMIT;")
        if self.guard == "column":
            return self.words(f"UPDATE accounts SET fence_token = {token} WHERE id = 7 RETURNING balance;")
        return self.words("SELECT balance FROM accounts WHERE id = 7;")

    def writing(self, token, balance):
        """A command that writes the balance, and prints "done"."""
        if self.guard == "enter":
            text = self.entering(token) + f"UPDATE accounts SET balance = {balance} WHERE id = 7; COMMIT;"
        elif self.guard == "column":
            text = f"UPDATE accounts SET balance = {balance}, fence_token = {token} WHERE id = 7;"
        else:
            text = f"UPDATE accounts SET balance = {balance} WHERE id = 7;"
        return self.words(text + " SELECT 'done';")


class PostgresAccount(Account):
    def __init__(self, guard, db):
        self.db = db
        super().__init__(guard)

    def words(self, text):
        return [PROGRAMS + "/psql", "-qAt", "-v", "ON_ERROR_STOP=1", "-h", self.db.server.folder, "-p", str(self.db.server.port),
                "-U", "postgres", "-d", self.db.name, "-c", text]

    def apply(self, *options):
        self.db.apply(*options)

    def entering(self, token):
        return f"BEGIN; DO $$ BEGIN PERFORM holdfast_enter('account:7', {token}); END $$; "


class SqliteAccount(Account):
    def __init__(self, guard, folder):
        self.path = str(folder / "shop.db")
        super().__init__(guard)

    def words(self, text):
        return [SQLITE, "-bail", self.path, text]

    def apply(self, *options):
        subprocess.run([SQLITE, "-bail", self.path], input=printed("--dialect", "sqlite", *options), text=True, check=True)

    def entering(self, token):
        return f"BEGIN IMMEDIATE; INSERT INTO holdfast_enter(key, token) VALUES('account:7', {token}); "


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="sqlite-", dir=os.environ.get("HF_TEST_TMP"))
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=DIALECTS)
def account(request, folder):
    def make(guard):
        if request.param == "sqlite":
            return SqliteAccount(guard, folder)
        return PostgresAccount(guard, request.getfixturevalue("db"))

    make.names_both = request.param == "postgres"
    return make


# ---- the holders


class Holder:
    """Holds the lock 'account', and does as it is told."""

    def __init__(self, cli, ttl):
        self.process = cli.hold("account", "--ttl", ttl, script=PUPPET)
        self.token = self.process.token

    def begin(self, words):
        """The job's next step. A stopped one does it when it wakes."""
        self.process.say(f"echo said $({shlex.join(words)} 2>&1)")

    def answer(self):
        word, _, answer = self.process.line().partition(" ")
        assert word == "said"
        return answer

    def do(self, words):
        self.begin(words)
        return self.answer()

    def stop(self):
        for pid in (self.process.pid, self.process.job):
            os.kill(pid, signal.SIGSTOP)
        eventually(lambda: all(state(pid) == "T" for pid in (self.process.pid, self.process.job)), "both stopped")

    def wake(self):
        """The job first: whoever wakes late may be ended by `holdfast`, but need not be in time."""
        os.kill(self.process.job, signal.SIGCONT)
        answer = self.answer()
        os.kill(self.process.pid, signal.SIGCONT)
        assert self.process.wait() == 76, "it lost its lock"
        return answer

    def leave(self):
        self.process.popen.stdin.close()
        assert self.process.wait() == 0


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.fixture
def hold(redis):
    """Starts a Holder that is inside."""
    cli = Cli(redis.url())

    def start(ttl="30s"):
        return Holder(cli, ttl)

    yield start
    for process in cli.started:
        for pid in (process.pid, getattr(process, "job", None)):
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(pid, signal.SIGKILL)
    cli.clean()


def refusal(account, first, second, name):
    if not account.names_both:
        return "stale fencing token (see holdfast_marks)"
    return f'stale fencing token {first.token} for "{name}": {second.token} was seen'


NAMES = {"enter": "account:7", "column": "public.accounts:7"}


# ---- a holder that writes late


def test_a_late_write_without_a_guard_is_taken(account, hold):
    shop = account(None)
    first = hold("1s")
    first.stop()
    second = hold()
    assert second.token > first.token
    assert second.do(shop.writing(second.token, 50)) == "done"
    first.begin(shop.writing(first.token, 90))
    assert first.wake() == "done", "and it believes that all is well"
    assert shop.balance == 90, "what the second wrote is gone"
    second.leave()


@pytest.mark.parametrize("guard", ["enter", "column"])
def test_a_late_write_is_refused_by_the_guard(account, hold, guard):
    shop = account(guard)
    first = hold("1s")
    assert first.do(shop.writing(first.token, 95)) == "done"
    first.stop()
    second = hold()
    assert second.do(shop.writing(second.token, 50)) == "done"
    first.begin(shop.writing(first.token, 90))
    answer = first.wake()
    assert refusal(account, first, second, NAMES[guard]) in answer and "done" not in answer
    assert shop.balance == 50
    assert second.do(shop.writing(second.token, 40)) == "done"
    assert shop.balance == 40
    second.leave()


# ---- read, think, write: A reads, pauses; B reads; A writes; B writes. A takes 10, B takes 20.


def read_think_write(shop, hold):
    """What A was told, and what B was told."""
    first = hold("1s")
    read_first = int(first.do(shop.reading(first.token)))
    first.stop()
    second = hold()
    read_second = int(second.do(shop.reading(second.token)))
    first.begin(shop.writing(first.token, read_first - 10))
    told_first = first.wake()
    told_second = second.do(shop.writing(second.token, read_second - 20))
    second.leave()
    return first, second, told_first, told_second


def test_read_think_write_without_a_guard_loses_a_write(account, hold):
    shop = account(None)
    *_, told_first, told_second = read_think_write(shop, hold)
    assert (told_first, told_second) == ("done", "done")
    assert shop.balance == 80, "10 and 20 were taken from 100, and 80 are left"


@pytest.mark.parametrize("guard", ["enter", "column"])
def test_read_think_write_without_entering_first_loses_a_write(account, hold, guard):
    """The first rule: a mark that rises with the write comes too late."""
    shop = account(guard)
    shop.reading = lambda token: shop.words("SELECT balance FROM accounts WHERE id = 7;")
    *_, told_first, told_second = read_think_write(shop, hold)
    assert (told_first, told_second) == ("done", "done")
    assert shop.balance == 80, "10 and 20 were taken from 100, and 80 are left"


@pytest.mark.parametrize("guard", ["enter", "column"])
def test_read_think_write_with_the_guard(account, hold, guard):
    shop = account(guard)
    first, second, told_first, told_second = read_think_write(shop, hold)
    assert refusal(account, first, second, NAMES[guard]) in told_first and "done" not in told_first
    assert told_second == "done"
    assert shop.balance == 80, "20 were taken from 100: that is right"


# ---- the examples, from lock to write


def run_example(cli, *words):
    """Under a lock."""
    return cli("run", "batch-4472", "--", *words)


@pytest.mark.parametrize("name, state", [("enter", "done"), ("column", "archived")])
def test_the_examples_for_postgres(db, redis, name, state):
    session = db.session()
    session("CREATE TABLE batches (id int PRIMARY KEY, state text)")
    session("INSERT INTO batches VALUES (4472, 'open')")
    db.apply(*(["--table", "batches"] if name == "column" else []))
    psql = shlex.join([PROGRAMS + "/psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", db.server.folder, "-p", str(db.server.port), "-U",
                       "postgres", "-d", db.name])
    words = ["sh", "-c", f"{psql} -v token=$HOLDFAST_TOKEN <{shlex.quote(str(EXAMPLES / name))}.sql"]
    cli = Cli(redis.url())
    done = run_example(cli, *words)
    assert done.status == 0, done.stderr
    assert session.value("SELECT state FROM batches") == state
    session("UPDATE holdfast_marks SET token = %s" if name == "enter" else "UPDATE batches SET fence_token = %s", 2**53 - 1)
    session("UPDATE batches SET state = 'open'")
    done = run_example(cli, *words)
    assert done.status == 3 and "stale fencing token" in done.stderr
    assert session.value("SELECT state FROM batches") == "open"


@pytest.mark.skipif(not SQLITE, reason="needs sqlite3")
def test_the_example_for_sqlite(folder, redis):
    path = str(folder / "example.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.executescript("CREATE TABLE batches (id INTEGER PRIMARY KEY, state TEXT); INSERT INTO batches VALUES (4472, 'open')")
        shop.executescript(printed("--dialect", "sqlite"))
        cli, words = Cli(redis.url()), ["sh", str(EXAMPLES / "sqlite.sh"), path]
        assert run_example(cli, *words).status == 0
        assert shop.execute("SELECT state FROM batches").fetchall() == [("done",)]
        shop.execute("UPDATE batches SET state = 'open'")
        shop.execute("UPDATE holdfast_marks SET token = ?", (2**53 - 1,))
        done = run_example(cli, *words)
        assert done.status != 0 and "stale fencing token" in done.stderr
        assert shop.execute("SELECT state FROM batches").fetchall() == [("open",)]


# ---- no lock at all: a version column


def example(number, **values):
    """A statement of examples/sql/version.sql, with its values."""
    text = (EXAMPLES / "version.sql").read_text()
    statement = [line for line in text.splitlines() if not line.startswith("--")][number]
    for name, value in values.items():
        statement = statement.replace(f":{name}", str(value))
    return statement


READ = example(0, id=7)


def write(balance, version):
    return example(1, id=7, balance=balance, version=version)


ATTEMPTS_MAX = 200


def connect(shop):
    if isinstance(shop, SqliteAccount):
        return sqlite3.connect(shop.path, isolation_level=None, timeout=60)
    connection = shop.db.server.connect(shop.db.name)
    connection.autocommit = True
    return connection


def rows_changed(connection, statement):
    cursor = connection.cursor()
    cursor.execute(statement)
    return cursor.rowcount


def row(connection):
    cursor = connection.cursor()
    cursor.execute(READ)
    return cursor.fetchone()


def take_one(connection):
    """With retries that are bounded, and spread by chance."""
    for attempt in range(ATTEMPTS_MAX):
        balance, version = row(connection)
        if rows_changed(connection, write(balance - 1, version)) == 1:
            return
        time.sleep(random.uniform(0, min(0.5, 0.002 * 2**attempt)))
    raise AssertionError("gave up")


def test_a_version_column_refuses_what_was_decided_on_old_data(account):
    shop = account(None)
    first, second = connect(shop), connect(shop)
    (balance, version), (other_balance, other_version) = row(first), row(second)
    assert rows_changed(first, write(balance - 10, version)) == 1
    assert rows_changed(second, write(other_balance - 20, other_version)) == 0, "nothing was written: read again"
    balance, version = row(second)
    assert rows_changed(second, write(balance - 20, version)) == 1
    assert shop.balance == 70


def test_without_a_version_column_a_write_is_lost(account):
    shop = account(None)
    first, second = connect(shop), connect(shop)
    balances = row(first)[0], row(second)[0]
    for connection, balance, amount in ((first, balances[0], 10), (second, balances[1], 20)):
        assert rows_changed(connection, f"UPDATE accounts SET balance = {balance - amount} WHERE id = 7") == 1
    assert shop.balance == 80, "10 and 20 were taken from 100, and 80 are left"


def test_a_version_column_with_many_at_once(account):
    shop = account(None)
    failed = []

    def run():
        connection = connect(shop)
        try:
            for _ in range(10):
                take_one(connection)
        except BaseException as error:
            failed.append(error)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert shop.balance == 20
