"""Whoever has a hold is told when it loses it: the connection that acquired it or renewed its lease last, if it asked for that."""
import pytest
from conftest import TTL_MAX, eventually


@pytest.fixture
def holder(server):
    with server.connect(3) as client:
        assert client.cmd("HELLO", 3, "LOSSES")["proto"] == 3
        yield client


@pytest.mark.parametrize("words", [[], ["NOW"]], ids=["withheld", "now"])
def test_a_broken_holder_is_told_at_once(server, holder, name, lease, words):
    mine = lease()
    token = holder.cmd("ACQUIRE", name, mine, "TTL", TTL_MAX)
    assert server.cmd("BREAK", name, *words) == 1
    assert holder.push() == ("lost", name, mine, token, "broken")
    assert server.cmd("BREAK", name, "NOW") == (0 if words else 1)
    assert holder.pushes_so_far() == [], "once"


def test_each_way_to_lose_it(server, holder, name, lease):
    first, second = lease(), lease()
    token = holder.cmd("ACQUIRE", name, first, "TTL", 100)
    assert holder.push() == ("lost", name, first, token, "expired")
    token = holder.cmd("ACQUIRE", name, second)
    assert server.cmd("END", second) == 1
    assert holder.push() == ("lost", name, second, token, "ended")


def test_what_is_given_up_is_not_lost(server, holder, name, lease):
    mine = lease()
    token = holder.cmd("ACQUIRE", name, mine)
    assert server.cmd("RELEASE", name, mine, "TOKEN", token) == 1
    run, token = holder.cmd("ONCE", "CLAIM", name, mine)
    assert holder.cmd("ONCE", "FINISH", name, mine, "TOKEN", token, "KEEP", 1, "r") == 1
    assert server.cmd("BREAK", name) == 0
    assert holder.pushes_so_far() == []


def test_all_holds_of_a_lease(server, holder, name, lease):
    mine = lease()
    tokens = {f"{name}-{index}": holder.cmd("ACQUIRE", f"{name}-{index}", mine, "TTL", TTL_MAX) for index in range(3)}
    assert server.cmd("RELEASE", f"{name}-0", mine) == 1
    assert server.cmd("BREAK", f"{name}-1") == 1, "with it the lease ends, and all it holds"
    told = sorted(holder.push() for _ in range(2))
    assert told == [("lost", f"{name}-{index}", mine, tokens[f"{name}-{index}"], "broken") for index in (1, 2)]


@pytest.mark.parametrize("way", ["WAIT", "PUSH"])
def test_who_waited_is_told(server, holder, name, lease, way):
    mine, other = lease(), lease()
    server.cmd("ACQUIRE", name, other, "TTL", TTL_MAX)
    holder.send("ACQUIRE", name, mine, "TTL", TTL_MAX, *(["WAIT", 60000] if way == "WAIT" else ["PUSH"]))
    if way == "PUSH":
        assert holder.read() == "QUEUED"
    eventually(lambda: server.show(name)["queue"] == 1, "it waits")
    server.cmd("RELEASE", name, other)
    token = holder.read() if way == "WAIT" else holder.push()[3]
    server.cmd("BREAK", name)
    assert holder.push() == ("lost", name, mine, token, "broken")


def test_who_renewed_it_last_is_told(server, holder, name, lease):
    mine = lease()
    token = server.cmd("ACQUIRE", name, mine, "TTL", TTL_MAX)
    with server.connect(3) as later, server.connect() as plain:
        later.cmd("HELLO", 3, "LOSSES")
        assert holder.cmd("RENEW", mine)[0] > 0
        assert later.cmd("RENEW", "nobody", mine)[1] > 0
        server.cmd("BREAK", name)
        assert later.push() == ("lost", name, mine, token, "broken")
        assert holder.pushes_so_far() == []
        # One that did not ask for it is told nothing, and the one before it has it no more.
        other = lease()
        token = later.cmd("ACQUIRE", f"{name}-2", other, "TTL", TTL_MAX)
        assert plain.cmd("RENEW", other)[0] > 0
        server.cmd("BREAK", f"{name}-2")
        assert later.pushes_so_far() == []
        assert plain.cmd("PING") == "PONG"


def test_who_is_gone_is_not_told(server, name, lease):
    mine = lease()
    with server.connect(3) as client:
        client.cmd("HELLO", 3, "LOSSES")
        client.cmd("ACQUIRE", name, mine, "TTL", TTL_MAX)
    assert server.cmd("BREAK", name) == 1


def test_not_in_resp2(server, holder, name, lease):
    holder.cmd("ACQUIRE", name, lease(), "TTL", TTL_MAX)
    holder.cmd("HELLO", 2)
    server.cmd("BREAK", name)
    holder.send("PING")
    assert holder.read_raw(7) == b"+PONG\r\n"
    with server.connect() as client:
        client.cmd("HELLO", 2, "LOSSES")
        client.cmd("ACQUIRE", f"{name}-2", lease(), "TTL", TTL_MAX)
        server.cmd("BREAK", f"{name}-2")
        client.send("PING")
        assert client.read_raw(7) == b"+PONG\r\n"
