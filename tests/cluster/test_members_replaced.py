"""A member that was replaced under its id: who the others take for it after a restart, when their tables are those of a snapshot
from before, and what becomes of the directory that it had."""
import shutil

from helpers import all_there, held, pour
from nodes import TTL_MAX, fresh, until

SNAPSHOTS = ["--snapshot-bytes", "64KiB"]


def snapshots(cluster):
    """Each has one, of now."""
    before = {node: set(node.data.glob("snapshot-*")) for node in cluster}
    with cluster.session() as session:
        until(lambda: pour(session) or all(set(node.data.glob("snapshot-*")) - before[node] for node in cluster), "all have a snapshot")
    cluster.settled()


def replace(cluster, node):
    """Removed, and added again under its id, with an empty directory. What it had is kept. All know it when this returns."""
    old = cluster.directory / f"old-{node.number}"
    node.hurry()
    assert cluster.ask("CLUSTER", "REMOVE", node.number) == "OK"
    node.data.rename(old)
    node.line = f"{node.number}={node.peer}"
    assert node.launch()
    assert cluster.ask("CLUSTER", "ADD", node.number, node.peer) == "OK"
    until(lambda: cluster.leader().members().get(node.number, {}).get("votes"), f"{node} votes")
    cluster.settled()
    return old


def start_again(nodes):
    for node in nodes:
        node.begin()
    for node in nodes:
        until(node.answers, f"{node} answers")


def test_all_come_back_after_two_were_replaced(start):
    """They know each other, whatever their snapshots say of those who had the ids before."""
    cluster = start(3, *SNAPSHOTS)
    holds = held(cluster, 3)
    snapshots(cluster)
    for node in cluster.followers():
        replace(cluster, node)
    holds += held(cluster, 3)
    for node in cluster:
        node.kill9()
    start_again(list(cluster))
    cluster.leader()
    cluster.settled()
    with cluster.session() as session:
        assert all_there(session, holds)


def test_one_that_was_replaced_and_one_that_was_restarted(start):
    cluster = start(3, *SNAPSHOTS)
    snapshots(cluster)
    restarted = cluster.leader()
    replaced, dies = cluster.followers()
    replace(cluster, replaced)
    holds = held(cluster, 3)
    cluster.settled()
    dies.kill9()
    restarted.kill9()
    start_again([restarted])
    cluster.leader()
    with cluster.session() as session:
        assert all_there(session, holds)


def test_the_old_directory_of_one_that_was_replaced_has_no_vote(start):
    """Five. Two of them are away while the others grant; then these two, and the old directory of the one that was replaced, are
    all there is: no majority, since one of them does not count. When one that knows of the grants is back, they are there."""
    cluster = start(5, *SNAPSHOTS)
    snapshots(cluster)
    knows = cluster.leader()
    replaced, away, too, other = cluster.followers()
    line = replaced.line
    old = replace(cluster, replaced)
    for node in (away, too):
        node.kill9()
    granted = [(name, cluster.ask("ACQUIRE", name, fresh(), "TTL", TTL_MAX)) for name in (fresh("name"), fresh("name"))]
    for node in (knows, other, replaced):
        node.kill9()
    replaced.data.rename(cluster.directory / "new")
    shutil.copytree(old, replaced.data)
    replaced.line = line
    start_again([away, too, replaced])
    for node in (away, too):
        node.await_line("a node has come back without its data")
    assert not any(node.status()["leader"] for node in (away, too)), "elected with a vote that does not count"
    start_again([knows])
    cluster.leader()
    with cluster.session() as session:
        assert all_there(session, granted), "an acknowledged grant is gone"
