"""Clients that are broken, or wish us ill. Whatever they do, others are served meanwhile, and afterwards the server is
as it was: as many clients, as many descriptors, no more memory than it had."""
import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import PATIENCE, SOAK, TTL_MAX, Client, Ended, Refused, boot_ms, eventually, pack, run_refused

MIB = 1 << 20
QUERY_MAX = MIB  # the default of --max-query-bytes
WORDS_MAX = 8191
SECONDS = 5  # until an honest client is answered, whatever else goes on
SEED = 7


class Bystander(threading.Thread):
    """An honest client that is served all the while: it takes and releases, and looks how long that takes."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stopped, self.turns, self.worst, self.failure = server, threading.Event(), 0, 0, None

    def run(self):
        try:
            with self.server.connect(patience=SECONDS) as client:
                while not self.stopped.is_set():
                    before = time.monotonic()
                    token = client.cmd("ACQUIRE", "bystander", f"bystander-{self.turns}")
                    assert client.cmd("PING") == "PONG" and client.cmd("RELEASE", "bystander", f"bystander-{self.turns}") == 1
                    assert token > 0
                    self.worst = max(self.worst, time.monotonic() - before)
                    self.turns += 1
                    self.stopped.wait(0.01)
        except BaseException as failure:  # the test has to hear of it
            self.failure = failure


@pytest.fixture
def bystander(server):
    """Served before, during and after. Then the server has nothing left of those who came meanwhile."""
    sockets, clients = server.sockets(), server.count("connected_clients")
    other = Bystander(server)
    other.start()
    eventually(lambda: other.turns or other.failure, "it is served")
    yield other
    before = other.turns
    eventually(lambda: other.turns > before or other.failure, "it is served still")
    other.stopped.set()
    other.join(PATIENCE)
    if other.failure:
        raise other.failure
    assert other.worst < SECONDS
    eventually(lambda: server.count("connected_clients") == clients, "no client is left")
    eventually(lambda: server.sockets() <= sockets, "no socket is left")


@pytest.fixture
def steady(server):
    """The same thing over and over: memory grows at first, and then no more."""
    def check(act, turns=4, slack=2 * MIB):
        clients = server.count("connected_clients")

        def measure():
            act()
            eventually(lambda: server.count("connected_clients") <= clients, "those who went are gone")
            return server.rss()

        first = measure()
        last = [measure() for _ in range(turns)][-1]
        assert last < first + slack, f"{last - first} bytes more after {turns} times"

    return check


def said_goodbye(client, words="ERR Protocol error: "):
    """Its last words are an error, and then the connection ends."""
    last = client.read_to_end()
    assert last.startswith(b"-" + words.encode()) and last.endswith(b"\r\n") and last.count(b"\n") == 1, last[:200]


# ---- broken framing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PING\r\n", b"\x16\x03\x01\x02\x00", b"\r\n", b"\0", b"*x\r\n", b"*1\n", b"*1 \r\n",
    b"*-2\r\n", b"*99999999999999999999\r\n", b"*+1\r\n", b"*1\r\n$x\r\n", b"*1\r\n$-2\r\n", b"*1\r\n$4\r\nPINGxx",
    b"*1\r\n$3\r\nPING\r\n", b"*1\r\n$4\r\nPING\r\r", b"*1\r\n$ 4\r\nPING\r\n", b"*?\r\n", b"$?\r\n", b":1x\r\n", b"#x\r\n", b"_x\r\n",
    b"*1\r\n>1\r\n+x\r\n", b"=3\r\nabc\r\n", b"+" + b"x" * 70000, b"*1\r\n+a\rb\r\n",
    b"*2\r\n" * 9, b"|1\r\n" * 9, b"*1\r\n" * 8 + b"*0\r\n",
], ids=lambda raw: repr(raw[:12]))
def test_what_is_not_resp(server, bystander, raw):
    """After a right command: that one is answered first. Then the error, and then the end."""
    with server.connect() as client:
        client.raw(pack("ACQUIRE", "not-resp", "not-resp") + raw)
        assert client.read() > 0
        said_goodbye(client)


def test_limits_of_one_command(server, bystander):
    with server.connect() as client:
        most = "x" * (QUERY_MAX - 100)
        assert client.cmd("PING", most) == most
        assert client.error(*["x"] * WORDS_MAX) == "ERR unknown command 'x'"
        client.raw(b"*%d\r\n" % (WORDS_MAX + 1))
        said_goodbye(client)
    for raw in (b"*2\r\n$4\r\nPING\r\n$%d\r\n" % QUERY_MAX, b"*1\r\n$%d\r\n" % (QUERY_MAX + 1), b"*1\r\n$9223372036854775807\r\n",
                b"*2147483647\r\n", b"*9223372036854775807\r\n", b"%4611686018427387904\r\n", b"*3\r\n%5000\r\n"):
        with server.connect() as client:
            client.raw(raw)
            said_goodbye(client)
    with server.connect() as client:
        words = 30
        client.raw(b"*%d\r\n" % words + b"".join(b"$40000\r\n" + b"x" * 40000 + b"\r\n" for _ in range(words - 3)))
        said_goodbye(client)
    with server.connect() as client:
        client.raw(b"*1\r\n" * 7 + b"*1\r\n$4\r\nPING\r\n")
        with pytest.raises(Refused, match="^ERR a command is an array of strings$"):
            client.read()


def test_other_limits(start):
    server = start("--max-query-bytes", "16KiB", "--max-pipeline", 1)
    with server.connect() as client:
        assert client.cmd("PING", "x" * 16000) == "x" * 16000
        last = server.last_token()
        answers = client.pipeline(*[["ACQUIRE", f"n-{index}", "l"] for index in range(300)])
        assert answers == list(range(last + 1, last + 301)), "one after the other, but all of them"
        client.send("PING", "x" * 16384)
        said_goodbye(client)


def test_garbage(server, bystander, steady):
    chance = random.Random(SEED)

    def act():
        for _ in range(200 if SOAK else 50):
            with server.connect() as client, contextlib.suppress(Ended, OSError):
                client.raw(chance.randbytes(chance.randrange(1, 2000)))
                client.socket.shutdown(socket.SHUT_WR)
                client.read_to_end()

    steady(act)


def test_damaged_commands(server, bystander, name):
    """Right ones with one byte changed, removed or added: an answer, an error or the end, and never anything else."""
    chance = random.Random(SEED)
    right = pack("ACQUIRE", name, "damaged", "TTL", 1000, "OWNER", "me") + pack("SHOW", name) + pack("RENEW", "damaged", "x") + \
        pack("RELEASE", name, "damaged") + pack("LOCKS", "MATCH", "x*", "COUNT", 5) + pack("ONCE", "READ", "k")
    for _ in range(5000 if SOAK else 400):
        at, byte = chance.randrange(len(right)), bytes([chance.randrange(256)])
        damaged = chance.choice([right[:at] + byte + right[at + 1:], right[:at] + right[at + 1:], right[:at] + byte + right[at:]])
        with server.connect() as client:
            client.raw(damaged)
            client.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(Ended):
                while True:
                    client.read_any()
            assert client.at == len(client.buffer), "the last answer is whole"


def test_split_at_every_byte(server, bystander, name):
    """Two pieces, at each place in turn; and all of it byte by byte."""
    whole = pack("ACQUIRE", name, "split", "OWNER", "a\r\nb") + pack("PING", "") + pack("RELEASE", name, "split")
    with server.connect() as client, server.connect() as other:
        for at in range(1, len(whole)):
            client.raw(whole[:at])
            assert other.cmd("PING") == "PONG"  # the server has seen the first piece by then
            client.raw(whole[at:])
            assert client.read() > 0 and client.read() == "" and client.read() == 1
        for at in range(len(whole)):
            client.raw(whole[at:at + 1])
        assert client.read() > 0 and client.read() == "" and client.read() == 1


def test_truncated_at_every_byte(server, bystander, name):
    """Who goes in the middle of a command has not said it."""
    whole = pack("ACQUIRE", name, "truncated")
    for at in range(1, len(whole)):
        with server.connect() as client:
            client.raw(whole[:at])
            client.socket.shutdown(socket.SHUT_WR)
            assert client.ended()
    assert server.show(name)["holds"] == 0


# ---- many of them ------------------------------------------------------------------------------------------------


def test_half_commands(server, bystander):
    """1,000 connections with half a command each; the other half comes later, or never."""
    with contextlib.ExitStack() as stack:
        halves = [stack.enter_context(server.connect()) for _ in range(1000)]
        for index, client in enumerate(halves):
            client.raw(b"*3\r\n$7\r\nACQUIRE\r\n$%d\r\nhal" % len(f"half-{index}"))
        assert server.count("connected_clients") >= 1000
        for index, client in enumerate(halves[:500]):
            client.raw(b"f-%d\r\n$1\r\nl\r\n" % index)
        assert all(client.read() > 0 for client in halves[:500])
    assert server.cmd("END", "l") == 500


def test_large_halves(server, bystander, steady):
    """What is announced is not allocated, and what is sent and never completed goes with its connection."""
    def act(size=QUERY_MAX - 1000, count=20):
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                client = stack.enter_context(server.connect())
                client.raw(b"*2\r\n$4\r\nPING\r\n$%d\r\n" % size + b"x" * (size // 2))
            return server.rss()

    before = server.rss()
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(server.connect()).raw(b"*2\r\n$4\r\nPING\r\n$1000000\r\n")
        assert server.rss() < before + 64 * MIB
    steady(act, turns=3, slack=8 * MIB)


def test_slow_writers(server, bystander, name):
    """50 connections, a byte at a time, all of them under way together."""
    whole = pack("ACQUIRE", name, "slow") + pack("PING")
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(50)]
        for at in range(len(whole)):
            for client in slow:
                client.raw(whole[at:at + 1])
        assert len({client.read() for client in slow}) == 1
        assert {client.read() for client in slow} == {"PONG"}


@pytest.mark.parametrize("how", ["at once", "after a command", "in the middle", "reset", "while blocked", "with pushes"])
def test_thousands_come_and_go(server, bystander, steady, name, how):
    server.cmd("ACQUIRE", name, "kept", "TTL", 86400000)

    def act():
        for index in range(5000 if SOAK else 600):
            with server.connect() as client:
                if how == "after a command":
                    client.send("SHOW", name)
                elif how in ("in the middle", "reset"):
                    client.raw(b"*2\r\n$4\r\nSHOW\r\n$5")
                elif how == "while blocked":
                    client.send("ACQUIRE", name, f"go-{index}", "WAIT", 600000)
                elif how == "with pushes":
                    client.raw(pack("HELLO", 3) + pack("OBSERVE", name) + pack("ACQUIRE", name, f"go-{index}", "PUSH", "TTL", 1000))
                if how == "reset":
                    client.reset()

    # What went through the log stays in memory until the next snapshot.
    steady(act, slack=(24 if how in ("after a command", "while blocked", "with pushes") else 2) * MIB)
    if how == "with pushes":
        assert server.cmd("BREAK", name, "NOW") == 1
        with server.connect() as client:
            client.cmd("ACQUIRE", name, "last", "WAIT", 60000)
    eventually(lambda: server.show(name)["queue"] == 0, "nobody waits who is gone")
    assert server.count("blocked_clients") == server.count("waiting_places") == server.count("observed_names") == 0


# ---- who does not say the password -------------------------------------------------------------------------------

PASSWORD = "0123456789abcdef-and-more"
AUTHENTICATE_S = 10  # until then a client has said it
UNAUTHENTICATED_BYTES = 4096  # of a command before


def strangers(server, stack, count, raw=b""):
    """Connections that never say it. Whoever is refused at once may not take all of it."""
    made = []
    for _ in range(count):
        stranger = stack.enter_context(Client(("127.0.0.1", server.port)))
        with contextlib.suppress(OSError):
            stranger.raw(raw)
        made.append(stranger)
    return made


def test_strangers_do_not_fill_the_memory(start):
    """Half commands of those who have not said the password: large ones are refused at once, small ones in time."""
    server = start(password=PASSWORD)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(server.connect())
        before = server.rss()
        large = strangers(server, stack, 100, b"*3\r\n$7\r\nACQUIRE\r\n$1000000\r\n" + b"x" * 900000)
        words = strangers(server, stack, 100, b"*1000\r\n" + b"$3\r\nxyz\r\n" * 900)
        began = time.monotonic()
        small = strangers(server, stack, 100, b"*2\r\n$4\r\nAUTH\r\n$1000\r\n" + b"x" * 900)
        silent = strangers(server, stack, 100)
        assert client.cmd("ACQUIRE", "x", "l") > 0
        for stranger in large + words:
            gone(stranger)
        assert server.rss() < before + 16 * MIB
        assert time.monotonic() - began < AUTHENTICATE_S - 2 or SOAK, "at once, not with the others"
        assert server.count("connected_clients") >= 200
        for stranger in small + silent:
            gone(stranger)
            assert client.cmd("PING") == "PONG"
        assert time.monotonic() - began > AUTHENTICATE_S - 2, "they had time to say it"
        eventually(lambda: server.count("connected_clients") <= 2, "nobody else is left")
        assert client.cmd("RELEASE", "x", "l") == 1, "who has said it stays"


def gone(stranger):
    """It is closed, perhaps with some words."""
    with contextlib.suppress(ConnectionError):
        stranger.read_to_end()


def test_what_follows_the_password_may_be_large(start):
    """Also in the same packet: what counts is what was said before it."""
    server = start(password=PASSWORD)
    text = "x" * 100000
    with Client(("127.0.0.1", server.port)) as client:
        client.raw(pack("AUTH", PASSWORD) + pack("PING", text) + pack("RENEW", *["l"] * 4000))
        assert client.read() == "OK"
        assert client.read() == text
        assert client.read() == [-1] * 4000
    with Client(("127.0.0.1", server.port)) as client:
        client.raw(pack("PING", "x" * (UNAUTHENTICATED_BYTES + 1)) + pack("AUTH", PASSWORD))
        said_goodbye(client)


def test_who_does_not_read_its_refusals_costs_little(start):
    server = start(password=PASSWORD)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(server.connect())
        before = server.rss()
        for stranger in strangers(server, stack, 50):
            stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.socket.setblocking(False)
            with contextlib.suppress(OSError):
                for _ in range(200):
                    stranger.socket.send(pack("PING") * 1000)
        assert client.cmd("PING") == "PONG"
        assert server.rss() < before + 8 * MIB


def test_strangers_do_not_use_up_the_clients(start):
    """Many that stay, and others that come again and again: whoever has the password gets in, and stays."""
    server = start("--max-clients", 4000, password=PASSWORD)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(server.connect())
        strangers(server, stack, 1100)
        assert client.cmd("PING") == "PONG"
        inside = [stack.enter_context(server.connect()) for _ in range(50)]
        stopped = threading.Event()

        def flood():
            while not stopped.is_set():
                with contextlib.ExitStack() as wave:
                    with contextlib.suppress(OSError):
                        strangers(server, wave, 20)

        flooding = threading.Thread(target=flood, daemon=True)
        flooding.start()
        try:
            inside += [stack.enter_context(server.connect()) for _ in range(50)]
            assert {other.cmd("PING") for other in inside} == {"PONG"}
        finally:
            stopped.set()
            flooding.join()
        assert int(client.info("Clients")["unauthenticated_clients"]) <= 1000


def test_the_rest_is_for_those_who_have_the_password(start):
    server = start("--max-clients", 40, password=PASSWORD)
    with contextlib.ExitStack() as stack:
        silent = strangers(server, stack, 10)
        inside = [stack.enter_context(server.connect()) for _ in range(40)]
        assert {client.cmd("PING") for client in inside} == {"PONG"}
        for stranger in silent:
            gone(stranger)
        with pytest.raises(Refused, match="^LIMIT there are too many clients"):
            stack.enter_context(server.connect())


# ---- who does not read -------------------------------------------------------------------------------------------


def flood(client, data):
    """Sends until nobody takes it any more."""
    client.socket.setblocking(False)
    deadline = time.monotonic() + PATIENCE
    while select.select([], [client], [], 0.5)[1]:
        assert time.monotonic() < deadline, "the server takes it all, and forgets nothing"
        client.socket.send(data)
    client.socket.settimeout(PATIENCE)


def test_who_does_not_read_is_not_served_further(server, bystander):
    """It costs what its answers need up to the limit, and what the kernel holds; then the server stops reading, and
    goes on when the client reads again."""
    before, clients = server.rss(), server.count("connected_clients")
    with server.connect() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        flood(client, pack("PING", "x" * 10000) * 20)
        assert server.rss() < before + 32 * MIB
        assert server.count("connected_clients") == clients + 1, "and is not closed for it"
        assert client.read() == "x" * 10000


@pytest.mark.parametrize("how", ["OBSERVE", "SUBSCRIBE"])
def test_who_does_not_read_its_pushes_is_closed(start, how):
    server = start("--max-output-bytes", "64KiB")
    with server.connect(3 if how == "OBSERVE" else 2) as client, server.connect() as other:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.cmd(how, "x")
        before = boot_ms()
        while other.info("Clients")["observed_names"] == "1":
            other.pipeline(*[words for _ in range(500) for words in
                             (["ACQUIRE", "x", "l", "OWNER", "o" * 128], ["RELEASE", "x", "l"])])
            assert boot_ms() - before < PATIENCE * 1000
        assert server.await_line("closed a client that does not read its answers")
        assert other.info("Clients")["connected_clients"] == "1"
        assert server.rss() < 64 * MIB
        client.reset()


class Largest(threading.Thread):
    """How much memory the server had at most."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.stopped, self.most = server, threading.Event(), server.rss()
        self.start()

    def run(self):
        with contextlib.suppress(OSError, AssertionError):  # it may end before us
            while not self.stopped.wait(0.005):
                self.most = max(self.most, self.server.rss())

    def end(self):
        self.stopped.set()
        self.join()
        return self.most


