"""A real holdfastd, and a small client of our own, for black-box tests of the server.

Told by the environment, which meson and tools/check set: HF_SERVER (the program holdfastd), HF_TEST_TMP (where
directories are made: on a disk), and what tests/system/cli/holdfast_cli.py reads. Whatever a test starts is ended after it,
also when it fails, and dies with pytest.

    start("--max-clients", 10)       a started Holdfastd, with .connect(), .cmd(...), .kill9(), .restart(), .pause()
    server                           one that the tests of a file share: they use names of their own
    with server.connect(3) as c:     a Client that speaks RESP3
        c.cmd("ACQUIRE", "x", "l")   the answer as a Python value, or Refused
        c.push()                     the next push
"""
import contextlib
import itertools
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
pytest.register_assert_rewrite("holdfast_cli")
from holdfast_cli import PATIENCE, ROOT, SOAK, Process, die_with_parent, eventually, is_running  # noqa: E402,F401
from ports import free_port  # noqa: E402,F401

SLOW_DISK = os.environ.get("HF_SLOW", str(ROOT / "build-check/tests/system/holdfastd/hf-slow.so"))
BIN = os.environ.get("HF_SERVER", str(ROOT / "build-check/src/server/holdfastd"))
PORT_TRIES = 5  # somebody may take a free port before the server does
STOP_MAX = 10  # seconds until a server that was asked to end is killed
SOCKET_PATH_MAX = 107  # of sun_path
CHUNK = 65536  # bytes of one read
YEAR_MS = 31622400000  # the longest WAIT, DELAY and KEEP
TTL_MAX = 86400000
TOKEN_MAX = 2**53 - 1


def put_first(nodes):
    """Whatever else this machine does, these nodes have the processor when they want it, where that is allowed: for tests in which
    any election is a fault, and not one of a machine on which a leader was not run for half a second."""
    for node in nodes:
        for thread in os.listdir(f"/proc/{node.pid}/task"):
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(1))


def different_ports(count):
    return sorted(free_port() for _ in range(count))


