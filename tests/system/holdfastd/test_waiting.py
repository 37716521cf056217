"""Waiting: blocked and by push, who is woken, who is not, and what those who watch are told."""
import collections
import contextlib
import select

import pytest
from conftest import PATIENCE, SOAK, Ended, Refused, boot_ms, eventually, pack

MANY = 5000  # names that one connection waits for
QUEUE = 200


def block(client, server, name, lease, *words, wait=60000):
    """Sends an ACQUIRE that waits; returns when the server has it in the queue."""
    before = server.show(name)["queue"]
    client.send("ACQUIRE", name, lease, "WAIT", wait, *words)
    eventually(lambda: server.show(name)["queue"] == before + 1, "a place in the queue")
    assert client.is_silent()


# ---- blocked -----------------------------------------------------------------------------------------------------


def test_blocked_until_granted(server, client, name, lease):
    l1, l2 = lease(), lease()
    token = server.cmd("ACQUIRE", name, l1)
    block(client, server, name, l2)
    assert server.count("blocked_clients") == 1
    assert server.cmd("RELEASE", name, l1) == 1
    assert client.read() == token + 1
    assert server.count("blocked_clients") == 0
    (holder,) = server.show(name)["holders"]
    assert 29000 < holder["left_ms"] <= 30000, "its TTL begins with the grant"


def test_a_wait_that_is_over_and_not_before(server, client, name, lease):
    l1, l2 = lease(), lease()
    server.cmd("ACQUIRE", name, l1)
    before = boot_ms()
    assert client.cmd("ACQUIRE", name, l2, "WAIT", 300) is None
    assert boot_ms() - before >= 300
    assert server.show(name)["queue"] == 0, "no place either"
    assert server.cmd("RENEW", l2) == [-1], "and a lease with nothing is over"
    assert server.cmd("RELEASE", name, l1) == 1
    assert server.show(name)["holds"] == 0


def test_without_wait_nobody_waits(server, client, name, lease):
    l1 = lease()
    server.cmd("ACQUIRE", name, l1)
    assert client.cmd("ACQUIRE", name, lease()) is None
    assert client.cmd("ACQUIRE", name, lease(), "WAIT", 0) is None
    assert server.show(name)["queue"] == 0


def test_who_does_not_wait_does_not_overtake(server, clients, name, lease):
    """Shared or not: the one who waits exclusively comes first."""
    reader, writer, l3 = lease(), lease(), lease()
    server.cmd("ACQUIRE", name, reader, "SHARED")
    waiting = clients()
    block(waiting, server, name, writer)
    assert server.cmd("ACQUIRE", name, l3, "SHARED") is None
    assert server.cmd("ACQUIRE", name, l3) is None
    server.cmd("RELEASE", name, reader)
    assert waiting.read() > 0


def test_what_is_said_behind_a_blocked_command_comes_after_it(server, client, name, lease):
    l1, l2 = lease(), lease()
    token = server.cmd("ACQUIRE", name, l1)
    client.raw(pack("PING", "before") + pack("ACQUIRE", name, l2, "WAIT", 60000) + pack("PING", "after") + pack("NOPE")
               + pack("RELEASE", name, l2) + pack("ACQUIRE", name, l2, "WAIT", 60000) + pack("CHECK", name, token + 2))
    assert client.read() == "before"
    eventually(lambda: server.show(name)["queue"] == 1, "a place in the queue")
    assert client.is_silent()
    server.cmd("RELEASE", name, l1)
    answers = [client.read_any() for _ in range(6)]
    assert answers == [token + 1, "after", Refused("ERR unknown command 'NOPE'"), 1, token + 2, 1]