def test_large_answers_do_not_pile_up(start):
    """Many long answers asked for at once: they are made as they are read, not all before the first is. And who reads
    is not closed."""
    server = start()
    with server.connect(3) as client:
        client.pipeline(["ACQUIRE", "x", "holder"], *[["ACQUIRE", "x", f"w-{index}", "PUSH", "OWNER", "o" * 128, "TTL", TTL_MAX]
                                                     for index in range(5000)])
        before, largest = server.rss(), Largest(server)
        client.raw(pack("SHOW", "x", "WAITERS", 10000) * 50)
        for _ in range(50):
            client.skip(b"$7\r\nwaiters\r\n*5000\r\n")
        assert largest.end() < before + 32 * MIB


@pytest.mark.parametrize("what", ["READ", "CLAIM"])
def test_large_results_do_not_pile_up(start, what):
    server = start()
    with server.connect() as client:
        _, token = client.cmd("ONCE", "CLAIM", "k", "l")
        assert client.cmd("ONCE", "FINISH", "k", "l", "TOKEN", token, "KEEP", TTL_MAX, "r" * 65536) == 1
        before, largest = server.rss(), Largest(server)
        client.raw(pack("ONCE", what, "k", *["l2"] * (what == "CLAIM")) * 400)
        for _ in range(400):
            assert client.read()[:2] == ["DONE", token]
        assert largest.end() < before + 32 * MIB


