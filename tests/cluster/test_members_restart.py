"""What a node knows after a restart: who the members are, whatever was in its log and is not any more."""
import contextlib
import time

from helpers import add
from nodes import NotDone, Refused, Session, Unknown, fresh

SNAPSHOTS = ["--snapshot-bytes", "64KiB"]
LARGE = "r" * 60000
ENTRIES_MAX = 2000
WHILE = 4  # seconds: several election timeouts


def pour(cluster, enough):
    """Large entries, which leave nothing behind in the table, until that is enough."""
    with cluster.session() as session:
        for _ in range(ENTRIES_MAX):
            key, lease = fresh("key"), fresh()
            _, token = session.ask("ONCE", "CLAIM", key, lease)
            with contextlib.suppress(Refused):  # an answer that was lost, and the record is gone
                session.ask("ONCE", "FINISH", key, lease, "TOKEN", token, "KEEP", 1, LARGE)
            if enough():
                return
    raise AssertionError("it is never enough")


def segments(node):
    return {path.name for path in node.data.glob("log-*")}


def forget_log(cluster, node):
    """Until nothing is left of the log that this node has now: it knows of it what its snapshot says."""
    now = segments(node)
    pour(cluster, lambda: not now & segments(node))


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
