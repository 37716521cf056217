"""Servers and connections for the benchmarks of holdfastd: started on free ports, in folders of their own, and ended
by pid."""
import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time


PORT_MIN, PORT_END = 12000, 32768


def free_port():
    """Not one of those that outgoing connections get: where a server was killed, somebody's connection would take its place."""
    for _ in range(200):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", random.randrange(PORT_MIN, PORT_END)))
            return s.getsockname()[1]
    raise SystemExit("no free port from %d to %d" % (PORT_MIN, PORT_END - 1))


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def die_with_us():
    """In a server, before its exec: it ends with this process, however that ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Server:
    """A server process that has answered a PING."""

    def __init__(self, folder, words, port, cpu=None):
        self.folder, self.words, self.port = folder, words, port
        self.start()

    def start(self):
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.began = time.monotonic()
        self.process = subprocess.Popen(self.words, stdout=self.log, stderr=self.log, cwd=self.folder,
                                        preexec_fn=die_with_us)
        deadline = time.monotonic() + 60
        while True:
            try:
                with Connection(self.port) as c:
                    if c.call("PING") == "PONG":
                        break
            except (OSError, EOFError):
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("%s did not start: see %s/log" % (self.words[0], self.folder))
            time.sleep(0.002)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()
        self.log.close()

    def rss(self):
        with open("/proc/%d/statm" % self.process.pid) as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def cpu_seconds(self):
        with open("/proc/%d/stat" % self.process.pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def redis(folder, *settings):
    folder = os.path.join(folder, "redis%d" % free_port())
    os.mkdir(folder)
    port = free_port()
    return Server(folder, ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder,
                           *settings], port)


def holdfastd(program, folder, *settings, port=None, listen=None):
    folder = os.path.join(folder, "holdfastd%d" % free_port())
    os.mkdir(folder)
    port = port or free_port()
    return Server(folder, [program, "--data", os.path.join(folder, "data"), "--listen", listen or "127.0.0.1:%d" % port,
                           *settings], port)


class Cluster:
    """Three members on this machine, founded here, whose leader is known and knows all of them."""

    def __init__(self, program, folder, *settings, members=3):
        ids = range(1, members + 1)
        peers = ",".join("%d=127.0.0.1:%d" % (i, free_port()) for i in ids)
        self.members = [holdfastd(program, folder, "--id", str(i), "--cluster", peers, *settings) for i in ids]
        with Connection(self.members[0].port) as c:
            c.call("CLUSTER", "INIT")
        deadline = time.monotonic() + 30
        while not self.settled():
            if time.monotonic() > deadline:
                raise SystemExit("no leader: see %s" % folder)
            time.sleep(0.01)

    def settled(self):
        for member in self.members:
            with Connection(member.port, resp3=True) as c:
                status = c.call("CLUSTER", "STATUS")
            if status["role"] == "leader" and all(m["client"] for m in status["members"]):
                self.leader = member
                return True
        return False

    @property
    def port(self):
        return self.leader.port

    @property
    def followers(self):
        return [m for m in self.members if m is not self.leader]

    def stop(self):
        for member in self.followers + [self.leader]:
            member.stop()


class Folder:
    """A temporary folder on a disk: fdatasync on a tmpfs costs nothing."""

    def __init__(self, below):
        self.path = tempfile.mkdtemp(dir=below)

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def command(*words):
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(out)


class Connection:
    """A client that blocks. Pushes are kept aside."""

    def __init__(self, port, resp3=False):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb", buffering=1 << 18)
        self.pushes = []
        if resp3:
            self.call("HELLO", 3)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.input.close()
        self.socket.close()

    def send(self, *words):
        self.socket.sendall(command(*words))

    def read(self):
        """The next value; an error is returned as an Exception."""
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("the connection was closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Exception(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_" or rest == b"-1":
            return None
        if kind == b"$":
            return self.input.read(int(rest) + 2)[:-2].decode()
        if kind == b"%":
            return {self.read(): self.read() for _ in range(int(rest))}
        if kind in b"*>":
            return [self.read() for _ in range(int(rest))]
        raise ValueError("not RESP: %r" % line)

    def answer(self):
        """The next value that is not a push."""
        while True:
            peek = self.input.peek(1)[:1]
            value = self.read()
            if peek != b">":
                return value
            self.pushes.append(value)

    def push(self):
        return self.pushes.pop(0) if self.pushes else self.read()

    def call(self, *words):
        self.send(*words)
        return self.answer()