def test_much_that_is_said_behind_a_blocked_command(server, clients, name, lease):
    """More than sockets hold: it is read when its turn comes, and none of it is lost."""
    l1, l2 = lease(), lease()
    token = server.cmd("ACQUIRE", name, l1)
    client = clients()
    block(client, server, name, l2)
    client.socket.setblocking(False)
    pings, at, sent = b"".join(pack("PING", "x" * 1000 + str(index)) for index in range(20000)), 0, []
    with contextlib.suppress(BlockingIOError):
        while at < len(pings):
            at += client.socket.send(pings[at:])
    assert at < len(pings), "it was not read"
    server.cmd("RELEASE", name, l1)
    while len(sent) < 20001:
        can_read, can_write, _ = select.select([client], [client] if at < len(pings) else [], [], PATIENCE)
        assert can_read or can_write
        if can_write:
            with contextlib.suppress(BlockingIOError):
                at += client.socket.send(pings[at:at + 65536])
        if can_read:
            client.socket.setblocking(True)
            client._more()
            while client.buffer.count(b"\r\n", client.at) > 1 and len(sent) < 20001:
                sent.append(client.read())
            client.socket.setblocking(False)
    assert sent == [token + 1] + ["x" * 1000 + str(index) for index in range(20000)]


@pytest.mark.parametrize("how", ["close", "reset", "shutdown", "close with more to say"])
def test_who_goes_while_blocked_gives_up_its_place_at_once(server, clients, name, lease, how):
    l1, l2, l3 = lease(), lease(), lease()
    server.cmd("ACQUIRE", name, l1)
    client, behind = clients(), clients()
    block(client, server, name, l2)
    block(behind, server, name, l3)
    if how == "close with more to say":
        client.raw(pack("PING") * 100)
    if how == "shutdown":
        client.socket.shutdown(1)
    elif how == "reset":
        client.reset()
    else:
        client.close()
    eventually(lambda: server.show(name)["queue"] == 1, "its place is gone")
    server.cmd("RELEASE", name, l1)
    assert behind.read() > 0
    assert server.cmd("RENEW", l2) == [-1], "and its lease, which had nothing else"


def test_who_waits_need_not_renew(server, client, name, lease):
    """The connection keeps the lease alive; without it, it would have run out twice."""
    l1, l2 = lease(), lease()
    before = boot_ms()
    server.cmd("ACQUIRE", name, l1, "TTL", 300)
    token = client.cmd("ACQUIRE", name, l2, "WAIT", 60000, "TTL", 100)
    assert boot_ms() - before >= 300, "the holder's own TTL"
    assert token > 0


@pytest.mark.parametrize("by", ["END", "RELEASE"])
def test_a_blocked_one_is_told_by_others(server, client, name, lease, by):
    l1, l2 = lease(), lease()
    server.cmd("ACQUIRE", name, l1)
    block(client, server, name, l2)
    if by == "END":
        assert server.cmd("END", l2) == 1
        with pytest.raises(Refused, match="^ENDED this lease is over: take another$"):
            client.read()
    else:
        assert server.cmd("RELEASE", name, l2) == 1
        assert client.read() is None
    assert client.cmd("PING") == "PONG"


def test_two_connections_with_one_lease(server, clients, name, lease):
    """The later gets the answer, the earlier is told, and lives on."""
    l1, l2 = lease(), lease()
    token = server.cmd("ACQUIRE", name, l1)
    one, two, three = clients(), clients(), clients(3)
    block(one, server, name, l2)
    two.send("ACQUIRE", name, l2, "WAIT", 60000)
    with pytest.raises(Refused, match="^REPLACED another connection waits with this lease$"):
        one.read()
    assert one.cmd("PING") == "PONG" and two.is_silent()
    assert server.show(name)["queue"] == 1, "one place for both"
    assert three.cmd("ACQUIRE", name, l2, "PUSH") == "QUEUED"
    with pytest.raises(Refused, match="^REPLACED another connection waits with this lease$"):
        two.read()
    assert server.count("blocked_clients") == 0
    one.close()
    two.close()
    server.cmd("RELEASE", name, l1)
    assert three.push() == ("granted", name, l2, token + 1), "who was replaced took nothing along"


