"""Who belongs to a cluster: what a directory is started with, nodes that come and go, nodes that lost their data."""
import contextlib
import os
import pathlib
import shutil
import time

import pytest
from helpers import add, all_there, content, has_all, held, pour, unchanged
from nodes import PATIENCE, TTL_MAX, Refused, free_port, fresh, put_first, run_refused, until


# ---- what a directory is started with ----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["other members", "fewer members", "another address", "another id", "no cluster",
                                  "alone", "to be added elsewhere"])
def test_a_directory_belongs_to_its_cluster(cluster, what):
    """One clear line, and nothing has changed."""
    holds = held(cluster, 3)
    node = cluster.followers()[0]
    assert node.stop() == 0
    number, line, more = node.number, node.line, []
    if what == "other members":
        line += f",9=127.0.0.1:{free_port()}"
    elif what == "fewer members":
        line = ",".join(part for part in line.split(",") if not part.startswith(f"{number % 3 + 1}="))
    elif what == "another address":
        line = line.replace(f"{number}={node.peer}", f"{number}=127.0.0.1:{free_port()}")
    elif what == "another id":
        number = number % 3 + 1
    elif what == "alone":
        line = f"{number}={node.peer}"
    elif what == "to be added elsewhere":
        line, more = f"{number}=127.0.0.1:{free_port()}", ["--join"]
    before = content(node.data)
    words = ["--id", number, "--listen", node.address, "--data", node.data, *more]
    status, said = run_refused(*words, *([] if what == "no cluster" else ["--cluster", line]))
    assert status == 69 and " error " in said and str(node.data) in said
    assert (f"belongs to node {node.number}" if what == "another id" else node.line) in said, "it says whose it is"
    assert unchanged(node.data, before)
    assert node.launch(), "with the same line it starts"
    assert cluster.settled()
    has_all(cluster, node, holds)


def test_a_directory_of_a_node_alone_is_not_founded_again(start):
    """With several members at once it would be a cluster of which one has data and the others have none."""
    cluster = start(1, founded=False)
    node = cluster[1]
    node.line = None
    assert node.launch()
    token = until(lambda: node.leads() and node.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX), "it serves")
    assert node.stop() == 0
    before = content(node.data)
    status, said = run_refused("--id", 1, "--cluster", f"1={node.peer},2=127.0.0.1:{free_port()}", "--listen", node.address,
                               "--data", node.data)
    assert status == 69 and "belongs to a node alone" in said and unchanged(node.data, before)
    assert node.launch()
    until(node.leads, "it serves")
    assert node.cmd("CHECK", "x", token) == 1


# ---- nodes that come and go --------------------------------------------------------------------------------------


def test_a_node_waits_to_be_added(start):
    cluster = start()
    node = cluster.node(4, "--join")
    assert node.launch()
    assert node.status()["leader"] == 0 and node.members() == {}
    with node.connect() as client:
        assert client.error("ACQUIRE", "x", "l").startswith("TRYAGAIN ")
        assert client.error("CLUSTER", "ADD", 4, node.peer).startswith("TRYAGAIN ")
    holds = held(cluster)
    assert cluster.ask("CLUSTER", "ADD", 4, node.peer) == "OK"
    until(lambda: cluster.leader().members()[4]["votes"], "it votes")
    assert cluster.ask("CLUSTER", "ADD", 4, node.peer) == "OK", "again changes nothing"
    with pytest.raises(Refused, match="^ERR node 4 is a member already, at "):
        cluster.ask("CLUSTER", "ADD", 4, "127.0.0.1:9")
    cluster.settled()
    for other in cluster.followers():
        with other.connect() as client:
            assert client.error("SHOW", "x") == f"MOVED 0 {cluster.leader().address}"
    has_all(cluster, node, holds)
    # Four, of which one is dead, have a majority.
    cluster[1].kill9()
    assert cluster.ask("ACQUIRE", "after", "l") > max(token for _, token in holds)


