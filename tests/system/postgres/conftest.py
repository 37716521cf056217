"""Real PostgreSQL servers, replicas and pgbouncer, for black-box tests of the store on them.

Told by the environment as tests/system/redis/conftest.py is: HF_HOLDER, HF_TEST_TMP, HF_POSTGRES (tests/lib/servers/hf_postgres.c), and what
tests/system/cli/holdfast_cli.py reads. Whatever a test starts is ended after it, also when it fails, and dies with pytest.

    servers.postgres("-c", "max_connections=9")   a started Server; fresh=True: with another system identifier; clock=True: whose
                                                  wall clock obeys .set_clock("+15s")
    servers.replica(primary, "standby1")          a Server that streams from it
    servers.pgbouncer(server, "max_client_conn=9")
    server.url(table)                             the store in that table; user=, database=, and any option
    server.session()                              a connection that commits each statement, until it says BEGIN
    session("SELECT 1")                           rows; psycopg2's error for a refusal
    claims(session, table, "x")                   what the store has of a name
    cli_on(server.url(table))                     the command on this store
"""
import contextlib
import glob
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(1, str(TESTS / "cli"))
sys.path.append(str(TESTS / "redis"))  # holder.py
pytest.register_assert_rewrite("holdfast_cli")
from holdfast_cli import (BIN, PATIENCE, ROOT, SOAK, Cli, Process, await_gone, die_with_parent,  # noqa: E402,F401
                          eventually, is_running)

psycopg2 = pytest.importorskip("psycopg2", reason="needs psycopg2")

HF_POSTGRES = os.environ.get("HF_POSTGRES", str(ROOT / "build-check/tests/lib/servers/hf-postgres"))
STALE, MISSING = "HF001", "HF002"  # of the guard


def seconds(since):
    return time.monotonic() - since


class Session:
    """A connection."""

    def __init__(self, connection):
        self.connection = connection
        connection.autocommit = True

    @property
    def pid(self):
        return self.connection.info.backend_pid

    @property
    def notices(self):
        return self.connection.notices

    def __call__(self, statement, *values):
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else cursor.rowcount

    def value(self, statement, *values):
        ((value,),) = self(statement, *values)
        return value

    def close(self):
        self.connection.close()


class Program:
    """An hf-postgres, and what it has started."""

    def __init__(self, *words, env=None):
        self.popen = subprocess.Popen([HF_POSTGRES, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, **(env or {})})
        try:
            port, directory = self.popen.stdout.readline().split()
        except ValueError:
            self.stop()
            raise AssertionError(f"hf-postgres {words} does not start") from None
        self.port, self.directory = int(port), pathlib.Path(directory)
        self.sessions = []

    def do(self, word):
        self.popen.stdin.write(word + "\n")
        self.popen.stdin.flush()
        assert self.popen.stdout.readline() == "ok\n", word

    def connect(self, user="postgres", database="postgres", **parameters):
        return psycopg2.connect(host="127.0.0.1", port=self.port, user=user, dbname=database, **parameters)

    def session(self, user="postgres", database="postgres", **parameters):
        session = Session(self.connect(user, database, **parameters))
        self.sessions.append(session)
        return session

    def url(self, table=None, user="postgres", database="postgres", hosts=None, **options):
        if table:
            options["table"] = table
        return (f"postgres://{user}@{hosts or self.host}/{database}"
                + ("?" + urllib.parse.urlencode(options) if options else ""))

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        for session in getattr(self, "sessions", []):
            with contextlib.suppress(psycopg2.Error):
                session.close()
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        try:
            self.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.popen.stdout.close()


