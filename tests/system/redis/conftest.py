"""Real Redis servers, and relays that cut, slow and lose what passes, for black-box tests of the stores on Redis.

Told by the environment, which meson and tools/check set: HF_RELAY (the program hf-relay), HF_HOLDER (the conformance
program, for its --hold), HF_TEST_TMP (where directories are made), and what tests/system/cli/holdfast_cli.py reads. Whatever
a test starts is ended after it, also when it fails, and dies with pytest.

    servers.redis("--maxmemory", "1mb")      a started Redis
    servers.redis(faketime=True)             one whose wall clock can be moved, with .set_clock("+15s")
    servers.relay(redis)                     a started Relay: connect to .port
    cli_on(redis.url(prefix="x/"))           the command on this store
"""
import contextlib
import glob
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse

import pytest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
pytest.register_assert_rewrite("holdfast_cli")
from holdfast_cli import (BIN, PATIENCE, ROOT, SOAK, Cli, Process, await_gone, die_with_parent,  # noqa: E402,F401
                          eventually, is_running, shell_status)
from ports import free_port  # noqa: E402,F401
from relay import Relay as BareRelay  # noqa: E402

SOCKET_PATH_MAX = 107  # of sun_path
PORT_TRIES = 5  # somebody may take a free port before the server does
STOP_MAX = 5  # seconds until a server that was asked to end is killed


class RedisError(Exception):
    """An error that the server replied."""


class Connection:
    """A tiny client: RESP2, one command after the other. Of its own: a test that asks with what it tests would believe
    its mistakes. Strings come as str, with surrogates for what is not UTF-8."""

    def __init__(self, address, patience=PATIENCE):
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        try:
            self.socket.settimeout(patience)
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, *words):
        parts = [word if isinstance(word, bytes) else os.fsencode(str(word)) for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts)
                            + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RedisError(os.fsdecode(rest))
        if kind == b"+":
            return os.fsdecode(rest)
        count = int(rest)
        if kind == b":":
            return count
        if count < 0:
            return None
        if kind == b"$":
            blob = self.file.read(count + 2)
            if len(blob) != count + 2:
                raise ConnectionError("the connection ended")
            return os.fsdecode(blob[:-2])
        assert kind == b"*", line
        return [self.read() for _ in range(count)]

    def cmd(self, *words):
        self.send(*words)
        return self.read()


