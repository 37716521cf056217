"""A cluster as its clients see it: who leads, where they are sent, what becomes of those who wait when another one
leads."""
import contextlib
import hashlib
import re
import shutil
import subprocess
import time

import pytest
from nodes import PATIENCE, TTL_MAX, Disk, NotDone, Refused, Unknown, fresh, pack, until

WAIT = 600000
LONG_TTL = 60000

# One of each command that goes through the log.
LOGGED = [["ACQUIRE", "N", "L"], ["RELEASE", "N", "L"], ["RENEW", "L"], ["END", "L"], ["CHECK", "N", "1"], ["SHOW", "N"],
          ["LOCKS"], ["BREAK", "N"], ["FLOOR", "1"], ["ONCE", "CLAIM", "N", "L"], ["ONCE", "READ", "N"],
          ["ACQUIRE", "N", "L", "WAIT", "600000"], ["CLUSTER", "TRANSFER"], ["CLUSTER", "REMOVE", "1"],
          ["CLUSTER", "ADD", "9", "127.0.0.1:9"]]


def digest(lease):
    return hashlib.sha256(lease.encode()).hexdigest()[:16]


def queue_of(cluster, name):
    """Digests of the leases, in their order."""
    leader = cluster.leader()
    return [row["lease"] for row in leader.show(name)["waiters"]]


# ---- who leads ---------------------------------------------------------------------------------------------------


def test_one_leads_and_all_agree(cluster, name):
    leader = cluster.settled()
    seen = [node.status() for node in cluster]
    assert [status["role"] for status in seen].count("leader") == 1
    assert {status["leader"] for status in seen} == {leader.number}
    assert len({status["term"] for status in seen}) == 1
    for node, status in zip(cluster, seen):
        assert status["id"] == node.number
        assert status["role"] == ("leader" if node is leader else "follower")
        assert [(member["id"], member["peer"], member["client"], member["votes"]) for member in status["members"]] == \
            [(other.number, other.peer, other.address, 1) for other in cluster]
    first = leader.cmd("ACQUIRE", name, "l1")
    assert leader.cmd("RELEASE", name, "l1") == 1
    assert leader.cmd("ACQUIRE", name, "l2") > first


def test_what_one_was_told_all_have(cluster, name):
    """Whoever leads next knows it."""
    token = cluster.ask("ACQUIRE", name, "l", "TTL", LONG_TTL)
    for node in cluster:
        cluster.lead_by(node)
        assert node.cmd("CHECK", name, token) == 1
        assert node.cmd("ACQUIRE", name, "l", "TTL", LONG_TTL) == token, "the same lease, the same token"
        assert node.cmd("ACQUIRE", name, "other") is None


@pytest.mark.parametrize("words", LOGGED, ids=lambda words: "-".join(words[:2]))
def test_followers_send_clients_to_the_leader(cluster, name, lease, words):
    leader, mine = cluster.settled(), lease()
    words = [{"N": name, "L": mine}.get(word, word) for word in words]
    for node in cluster.followers():
        with node.connect() as client:
            assert client.error(*words) == f"MOVED 0 {leader.address}"
            assert client.cmd("PING") == "PONG"
            assert client.cmd("CLUSTER", "SLOTS")[0][2][:2] == [leader.host, leader.port]
    assert leader.cmd("RENEW", mine) == [-1], "and they have done nothing"


def test_clients_are_sent_where_the_leader_says(start):
    """--advertise, which need not be where it listens."""
    cluster = start(3, founded=False)
    for node in cluster:
        node.args += ["--advertise", f"localhost:{node.port}"]
    leader = cluster.begin()
    for node in cluster.followers():
        with node.connect() as client:
            assert client.error("ACQUIRE", "x", "l") == f"MOVED 0 localhost:{leader.port}"
            assert client.cmd("CLUSTER", "SLOTS")[0][2][:2] == ["localhost", leader.port]
    # Another address after a restart is known when it leads.
    node = cluster.followers()[0]
    assert node.stop() == 0
    node.args = ["--advertise", f"elsewhere.example:{node.port}"]
    assert node.launch()
    cluster.settled()
    with leader.connect() as client:
        assert client.cmd("CLUSTER", "TRANSFER", node.number) == "OK"
        until(node.leads, "the other one leads")
        assert client.error("ACQUIRE", "x", "l") == f"MOVED 0 elsewhere.example:{node.port}"


