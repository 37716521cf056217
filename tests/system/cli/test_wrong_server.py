"""A URL of one kind and a server of the other: it says which URL is right, at once, with the exit status of a wrong URL."""
import contextlib
import re
import socket
import threading
import time

import once_cli
import pytest

SOON = 8  # seconds: a wait without a limit would last for ever
COMMANDS = [["run", "x", "true"], ["run", "--no-wait", "x", "true"], ["lock", "x"], ["ls"], ["show", "x"], ["check", "x", "1"], ["break", "x"]]


@pytest.fixture
def holdfast(directory):
    yield from once_cli.make("holdfast", directory)


@pytest.fixture
def redis(directory):
    yield from once_cli.make("redis", directory)


def is_told(store, url, text):
    for words in COMMANDS:
        began = time.monotonic()
        done = store("--on", url, *words)
        assert done.status == 64, (words, done)
        assert [line for line in done.stderr.splitlines() if line != "(exit 64)"] == [f"holdfast: {text}"], words
        assert time.monotonic() - began < SOON


def test_redis_at_a_holdfastd(holdfast):
    place = holdfast.url.split("//")[1]
    is_told(holdfast, f"redis://{place}", f"{place} is a holdfastd: use holdfast://{place}")


def test_redis_at_the_socket_of_a_holdfastd(directory):
    path = directory / "s"
    server = once_cli.need_server().Holdfastd(listen=f"unix:{path},127.0.0.1:0")
    try:
        store = once_cli.Once("file:", directory)
        is_told(store, f"redis+unix://{path}", f"{path} is a holdfastd: use holdfast+unix://{path}")
        assert store("--on", f"holdfast+unix://{path}", "run", "x", "echo", "in").stdout == "in\n", "as it says"
    finally:
        server.clean()


def test_redlock_at_holdfastds(holdfast):
    """Two of three are down, or one is: whoever waits would wait for ever."""
    place = holdfast.url.split("//")[1]
    dead = [f"127.0.0.1:{port}" for port in once_cli.need_server().different_ports(2)]
    is_told(holdfast, "redlock://" + ",".join([place, *dead]), f"{place} is a holdfastd: use holdfast://{place}")
    is_told(holdfast, "redlock://" + ",".join([*dead, place]), f"{place} is a holdfastd: use holdfast://{place}")


def test_holdfast_at_a_redis(redis):
    place = redis.url.split("//")[1].split("/")[0].split("?")[0]
    is_told(redis, f"holdfast://{place}", f"{place} is not a holdfastd (a Redis server? then use redis://{place})")


def test_holdfasts_that_are_all_down(directory):
    """Each is named: a wrong one may be any of them."""
    one, two = (f"127.0.0.1:{port}" for port in once_cli.need_server().different_ports(2))
    store = once_cli.Once("file:", directory)
    done = store("--on", f"holdfast://{one},{two}?timeout=200ms", "show", "x")
    assert done.status == 69 and f"Connection refused; is the server running there? (none could be reached of {one}, {two})" in done.stderr, done
    done = store("--on", f"holdfast://{one}?timeout=200ms", "show", "x")
    assert done.status == 69 and done.stderr.endswith("is the server running there?\n"), done


@pytest.mark.parametrize("says,status,text", [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", 77, "is no holdfastd: what the other side sent is not RESP: no value begins with byte 0x48"),
    (b"", 69, "takes connections, and has not answered within N s: is it stopped, or stuck? ?timeout= in the URL allows more")], ids=["http", "silent"])
def test_holdfast_at_something_else(holdfast, says, status, text):
    """The words name the address, so that a typing error in it can be seen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        clients = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    clients.append(server.accept()[0])
                    clients[-1].sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        place = f"127.0.0.1:{server.getsockname()[1]}"
        done = holdfast("--on", f"holdfast://{place}", "run", "x", "true")
        assert (done.status, re.sub(r"within \d+\.\d s", "within N s", done.stderr)) == (status, f"holdfast: {place} {text}\n")
        server.shutdown(socket.SHUT_RDWR)
        for client in clients:
            client.close()
