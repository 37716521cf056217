"""Faults that other clients of ZooKeeper had, as their users met them (docs/zookeeper-store.md has the list)."""
import random
import signal
import time

from conftest import children
from holdfast_cli import PATIENCE, eventually, is_running
from holder import hold, start_holder  # noqa: F401

import pytest

BRIEF = "ttl=2000"
LONG = "ttl=30000"


@pytest.fixture
def root():
    return f"/r{random.randrange(1 << 48):x}"


def nodes(kazoo, root, name="x"):
    """Of all contenders: (path, ZnodeStat), in the order in which they came."""
    found = [(f"{root}/{name}/{child}", kazoo.exists(f"{root}/{name}/{child}"))
             for child in children(kazoo, f"{root}/{name}")]
    return sorted((pair for pair in found if pair[1]), key=lambda pair: pair[1].czxid)


def await_nodes(kazoo, root, count, name="x"):
    return eventually(lambda: len(found := nodes(kazoo, root, name)) == count and found, f"{count} nodes")


# ---- CURATOR-498, 1121, 1137 (LeaderLatch): after a new session, the node of the old one is taken for one's own


def test_curator_498_a_new_session_does_not_own_the_old_node(ensemble, root, hold, start_holder):
    """A holder is stopped for longer than its session. Whoever was next holds, and it is not him who wakes up."""
    kazoo = ensemble.kazoo()
    first = hold(ensemble.url(root), "x", BRIEF)
    (old,) = nodes(kazoo, root)
    first.pause()
    second = hold(ensemble.url(root), "x", LONG)
    assert second.token > first.token
    first.ask_left()
    first.resume()
    assert {first.process.line(), first.process.line()} == {"lost", "left 0"}  # in either order
    assert first.release() == "HF_ELOST"
    (now,) = nodes(kazoo, root)
    assert now[1].czxid == second.token and now[1].owner_session_id != old[1].owner_session_id
    again = start_holder(ensemble.url(root), "x", BRIEF)
    await_nodes(kazoo, root, 2)
    assert again.waits()
    assert second.release() == "HF_OK"
    assert again.token == nodes(kazoo, root)[0][1].czxid
    assert again.release() == "HF_OK"


# ---- CURATOR-604, 696: one's own node, which is about to go or has gone, is taken for a grant


def test_curator_604_a_waiter_whose_session_is_over_is_not_the_holder(ensemble, root, hold, start_holder):
    """Stopped, it loses its session and its node; then the holder goes, and somebody else comes."""
    kazoo = ensemble.kazoo()
    first = hold(ensemble.url(root), "x", LONG)
    waiter = start_holder(ensemble.url(root), "x", BRIEF)
    await_nodes(kazoo, root, 2)
    waiter.pause()
    await_nodes(kazoo, root, 1)
    assert first.release() == "HF_OK"
    second = hold(ensemble.url(root), "x", LONG)
    waiter.resume()
    await_nodes(kazoo, root, 2)  # it takes a new place behind
    assert waiter.waits()
    assert second.release() == "HF_OK"
    assert waiter.token > second.token
    assert waiter.token == nodes(kazoo, root)[0][1].czxid
    assert waiter.release() == "HF_OK"


def test_curator_696_a_waiter_whose_node_is_deleted_is_not_the_holder(ensemble, root, hold, start_holder):
    """By hand, while its session lives."""
    kazoo = ensemble.kazoo()
    first = hold(ensemble.url(root), "x", LONG)
    waiter = start_holder(ensemble.url(root), "x", LONG)
    lost = await_nodes(kazoo, root, 2)[1]
    waiter.pause()
    kazoo.delete(lost[0])
    assert first.release() == "HF_OK"
    second = hold(ensemble.url(root), "x", LONG)
    waiter.resume()
    await_nodes(kazoo, root, 2)
    assert waiter.waits()
    assert second.release() == "HF_OK"
    assert waiter.token > second.token
    assert waiter.token == nodes(kazoo, root)[0][1].czxid
    assert waiter.release() == "HF_OK"


# ---- kazoo 649: readers and writers wait for each other for ever