def test_who_was_replaced_by_push_hears_no_more(server, clients, name, lease):
    l1, l2 = lease(), lease()
    token = server.cmd("ACQUIRE", name, l1)
    one, two = clients(3), clients()
    one.cmd("ACQUIRE", name, l2, "PUSH")
    two.send("ACQUIRE", name, l2, "WAIT", 60000)
    eventually(lambda: server.count("blocked_clients") == 1, "it waits")
    assert server.show(name)["queue"] == 1
    server.cmd("RELEASE", name, l1)
    assert two.read() == token + 1
    assert one.pushes_so_far() == []


def test_no_longer_willing_to_wait(server, clients, name, lease):
    """The same ACQUIRE without WAIT gives up the place."""
    l1, l2 = lease(), lease()
    server.cmd("ACQUIRE", name, l1)
    client = clients(3)
    client.cmd("ACQUIRE", name, l2, "PUSH")
    assert client.cmd("ACQUIRE", name, l2) is None
    assert client.pushes_so_far() == [("left", name, l2, "left")]
    assert server.show(name)["queue"] == 0


# ---- by push -----------------------------------------------------------------------------------------------------


def test_push_needs_resp3(server, clients, name, lease):
    with server.connect(2) as client:
        assert client.error("ACQUIRE", name, lease(), "PUSH") == "ERR PUSH needs RESP3: say HELLO 3 first"
        assert client.error("OBSERVE", name).startswith("ERR OBSERVE needs RESP3: say HELLO 3 first")


def test_push(server, clients, name, lease):
    l1, l2 = lease(), lease()
    client = clients(3)
    token = client.cmd("ACQUIRE", name, l1, "PUSH")
    assert token > 0, "what is free is had at once"
    assert client.cmd("ACQUIRE", name, l2, "push", "TTL", 60000) == "QUEUED"
    assert client.cmd("ACQUIRE", name, l2, "PUSH", "TTL", 60000) == "QUEUED", "the same place again"
    assert server.show(name)["queue"] == 1 and server.count("waiting_places") == 1
    assert client.pushes_so_far() == []
    assert client.cmd("RELEASE", name, l1) == 1
    assert client.push() == ("granted", name, l2, token + 1)
    assert client.pushes_so_far() == [], "once"
    assert server.count("waiting_places") == 0


def test_pushed_that_the_runner_died(clients, name, lease):
    client, waits = clients(3), lease()
    client.send("ONCE", "CLAIM", name, lease(), "TTL", 500, "KEEP", 60000)
    client.send("ONCE", "CLAIM", name, waits, "PUSH", "NOHEIR")
    word, token = client.read()
    assert word == "RUN" and client.read() == "QUEUED"
    assert client.push() == ("left", name, waits, "died", token)


@pytest.mark.parametrize("why", ["timeout", "expired", "ended", "left", "broken"])
def test_why_a_place_is_gone(server, clients, name, lease, why):
    l1, l2 = lease(), lease()
    server.cmd("ACQUIRE", name, l1)
    client = clients(3)
    before = boot_ms()
    options = {"timeout": ["WAIT", 200], "expired": ["TTL", 200]}.get(why, [])
    client.cmd("ACQUIRE", name, l2, "PUSH", *options)
    if why == "broken":
        client.cmd("ACQUIRE", name + "-too", l2)
        client.cmd("BREAK", name + "-too")
    elif why == "ended":
        client.cmd("END", l2)
    elif why == "left":
        assert client.cmd("RELEASE", name, l2) == 1
    assert client.push() == ("left", name, l2, why)
    assert not options or boot_ms() - before >= 200
    server.cmd("RELEASE", name, l1)
    assert server.show(name)["holds"] == 0, "a place that is gone is never granted"
    assert client.pushes_so_far() == []


def test_a_place_that_is_renewed_stays(server, clients, name, lease):
    l1, l2 = lease(), lease()
    server.cmd("ACQUIRE", name, l1)
    client = clients(3)
    client.cmd("ACQUIRE", name, l2, "PUSH", "TTL", 1000)
    before = boot_ms()
    while boot_ms() - before < 1500:
        assert client.cmd("RENEW", l2) == [1000]
    assert client.pushes_so_far() == [] and server.show(name)["queue"] == 1


