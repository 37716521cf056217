"""A node whose own snapshot is on disk before the entries in it are: the others have committed them, it has applied them, and its log is slow.
It is restarted then. What it has acknowledged is less than what it has."""
import pytest
from helpers import pour
from nodes import TTL_MAX, Disk, fresh, until

SNAPSHOTS = ["--snapshot-bytes", "64KiB"]
LARGE_WRITE = 8193  # bytes: smaller ones are written by the loop itself, and it would hang
POURS = 10


def own_snapshots(node):
    return {path.name for path in node.data.glob("snapshot-*") if path.name[len("snapshot-"):].isdigit()}


def take_lock(cluster):
    with cluster.session() as session:
        return session.ask("ACQUIRE", fresh("x"), fresh(), "TTL", TTL_MAX)


def fill_the_log(cluster):
    with cluster.session() as session:
        for _ in range(POURS):
            pour(session)


def end_with_a_new_snapshot(node, disk, before, end):
    until(lambda: own_snapshots(node) - before, "it has a snapshot of its own")
    disk.hangs()
    if end == "killed":
        node.kill9()
    else:
        node.terminate()
        disk.go_on()
        node.ended()
    disk.go_on()
    node.wrapper = ()


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_of_a_learner(start, end):
    """It comes up, catches up and votes."""
    cluster = start(3, *SNAPSHOTS)
    fill_the_log(cluster)
    node = cluster.node(4, "--join")
    disk = Disk(cluster.directory, "disk-4", LARGE_WRITE)
    node.wrapper = disk.wrapper
    assert node.launch()
    disk.hang()
    assert cluster.ask("CLUSTER", "ADD", 4, node.peer) == "OK"
    end_with_a_new_snapshot(node, disk, set(), end)
    assert node.launch()
    until(lambda: cluster.leader().members()[4]["votes"] == 1, "it has caught up, and votes")
    cluster.settled()


@pytest.mark.parametrize("transfer", [False, True], ids=["same-leader", "another-leader"])
def test_of_a_voter(start, transfer):
    """It catches up with whoever leads, so that another one may fall."""
    cluster = start(3, *SNAPSHOTS)
    node, other = cluster.followers()
    before = own_snapshots(node)
    node.kill9()
    fill_the_log(cluster)
    if transfer:
        other = cluster.leader()
        cluster.transfer()
    disk = Disk(cluster.directory, "disk", LARGE_WRITE)
    node.wrapper = disk.wrapper
    disk.hang()
    node.begin()
    end_with_a_new_snapshot(node, disk, before, "killed")
    leader = cluster.leader()
    assert node.launch()
    cluster.settled()
    assert cluster.leader() is leader, "the next one would not remember what it had acknowledged"
    assert not any("old copy" in line for line in leader.logged())
    other.kill9()
    assert take_lock(cluster) > 0