ESTABLISHED = "01"


def connected(node, ports):
    """How many connections this node's process has from or to one of these ports."""
    inodes = {os.readlink(path) for path in pathlib.Path(f"/proc/{node.pid}/fd").iterdir() if path.exists()}
    rows = [row.split() for row in pathlib.Path(f"/proc/{node.pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for row in rows if row[3] == ESTABLISHED and f"socket:[{row[9]}]" in inodes and
               {int(end.split(":")[1], 16) for end in row[1:3]} & ports)


def test_a_removed_node_is_cut_off(start):
    """It does not know that it is none of them any more, and goes on as before; nobody listens, or talks to it."""
    cluster = start()
    leader, removed = cluster.settled(), cluster.followers()[0]
    stay = [node for node in cluster if node is not removed]
    ports = {int(node.peer.rsplit(":", 1)[1]) for node in cluster}
    until(lambda: connected(removed, ports) == 4, "two to each of the others")
    assert cluster.ask("CLUSTER", "REMOVE", removed.number) == "OK"
    own = {int(removed.peer.rsplit(":", 1)[1])}
    until(lambda: connected(removed, ports) == 0, "its connections are closed")
    put_first(stay)
    term = leader.status()["term"]
    # It comes again and again: for longer than an election takes, and the longest that it waits between two tries.
    calm = time.monotonic() + 3
    while time.monotonic() < calm:
        assert [connected(node, own) for node in stay] == [0, 0], "nobody dials it"
        time.sleep(0.1)
    assert connected(removed, ports) <= 1, "at most one that is about to be refused"
    assert leader.leads() and leader.status()["term"] == term, "it has not disturbed"


def test_a_removed_node_is_told_after_restarts(start):
    """It was away, and the others have been restarted since: what they know of it, they know from the table."""
    cluster = start(4)
    cluster.settled()
    removed = cluster.followers()[0]
    assert removed.stop() == 0
    assert cluster.ask("CLUSTER", "REMOVE", removed.number) == "OK"
    stay = [node for node in cluster if node is not removed]
    for node in stay:
        node.kill9()
    for node in stay:
        node.begin()
    cluster.settled()
    assert removed.launch()
    removed.await_line("this node was removed from the cluster: stop it")
    assert removed.status()["role"] == "removed"


def test_both_lines_are_accepted_after_a_change(start):
    """The one of before, and the one that is true now; no other."""
    cluster = start()
    holds = held(cluster)
    node = add(cluster, 4)
    new = f"{cluster.line},4={node.peer}"
    for number, line in [(1, cluster.line), (1, new), (2, new), (4, f"4={node.peer}"), (4, new)]:
        node = cluster[number]
        assert node.stop() == 0
        before = content(node.data)
        status, said = run_refused("--id", number, "--cluster", f"{new},5=127.0.0.1:{free_port()}", "--listen", node.address,
                                   "--data", node.data)
        assert status == 69 and unchanged(node.data, before), said
        node.line = line
        node.args = [] if line == new else node.args
        assert node.launch(), f"{line} was refused: {node.logged()[-1]}"
        cluster.settled()
    has_all(cluster, cluster[1], holds)
    has_all(cluster, cluster[4], holds)


def little(cluster):
    pass


def many_entries(cluster):
    """More than a newcomer is sent at a time."""
    with cluster[1].connect() as client:
        for _ in range(2200):
            client.cmd("ACQUIRE", "used", "l")
            client.cmd("RELEASE", "used", "l")


def a_snapshot(cluster):
    """What is before it in the log is gone."""
    with cluster.session() as session:
        for _ in range(10):
            pour(session)
    until(lambda: int(cluster[1].info("Raft")["snapshots"]) > 0, "a snapshot is taken")


def a_long_log(cluster):
    """More than fits into memory, without a snapshot."""
    with cluster.session() as session:
        for _ in range(400):
            pour(session)


@pytest.mark.parametrize("history, settings", [(little, []), (many_entries, []), (a_snapshot, ["--snapshot-bytes", "64KiB"]),
                                               (a_long_log, [])])
def test_a_node_alone_is_grown(start, history, settings):
    """Its log, and its snapshot, are of a time in which it had no address: who is sent them knows all the same where to answer."""
    cluster = start(1, *settings, founded=False)
    first = cluster[1]
    first.line = None
    assert first.launch()
    until(first.leads, "it serves")
    history(cluster)
    token = first.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    store = first.info("Locks")["store_id"]
    with first.connect() as client:
        assert client.error("CLUSTER", "ADD", 2, "127.0.0.1:9").startswith("ERR this node is alone: ")
    assert first.stop() == 0
    first.line = f"1={first.peer}"
    assert first.launch()
    until(first.leads, "it serves as a cluster of one")
    assert first.cmd("CHECK", "x", token) == 1
    for number in (2, 3):
        add(cluster, number)
    cluster.settled()
    assert cluster.ask("ACQUIRE", "y", "l") == token + 1
    first.kill9()
    with cluster.session() as session:
        assert session.ask("CHECK", "x", token) == 1 and session.ask("ACQUIRE", "z", "l") == token + 2
    assert cluster.leader().info("Locks")["store_id"] == store
    assert first.launch()
    cluster.settled()


@pytest.mark.parametrize("history", [many_entries, a_long_log])
def test_a_cluster_of_one_is_grown_at_another_address(start, history):
    """Its log begins with the address that it had."""
    cluster = start(1)
    first = cluster[1]
    history(cluster)
    token = first.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert first.stop() == 0
    first.peer = f"127.0.0.1:{free_port()}"
    first.line = f"1={first.peer}"
    assert first.launch()
    until(first.leads, "it serves at its new address")
    add(cluster, 2)
    cluster.settled()
    has_all(cluster, cluster[2], [("x", token)])


def test_a_newcomer_is_where_it_was_added(start):
    """Its own line names it otherwise, as nobody else can reach it: the address of the ADD counts, also when the leader is another one."""
    cluster = start(1)
    for number in (2, 3):
        node = cluster.node(number)
        node.line = f"{number}=127.0.0.1:{free_port()}"
        node.args += ["--peer-listen", node.peer]
        assert node.launch()
        assert cluster.ask("CLUSTER", "ADD", number, node.peer) == "OK"
        until(lambda: cluster.leader().members()[number]["votes"], f"{node} votes")
    for node in cluster:
        assert node.stop() == 0
        assert node.launch()
        cluster.settled()
    cluster.leader().kill9()
    assert cluster.ask("ACQUIRE", fresh("name"), fresh()) > 0


def test_a_newcomer_whose_directory_is_gone_stops_in_words(start):
    cluster = start(1)
    node = cluster.node(2)
    assert node.launch()
    shutil.rmtree(node.data)
    with cluster.session() as session, contextlib.suppress(Refused):
        session.ask("CLUSTER", "ADD", 2, node.peer)
    assert node.await_line("cannot go on")
    assert node.stop() == 0


def test_a_transfer_that_is_refused_spoils_no_other(start):
    """The first one hears why it failed, and that it failed is logged."""
    cluster = start()
    leader = cluster.settled()
    heir = cluster.followers()[0]
    heir.pause()
    with leader.connect() as first, leader.connect() as second:
        first.send("CLUSTER", "TRANSFER", heir.number)
        assert second.error("CLUSTER", "TRANSFER", heir.number).startswith("TRYAGAIN ")
        assert "did not take over in time" in str(first.read_any())
    assert leader.await_line("leadership was not transferred")
    heir.resume()


def test_a_node_without_which_there_is_no_majority_stays(start):
    """One of three is dead: without another one the leader would be alone among two, and nobody could take that back."""
    cluster = start()
    leader = cluster.settled()
    dead, needed = cluster.followers()
    dead.kill9()
    until(lambda: leader.members()[dead.number]["silent"] > 2000, "it is noticed")
    with leader.connect() as client:
        text = client.error("CLUSTER", "REMOVE", needed.number)
        assert text.startswith(f"ERR without node {needed.number} no majority of the members would be there"), text
        assert client.cmd("CLUSTER", "REMOVE", dead.number) == "OK"
        assert client.cmd("CLUSTER", "REMOVE", needed.number) == "OK"
    assert cluster.ask("ACQUIRE", fresh("name"), fresh()) > 0


def test_a_node_that_froze_a_moment_ago_is_not_counted_on(start):
    """The leader heard it just before: it asks again before it lets another one go, and those who are left go on."""
    cluster = start()
    leader = cluster.settled()
    frozen, needed = cluster.followers()
    with leader.connect() as client:
        frozen.pause()
        text = client.error("CLUSTER", "REMOVE", needed.number)
        assert text.startswith(f"ERR without node {needed.number} no majority of the members would be there"), text
        assert needed.number in leader.members() and leader.leads()
        assert client.cmd("ACQUIRE", fresh("name"), fresh()) > 0
        assert client.cmd("CLUSTER", "REMOVE", frozen.number) == "OK", "that one may go"
        assert client.cmd("ACQUIRE", fresh("name"), fresh()) > 0
    frozen.resume()


@pytest.mark.parametrize("how", ["running", "dead"])
def test_a_removed_node(start, how):
    """The rest goes on, it does not disturb them, whether or not it has heard of it, and another takes its place."""
    cluster = start()
    holds = held(cluster)
    leader, gone = cluster.leader(), cluster.followers()[0]
    if how == "dead":
        gone.kill9()
    with leader.connect() as client:
        assert client.error("CLUSTER", "REMOVE", leader.number).startswith("ERR ")
        assert client.cmd("CLUSTER", "REMOVE", gone.number) == "OK"
        assert client.error("CLUSTER", "REMOVE", gone.number) == f"ERR node {gone.number} is no member"
    until(lambda: gone.number not in leader.members(), "it is gone")
    term = leader.status()["term"]
    with cluster.session() as session:
        assert all_there(session, holds)
        # It wakes up without a leader, and would like to be one.
        assert how == "dead" or gone.stop() == 0
        assert gone.launch()
        for _ in range(4):  # more than one of its election timeouts
            with gone.connect() as client:
                assert client.error("ACQUIRE", "x", fresh()).split()[0] in ("TRYAGAIN", "MOVED")
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                mine = fresh()
                assert session.ask("ACQUIRE", mine, mine) > 0
    assert (leader.status()["role"], leader.status()["term"]) == ("leader", term), "nobody was disturbed"
    assert gone.stop() == 0
    del cluster.nodes[gone.number]
    shutil.rmtree(gone.data)
    node = add(cluster, 4)
    assert node.peer != gone.peer
    cluster.settled()
    has_all(cluster, node, holds)


def test_a_new_node_takes_over_when_it_is_asked_to(start):
    """At the first try, although it has never talked to the other followers: they vote for it, and nobody else leads
    meanwhile."""
    cluster = start()
    node = add(cluster, 4)
    leader = cluster.settled()
    term = leader.status()["term"]
    with leader.connect() as client:
        assert client.cmd("CLUSTER", "TRANSFER", 4) == "OK"
    assert cluster.leader(other_than=leader) is node, "another one than was asked for"
    assert node.status()["term"] == term + 1, "it needed another try"


def test_changes_survive_the_leader(start):
    """A node is added while the leader dies: it is a member afterwards, or it can be added again."""
    cluster = start()
    holds = held(cluster)
    node = cluster.node(4, "--join")
    assert node.launch()
    leader = cluster.leader()
    with leader.connect() as client:
        client.send("CLUSTER", "ADD", 4, node.peer)
        leader.kill9()
    assert cluster.ask("CLUSTER", "ADD", 4, node.peer) == "OK"
    until(lambda: cluster.leader().members()[4]["votes"], "it votes")
    assert leader.launch()
    cluster.settled()
    has_all(cluster, node, holds)


# ---- a node without its data -------------------------------------------------------------------------------------


def lose_data(node):
    node.kill9()
    shutil.rmtree(node.data)


def test_a_node_that_lost_its_data_is_not_let_in(start):
    """It has forgotten what it acknowledged: it counts for nothing until it is removed and added anew."""
    cluster = start()
    holds = held(cluster)
    leader = cluster.settled()
    lost, other = cluster.followers()
    lose_data(lost)
    assert lost.launch()
    leader.await_line("has come back without its data, and is not let in")
    assert cluster.ask("ACQUIRE", "x", "l") > 0
    other.kill9()
    until(lambda: not leader.leads(), "the leader notices that it is alone")
    with leader.connect() as client:
        assert client.error("ACQUIRE", "y", "l").startswith("TRYAGAIN ")
    assert other.launch()
    cluster.leader()
    assert cluster.ask("CLUSTER", "REMOVE", lost.number) == "OK"
    lose_data(lost)
    del cluster.nodes[lost.number]
    node = add(cluster, 4)
    cluster.settled()
    has_all(cluster, node, holds)


@pytest.mark.parametrize("which", ["founded", "added"])
def test_a_node_that_lost_its_log_does_not_start(start, which):
    """Also if it was never started again since: what it acknowledged was in that log."""
    cluster = start()
    node = cluster.followers()[0] if which == "founded" else add(cluster, 4)
    cluster.settled()
    node.kill9()
    for path in node.data.iterdir():
        if path.name.startswith(("log-", "snapshot-", "end", "term")):
            path.unlink()
    node.begin()
    assert node.await_line("has lost its log")
    assert node.ended() != 0


def test_a_newcomer_that_dies_when_it_has_a_log_has_it(start):
    """Its directory does not say so any sooner."""
    cluster = start()
    for number in range(4, 8):
        node = cluster.node(number)
        assert node.launch()
        deadline = time.monotonic() + PATIENCE
        with cluster.leader().connect() as client:
            client.send("CLUSTER", "ADD", number, node.peer)
            while "\nmember " not in (node.data / "node").read_text():  # without a pause: it dies at once
                assert time.monotonic() < deadline
            node.kill9()
        assert node.launch(), node.logged()
        until(lambda: cluster.leader().members().get(number, {}).get("votes"), f"{node} votes")


@pytest.mark.parametrize("how", ["stopped", "paused"])
def test_what_a_lost_directory_must_not_forget(start, how):
    """One was away when the others acknowledged; of those, one is down and one has lost its data. Together the two that run
    would be a majority that knows nothing of it."""
    cluster = start()
    leader = cluster.settled()
    lost, away = cluster.followers()
    if how == "stopped":
        assert away.stop() == 0
    else:
        away.pause()
    holds = held(cluster)
    leader.kill9()
    lose_data(lost)
    assert lost.launch()
    if how == "stopped":
        assert away.launch()
    else:
        away.resume()
    deadline = time.monotonic() + 4  # some election timeouts
    while time.monotonic() < deadline:
        for node in (lost, away):
            with node.connect() as client:
                answer = client.error("ACQUIRE", fresh(), fresh())
                assert answer.startswith(("TRYAGAIN ", "MOVED ")), answer
        assert not cluster.look(), "they have elected one who knows nothing of what was acknowledged"
        time.sleep(0.02)
    assert leader.launch()
    with cluster.session() as session:
        assert all_there(session, holds)
        assert session.ask("ACQUIRE", "x", "l") > max(token for _, token in holds)
