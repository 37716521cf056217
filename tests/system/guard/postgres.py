"""A PostgreSQL server for the tests of the SQL guard: one for all tests of a file, a database for each test.

    db.apply("--table", "batches")           what `holdfast guard sql` prints, as psql would apply it
    session = db.session()                   a connection that commits each statement, until .begin()
    session("SELECT holdfast_enter(%s, %s)", "x", 35)     rows; psycopg2's error for a refusal
    with refused("HF001", "33", "34"): ...   this error code, and these words in its message
    waiting = session.start("...")           in a thread; .blocked() waits until it waits for a lock
"""
import contextlib
import glob
import itertools
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest
from redis_server import BIN, PATIENCE, SOAK, eventually, servers  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[3]
psycopg2 = pytest.importorskip("psycopg2", reason="needs psycopg2")
free_port, die_with_parent = servers.free_port, servers.die_with_parent

STALE, MISSING, WRONG, SERIALIZE = "HF001", "HF002", "22023", "40001"


def programs():
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres") + [shutil.which("postgres") or ""]
    folders = [os.path.dirname(path) for path in found if path]
    return max(folders, key=lambda f: float((re.findall(r"/(\d+)/", f) or ["0"])[0]), default=None)


PROGRAMS = programs()
if not PROGRAMS:
    pytest.skip("needs PostgreSQL", allow_module_level=True)


def reachable(path):
    """May anybody enter it?"""
    path = pathlib.Path(path).resolve()
    return all(part.stat().st_mode & 0o001 for part in [path, *path.parents])


def printed(*options):
    """What the command prints."""
    done = subprocess.run([BIN, "guard", "sql", *options], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@contextlib.contextmanager
def refused(code, *words):
    """The statement fails like this."""
    with pytest.raises(psycopg2.Error) as failure:
        yield failure
    assert failure.value.pgcode == code, failure.value
    for word in words:
        assert str(word) in failure.value.diag.message_primary


class Server:
    """It refuses to run as root, so it runs as postgres then."""

    def __init__(self):
        base = os.environ.get("HF_TEST_TMP") or "/tmp"
        self.user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self.user and not reachable(base) or len(base) > 60:  # a socket's path is short, too
            base = "/tmp"
        self.folder = tempfile.mkdtemp(prefix="postgres-", dir=base)
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.popen, self.numbers = None, itertools.count(1)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self):
        data = self.folder + "/data"
        subprocess.run([PROGRAMS + "/initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"], check=True, cwd="/",
                       stdout=subprocess.DEVNULL, preexec_fn=self.become)
        self.port = free_port()
        with open(self.folder + "/log", "wb") as log:
            self.popen = subprocess.Popen(
                [PROGRAMS + "/postgres", "-D", data, "-p", str(self.port), "-k", self.folder, "-c", "listen_addresses=",
                 "-c", "fsync=off", "-c", "max_connections=60", "-c", "max_prepared_transactions=10"], stdout=log, stderr=log, preexec_fn=self.begin)
        eventually(self.answers, "PostgreSQL answers")

    def become(self):
        if self.user:
            os.setgid(self.user.pw_gid)
            os.setuid(self.user.pw_uid)

    def begin(self):
        self.become()
        die_with_parent()

    def answers(self):
        assert self.popen.poll() is None, pathlib.Path(self.folder, "log").read_text(errors="replace")
        with contextlib.suppress(psycopg2.OperationalError):
            self.connect("postgres").close()
            return True
        return False

    def connect(self, database, user="postgres"):
        return psycopg2.connect(host=self.folder, port=self.port, user=user, dbname=database)

    def stop(self):
        if self.popen:
            self.popen.send_signal(signal.SIGQUIT)  # without waiting for anybody, nor for the disk
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Session:
    """A connection."""

    def __init__(self, connection):
        self.connection = connection
        connection.autocommit = True

    @property
    def pid(self):
        return self.connection.info.backend_pid

    def __call__(self, statement, *values):
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else cursor.rowcount

    def value(self, statement, *values):
        ((value,),) = self(statement, *values)
        return value

    def begin(self, level="READ COMMITTED"):
        self(f"BEGIN ISOLATION LEVEL {level}")
        return self

    def commit(self):
        self("COMMIT")

    def rollback(self):
        self("ROLLBACK")

    def enter(self, key, token, *mode):
        return self.value(f"SELECT holdfast_enter(%s, %s{', %s' if mode else ''})", key, token, *mode)

    def mark(self, key, guard=""):
        rows = self("SELECT token FROM holdfast_marks WHERE guard = %s AND key = %s", guard, str(key))
        return rows[0][0] if rows else None

    def start(self, statement, *values):
        return Running(self, statement, values)


class Running:
    """A statement in a thread of its own."""

    def __init__(self, session, statement, values):
        self.session, self.error, self.rows = session, None, None
        self.thread = threading.Thread(target=self.run, args=(statement, values), daemon=True)
        self.thread.start()

    def run(self, statement, values):
        try:
            self.rows = self.session(statement, *values)
        except psycopg2.Error as error:
            self.error = error

    def blocked(self, by):
        """Waits until it waits for that session."""
        eventually(lambda: by.value("SELECT %s = ANY (pg_blocking_pids(%s))", by.pid, self.session.pid), "it waits")
        assert self.thread.is_alive()
        return self

    def end(self):
        """What it returned, or its error raised here."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "it still waits"
        if self.error:
            raise self.error
        return self.rows


class Database:
    """An empty one."""

    def __init__(self, server, stack):
        self.server, self.stack = server, stack
        self.name = f"test{next(server.numbers)}"
        with contextlib.closing(server.connect("postgres")) as connection:
            Session(connection)(f"CREATE DATABASE {self.name}")

    def session(self, user="postgres"):
        connection = self.server.connect(self.name, user)
        self.stack.callback(connection.close)
        return Session(connection)

    def psql(self, text, *options):
        """As one would apply it: through psql."""
        return subprocess.run([PROGRAMS + "/psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.server.folder, "-p",
                               str(self.server.port), "-U", "postgres", "-d", self.name, *options], input=text, text=True,
                              capture_output=True, timeout=PATIENCE)

    def apply(self, *options):
        done = self.psql(printed("--dialect", "postgres", *options))
        said = [line for line in done.stderr.splitlines() if "does not exist, skipping" not in line or "--undo" not in options]
        assert (done.returncode, done.stdout, said) == (0, "", [])

    def role(self):
        """A user that may do nothing that was not granted."""
        name = f"{self.name}_nobody"
        self.session()(f"CREATE ROLE {name} LOGIN")
        return name


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def db(server):
    with contextlib.ExitStack() as stack:
        yield Database(server, stack)


@pytest.fixture
def entering(db):
    """A session in a database with holdfast_enter."""
    db.apply()
    return db.session()