def boot_ms():
    """By the clock that also counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6


# ---- a client ----------------------------------------------------------------------------------------------------


class Refused(Exception):
    """An error that the server replied: "CODE words"."""

    @property
    def code(self):
        return str(self).split()[0]

    def __eq__(self, other):
        return isinstance(other, Refused) and str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


class Ended(Exception):
    """The server has closed the connection."""


def pack(*words):
    """A command as the protocol has it."""
    parts = [word if isinstance(word, bytes) else os.fsencode(str(word)) for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Client:
    """RESP2, and RESP3 after .hello(3). Of our own: a test that asks with somebody's client would believe its mistakes,
    and few of them can do what a test wants to do wrong. Strings come as str, with surrogates for what is not UTF-8;
    maps as dict; pushes only by .push() and .pushes_so_far()."""

    def __init__(self, address, protocol=2, patience=PATIENCE, password=None, tls=None):
        """tls: an ssl.SSLContext, or None for plain TCP."""
        self.address, self.protocol, self.tls = address, protocol, tls
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        self.buffer = b""
        self.at = 0  # bytes of the buffer that are read
        self.pushes = []
        try:
            self.socket.settimeout(patience)
            self.socket.connect(address)
            if self.socket.family == socket.AF_INET:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
            if password:
                self.cmd("AUTH", password)
            if protocol != 2:
                self.hello(protocol)
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self.socket.close()

    def another(self):
        """Another connection, to the same place."""
        return Client(self.address, self.protocol, tls=self.tls)

    def fileno(self):
        return self.socket.fileno()

    def reset(self):
        """Closes it as a machine does whose process was killed with answers unread."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    # -- bytes

    def raw(self, data):
        self.socket.sendall(data)

    def send(self, *words):
        self.raw(pack(*words))

    def _more(self):
        try:
            chunk = self.socket.recv(CHUNK)
        except (ConnectionError, ssl.SSLError) as error:
            raise Ended(str(error)) from None
        if not chunk:
            raise Ended("the server has closed the connection")
        self.buffer = self.buffer[self.at:] + chunk
        self.at = 0

    def _line(self):
        while (end := self.buffer.find(b"\r\n", self.at)) < 0:
            self._more()
        line = self.buffer[self.at:end]
        self.at = end + 2
        return line

    def _bytes(self, count):
        while len(self.buffer) - self.at < count + 2:
            self._more()
        blob = self.buffer[self.at:self.at + count]
        assert self.buffer[self.at + count:self.at + count + 2] == b"\r\n"
        self.at += count + 2
        return blob

    def read_raw(self, count):
        """Bytes as they came. Not together with values: they would be read from the middle of one."""
        while len(self.buffer) - self.at < count:
            self._more()
        data = self.buffer[self.at:self.at + count]
        self.at += count
        return data

    def skip(self, mark):
        """Reads until these bytes have come, without looking at what is before them."""
        while (found := self.buffer.find(mark, self.at)) < 0:
            self.at = max(self.at, len(self.buffer) - len(mark))
            self._more()
        self.at = found + len(mark)

    def read_to_end(self):
        """All that still comes until the server closes the connection."""
        with contextlib.suppress(Ended):
            while True:
                self._more()
        return self.buffer[self.at:]

    # -- values

    def _value(self):
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return os.fsdecode(rest)
        if kind == b"-":
            return Refused(os.fsdecode(rest))
        if kind == b"_":
            assert rest == b""
            return None
        count = int(rest)
        if kind == b":":
            return count
        if count < 0:
            assert kind in b"$*", line
            return None
        if kind == b"$":
            return os.fsdecode(self._bytes(count))
        if kind == b"%":
            pairs = [(self._value(), self._value()) for _ in range(count)]
            assert len(dict(pairs)) == count, "a key is there twice"
            return dict(pairs)
        assert kind in (b"*", b">"), line
        items = [self._value() for _ in range(count)]
        return tuple(items) if kind == b">" else items

    def read_any(self):
        """An answer, Refused as a value; pushes that come before it are kept for .push()."""
        while True:
            value = self._value()
            if not isinstance(value, tuple):
                return value
            self.pushes.append(value)

    def read(self):
        value = self.read_any()
        if isinstance(value, Refused):
            raise value
        return value

    def cmd(self, *words):
        self.send(*words)
        return self.read()

    def error(self, *words):
        """The error that this command gets, as text."""
        self.send(*words)
        value = self.read_any()
        assert isinstance(value, Refused), f"{words} was not refused: {value!r}"
        return str(value)

    def pipeline(self, *commands):
        """All at once; the answers in order, Refused as values."""
        self.raw(b"".join(pack(*words) for words in commands))
        return [self.read_any() for _ in commands]

    def push(self):
        """The next push. Answers that nobody asked for are wrong."""
        if self.pushes:
            return self.pushes.pop(0)
        value = self._value()
        assert isinstance(value, tuple), f"not a push: {value!r}"
        return value

    def pushes_so_far(self):
        """All pushes that were sent before the answer to a command that is sent now."""
        assert self.cmd("PING", "so far") == "so far"
        pushes, self.pushes = self.pushes, []
        return pushes

    def is_silent(self):
        """Nothing has arrived. For a connection that is blocked: others ask with pushes_so_far."""
        return self.at == len(self.buffer) and not select.select([self.socket], [], [], 0)[0]

    def ended(self):
        """Waits until the server closes the connection, and says whether nothing came before that."""
        return self.read_to_end() == b""

    # -- usual commands

    def hello(self, protocol):
        return pairs_of(self.cmd("HELLO", protocol))

    def show(self, name, *words):
        """As in RESP3, whatever it speaks."""
        shown = pairs_of(self.cmd("SHOW", name, *words))
        for part in ("holders", "waiters"):
            shown[part] = [pairs_of(row) for row in shown[part]]
        return shown

    def info(self, *sections):
        lines = self.cmd("INFO", *sections).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def own_id(self):
        return self.cmd("CLIENT", "ID")


def refused(client, *words):
    """The text of the error that it gets. The connection is the same one afterwards."""
    before = client.own_id()
    text = client.error(*words)
    assert re.fullmatch(r"[A-Z]+ [^\r\n]+", text), "one line, and it begins with a code"
    assert client.cmd("PING", "still here") == "still here"
    assert client.own_id() == before
    return text


def pairs_of(value):
    """A map, which is a flat array in RESP2."""
    return value if isinstance(value, dict) else dict(zip(value[::2], value[1::2]))


# ---- a server ----------------------------------------------------------------------------------------------------


