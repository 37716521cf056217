"""Many clients at once, and clients that say much at once: nothing of it is lost, or taken for somebody else's."""
import contextlib

import pytest
from conftest import pack

CROWD = 200


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