def test_a_page_of_locks_is_not_longer_than_a_client_may_leave_unread(start):
    server = start("--max-output-bytes", "64KiB")
    with server.connect(3) as client:
        for index in range(1000):
            client.raw(b"".join(pack("ACQUIRE", f"n-{index}", f"l-{holder}", "SHARED", "OWNER", "o" * 128) for holder in range(25)))
        assert len([client.read() for _ in range(25000)]) == 25000
        met, cursor = 0, 0
        while True:
            cursor, rows = client.cmd("LOCKS", "COUNT", 1000, "CURSOR", cursor)
            met += len(rows)
            if cursor == 0:
                break
        assert met == 1000


def test_costly_questions_do_not_stop_others(server, bystander):
    """Patterns that nearly fit everywhere, over many long names, several at once: one page may have few names."""
    with server.connect() as client, server.connect() as asking:
        for begin in range(0, 10000, 500):
            client.pipeline(*[["ACQUIRE", "a" * 500 + str(index), "costly"] for index in range(begin, begin + 500)])
        asking.raw(pack("LOCKS", "MATCH", "*" + "a" * 250 + "b", "COUNT", 1000) * 4)
        assert [asking.read()[1] for _ in range(4)] == [[]] * 4
        client.cmd("END", "costly")


def colliding(count):
    """Names of 16 bytes that a hash of words without a seed (base/hash.c) cannot tell apart."""
    prime, mask, wanted = 0x100000001b3, (1 << 64) - 1, 0x9e3779b97f4a7c15
    number = 0x0101010101010101
    while count:
        first = number.to_bytes(8, "little")
        state = ((0xcbf29ce484222325 ^ 16 ^ number) * prime) & mask
        second = ((state ^ state >> 32) ^ wanted).to_bytes(8, "little")
        number += 1
        if 0 not in first + second:
            count -= 1
            yield first + second