SANITIZERS = ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")  # set by tools/check for a server that has one built in
REPORTS = tempfile.TemporaryDirectory(prefix="holdfastd-reports-")


def environment():
    """Without settings that whoever runs the tests has for a server of their own. A sanitizer writes its reports where
    fails_on_a_report() finds them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFASTD_", "NOTIFY_"))}
    # Leaks are for the C tests to find: to look for them takes a server four seconds as it ends.
    kept["HOLDFASTD_ALLOW"] = "tmpfs"  # what tests leave behind is of no use, and /tmp may be one
    kept.update({name: f"{kept[name]}:detect_leaks=0:log_path='{REPORTS.name}/report'" for name in SANITIZERS if name in kept})
    return kept


def argv_of(*args):
    return [BIN, "--config", os.devnull, *map(str, args)]


def run_refused(*args):
    """A holdfastd that is expected not to start: its exit status, and what it said last on stderr."""
    done = subprocess.run(argv_of(*args), env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=PATIENCE, preexec_fn=die_with_parent)
    assert done.stdout == "", done.stdout
    return done.returncode, done.stderr.splitlines()[-1]


class Holdfastd:
    """A holdfastd alone, on 127.0.0.1 and in a directory of its own. `listen`: at these addresses instead; `data`: in a
    directory of somebody else's, which stays; `wrapper`: words before the command. `tls`: a Certificate, for a second port, .tls_port."""

    def __init__(self, *args, listen=None, data=None, password=None, wrapper=(), tls=None):
        base = os.environ.get("HF_TEST_TMP") or "/tmp"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="holdfastd-", dir=base))
        self.data = pathlib.Path(data) if data else self.directory / "data"
        self.args, self.listen, self.password, self.wrapper = list(args), listen, password, wrapper
        self.process, self.log = None, []
        self.tls, self.tls_port = tls, None
        if tls:
            self.args += ["--tls-cert", tls.cert, "--tls-key", tls.key]
        if password:
            file = self.directory / "password"
            file.touch(0o600)
            file.write_text(password + "\n")
            self.args += ["--password-file", file]
        try:
            for _ in range(PORT_TRIES):
                self.port = free_port()
                self.tls_port = free_port() if tls else None
                if self.launch():
                    return
            raise AssertionError(f"holdfastd does not start: {self.log}")
        except BaseException:
            self.clean()
            raise

    def launch(self):
        """True when it serves, False if it ended instead."""
        listen = self.listen or f"127.0.0.1:{self.port}" + (f",tls:127.0.0.1:{self.tls_port}" if self.tls else "")
        argv = [*self.wrapper, *argv_of("--data", self.data, "--listen", listen, *self.args)]
        self.process = Process(argv, environment(), preexec_fn=die_with_parent)
        return self.await_line(" serving ", " or ended") is not None

    def await_line(self, word, or_ended=""):
        """The next line of its log with this word in it. None: it ended before; only if that is allowed."""
        while True:
            line = self.process.queues["err"].get(timeout=PATIENCE)
            if line is None:
                assert or_ended, f"no line with '{word}': {self.log}"
                return None
            self.log.append(line)
            if word in line:
                return line

    def logged(self):
        """All lines so far."""
        while not self.process.queues["err"].empty():
            line = self.process.queues["err"].get()
            if line is not None:
                self.log.append(line)
        return self.log

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process is not None and self.process.popen.poll() is None

    def connect(self, protocol=2, patience=PATIENCE):
        return Client(("127.0.0.1", self.port), protocol, patience, self.password)

    def cmd(self, *words):
        """One command over a connection of its own."""
        with self.connect() as client:
            return client.cmd(*words)

    def show(self, name, *words):
        with self.connect() as client:
            return client.show(name, *words)

    def info(self, *sections):
        with self.connect() as client:
            return client.info(*sections)

    def last_token(self):
        """The next one is one above it. A new store begins at the wall clock."""
        return int(self.info("Locks")["last_token"])

    def count(self, field):
        """A number of INFO, without the connection that asks."""
        return int(self.info()[field]) - (field == "connected_clients")

    def rss(self):
        """0 of a server with a sanitizer, which keeps for itself what is freed: make check measures."""
        if any(name in os.environ for name in SANITIZERS):
            return 0
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def sockets(self):
        """Those of its descriptors that come and go with clients: segments of the log do so with the log."""
        count = 0
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                count += os.readlink(f"/proc/{self.pid}/fd/{name}").startswith("socket:")
        return count

    def pause(self):
        """Stops it in the middle of whatever it does. The kernel still accepts connections."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def kill9(self):
        """As a crash would. What there is stays for .restart()."""
        if self.running():
            self.process.popen.kill()
            self.process.popen.wait()

    def stop(self):
        """Asks it to end, as an operator would; its exit status."""
        self.process.popen.terminate()
        try:
            return self.process.popen.wait(STOP_MAX)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"it did not end: {self.logged()}") from None

    def restart(self):
        """Again, on the same port and data."""
        if self.running():
            assert self.stop() == 0
        assert self.launch(), f"holdfastd does not start again: {self.log}"

    def clean(self):
        """Ends it and removes its directory. One that a test has not stopped must be able to end well."""
        try:
            if self.running():
                self.resume()  # it may be paused
                assert self.stop() == 0, self.logged()
        finally:
            self.kill9()
            shutil.rmtree(self.directory, ignore_errors=True)


# ---- fixtures ----------------------------------------------------------------------------------------------------


class Unfounded(Holdfastd):
    """A member of a cluster that nobody has founded yet, by default the only one. It answers, and cannot serve: nobody leads."""

    def __init__(self, number=1, line=None, *args):
        super().__init__("--id", number, "--cluster", line or f"{number}=127.0.0.1:{free_port()}", *args)

    def launch(self):
        argv = argv_of("--data", self.data, "--listen", f"127.0.0.1:{self.port}", *self.args)
        self.process = Process(argv, environment(), preexec_fn=die_with_parent)
        return self.await_line("belongs to no cluster yet", " or ended") is not None and eventually(self.answers, "it answers")

    def answers(self):
        try:
            return self.cmd("PING") == "PONG"
        except (OSError, Ended):
            return False


class Disk:
    """Of one node: it can be made to hang, from its write of that number on, if that has so many bytes."""

    def __init__(self, directory, name, least=0):
        self.path, self.hit = directory / name, directory / f"{name}.hit"
        self.wrapper = ["env", f"LD_PRELOAD={SLOW_DISK}", f"HF_HANG={self.path}", *([f"HF_HANG_BYTES={least}"] if least else [])]

    def hang(self, first=0):
        new = self.path.with_suffix(".new")
        new.write_text(str(first))
        self.hit.unlink(missing_ok=True)
        new.replace(self.path)

    def hangs(self):
        eventually(self.hit.exists, "the disk hangs")

    def go_on(self):
        self.path.unlink(missing_ok=True)


def fails_on_a_report():
    reports = sorted(pathlib.Path(REPORTS.name).iterdir())
    texts = [path.read_text(errors="replace") for path in reports]
    for path in reports:
        path.unlink()
    assert not texts, "\n".join(texts)


@pytest.fixture(autouse=True)
def no_report():
    """After whatever else is undone: of servers that a test starts and ends."""
    yield
    fails_on_a_report()


@pytest.fixture(autouse=True, scope="module")
def no_report_of_the_shared():
    yield
    fails_on_a_report()


@pytest.fixture
def start():
    """Starts servers, and ends them in the reverse order."""
    with contextlib.ExitStack() as stack:
        def make(*args, **kwargs):
            server = Holdfastd(*args, **kwargs)
            stack.callback(server.clean)
            return server

        yield make


@pytest.fixture(scope="module")
def shared():
    server = Holdfastd()
    yield server
    server.clean()


@pytest.fixture
def server(shared):
    """Whatever a test does to it, it is there and answers afterwards."""
    assert shared.running(), shared.logged()
    yield shared
    assert shared.running(), shared.logged()
    assert shared.cmd("PING") == "PONG"


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path, "hang")


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request, server):
    """In each of both protocols."""
    with server.connect(request.param) as made:
        yield made


@pytest.fixture
def clients(server):
    """Makes clients, and closes them."""
    with contextlib.ExitStack() as stack:
        yield lambda protocol=2, of=server: stack.enter_context(of.connect(protocol))


numbers = itertools.count(1)


@pytest.fixture
def name():
    """One that no other test uses."""
    return f"name-{next(numbers)}"


@pytest.fixture
def lease():
    """Makes leases that no other test uses."""
    return lambda: f"lease-{next(numbers)}"