def test_a_place_by_push_outlives_its_connection(server, clients, name, lease):
    """And is found again, before those who came later."""
    l1, l2, l3 = lease(), lease(), lease()
    token = server.cmd("ACQUIRE", name, l1)
    one, two, three = clients(3), clients(3), clients(3)
    one.cmd("ACQUIRE", name, l2, "PUSH")
    two.cmd("ACQUIRE", name, l3, "PUSH")
    one.reset()
    eventually(lambda: server.count("waiting_places") == 1, "the server knows that it went")
    assert server.show(name)["queue"] == 2
    assert three.cmd("ACQUIRE", name, l2, "PUSH") == "QUEUED"
    assert server.show(name)["queue"] == 2
    server.cmd("RELEASE", name, l1)
    assert three.push() == ("granted", name, l2, token + 1)
    assert two.pushes_so_far() == []


def test_a_place_by_push_is_granted_without_its_connection(server, clients, name, lease):
    l1, l2 = lease(), lease()
    token = server.cmd("ACQUIRE", name, l1)
    with server.connect(3) as client:
        client.cmd("ACQUIRE", name, l2, "PUSH")
    server.cmd("RELEASE", name, l1)
    with server.connect(3) as client:
        assert client.cmd("ACQUIRE", name, l2, "PUSH") == token + 1, "it learns so by asking again"


def test_one_connection_waits_for_thousands(server, clients, name, lease):
    holder, waiter, client = lease(), lease(), clients(3)
    names = [f"{name}/{index}" for index in range(MANY)]
    tokens = server_pipeline(server, [["ACQUIRE", one, holder, "TTL", 60000] for one in names])
    assert all(isinstance(token, int) for token in tokens)
    assert client.pipeline(*[["ACQUIRE", one, waiter, "PUSH", "TTL", 60000] for one in names]) == ["QUEUED"] * MANY
    assert server.count("waiting_places") == MANY
    assert client.cmd("PING") == "PONG", "and is not blocked"
    assert server.cmd("END", holder) == MANY
    pushes = [client.push() for _ in range(MANY)]
    assert {push[1] for push in pushes} == set(names)
    assert all(push[0] == "granted" and push[2] == waiter for push in pushes)
    assert len({push[3] for push in pushes}) == MANY and min(push[3] for push in pushes) > max(tokens)
    assert client.pushes_so_far() == [] and server.count("waiting_places") == 0
    assert client.cmd("END", waiter) == MANY


def server_pipeline(server, commands):
    with server.connect() as client:
        return client.pipeline(*commands)


# ---- who is woken ------------------------------------------------------------------------------------------------


def test_first_in_first_out_and_one_at_a_time(server, clients, name, lease):
    """200 connections: each release wakes exactly the next one."""
    holder = lease()
    token = server.cmd("ACQUIRE", name, holder)
    waiting = [(clients(), lease()) for _ in range(QUEUE)]
    control = clients()
    for index, (client, mine) in enumerate(waiting):
        client.send("ACQUIRE", name, mine, "WAIT", 120000)
        eventually(lambda: control.show(name, "WAITERS", 1)["queue"] == index + 1, "a place in the queue")
    for index, (client, mine) in enumerate(waiting):
        assert control.cmd("RELEASE", name, holder) == 1
        assert client.read() == token + 1 + index
        holder = mine
        if index % 20 == 0:
            control.cmd("PING")
            assert select.select([other for other, _ in waiting[index + 1:]], [], [], 0)[0] == [], "nobody else"
    assert control.show(name)["queue"] == 0


def test_shared_ones_wake_together(server, clients, name, lease):
    """Up to the next exclusive one, which waits for all of them."""
    writer = lease()
    server.cmd("ACQUIRE", name, writer)
    readers, later = [(clients(), lease()) for _ in range(10)], [(clients(), lease()) for _ in range(3)]
    second, mine = clients(), lease()
    for client, one in readers:
        block(client, server, name, one, "SHARED")
    block(second, server, name, mine)
    for client, one in later:
        block(client, server, name, one, "SHARED")
    server.cmd("RELEASE", name, writer)
    assert len({client.read() for client, _ in readers}) == 10
    assert server.show(name)["holds"] == 10
    for client, one in readers:
        assert second.is_silent() and all(other.is_silent() for other, _ in later)
        server.cmd("RELEASE", name, one)
    assert second.read() > 0
    assert all(other.is_silent() for other, _ in later)
    server.cmd("RELEASE", name, mine)
    assert len({client.read() for client, _ in later}) == 3