def observe_all(server, names):
    """How long that takes."""
    with server.connect(3) as client:
        began = time.monotonic()
        for at in range(0, len(names), 1000):
            part = names[at:at + 1000]
            client.raw(b"".join(b"*2\r\n$7\r\nOBSERVE\r\n$16\r\n%s\r\n" % name for name in part))
            assert {client.read() for _ in part} == {"OK"}
        return time.monotonic() - began


def test_names_that_collide_cost_no_more_than_others(server, bystander):
    """Whoever chooses names must not be able to make the server look at all of them for each."""
    usual = observe_all(server, [b"%016d" % index for index in range(30000)])
    assert observe_all(server, list(colliding(30000))) < 3 * usual + 1


def test_a_low_limit_on_descriptors(start):
    """Clients get no more of them than the disk leaves over."""
    server = start(wrapper=["prlimit", "--nofile=100:100"])
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(server.connect())
        for _ in range(150):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE))
        for index in range(300):  # more than two segments of the log
            _, token = client.cmd("ONCE", "CLAIM", f"k-{index}", "l")
            assert client.cmd("ONCE", "FINISH", f"k-{index}", "l", "TOKEN", token, "KEEP", 60000, "r" * 60000) == 1


def test_no_descriptors_left(start):
    """Who is outside waits there; who is within is served; and when there are some again, all are."""
    server = start()
    last = server.last_token()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(server.connect())
        prlimit = ["prlimit", "--pid", str(server.pid)]
        soft = subprocess.run([*prlimit, "--nofile", "--output=SOFT", "--noheadings"], check=True, capture_output=True, text=True)
        subprocess.run([*prlimit, f"--nofile={server.descriptors() + 3}:"], check=True)
        crowd = [stack.enter_context(server.connect()) for _ in range(20)]
        for other in crowd:
            other.send("PING")
        assert "cannot take another client" in server.await_line("Too many open files")
        assert client.cmd("ACQUIRE", "x", "l") == last + 1
        assert any(other.is_silent() for other in crowd)
        subprocess.run([*prlimit, f"--nofile={soft.stdout.strip()}:"], check=True)
        assert {other.read() for other in crowd} == {"PONG"}