class Server(Program):
    def __init__(self, *words, clock=None, env=None):
        self.clock = clock
        self.pids = []
        super().__init__(*words, env={**(clock.env if clock else {}), **(env or {})})
        self.pids = [self.popen.pid, int((self.directory / "data/postmaster.pid").read_text().split()[0])]

    def stop(self):
        super().stop()
        if self.clock:
            self.clock.clean(self.pids)

    def kill9(self):
        """All of its processes, as a crash would."""
        self.do("kill")

    def start(self):
        """Again, after kill9; a running one is shut down before."""
        self.do("start")

    restart = start

    def pause(self):
        self.do("pause")

    def resume(self):
        self.do("resume")

    def promote(self):
        self.do("promote")

    def set_clock(self, offset):
        """Moves its wall clock: "+15s", "-10d", relative to the true one."""
        self.clock.set(offset)

    def log(self):
        return (self.directory / "output").read_text(errors="replace")

    def set(self, name, value):
        """A setting of the server, in effect for those who look from now on."""
        session = self.session()
        session(f"ALTER SYSTEM SET {name} = %s", value)
        session("SELECT pg_reload_conf()")
        eventually(lambda: self.session().value(f"SHOW {name}") == value, f"{name} = {value}")

    def let_in(self, *lines):
        """These lines before all others in pg_hba.conf."""
        path = self.directory / "data/pg_hba.conf"
        path.write_text("\n".join(lines) + "\n" + path.read_text())
        self.session()("SELECT pg_reload_conf()")


class Clock:
    """A wall clock that can be moved, for whoever is started with .env. Timers, and clocks that only tick, go on as they are."""

    def __init__(self, directory):
        libraries = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        if not libraries:
            pytest.skip("needs libfaketime")
        self.file = pathlib.Path(directory) / "clock"
        self.set("+0")
        self.env = {"LD_PRELOAD": libraries[0], "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
                    "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    @staticmethod
    def clean(pids):
        """libfaketime leaves these behind when a process does not end as it likes."""
        for pid in pids:
            for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
                pathlib.Path("/dev/shm", name).unlink(missing_ok=True)

    def set(self, offset):
        fresh = self.file.with_suffix(".new")
        fresh.write_text(offset + "\n")
        fresh.chmod(0o644)
        fresh.rename(self.file)


class Servers:
    """Starts servers, and ends them in the reverse order."""

    def __init__(self, stack):
        self.stack = stack

    def folder(self):
        """One that PostgreSQL, which runs as somebody else, can reach. Not pytest's: each pytest that starts closes those to others."""
        path = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-", dir="/var/tmp"))
        self.stack.callback(shutil.rmtree, path, ignore_errors=True)
        path.chmod(0o711)
        return path

    def keep(self, program):
        self.stack.callback(program.stop)
        return program

    def postgres(self, *args, fresh=False, clock=False, env=None):
        return self.keep(Server("fresh" if fresh else "server", *args, env=env,
                                clock=Clock(self.folder()) if clock else None))

    def replica(self, primary, name, *args):
        return self.keep(Server("replica", primary.port, name, *args))

    def pgbouncer(self, server, *lines):
        return self.keep(Program("pgbouncer", server.port, *lines))


@pytest.fixture
def servers():
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(scope="module")
def server():
    """One for all tests of a file that do it no harm."""
    server = Server("server")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pooler(server):
    """pgbouncer in transaction mode before it."""
    pooler = Program("pgbouncer", server.port)
    yield pooler
    pooler.stop()


@pytest.fixture
def table():
    return f"t{random.randrange(1 << 48):x}"


@pytest.fixture
def cli_on(servers):
    def make(url, **env):
        cli = Cli(url)
        cli.env.update(env)
        servers.stack.callback(cli.clean)
        return cli

    return make


def claims(session, table, name):
    """What there is of a name, in its order: dictionaries with token (None: it waits) and beat."""
    rows = session(f"SELECT token, beat FROM {table}_claims WHERE name = %s AND mode IN ('x', 's', 'p') ORDER BY id", name.encode())
    return [{"token": token, "beat": beat} for token, beat in rows]


def await_claims(session, table, name, count):
    return eventually(lambda: len(found := claims(session, table, name)) == count and found, f"{count} claims")


def make_table(cli_on, server, table, **options):
    """The store's tables, made by its first use."""
    done = cli_on(server.url(table, **options))("run", "first", "--", "true")
    assert done.status == 0, done.stderr


def guard_sql(*options):
    """What the command prints."""
    done = subprocess.run([BIN, "guard", "sql", "--dialect", "postgres", *options], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout
