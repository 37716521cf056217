"""What a node knows after a restart: who the members are, and that its term is over."""
import contextlib
import shutil
import time

import pytest
from helpers import LARGE, add, all_there, held, pour
from nodes import TTL_MAX, Disk, NotDone, Session, Unknown, fresh, run_refused, until

SNAPSHOTS = ["--snapshot-bytes", "64KiB"]
ENTRIES_MAX = 2000
WHILE = 4  # seconds: several election timeouts


# ---- who the members are -----------------------------------------------------------------------------------------


def segments(node):
    return {path.name for path in node.data.glob("log-*")}


def forget_log(cluster, node):
    """Until nothing is left of the log that this node has now: it knows of it what its snapshot says."""
    now = segments(node)
    with cluster.session() as session:
        for _ in range(ENTRIES_MAX):
            pour(session)
            if not now & segments(node):
                return
    raise AssertionError("its log is never gone")


def seen_by(node):
    return {number: bool(member["votes"]) for number, member in node.members().items()}


def granted(nodes):
    """The first token that one of them gives within a while, or None: there is no majority among them."""
    deadline = time.monotonic() + WHILE
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Session([(node.host, node.port)])) for node in nodes]
        while time.monotonic() < deadline:
            for session in sessions:
                with contextlib.suppress(NotDone, Unknown):
                    return session.once("ACQUIRE", fresh("name"), fresh())
            time.sleep(0.05)
    return None


def away_during_changes(start):
    """The cluster, and its node 3: it was down while 4 and 5 were added, and has learnt of that from the log, among other things."""
    cluster = start(3, *SNAPSHOTS)
    cluster.settled()
    away = cluster[3]
    away.kill9()
    cluster.leader()
    for number in (4, 5):
        add(cluster, number)
    assert away.launch()
    cluster.settled()
    return cluster, away


def test_a_node_that_was_away_knows_the_members(start):
    """When the log that told it of them is gone, and it is started again, it still knows them: with node 1 alone it is no
    majority."""
    cluster, away = away_during_changes(start)
    forget_log(cluster, away)
    cluster.settled()
    away.kill9()
    assert away.launch()
    cluster.settled()
    believed = seen_by(away)
    for number in (2, 4, 5):
        cluster[number].kill9()
    token = granted([cluster[1], away])
    assert (believed, token) == (dict.fromkeys(range(1, 6), True), None), "members it believes in; what two of five granted"


def test_a_node_that_was_away_changes_the_members(start):
    """It knows that those changes are over: as the leader it makes others."""
    cluster, away = away_during_changes(start)
    cluster.lead_by(away)
    assert cluster.ask("CLUSTER", "REMOVE", 5) == "OK"
    assert seen_by(away) == dict.fromkeys(range(1, 5), True)


@pytest.mark.parametrize("snapshots", [False, True])
def test_two_of_three_of_whom_one_missed_two_changes(start, snapshots):
    """All are killed, and come back but for one. The leader knows no more that the first change was committed, and counts on the
    other, which gets both now: it must not wait for the one until it has the other."""
    cluster = start(3, *SNAPSHOTS)
    holds = held(cluster, 3)
    if snapshots:
        with cluster.session() as session:
            until(lambda: pour(session) or all(list(node.data.glob("snapshot-*")) for node in cluster), "all have a snapshot")
    cluster.settled()
    away, other = cluster.followers()
    knows = cluster.leader()
    away.kill9()
    fourth = add(cluster, 4)
    assert cluster.ask("CLUSTER", "REMOVE", 4) == "OK"
    holds += held(cluster, 3)
    fourth.kill9()
    cluster.nodes.pop(4)
    for node in (knows, other):
        node.kill9()
    for node in (knows, away):
        node.begin()
    for node in (knows, away):
        until(node.answers, f"{node} answers")
    cluster.leader()
    with cluster.session() as session:
        assert all_there(session, holds)