@pytest.mark.parametrize("asked", [(), ("--max-clients", "20000")])
def test_few_descriptors_at_the_start(start, asked):
    """It takes what there is. Only who asked for more clients is warned."""
    server = start(*asked, wrapper=["prlimit", "--nofile=1000:1000"])
    with server.connect() as client:
        assert "maxclients:744" in client.cmd("INFO")
    warned = [line for line in server.logged() if " warn" in line and "open files" in line]
    assert len(warned) == len(asked) / 2, server.logged()


def test_the_longest_election_timeout(start):
    """What the settings accept can be started with."""
    server = start("--election-timeout", "50s")
    assert server.cmd("ACQUIRE", "x", "l") > 0
    assert "50s" in run_refused("--data", server.data, "--election-timeout", "50001ms")[1]


def test_long_reads_leave_others_their_turn(start):
    """Sixty clients look at once, each for some milliseconds of the loop: others, and other nodes, are served in between."""
    server = start()
    with server.connect() as other, contextlib.ExitStack() as stack:
        other.pipeline(*(("ACQUIRE", "a" * 490 + f"{i:05}", f"lease {i}") for i in range(100)))
        crowd = {stack.enter_context(server.connect()) for _ in range(60)}
        for client in crowd:
            assert client.cmd("PING") == "PONG"
        os.kill(server.pid, signal.SIGSTOP)
        for client in crowd:
            client.send("LOCKS", "MATCH", "*" + "a" * 200 + "b")
        os.kill(server.pid, signal.SIGCONT)
        turns = 0
        while crowd:
            assert other.cmd("PING") == "PONG"
            turns += 1
            for client in [client for client in crowd if select.select([client.socket], [], [], 0)[0]]:
                assert client.read()[1] == []
                crowd.remove(client)
        assert turns >= 8, "all were answered in one go"
