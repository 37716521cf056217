"""Many clients at once, and clients that say much at once: nothing of it is lost, or taken for somebody else's."""
import contextlib
import select
import socket

import pytest
from conftest import PATIENCE, Client, eventually, pack
from test_cluster_command import Cluster

CROWD = 200
READ_USUAL = 16384  # bytes that are read at once
WINDOW = 60000  # bytes that a socket takes whose other end does not read
QUEUE = 400  # clients of a leader: more than it hears at once


@pytest.fixture
def crowd(server):
    """So many clients, who speak all together: the server finds what all of them have sent."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(server.connect()) for _ in range(CROWD)]


@contextlib.contextmanager
def all_together(server):
    server.pause()
    try:
        yield
    finally:
        server.resume()


def last_token(client):
    return int(client.info("Locks")["last_token"])


def numbered(number, size=100):
    """A text that is nobody else's."""
    return f"{number:06}-" * (size // 7)


# ---- memory ------------------------------------------------------------------------------------------------------


def test_who_is_idle_costs_little(start):
    """Much less than what it needed to read its command."""
    server, count, size = start(), 1000, 10000
    with contextlib.ExitStack() as stack:
        before = server.rss()
        for _ in range(count):
            assert len(stack.enter_context(server.connect()).cmd("PING", "x" * size)) == size
        assert server.rss() < before + count * size / 2


def test_a_command_that_has_to_wait_is_nobody_elses(server, crowd, name):
    """The second one is read and waits for the first one to be written; meanwhile all the others are read."""
    for turn in range(5):
        with all_together(server):
            for number, client in enumerate(crowd):
                client.raw(pack("ACQUIRE", f"{name}-{number}", "crowd") + pack("PING", numbered(number)) +
                           pack("RELEASE", f"{name}-{number}", "crowd") + pack("PING", numbered(number + turn)))
        for number, client in enumerate(crowd):
            assert client.read() > 0 and client.read() == numbered(number)
            assert client.read() == 1 and client.read() == numbered(number + turn)


def test_half_of_a_command_is_nobody_elses(server, crowd):
    """The other half comes when others have said whole ones."""
    whole = [pack("PING", numbered(number)) for number in range(CROWD)]
    for turn in range(1, 100, 7):
        with all_together(server):
            for number, client in enumerate(crowd):
                client.raw(whole[number][:turn] if number % 2 else whole[number])
        assert all(client.read() == numbered(number) for number, client in enumerate(crowd) if number % 2 == 0)
        with all_together(server):
            for number, client in enumerate(crowd):
                client.raw(whole[number][turn:] if number % 2 else whole[number])
        assert all(client.read() == numbered(number) for number, client in enumerate(crowd))


# ---- much at once ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["tcp", "unix"])
def started(request, start, tmp_path):
    """Starts a server, and says how it is connected to."""
    def make(*args):
        if request.param == "tcp":
            server = start(*args)
            return server, server.connect
        path = str(tmp_path / "socket")
        server = start(*args, listen=f"unix:{path}")
        return server, lambda: Client(path)

    return make


def pings_of(size, each=1000):
    """Commands of together so many bytes, and their answers."""
    texts = []
    while size > 0:
        room = each if size >= 2 * each else size
        around = len(pack("PING", "x" * room)) - room
        texts.append("x" * (room - around))
        size -= len(pack("PING", texts[-1]))
    return b"".join(pack("PING", text) for text in texts), texts


@pytest.mark.parametrize("size", [READ_USUAL - 1, READ_USUAL, READ_USUAL + 1, 2 * READ_USUAL, WINDOW])
def test_more_than_is_read_at_once(started, size):
    """All of it is there before the first of it is read: nothing that comes later tells the server of it."""
    server, connect = started()
    around, each = len(pack("ACQUIRE", "n" * 100, "l")) - 100, 200
    data = b"".join(pack("ACQUIRE", "n" * (each - around), "l") for _ in range(size // each - 1))
    data += pack("ACQUIRE", "n" * (size - len(data) - around), "l")
    assert len(data) == size
    with connect() as client:
        for _ in range(3):
            with all_together(server):
                client.raw(data)
            assert all(client.read() > 0 for _ in range(size // each))


def test_a_command_of_several_reads(started):
    server, connect = started()
    with connect() as client:
        with all_together(server):
            client.raw(pack("PING", "x" * (WINDOW - 100)))
        assert client.read() == "x" * (WINDOW - 100)


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_what_is_behind_the_limit_of_commands_under_way(started, limit):
    """It is left in the socket until there is room for it."""
    server, connect = started("--max-pipeline", limit)
    count = WINDOW // len(pack("ACQUIRE", "n-0000", "l" * 60))
    with connect() as client:
        last = last_token(client)
        for turn in range(2):
            with all_together(server):
                client.raw(b"".join(pack("ACQUIRE", f"n-{number:04}", "l" * 60) for number in range(count)))
            assert [client.read() for _ in range(count)] == list(range(last + 1, last + count + 1)), f"turn {turn}"


def test_what_is_behind_a_command_that_waits(started):
    server, connect = started()
    data, answers = pings_of(WINDOW - 1000)
    with connect() as holder, connect() as client:
        holder.cmd("ACQUIRE", "x", "holder")
        with all_together(server):
            client.raw(pack("ACQUIRE", "x", "waiter", "WAIT", 60000) + data)
        eventually(lambda: holder.show("x")["queue"] == 1, "it waits")
        assert client.is_silent()
        holder.cmd("RELEASE", "x", "holder")
        assert client.read() > 1 and [client.read() for _ in answers] == answers


def test_who_reads_late_gets_it_all(started):
    """The server has stopped to read and to write, and goes on with both."""
    server, connect = started()
    sent, text = 0, "x" * 10000
    with connect() as client:
        data = pack("PING", text)
        client.socket.setblocking(False)
        while select.select([], [client], [], 0.5)[1]:
            sent += client.socket.send(data[sent % len(data):])
        assert sent > 20 * len(data)
        client.socket.settimeout(PATIENCE)
        assert {client.read() for _ in range(sent // len(data))} == {text}
        client.raw(data[sent % len(data):])
        assert client.read() == text and client.cmd("PING") == "PONG"


def test_who_says_something_and_then_no_more(started):
    """All of it is read at once: the end is all that is left to read."""
    server, connect = started()
    with connect() as client:
        last = last_token(client)
        with all_together(server):
            client.send("ACQUIRE", "x", "l")
            client.socket.shutdown(socket.SHUT_WR)
        assert client.read() == last + 1 and client.ended()


@pytest.mark.parametrize("size", [1000, READ_USUAL, WINDOW])
@pytest.mark.parametrize("limit", [1, 4096])
def test_who_says_much_and_then_no_more(started, limit, size):
    """It gets all its answers, and then the end: the server is told of both together."""
    server, connect = started("--max-pipeline", limit)
    data, answers = pings_of(size)
    with connect() as client:
        token = last_token(client) + 1
        with all_together(server):
            client.raw(pack("ACQUIRE", "x", "l") + data + pack("ACQUIRE", "x", "l"))
            client.socket.shutdown(socket.SHUT_WR)
        assert client.read() == token and [client.read() for _ in answers] == answers and client.read() == token
        assert client.ended()


def test_who_said_no_more_while_it_was_not_read(started):
    """The end comes while the server waits for something else."""
    server, connect = started("--max-pipeline", 1)
    data, answers = pings_of(WINDOW)
    with connect() as client:
        with all_together(server):
            client.raw(data)
        assert client.read() == answers[0]
        client.socket.shutdown(socket.SHUT_WR)
        assert [client.read() for _ in answers[1:]] == answers[1:] and client.ended()


# ---- many at once ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three():
    cluster = Cluster()
    yield cluster
    cluster.clean()


def test_more_than_one_entry_takes(three, name):
    """The leader stops listening when it has enough for one, and takes the others up after it."""
    leader = three.leader()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(leader.connect()) for _ in range(QUEUE)]
        for turn in range(10):
            with all_together(leader):
                for number, client in enumerate(clients):
                    client.send("ACQUIRE", f"{name}-{number}-{turn}", "crowd")
            assert all(client.read() > 0 for client in clients)


def test_some_go_while_the_leader_is_busy_with_others(three, name):
    """Their last words have been noticed, and not been looked at yet, when it finds out that they are gone: it fails to tell
    them of a change."""
    leader = three.leader()
    for turn in range(2):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(leader.connect(3)) for _ in range(QUEUE)]
            for client in clients:
                assert client.cmd("OBSERVE", name) == "OK"
            with all_together(leader):
                for number, client in enumerate(clients):
                    client.raw(pack("ACQUIRE", name, f"go-{turn}-{number}", "SHARED") +
                               pack("ACQUIRE", f"{name}-{number}", f"go-{turn}", "SHARED") * 15)
                for client in clients[1::2]:
                    client.reset()
            assert all(client.read() > 0 for _ in range(16) for client in clients[::2])
        eventually(lambda: leader.count("connected_clients") == 0, "all are gone")


def test_a_leader_that_is_deposed_meanwhile_answers_all(three, name):
    """It hears of both when it wakes up."""
    for turn in range(3):
        leader, others = three.leader(), three.followers()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(leader.connect()) for _ in range(QUEUE)]
            for client in clients:
                assert client.cmd("PING") == "PONG"
            with all_together(leader):
                for number, client in enumerate(clients):
                    client.send("ACQUIRE", f"{name}-{number}-{turn}", "crowd")
                eventually(lambda: any(node.says()["role"] == "leader" for node in others), "another leader")
            for client in clients:
                client.read_any()