class Clock:
    """A wall clock that can be moved, for whoever is started with .env. Timers, and clocks that only tick, go on as they
    are. No cache, so that a change shows at once."""

    def __init__(self, directory):
        libraries = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        assert libraries, "libfaketime is not installed"
        self.file = pathlib.Path(directory) / "clock"
        self.set("+0")
        self.env = {"LD_PRELOAD": libraries[0], "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
                    "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def set(self, offset):
        """"+15s", "-10d", relative to the true one."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(offset + "\n")
        fresh.rename(self.file)


class Redis:
    """A redis-server that keeps nothing, on 127.0.0.1 and on a Unix socket."""

    def __init__(self, *args, base=None, faketime=False):
        # A Unix socket's path must be short.
        base = base or os.environ.get("HF_TEST_TMP") or "/tmp"
        if len(os.path.join(base, "redis-12345678", "redis.sock")) > SOCKET_PATH_MAX:
            base = "/tmp"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="redis-", dir=base))
        self.socket = str(self.directory / "redis.sock")
        self.args = args
        self.popen = None
        self.env = dict(os.environ)
        self.clock = None
        try:
            if faketime:
                self._prepare_clock()
            for _ in range(PORT_TRIES):
                self.port = free_port()
                if self._launch():
                    return
            raise AssertionError(f"redis-server does not start: {self.log()}")
        except BaseException:
            self.stop()
            raise

    def _prepare_clock(self):
        self.clock = Clock(self.directory)
        self.env.update(self.clock.env)
        # libc.so.6 before jemalloc, whose malloc asks for the time, for which libfaketime, when it is new, calls malloc:
        # they would wait for each other for ever.
        self.env["LD_PRELOAD"] += " libc.so.6"

    def _launch(self):
        """True when it answers, False if it ended instead."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)  # a killed one leaves it behind
        argv = [shutil.which("redis-server") or "/usr/bin/redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                "--unixsocket", self.socket, "--dir", str(self.directory), "--save", "", "--appendonly", "no",
                "--daemonize", "no", "--logfile", str(self.directory / "log"), "--loglevel", "notice",
                "--repl-diskless-sync-delay", "0", *map(str, self.args)]
        with open(self.directory / "output", "wb") as output:
            self.popen = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=output,
                                          stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
        return eventually(lambda: "ended" if self.popen.poll() is not None else self._answers(),
                          "redis-server answers") != "ended"

    def _answers(self):
        try:
            return bool(self.cmd("PING"))
        except RedisError as error:
            return not str(error).startswith("LOADING")  # it may well want a password
        except OSError:
            return False

    @property
    def pid(self):
        return self.popen.pid

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def url(self, scheme="redis", **parameters):
        return f"{scheme}://{self.address}{query(parameters)}"

    def log(self):
        return "".join((self.directory / name).read_text(errors="replace")
                       for name in ("output", "log") if (self.directory / name).exists())

    def running(self):
        return self.popen is not None and self.popen.poll() is None

    def connect(self, patience=PATIENCE):
        return Connection(self.socket, patience)

    def cmd(self, *words, patience=PATIENCE):
        """One command over a connection of its own, as Python values. RedisError for an error reply."""
        with self.connect(patience) as connection:
            return connection.cmd(*words)

    def info(self, section):
        return dict(line.split(":", 1) for line in self.cmd("INFO", section).splitlines() if ":" in line)

    def set_clock(self, offset):
        """Moves the wall clock: "+15s", "-10d", relative to the true one. Only with faketime=True."""
        assert self.clock, "not started with faketime=True"
        self.clock.set(offset)

    def pause(self):
        """Stops it in the middle of whatever it does. The kernel still accepts connections."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        """As a crash would. What there is stays for .restart()."""
        if self.running():
            self.popen.kill()
            self.popen.wait()

    def restart(self, empty=True):
        """Again, on the same port. Not empty: a running server saves its data first, and what a killed one had written
        is read again."""
        if self.running() and not empty:
            self.resume()
            assert self.cmd("SAVE") == "OK"
        self.kill()
        if empty:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.directory / "dump.rdb")
            shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)
        assert self._launch(), f"redis-server does not start again: {self.log()}"

    def replicate(self, primary):
        """Follows a Redis, or one behind a Relay; returns when it has all the data."""
        self.cmd("REPLICAOF", "127.0.0.1", primary.port)
        eventually(lambda: self.info("replication").get("master_link_status") == "up", "replica in step")

    def catch_up(self, primary):
        """Until it has all that the primary has now. (WAIT sees only what its own connection wrote.)"""
        goal = int(primary.info("replication")["master_repl_offset"])
        eventually(lambda: int(self.info("replication")["slave_repl_offset"]) >= goal, "replica in step")

    def promote(self):
        """A replica becomes a primary, with what it has."""
        self.cmd("REPLICAOF", "NO", "ONE")
        assert self.info("replication")["role"] == "master"

    def stop(self):
        """Ends it and removes its directory."""
        if self.running():
            self.popen.terminate()
            self.resume()  # it may be paused
            try:
                self.popen.wait(STOP_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Relay(BareRelay):
    """Before a Redis (or a port)."""

    def __init__(self, upstream):
        super().__init__(getattr(upstream, "port", upstream))

    def url(self, scheme="redis", **parameters):
        return f"{scheme}://{self.address}{query(parameters)}"

    def connect(self, patience=PATIENCE):
        return Connection(("127.0.0.1", self.port), patience)

    def cmd(self, *words, patience=PATIENCE):
        with self.connect(patience) as connection:
            return connection.cmd(*words)


def query(parameters):
    return "?" + urllib.parse.urlencode(parameters, safe="/", quote_via=urllib.parse.quote) if parameters else ""


def refused(cli, *words, status=77, args=("run", "-n", "x", "true")):
    """Not a word of it on stdout (lock: what makes an eval fail), one line on stderr with all of these words."""
    done = cli(*args)
    assert done.status == status, done.stderr
    assert done.stdout == (f"(exit {status})\n" if args[0] == "lock" else "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr
    return done.stderr


def script_text(name):
    """A script as the stores send it: scripts.c puts it together in this order."""
    scripts = ROOT / "src/engines/redis/scripts"
    parts = [scripts / f"{part}.lua" for part in ("keys", name + "_quick", "common", name)]
    return "".join(part.read_text() for part in parts if part.exists())


def redlock_url(nodes, **parameters):
    """nodes: Redis or Relay."""
    return f"redlock://{','.join(node.address for node in nodes)}{query(parameters)}"


class Servers:
    """Starts servers, and ends them in the reverse order."""

    def __init__(self, stack):
        self.stack = stack

    def _keep(self, server):
        self.stack.callback(server.stop)
        return server

    def redis(self, *args, faketime=False):
        return self._keep(Redis(*args, faketime=faketime))

    def relay(self, upstream):
        return self._keep(Relay(upstream))


@pytest.fixture
def servers():
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture
def redis(servers):
    return servers.redis()


@pytest.fixture
def relay(servers, redis):
    """Before the fixture redis."""
    return servers.relay(redis)


@pytest.fixture
def five_redis(servers):
    return [servers.redis() for _ in range(5)]


@pytest.fixture
def primary_and_replica(servers):
    primary, replica = servers.redis(), servers.redis()
    replica.replicate(primary)
    return primary, replica


@pytest.fixture
def directory():
    base = os.environ.get("HF_TEST_TMP") or pathlib.Path(BIN).resolve().parent
    path = tempfile.mkdtemp(prefix="redis-test-", dir=base)
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def cli_on(servers):
    """The command on the store of a URL; what it started is ended before the servers are."""
    def make(url):
        cli = Cli(url)
        servers.stack.callback(cli.clean)
        return cli

    return make
