"""Members that are removed, and others in their place. An id is used once: whoever was away still counts by the members it knows."""
import shutil

import pytest
from helpers import SERVES_MAX, add, all_there, granted_within, held, pour
from nets import Net, NetCluster
from nodes import TTL_MAX, Refused, fresh, until

SNAPSHOTS = ["--snapshot-bytes", "64KiB"]


def snapshots(cluster):
    """Each has one, of now."""
    running = list(cluster.running())
    before = {node: set(node.data.glob("snapshot-*")) for node in running}
    with cluster.session() as session:
        until(lambda: pour(session) or all(set(node.data.glob("snapshot-*")) - before[node] for node in running), "all have a snapshot")
    cluster.settled()


def remove(cluster, node):
    """It is gone, with its directory."""
    node.kill9()
    assert cluster.ask("CLUSTER", "REMOVE", node.number) == "OK"
    node.data.rename(cluster.directory / f"old-{node.number}")
    return cluster.nodes.pop(node.number)


def start_again(nodes):
    for node in nodes:
        node.begin()
    for node in nodes:
        until(node.answers, f"{node} answers")


def refused(cluster, number, free):
    with pytest.raises(Refused) as refusal:
        cluster.ask("CLUSTER", "ADD", number, "127.0.0.1:9")
    assert str(refusal.value).startswith(f"ERR an id is used once, and {number} was, or is below one that was: take {free},"), refusal.value


def test_an_id_is_used_once(start):
    """Also the highest, when it is removed; after changes of the leader, snapshots and restarts; and if it has never voted."""
    cluster = start(3, *SNAPSHOTS)
    cluster.lead_by(cluster[1])
    remove(cluster, cluster[2])
    refused(cluster, 2, 4)
    add(cluster, 4)
    remove(cluster, cluster[3])
    refused(cluster, 3, 5)
    add(cluster, 5)
    remove(cluster, cluster[5])
    refused(cluster, 5, 6)
    snapshots(cluster)
    for node in cluster:
        node.kill9()
    start_again(list(cluster))
    cluster.lead_by(cluster[4])
    refused(cluster, 5, 6)
    six = cluster.node(6, "--join")
    assert six.launch()
    assert cluster.ask("CLUSTER", "ADD", 6, six.peer) == "OK"
    remove(cluster, six)
    refused(cluster, 6, 7)
    add(cluster, 7)
    refused(cluster, 6, 8)
    assert set(cluster.leader().members()) == {1, 4, 7}
    assert not any(member["client"] == "-" for member in cluster.leader().members().values())


def test_all_come_back_after_two_were_replaced(start):
    """They know each other, whatever their snapshots say."""
    cluster = start(3, *SNAPSHOTS)
    holds = held(cluster, 3)
    snapshots(cluster)
    for number, node in enumerate(cluster.followers(), 4):
        remove(cluster, node)
        add(cluster, number)
    holds += held(cluster, 3)
    for node in cluster:
        node.kill9()
    start_again(list(cluster))
    cluster.leader()
    cluster.settled()
    with cluster.session() as session:
        assert all_there(session, holds)


def test_an_empty_node_does_not_count_for_the_one_that_was_removed(request):
    """1 leads, and 2 does not hear it. 4 is added; 3 loses its disk, is removed, and started again, empty, with the line that it
    always had. 2 still believes in 1, 2 and 3, so that with the empty 3 it would be a majority. It hears 4, but no log."""
    net = Net(["1", "2", "3", "4", "operator"])
    request.addfinalizer(net.close)
    cluster = NetCluster(net)
    request.addfinalizer(cluster.clean)
    one, two, three = (cluster[number] for number in (1, 2, 3))
    cluster.lead_by(one)
    cluster.settled()
    net.part(["1"], ["2"])
    four = cluster.node_there(4)
    assert four.launch()
    with cluster.session(of=[one]) as leader, cluster.session(of=[two, three]) as others:
        assert leader.ask("CLUSTER", "ADD", 4, four.peer) == "OK"
        until(lambda: one.members()[4]["votes"], "4 votes")
        leader.ask("ACQUIRE", fresh(), fresh(), "TTL", TTL_MAX)  # and that is committed, with 3, before it is gone
        three.kill9()
        three.data.rename(cluster.directory / "lost")
        assert leader.ask("CLUSTER", "REMOVE", 3) == "OK"
        name = fresh("held")
        token = leader.ask("ACQUIRE", name, fresh(), "TTL", TTL_MAX)
        three.begin()
        assert granted_within(others, SERVES_MAX, name, fresh(), "TTL", TTL_MAX) is None, "two holders"
        assert leader.ask("CHECK", name, token) == 1
        two.await_line("a node has come back without its data")


def test_a_founder_whom_no_leader_has_met_is_known_by_its_life(request):
    """3 takes the record of the founding, and dies before somebody leads: 2, which never met it. 4 is added, leads, and 1 is
    removed: of 3 it knows what the log says. 4 is paused, and cut off from 2; 3 comes back, and with it 2 grants a lock. Then 3
    loses its disk, 2 is paused, and 4 wakes up as the leader of before: with an empty 3 it would be a majority."""
    net = Net(["1", "2", "3", "4", "operator"])
    request.addfinalizer(net.close)
    cluster = NetCluster(net, founded=False)
    request.addfinalizer(cluster.clean)
    one, two, three = (cluster[number] for number in (1, 2, 3))
    one.args += ["--election-timeout", "10s"]  # it founds, and does not lead
    for node in cluster:
        node.begin()
    for node in cluster:
        until(node.answers, f"{node} answers")
    net.part(["2"], ["3"])
    cluster.init()
    three.kill9()
    until(two.leads, "2 leads")
    assert two.members()[3]["client"] == "", "and has not heard of 3"
    four = cluster.node_there(4)
    assert four.launch()
    net.heal()
    with cluster.session(of=[one, two, four]) as operator:
        assert operator.ask("CLUSTER", "ADD", 4, four.peer) == "OK"
        until(lambda: two.members()[4]["votes"], "4 votes")
        until(lambda: four.leads() or operator.ask("CLUSTER", "TRANSFER", 4) is None, "4 leads")
        assert operator.ask("CLUSTER", "REMOVE", 1) == "OK"
    one.kill9()
    net.part(["4"], ["2", "3"])
    four.pause()
    assert three.launch()
    until(two.leads, "2 leads")
    name = fresh("held")
    with cluster.session(of=[two]) as first:
        token = first.ask("ACQUIRE", name, fresh(), "TTL", TTL_MAX)
    three.kill9()
    shutil.rmtree(three.data)
    assert three.launch()
    two.pause()
    net.heal()
    net.part(["4"], ["2"])
    four.resume()
    with cluster.session(of=[four]) as second:
        assert granted_within(second, SERVES_MAX, name, fresh(), "TTL", TTL_MAX) is None, "two holders"
    two.resume()
    net.heal()
    until(lambda: two.leads() or four.leads(), "2 and 4 are a majority")
    with cluster.session(of=[two, four]) as session:
        assert session.ask("CHECK", name, token) == 1