def test_kazoo_649_readers_and_writers_all_get_in(ensemble, root, hold, start_holder):
    kazoo = ensemble.kazoo()
    url = ensemble.url(root)
    reader = hold(url, "x", LONG, "mode=shared")
    writer = start_holder(url, "x", LONG)
    await_nodes(kazoo, root, 2)
    late = [start_holder(url, "x", LONG, "mode=shared") for _ in range(2)]
    await_nodes(kazoo, root, 4)
    assert writer.waits() and all(one.waits() for one in late)
    assert reader.release() == "HF_OK"
    again = start_holder(url, "x", LONG, "mode=shared")  # who was inside comes back, behind all
    await_nodes(kazoo, root, 4)
    assert writer.token > reader.token
    assert all(one.waits() for one in [*late, again])
    last = start_holder(url, "x", LONG)
    await_nodes(kazoo, root, 5)
    assert writer.release() == "HF_OK"
    assert all(one.token > writer.token for one in [*late, again])  # together
    assert last.waits()
    for one in [again, *late]:
        assert one.release() == "HF_OK"
    assert last.token > again.token
    assert last.release() == "HF_OK"
    assert nodes(kazoo, root) == []


# ---- kazoo PR 760: whoever stops waiting leaves a node behind, and all wait for it


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_kazoo_760_whoever_stops_waiting_blocks_nobody(ensemble, root, cli_on, how):
    kazoo = ensemble.kazoo()
    cli = cli_on(ensemble.url(root))
    first = cli.hold("x")
    gone = cli.start("run", "--ttl", "2s", "x", "--", "true")
    await_nodes(kazoo, root, 2)
    last = cli.start("run", "x", "--", "echo", "in")
    await_nodes(kazoo, root, 3)
    gone.kill(how)
    gone.wait()
    await_nodes(kazoo, root, 2)  # while its session would still last, or with that
    assert first.end() == 0
    assert last.line() == "in"
    assert last.wait() == 0
    assert nodes(kazoo, root) == []


# ---- LeaderLatch 1137, etcd PR 22387: a leader whose session is over leads on


def test_no_phantom_leads(ensemble, root, cli_on):
    """The leader's node is gone: what it ran ends, and it runs again only when it is elected again."""
    kazoo = ensemble.kazoo()
    process = cli_on(ensemble.url(root)).start("elect", "--ttl", "2s", "--grace", "200ms", "svc", "--", "sh", "-c",
                                               "echo lead $HOLDFAST_TOKEN $$; exec sleep 1000")
    _, token, pid = process.line().split()
    kazoo.delete(nodes(kazoo, root, "svc")[0][0])
    _, again, next_pid = process.line().split()
    assert int(again) > int(token)
    assert not is_running(int(pid)) and is_running(int(next_pid))
    assert nodes(kazoo, root, "svc")[0][1].czxid == int(again)
    process.kill(signal.SIGTERM)
    process.wait()
    assert nodes(kazoo, root, "svc") == []


# ---- the suffix of a sequential node begins again with its parent, and is 32 bits


def test_tokens_grow_though_the_parent_was_deleted(ensemble, root, hold):
    kazoo = ensemble.kazoo()
    tokens = []
    for _ in range(4):
        holder = hold(ensemble.url(root), "x", LONG)
        path, stat = nodes(kazoo, root)[0]
        assert path.endswith("0000000000")  # each time
        assert holder.token == stat.czxid
        tokens.append(holder.token)
        assert holder.release() == "HF_OK"
        kazoo.delete(f"{root}/x")
    assert tokens == sorted(set(tokens))


# ---- a server that serves read-only, because it has no majority


def test_a_read_only_server_grants_nothing(read_only_ensemble, root, cli_on):
    cli = cli_on(read_only_ensemble.url(root))
    holder = cli.hold("x", "--ttl", "2s")
    for node in (0, 1):
        read_only_ensemble.say(f"kill {node}")
    assert holder.wait() == 76  # a hold that nobody can renew is lost
    began = time.monotonic()
    done = cli("run", "--wait", "4s", "x", "--", "true")
    assert done.status == 69 and time.monotonic() - began < PATIENCE
    assert "read-only" in done.stderr and "majority" in done.stderr
    for node in (0, 1):
        read_only_ensemble.say(f"start {node}")
    read_only_ensemble.say("whole")
    assert cli("run", "x", "--", "true").status == 0
    assert nodes(read_only_ensemble.kazoo(), root) == []