@pytest.mark.parametrize("order", ["by id", "backwards", "mixed"])
def test_members_out_of_order_are_the_members(start, order):
    """Every way to write the members of now is accepted, and they are shown by their ids."""
    cluster = start(3)
    cluster.settled()
    cluster.lead_by(cluster[3])
    assert cluster.ask("CLUSTER", "REMOVE", 1) == "OK"
    cluster[1].kill9()
    shutil.rmtree(cluster[1].data)
    cluster.nodes.pop(1)
    again = add(cluster, 4)
    cluster.settled()
    assert [member["id"] for member in again.status()["members"]] == [2, 3, 4]
    assert again.stop() == 0
    numbers = {"by id": (2, 3, 4), "backwards": (4, 3, 2), "mixed": (3, 2, 4)}[order]
    again.line = ",".join(f"{number}={cluster[number].peer}" for number in numbers)
    assert again.launch(), again.logged()
    cluster.settled()
    assert again.stop() == 0
    status, said = run_refused("--id", 4, "--cluster", f"4={again.peer},2={cluster[2].peer}", "--listen", again.address,
                               "--data", again.data)
    line = ",".join(f"{number}={cluster[number].peer}" for number in (2, 3, 4))
    assert status == 69 and f"cluster = {line} " in said, "it is told by id"
    assert again.launch()


# ---- whose term it is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["alone", "a cluster of one"])
def test_a_start_of_a_lone_voter_is_another_term(start, how):
    """Nobody else could tell what it does from what it did before, and lost: so the term is another before it grants anything."""
    cluster = start(1, founded=False)
    node, terms = cluster[1], []
    if how == "alone":
        node.line = None
        assert node.launch()
    else:
        cluster.begin()
    for _ in range(3):
        until(node.leads, "it serves")
        terms.append(int(node.info("Raft")["term"]))
        assert isinstance(node.cmd("ACQUIRE", fresh("name"), fresh()), int)
        assert int(node.info("Raft")["term"]) == terms[-1], "it began before the first grant"
        node.kill9()
        assert node.launch()
    assert terms == sorted(set(terms)), "it restarts in its old term"


def test_one_that_was_added_and_has_no_log_is_no_cluster_of_its_own(start):
    """Its directory says to which cluster it was added. Started alone it would lead under that id, and give away what is held there."""
    cluster = start(3)
    held(cluster, 1)
    disk = Disk(cluster.directory, "disk-4")
    newcomer = cluster.node(4, "--join", wrapper=disk.wrapper)
    disk.hang()
    assert newcomer.launch()
    assert cluster.ask("CLUSTER", "ADD", 4, newcomer.peer) == "OK"
    until(lambda: "joined" in (newcomer.data / "node").read_text(), "it knows of it")
    newcomer.kill9()
    status, said = run_refused("--id", 4, "--listen", newcomer.address, "--data", newcomer.data)
    assert status == 69 and "belongs to node 4 of a cluster, to which it was added" in said, said
    disk.go_on()
    assert newcomer.launch()
    until(lambda: cluster.leader().members()[4]["votes"], "it has caught up, and votes")


def test_what_a_learner_has_of_a_lost_write(start):
    """A leader that is the only one to vote: what it sent to a node that learns, its own disk never got. When it is started again
    something else is in that place, and is acknowledged: the learner must not take one for the other."""
    cluster = start(1, founded=False)
    mine, theirs = Disk(cluster.directory, "hang-1"), Disk(cluster.directory, "hang-2")
    leader = cluster[1]
    leader.wrapper = mine.wrapper
    cluster.begin()
    until(leader.leads, "it serves")
    learner = cluster.node(2, "--join", wrapper=theirs.wrapper)
    theirs.hang()  # it learns nothing before the leader's disk hangs, too
    assert learner.launch()
    with leader.connect() as client, leader.connect() as other:
        assert client.cmd("CLUSTER", "ADD", 2, learner.peer) == "OK"
        theirs.hangs()
        lease = fresh("lost")
        _, token = client.cmd("ONCE", "CLAIM", "key", lease)
        before = int(other.info("Raft")["last_index"])
        mine.hang()
        client.send("ONCE", "FINISH", "key", lease, "TOKEN", token, "KEEP", TTL_MAX, LARGE)
        mine.hangs()
        assert int(other.info("Raft")["last_index"]) > before, "a thread writes it"
        theirs.go_on()
        until(lambda: int(learner.info("Raft")["last_index"]) > before, "the learner has it")
        assert client.is_silent()
    learner.pause()
    leader.kill9()
    mine.go_on()
    assert leader.launch()
    until(leader.leads, "it serves")
    kept = [(name, leader.cmd("ACQUIRE", name, fresh("kept"), "TTL", TTL_MAX)) for name in ("x", "y", "z")]
    learner.resume()
    until(lambda: leader.members()[2]["votes"], "it has learnt all, and votes")
    cluster.settled()
    cluster.lead_by(learner)
    with learner.connect() as client:
        assert client.pipeline(*[["CHECK", *hold] for hold in kept]) == [1, 1, 1], "an acknowledged hold is gone"