@pytest.mark.skipif(not shutil.which("redis-cli"), reason="needs redis-cli")
def test_redis_cli_follows(cluster, name):
    """Whichever node it is told of."""
    tokens = []
    for node in cluster:
        done = subprocess.run(["redis-cli", "-c", "-p", str(node.port), "ACQUIRE", name, "l", "TTL", "60000"],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        tokens.append(int(done.stdout))
    assert len(set(tokens)) == 1 and cluster.ask("CHECK", name, tokens[0]) == 1


# ---- no majority -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["the leader", "a follower"])
def test_without_a_majority_nothing_is_granted(cluster, name, lease, left):
    """It refuses, and never guesses. What was sent before it knew is unknown, and settled by the same lease."""
    leader = cluster.settled()
    survivor = leader if left == "the leader" else cluster.followers()[0]
    held = leader.cmd("ACQUIRE", name, "holder", "TTL", TTL_MAX)
    gone = [node for node in cluster if node is not survivor]
    for node in gone:
        node.kill9()
    doubts, refusals, asked = [], 0, 0
    with cluster.session() as session:
        deadline = time.monotonic() + PATIENCE
        while refusals < 100:
            assert time.monotonic() < deadline, "it does not notice"
            session.go_to((survivor.host, survivor.port))
            asked += 1
            mine = lease()
            try:
                answer = session.once("ACQUIRE", f"{name}-{asked}", mine, "TTL", TTL_MAX)
                raise AssertionError(f"acknowledged by one of three: {answer}")
            except Unknown as reason:
                doubts.append((f"{name}-{asked}", mine))
                assert str(reason).startswith(("UNKNOWN", "no answer: timed out")), reason
            except NotDone as reason:
                refusals += str(reason).startswith("TRYAGAIN ")
                assert re.match(r"TRYAGAIN |MOVED ", str(reason)), reason
        for words in LOGGED:
            with survivor.connect() as client:
                assert client.error(*words).startswith("TRYAGAIN "), words
    status = survivor.status()
    assert status["role"] == "follower" and status["leader"] == 0
    assert gone[0].launch()
    with cluster.session() as session:
        assert session.ask("CHECK", name, held) == 1
        for at, mine in doubts:
            token = session.ask("ACQUIRE", at, mine, "TTL", TTL_MAX)
            assert token > held and session.ask("ACQUIRE", at, mine, "TTL", TTL_MAX) == token
        assert session.ask("RELEASE", name, "holder") == 1


# ---- those who wait ----------------------------------------------------------------------------------------------


def depose(cluster, leader, how):
    """Another one leads afterwards; returns it."""
    if how == "transfer":
        with leader.connect() as client:
            assert client.cmd("CLUSTER", "TRANSFER") == "OK"
    elif how == "pause":
        leader.pause()
        cluster.leader(other_than=leader)
        leader.resume()
    elif how == "kill":
        leader.kill9()
    else:
        leader.terminate()
        assert leader.ended() == 0
    return cluster.leader(other_than=leader)


DEPOSE = pytest.mark.parametrize("how", ["transfer", "pause"])


@DEPOSE
def test_who_is_blocked_at_a_deposed_leader_is_sent_on(cluster, name, lease, how):
    leader = cluster.settled()
    leader.cmd("ACQUIRE", name, "holder", "TTL", LONG_TTL)
    with leader.connect() as waiter, leader.connect() as once, leader.connect() as idle:
        waiter.send("ACQUIRE", name, lease(), "WAIT", WAIT)
        once.cmd("ONCE", "CLAIM", name, "runs", "TTL", LONG_TTL)
        once.send("ONCE", "CLAIM", name, lease(), "WAIT", WAIT)
        until(lambda: leader.count("blocked_clients") == 2, "both are blocked")
        idle.cmd("PING")
        new = depose(cluster, leader, how)
        for client in (waiter, once):
            with pytest.raises(Refused, match=f"^MOVED 0 {new.address}$"):
                client.read()
        for client in (waiter, once, idle):
            assert client.cmd("PING") == "PONG", "the connection lives on"
        assert idle.error("SHOW", name) == f"MOVED 0 {new.address}"


@DEPOSE
def test_who_was_to_be_told_by_pushes_is_cut_off(cluster, name, lease, how):
    """Nothing would ever be pushed by this node: they notice, and come anew."""
    leader, mine = cluster.settled(), lease()
    leader.cmd("ACQUIRE", name, "holder", "TTL", LONG_TTL)
    with leader.connect(3) as waiter, leader.connect(3) as observer, leader.connect() as subscriber, \
            leader.connect(3) as former:
        assert waiter.cmd("ACQUIRE", name, mine, "PUSH", "TTL", LONG_TTL) == "QUEUED"
        observer.cmd("OBSERVE", name)
        subscriber.cmd("SUBSCRIBE", name)
        former.cmd("OBSERVE", name)
        former.cmd("UNOBSERVE", name)
        new = depose(cluster, leader, how)
        for client in (waiter, observer, subscriber):
            assert client.ended(), "nothing but the end"
        assert former.error("SHOW", name) == f"MOVED 0 {new.address}"
    with new.connect(3) as waiter:
        assert waiter.cmd("ACQUIRE", name, mine, "PUSH", "TTL", LONG_TTL) == "QUEUED"
        assert new.show(name)["queue"] == 1, "the same place"
        assert new.cmd("RELEASE", name, "holder") == 1
        assert waiter.push()[:3] == ("granted", name, mine)


@pytest.mark.parametrize("way", ["WAIT", "PUSH"])
@pytest.mark.parametrize("how", ["transfer", "pause", "kill", "stop"])
def test_the_queue_keeps_its_order(cluster, name, lease, how, way):
    """They come again in another order, with the same leases, and each has its place."""
    leader = cluster.settled()
    leader.cmd("ACQUIRE", name, "holder", "TTL", LONG_TTL)
    leases = [lease() for _ in range(6)]
    words = ["WAIT", WAIT] if way == "WAIT" else ["PUSH"]
    clients = {}

    def come(node, mine):
        clients[mine] = node.connect(3)
        clients[mine].send("ACQUIRE", name, mine, "TTL", LONG_TTL, *words)

    def leave():
        for client in clients.values():
            client.close()
        clients.clear()

    try:
        for count, mine in enumerate(leases, 1):
            come(leader, mine)
            until(lambda: leader.show(name)["queue"] == count, "a place in the queue")
        new = depose(cluster, leader, how)
        if how in ("transfer", "pause") and way == "WAIT":
            for client in clients.values():
                with pytest.raises(Refused, match="^MOVED "):
                    client.read()
        leave()
        assert queue_of(cluster, name) == [digest(mine) for mine in leases]
        for mine in [leases[4], leases[0], leases[5], leases[2], leases[3], leases[1]]:
            come(new, mine)
            if way == "PUSH":
                assert clients[mine].read() == "QUEUED"
        if way == "WAIT":
            until(lambda: new.count("blocked_clients") == len(leases), "all have come")
        assert queue_of(cluster, name) == [digest(mine) for mine in leases]
        tokens, holder = [], "holder"
        for turn, mine in enumerate(leases):
            assert new.cmd("RELEASE", name, holder) == 1
            tokens.append(clients[mine].read() if way == "WAIT" else clients[mine].push()[3])
            holder = mine
            for other in leases[turn + 1:]:
                assert clients[other].is_silent()
        assert tokens == sorted(set(tokens))
        assert new.cmd("RELEASE", name, holder) == 1
    finally:
        leave()


def test_a_waiter_that_does_not_come_again_is_not_granted(cluster, name, lease):
    """Its connection keeps its lease alive no more: with the next leader its time begins."""
    leader = cluster.settled()
    leader.cmd("ACQUIRE", name, "holder", "TTL", LONG_TTL)
    with leader.connect() as dead, leader.connect() as alive:
        dead.send("ACQUIRE", name, lease(), "WAIT", WAIT, "TTL", 1000)
        until(lambda: leader.show(name)["queue"] == 1, "a place in the queue")
        mine = lease()
        alive.send("ACQUIRE", name, mine, "WAIT", WAIT, "TTL", 1000)
        until(lambda: leader.show(name)["queue"] == 2, "a place in the queue")
        leader.kill9()
    new = cluster.leader()
    with new.connect() as alive:
        alive.send("ACQUIRE", name, mine, "WAIT", WAIT, "TTL", 1000)
        until(lambda: queue_of(cluster, name) == [digest(mine)], "the place of the one that did not come is gone")
        new.cmd("RELEASE", name, "holder")
        assert alive.read() > 0


def lose_and_win_again(cluster, leader):
    """The leader loses its majority, leads no more, and is elected again; nobody else can be, for want of an entry."""
    behind, other = cluster.followers()
    behind.kill9()
    leader.cmd("ACQUIRE", fresh("name"), fresh())
    other.pause()
    until(lambda: not leader.leads(), "it leads no more")
    behind.begin()
    until(leader.leads, "it leads again")


def test_who_is_blocked_when_the_same_node_leads_again_is_answered(start, name):
    """With the new term the time of each lease that waits has begun, and nobody keeps it. A client that stays blocked
    would lose its place, or be granted less than its TTL without knowing it."""
    ttl = 4000
    cluster = start(3, "--election-timeout", "200ms")
    for turn in range(5):
        leader, mine = cluster.settled(), fresh()
        own = f"{name}-{turn}"
        with leader.connect() as holder, leader.connect() as waiter, leader.connect(3) as pushed:
            holder.cmd("ACQUIRE", own, "holder", "TTL", LONG_TTL)
            waiter.send("ACQUIRE", own, mine, "WAIT", WAIT, "TTL", ttl)
            until(lambda: leader.show(own)["queue"] == 1, "a place in the queue")
            assert pushed.cmd("ACQUIRE", own, fresh(), "PUSH", "TTL", LONG_TTL) == "QUEUED"
            lose_and_win_again(cluster, leader)
            with pytest.raises(Refused, match="^(TRYAGAIN|MOVED) "):
                waiter.read()
            assert pushed.ended(), "nor would it hear of what was granted meanwhile"
            # It finds its place again, and now it is kept.
            waiter.send("ACQUIRE", own, mine, "WAIT", WAIT, "TTL", ttl)
            until(lambda: leader.show(own)["waiters"][0]["left_ms"] == -1, "its connection keeps it")
            holder.cmd("RELEASE", own, "holder")
            assert waiter.read() > 0
        for node in cluster:
            if node.paused:
                node.resume()


def test_a_leader_that_cannot_commit_yet_sends_nobody_to_itself(start, name):
    """It was elected, and whoever elected it has a disk that hangs: until something of its term is committed it serves nobody."""
    cluster = start(3, "--election-timeout", "1s")
    leader = cluster.settled()
    behind, other = cluster.followers()
    disk = Disk(cluster.directory, "disk")
    behind.kill9()
    leader.cmd("ACQUIRE", name, "holder", "TTL", LONG_TTL)
    other.pause()
    until(lambda: not leader.leads(), "it leads no more")
    leader.pause()
    behind.wrapper = disk.wrapper
    assert behind.launch()
    disk.hang()
    leader.resume()
    try:
        with leader.connect() as client:
            until(lambda: leader.status()["leader"] == leader.number, "it is elected")
            assert client.error("ACQUIRE", name, "l").startswith("TRYAGAIN ")
    finally:
        disk.go_on()
    until(leader.leads, "it leads again")
    with cluster.session() as session:
        assert session.ask("RELEASE", name, "holder") == 1


# ---- a clean end -------------------------------------------------------------------------------------------------


def test_a_leader_that_is_stopped_hands_over_first(cluster, name, lease):
    """When it is gone, the others have a new leader already: nobody waits for an election."""
    leader = cluster.settled()
    leader.cmd("ACQUIRE", name, "holder", "TTL", LONG_TTL)
    with leader.connect() as waiter, leader.connect(3) as pushed:
        waiter.send("ACQUIRE", name, lease(), "WAIT", WAIT)
        assert pushed.cmd("ACQUIRE", name, lease(), "PUSH") == "QUEUED"
        until(lambda: leader.show(name)["queue"] == 2, "a place in the queue")
        leader.terminate()
        assert leader.ended() == 0
        followed = {node.status()["leader"] for node in cluster.running()}
        assert leader.number not in followed and len(followed) == 1
        new = cluster.leader()
        with pytest.raises(Refused, match=f"^MOVED 0 {new.address}$"):
            waiter.read()
        assert pushed.ended()
    assert any("leads no more" in line for line in leader.logged())


def test_the_last_one_does_not_wait_for_an_heir(start):
    cluster = start()
    leader = cluster.leader()
    for node in cluster.followers():
        assert node.stop() == 0
    began = time.monotonic()
    assert leader.stop() == 0
    assert time.monotonic() - began < 8, "some election timeouts, not more"


def test_commands_that_race_a_transfer(cluster, name):
    """A pipeline of them, sent before the transfer is over: each gets an answer that holds, or none was done."""
    for turn in range(5):
        leader = cluster.settled()
        with leader.connect() as client, leader.connect() as boss:
            leases = [fresh() for _ in range(200)]
            boss.send("CLUSTER", "TRANSFER")
            answers = client.pipeline(*[["ACQUIRE", f"{name}-{mine}", mine, "TTL", LONG_TTL] for mine in leases])
            assert boss.read() == "OK"
        new = cluster.leader(other_than=leader)
        with new.connect() as client:
            for mine, answer in zip(leases, answers):
                shown = client.show(f"{name}-{mine}")["holders"]
                if isinstance(answer, int):
                    assert [row["token"] for row in shown] == [answer], "an acknowledged hold is gone"
                elif answer.code in ("MOVED", "TRYAGAIN"):
                    assert not shown, "it was said not to be done"
                else:
                    assert answer.code == "UNKNOWN" and len(shown) <= 1


def test_a_session_outlives_every_leader(cluster, name):
    """The client of these tests, with each kind of end: what it is told is true."""
    with cluster.session() as session:
        last = 0
        for how in ("transfer", "kill", "pause", "stop"):
            leader = cluster.settled()
            session.go_to((leader.host, leader.port))
            assert session.ask("PING") == "PONG"
            mine = fresh()
            depose(cluster, leader, how)
            token = session.ask("ACQUIRE", name, mine, "TTL", LONG_TTL)
            assert token > last
            last = token
            assert session.ask("RELEASE", name, mine, again=False) == 1
            if not leader.running():
                assert leader.launch()


# ---- many at once ------------------------------------------------------------------------------------------------


CROWD, CROWDED_ROUNDS = 40, 30


def test_a_leader_with_much_to_do_forgets_nobody(cluster, name):
    """It listens to its clients only between two entries, then to all of them; also to those who wait, and those who go."""
    leader = cluster.settled()
    before = leader.count("connected_clients")
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(leader.connect()) for _ in range(CROWD)]
        holder, waiter, gone = (stack.enter_context(leader.connect()) for _ in range(3))
        assert holder.cmd("ACQUIRE", name, "holder", "TTL", LONG_TTL) > 0
        for client, lease in ((gone, "gone"), (waiter, "waiter")):
            client.send("ACQUIRE", name, lease, "WAIT", WAIT)
            until(lambda expected=digest(lease): expected in queue_of(cluster, name), f"{lease} has its place")
        for number in range(CROWDED_ROUNDS):
            for i, client in enumerate(crowd):
                own, lease = f"{name}:{number}:{i}", f"l{number}:{i}"
                client.raw(pack("ACQUIRE", own, lease) + pack("PING") + pack("RELEASE", own, lease))
            crowd[number].reset()
            if number == CROWDED_ROUNDS // 2:
                gone.close()
            for i, client in enumerate(crowd):
                if i != number:
                    assert client.read() > 0
                    assert client.read() == "PONG"
                    assert client.read() == 1
            crowd[number] = stack.enter_context(leader.connect())
        until(lambda: queue_of(cluster, name) == [digest("waiter")], "the place of the one who left is given up")
        assert holder.cmd("RELEASE", name, "holder") == 1
        assert waiter.read() > 0
        until(lambda: leader.count("connected_clients") == before + CROWD + 2, "those who went are not counted")
    until(lambda: leader.count("connected_clients") == before, "all are gone")
