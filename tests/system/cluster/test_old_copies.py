"""A copy of a member's data directory, put back in its place: what it had acknowledged since is gone. While the leader to whom it was
acknowledged leads, the node is found out, and stops."""
import shutil

import pytest
from nodes import TTL_MAX, fresh, until

SNAPSHOTS = ["--snapshot-bytes", "64KiB"]


def copied(node):
    """Stopped for it, and started again."""
    copy = node.data.with_name(node.data.name + "-copy")
    assert node.stop() == 0
    shutil.copytree(node.data, copy)
    assert node.launch()
    return copy


def put_back(node, copy):
    shutil.rmtree(node.data)
    copy.rename(node.data)
    assert node.launch()


def take_locks(cluster, count):
    with cluster.session() as session:
        return {name: session.ask("ACQUIRE", name, "l", "TTL", TTL_MAX) for name in (fresh("x") for _ in range(count))}


@pytest.mark.parametrize("ends", ["clean", "killed"])
@pytest.mark.parametrize("args,count", [((), 20), (SNAPSHOTS, 1000)], ids=["log", "snapshots"])
def test_it_is_found_out(start, args, count, ends):
    """Also if it needs a snapshot by now. The others go on, and it can be replaced."""
    cluster = start(3, *args)
    cluster.settled()
    node = cluster.followers()[0]
    copy = copied(node)
    cluster.settled()
    held = take_locks(cluster, count)
    cluster.settled()
    node.stop() if ends == "clean" else node.kill9()
    put_back(node, copy)
    why = node.await_line("cannot go on")
    assert "this node's data directory is an older copy of itself" in why and "replace this node" in why
    assert "under a new id" in why and "If so many have stopped that nobody leads" in why
    assert node.status()["role"] == "stopped" and "older copy" in node.status()["trouble"]
    assert "under a new id" in node.status()["advice"]
    with cluster.session() as session:
        assert all(session.ask("CHECK", name, token) == 1 for name, token in held.items())
        assert session.ask("CLUSTER", "REMOVE", node.number) == "OK"
    assert node.stop() == 0
    del cluster.nodes[node.number]
    new = cluster.node(4, "--join")
    assert new.launch()
    assert cluster.ask("CLUSTER", "ADD", 4, new.peer) == "OK"
    until(lambda: cluster.leader().members()[4]["votes"] == 1, "it has caught up, and votes")


def test_one_that_was_only_away_is_not(start):
    """Stopped, killed and paused by turns, and cut short of what the others have meanwhile."""
    cluster = start(3, *SNAPSHOTS)
    cluster.settled()
    node = cluster.followers()[0]
    for turn in range(4):
        take_locks(cluster, 50)
        if turn % 2:
            node.kill9()
        else:
            node.stop()
        take_locks(cluster, 300)
        assert node.launch()
        take_locks(cluster, 50)
        node.pause()
        take_locks(cluster, 300)
        node.resume()
        cluster.settled()
    assert not any("older copy" in line for one in cluster for line in one.logged())


@pytest.mark.parametrize("args,count", [((), 20), (SNAPSHOTS, 1000)], ids=["log", "snapshots"])
def test_it_comes_back_with_the_right_directory(start, args, count):
    """What was refused while the wrong one was there is forgotten: with one of the others gone it is needed, and enough."""
    cluster = start(3, *args)
    leader = cluster.settled()
    node, other = cluster.followers()
    copy, right = copied(node), node.data.with_name(node.data.name + "-right")
    cluster.settled()
    take_locks(cluster, count)
    cluster.settled()
    node.stop()
    shutil.copytree(node.data, right)
    put_back(node, copy)
    node.await_line("cannot go on")
    node.stop()
    put_back(node, right)
    held = take_locks(cluster, 20)
    cluster.settled()
    assert cluster.leader() is leader, "whoever leads next has forgotten it anyway"
    other.kill9()
    held.update(take_locks(cluster, 20))
    with cluster.session() as session:
        assert all(session.ask("CHECK", name, token) == 1 for name, token in held.items())