def test_permits_wake_as_many_as_there_are(server, clients, name, lease):
    holders = [lease() for _ in range(3)]
    for one in holders:
        server.cmd("ACQUIRE", name, one, "PERMITS", 3)
    waiting = [(clients(), lease()) for _ in range(6)]
    for client, one in waiting:
        block(client, server, name, one, "PERMITS", 3)
    server.cmd("RELEASE", name, holders[0])
    assert waiting[0][0].read() > 0
    server.cmd("END", holders[1])
    assert waiting[1][0].read() > 0
    assert server.show(name)["holds"] == 3 and all(client.is_silent() for client, _ in waiting[2:])
    for done in (holders[2], waiting[0][1], waiting[1][1]):
        server.cmd("RELEASE", name, done)
    assert all(client.read() > 0 for client, _ in waiting[2:5])
    assert waiting[5][0].is_silent()


def test_who_leaves_the_head_of_the_queue_lets_others_in(server, clients, name, lease):
    """Readers wait behind a writer that gives up: nothing holds them back any more."""
    reader, writer = lease(), lease()
    server.cmd("ACQUIRE", name, reader, "SHARED")
    first, second = clients(), clients()
    block(first, server, name, writer)
    block(second, server, name, lease(), "SHARED")
    first.close()
    assert second.read() > 0


def test_a_crowd_never_holds_together(server, clients, name):
    """50 connections take and release, over and over: tokens grow, and each is alone."""
    crowd = {}
    poll = select.poll()
    for index in range(50):
        client = clients()
        crowd[client.fileno()] = (client, f"{name}-{index}")
        poll.register(client, select.POLLIN)
        client.send("ACQUIRE", name, f"{name}-{index}", "WAIT", 60000)
    last, turns = 0, 5000 if SOAK else 200
    while turns:
        ready = poll.poll(PATIENCE * 1000)
        assert len(ready) == 1, "one of them, and somebody"
        client, mine = crowd[ready[0][0]]
        token = client.read()
        assert token > last
        assert client.cmd("CHECK", name, token) == 1
        last, turns = token, turns - 1
        client.send("RELEASE", name, mine, "TOKEN", token)
        client.send("ACQUIRE", name, mine, "WAIT", 60000)
        assert client.read() == 1


# ---- watching ----------------------------------------------------------------------------------------------------


def test_observe_sees_every_change_in_order(server, clients, name, lease):
    watching, watching2, subscribed, control = clients(3), clients(3), clients(2), clients(3)
    l1, l2, l3 = lease(), lease(), lease()
    assert watching.cmd("OBSERVE", name) == "OK" and watching2.cmd("observe", name) == "OK"
    assert watching.cmd("OBSERVE", name) == "OK", "twice is once"
    assert subscribed.cmd("SUBSCRIBE", name) == ["subscribe", name, 1]
    first = control.cmd("ACQUIRE", name, l1, "OWNER", "one")
    control.cmd("ACQUIRE", name, l2, "OWNER", "two", "PUSH")
    control.cmd("ACQUIRE", name + "-other", l1)
    control.cmd("RENEW", l1)
    control.cmd("RELEASE", name, l1)
    control.cmd("END", l2)
    control.cmd("ACQUIRE", name, l3, "TTL", 100)
    eventually(lambda: control.show(name)["holds"] == 0, "it runs out")
    l4 = lease()
    control.cmd("ACQUIRE", name, l4, "OWNER", "a b")
    control.cmd("BREAK", name, "NOW")
    expected = [("granted", first, "one"), ("released", first, "one"), ("granted", first + 2, "two"),
                ("ended", first + 2, "two"), ("granted", first + 3, ""), ("expired", first + 3, ""),
                ("granted", first + 4, "a b"), ("broken", first + 4, "a b")]
    for client in (watching, watching2):
        assert client.pushes_so_far() == [("changed", name, why, token, owner) for why, token, owner in expected]
    for why, token, owner in expected:
        assert subscribed.read() == ["message", name, f"{why} {token} {owner}"]
    assert watching.cmd("UNOBSERVE", name) == 1 and watching.cmd("UNOBSERVE", name) == 0
    control.cmd("ACQUIRE", name, l3)
    assert watching.pushes_so_far() == [] and len(watching2.pushes_so_far()) == 1
    assert watching2.cmd("UNOBSERVE", name + "-other") == 0
    assert subscribed.cmd("PING") == ["message", name, f"granted {first + 5} "]


