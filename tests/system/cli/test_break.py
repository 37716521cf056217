"""What a break says: to whoever breaks, to the holder, and to those who come while the name is withheld."""
import contextlib
import json
import re
import socket
import threading

import once_cli
import pytest

LEFT = r"withheld after a break or a lock-delay, for another [0-9.]+ m?s"
OBEDIENT = "echo in $HOLDFAST_TOKEN $$; exec sleep 100"


def make(kind, directory):
    yield from once_cli.make(kind, directory)


@pytest.fixture(params=["holdfast", "redis"])
def store(request, directory):
    """With a TTL: there the name stays withheld after the command has ended."""
    yield from make(request.param, directory)


@pytest.fixture
def holdfast(directory):
    yield from make("holdfast", directory)


def test_the_holder_of_a_server_that_pushes(holdfast):
    holder = holdfast.hold("x", "--ttl", "60s", script=OBEDIENT)
    said = holdfast("break", "x").stdout
    assert re.search(r"^The holder is told at once if it can be reached. Nobody else gets the name before (59\.\d|1m) ?s? have passed, whatever the "
                     r"holder does \(--now frees it at once\).$", said, re.M), said
    assert holder.wait() == 76
    assert any("lost 'x'" in line and ": broken by an operator;" in line for line in holder.rest("err"))


def test_the_holder_learns_from_a_renewal_that_it_was_broken(directory):
    for redis in make("redis", directory):
        for mode in ([], ["--shared"], ["--permits", "2"]):
            holder = redis.hold("x", "--ttl", "3s", *mode, script=OBEDIENT)
            assert redis("break", "x").stdout.startswith("broke 1 hold")
            assert ": broken by an operator;" in holder.line("err")
            assert holder.wait() == 76
            redis("break", "x", "--now")


def test_what_is_withheld_is_said(store):
    holder = store.hold("x", "--ttl", "60s", script=OBEDIENT)
    assert store("break", "x").stdout.startswith("broke 1 hold of 'x'")
    assert re.search(rf"^x: nobody holds it: {LEFT}$", store("show", "x").stdout, re.M)
    shown = store.show("x")
    assert not shown["held"] and 0 < shown["withheld_ms"] <= 60000
    tried = store("run", "--no-wait", "x", "true")
    assert tried.status == 75 and re.search(rf"'x' is busy: {LEFT}$", tried.stderr, re.M), tried.stderr
    again = store("break", "x").stdout
    assert re.search(rf"^nobody held 'x': it is {LEFT} \(--now frees it at once\)$", again, re.M), again
    assert re.search(r"^x +withheld ", store("ls", "--all").stdout, re.M) and "x" not in store("ls").stdout
    freed = store("break", "x", "--now").stdout
    assert freed.startswith("nobody held 'x', which was withheld after a break or a lock-delay: it is free now."), freed
    assert json.loads(store("break", "x", "--now", "--json").stdout) == {"name": "x", "broken": 0, "untold": 0, "now": True, "freed": False, "entered": False}
    assert "withheld" not in store("show", "x").stdout and "withheld_ms" not in store.show("x")
    assert store("run", "--no-wait", "x", "true").status == 0
    assert holder.wait() == 76


def test_what_is_withheld_on_files(directory):
    """Its holder does not let go: the name is withheld for the grace, and whoever comes meanwhile hears so."""
    for store in make("file", directory):
        holder = store.hold("x", "--on-lost", "ignore", script="echo in $HOLDFAST_TOKEN $$; read line")
        breaker = store.start("break", "x", "--grace", "60s")
        assert "broken by an operator" in holder.line("err")
        assert re.search(rf"^x: nobody holds it: {LEFT}$", store("show", "x").stdout, re.M)
        tried = store("run", "--no-wait", "x", "true")
        assert re.search(rf"'x' is busy: {LEFT}$", tried.stderr, re.M), tried.stderr
        holder.end()
        assert breaker.wait() == 0
        assert "withheld" not in store("show", "x").stdout


def test_the_port_for_peers(directory):
    """There a node hangs up on whoever does not speak as one."""
    with socket.create_server(("127.0.0.1", 0)) as peers:
        def hang_up():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = peers.accept()
                    client.recv(4096)
                    client.close()

        threading.Thread(target=hang_up, daemon=True).start()
        said = once_cli.Once(f"holdfast://127.0.0.1:{peers.getsockname()[1]}", directory)("run", "--no-wait", "x", "true")
        peers.shutdown(socket.SHUT_RDWR)
    assert said.status == 69 and "is this its port for clients (7420), and not the one for peers?" in said.stderr, said.stderr