def test_observe_and_subscribe_are_two_things(server, clients, name, lease):
    client = clients(3)
    client.cmd("OBSERVE", name)
    client.send("SUBSCRIBE", name)
    assert client.push() == ("subscribe", name, 1)
    token = server.cmd("ACQUIRE", name, lease())
    assert sorted(push[0] for push in client.pushes_so_far()) == ["changed", "message"]
    client.send("UNSUBSCRIBE")
    assert client.push() == ("unsubscribe", name, 0)
    server.cmd("BREAK", name)
    assert client.pushes_so_far() == [("changed", name, "broken", token, "")]


def test_nothing_is_missed_from_the_answer_on(server, clients, name):
    """Observers come and go while another connection changes the name without a pause."""
    busy, watching = clients(), clients(3)
    seen = 0
    for turn in range(10):
        mine = f"{name}-{turn}"
        burst = (pack("ACQUIRE", name, mine) + pack("RELEASE", name, mine)) * 250
        busy.raw(burst)
        watching.send("OBSERVE", name)
        busy.raw(burst)
        assert watching.read() == "OK" and watching.pushes == [], "none before the answer"
        tokens = [busy.read_any() for _ in range(1000)][::2]
        told = [push[2:4] for push in watching.pushes_so_far()]
        every = [(why, token) for token in tokens for why in ("granted", "released")]
        assert told == every[len(every) - len(told):], "the last ones, without a gap"
        assert watching.cmd("UNOBSERVE", name) == 1
        seen += len(told)
    assert seen > 0


def test_every_observer_of_a_crowd_hears_the_same(server, clients, name):
    watchers = [clients(3) for _ in range(20)]
    for client in watchers:
        client.cmd("OBSERVE", name)
    control = clients()
    commands = [words for index in range(100) for words in
                (["ACQUIRE", name, f"{name}-{index}", "OWNER", index], ["RELEASE", name, f"{name}-{index}"])]
    tokens = control.pipeline(*commands)[::2]
    expected = [("changed", name, why, token, str(index)) for index, token in enumerate(tokens) for why in ("granted", "released")]
    assert collections.Counter(map(tuple, (client.pushes_so_far() for client in watchers))) == {tuple(expected): 20}


# ---- when the server goes ----------------------------------------------------------------------------------------


def test_who_waits_when_the_server_is_stopped(start):
    """Blocked ones are told; the others learn it from the end of the connection; places by push are still there."""
    server = start()
    blocked, pushed, watching = server.connect(), server.connect(3), server.connect(3)
    server.cmd("ACQUIRE", "x", "l1")
    watching.cmd("OBSERVE", "x")
    pushed.cmd("ACQUIRE", "x", "l2", "PUSH")
    block(blocked, server, "x", "l3")
    assert server.stop() == 0
    with pytest.raises(Refused, match="^TRYAGAIN the server is being stopped$"):
        blocked.read()
    for client in (blocked, pushed, watching):
        with pytest.raises(Ended):
            client.read()
        client.close()
    server.restart()
    with server.connect(3) as client:
        assert client.cmd("ACQUIRE", "x", "l2", "PUSH") == "QUEUED"
        assert client.cmd("RELEASE", "x", "l1") == 1
        assert client.push()[:3] == ("granted", "x", "l2")
