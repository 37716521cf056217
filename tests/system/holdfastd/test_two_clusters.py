"""Servers of two clusters behind one URL, by mistake, or because one is founded or restored meanwhile: nobody gets there what is held in his own,
and where most of the servers are of another cluster now, he goes over."""
import itertools
import shutil
import subprocess
import time

import pytest
from conftest import argv_of, environment, eventually, free_port, is_running
from holdfast_cli import PATIENCE, Cli, objects
from test_cluster_command import Cluster

OUTAGE = 7  # seconds
FOUND = 3  # within which a search meets every server again, and more than once


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.clean()


def start_another(cluster):
    """A node of its own, that waits to be founded."""
    stranger = cluster.start(4, f"4=127.0.0.1:{free_port()}")
    eventually(stranger.says, "it answers")
    return stranger


def found_another(cluster):
    stranger = start_another(cluster)
    assert cluster.cli_of(4)("cluster", "init").status == 0
    return stranger


def stop(nodes, how):
    for node in nodes:
        if how == "paused":
            node.pause()
        else:
            node.kill9()


def go_on(nodes, how):
    for node in nodes:
        if how == "paused":
            node.resume()
        else:
            node.launch()


def ours(cluster):
    return [node for number, node in cluster.nodes.items() if number != 4]


def ends_well(holder, waiter, cluster):
    """The lock goes from the one to the other, where it always was."""
    assert holder.end() == 0
    assert waiter.line() == "in"
    assert waiter.wait() == 0
    assert objects(cluster.cli_of(4)("ls", "--all", "--json")) == [], "the other cluster gave nothing"


def test_a_server_of_another_cluster_in_the_url(cluster):
    """It does not give the lock that somebody holds in the cluster, when that has no leader."""
    cluster.cli.hold("job")
    stranger = found_another(cluster)
    left = cluster.followers()[0]
    for node in cluster.nodes.values():
        if node not in (left, stranger):
            node.kill9()
    done = cluster.cli_of(left.number, 4)("run", "-w", "1s", "job", "--", "echo", "in")
    assert (done.status, done.stdout) == (69, ""), done
    assert f"{stranger.client} belongs to cluster {stranger.says()['cluster']}, and {left.client} to cluster " in done.stderr, done


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_the_leader_is_not_left_for_another_cluster(cluster, how):
    """A waiter whose leader does not answer asks the others, and the first that it asks leads a cluster of its own."""
    holder = cluster.cli.hold("job", "--ttl", "60s")
    leader, others = cluster.leader(), cluster.followers()
    found_another(cluster)
    rest = cluster.cli_of(*(node.number for node in others))
    waiter = cluster.cli_of(leader.number, 4, *(node.number for node in others)).start("run", "job", "--", "echo", "in")
    assert "held by" in waiter.line("err")
    stop([leader], how)
    eventually(lambda: any((node.says() or {}).get("role") == "leader" for node in others), "another one leads")
    # It takes up its place there again, or still has it, and has not got in meanwhile.
    eventually(lambda: objects(rest("show", "--json", "job"))[0]["waiters"], "it waits")
    assert waiter.queues["out"].empty()
    if how == "paused":
        leader.resume()
    ends_well(holder, waiter, cluster)


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_one_that_is_founded_meanwhile_is_no_leader_of_ours(cluster, how):
    """It belonged to no cluster when it was met, in the search for a leader that began then and goes on."""
    holder = cluster.cli.hold("job", "--ttl", "60s")
    start_another(cluster)
    numbers = [node.number for node in ours(cluster)]
    waiter = cluster.cli_of(*numbers[:2], 4).start("run", "job", "--", "echo", "in")
    assert "held by" in waiter.line("err")
    stop(ours(cluster), how)
    assert "still trying" in waiter.line("err")  # it has met that one
    assert cluster.cli_of(4)("cluster", "init").status == 0
    time.sleep(FOUND)
    assert waiter.queues["out"].empty()
    go_on(ours(cluster), how)
    ends_well(holder, waiter, cluster)


@pytest.mark.parametrize("how, named", [("paused", False), ("paused", True), ("killed", True)])
def test_an_outage_is_sat_out_though_another_cluster_answers(cluster, how, named):
    """Whoever was served waits until the others are back, and does not take the word of the only one who answers."""
    holder = cluster.cli.hold("job", "--ttl", "60s")
    found_another(cluster)
    numbers = [node.number for node in ours(cluster)]
    option = f"?cluster={cluster.nodes[numbers[0]].says()['cluster']}" if named else ""
    waiter = Cli(cluster.url_of(*numbers, 4) + option).start("run", "job", "--", "echo", "in")
    assert "held by" in waiter.line("err")
    stop(ours(cluster), how)
    assert "belongs to cluster" in waiter.line("err")  # the only answer, and it goes on trying,
    time.sleep(OUTAGE)  # for longer than it would take to give up its place
    assert is_running(waiter.pid)
    go_on(ours(cluster), how)
    ends_well(holder, waiter, cluster)


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_whoever_met_ours_first_is_not_served_by_another(cluster, how):
    """Never served yet, it has met a follower of ours without a leader, and the other cluster. Then that follower goes, too."""
    holder = cluster.cli.hold("job", "--ttl", "60s")
    found_another(cluster)
    left, *others = ours(cluster)
    stop(others, "killed")
    waiter = cluster.cli_of(left.number, 4).start("run", "job", "--", "echo", "in")
    assert "still trying" in waiter.line("err")
    stop([left], how)
    time.sleep(FOUND)
    assert waiter.queues["out"].empty() and is_running(waiter.pid)
    go_on([left], how)
    go_on(others, "killed")
    ends_well(holder, waiter, cluster)


def test_status_stays_with_the_cluster_that_it_met_first(cluster):
    found_another(cluster)
    follower = cluster.followers()[0]
    done = cluster.cli_of(follower.number, 4)("cluster", "status", "--json")
    assert done.status == 0, done
    assert cluster.leader().says()["cluster"] in done.stdout and cluster.nodes[4].says()["cluster"] not in done.stdout


def test_two_names_of_one_server_are_one(cluster):
    """Two of the three that the URL names are of another cluster, and the same."""
    holder = cluster.cli.hold("job", "--ttl", "60s")
    stranger = found_another(cluster)
    leader = next(node for node in ours(cluster) if node.says()["role"] == "leader")
    waiter = Cli(f"{cluster.url_of(leader.number, 4)},localhost:{stranger.port}").start("run", "job", "--", "echo", "in")
    assert "held by" in waiter.line("err")
    stop(ours(cluster), "paused")
    assert "belongs to cluster" in waiter.line("err")
    time.sleep(FOUND)
    assert waiter.queues["out"].empty()
    go_on(ours(cluster), "paused")
    ends_well(holder, waiter, cluster)


@pytest.mark.parametrize("other", ["127.0.0.2", "[::1]"])
def test_two_addresses_of_one_server_are_one(cluster, other):
    holder = cluster.cli.hold("job", "--ttl", "60s")
    stranger = start_another(cluster)
    stranger.kill9()
    stranger.listen = f"{stranger.client},{other}:{stranger.port}"
    stranger.args += ["--advertise", stranger.client]
    stranger.launch()
    eventually(stranger.says, "it answers")
    assert cluster.cli_of(4)("cluster", "init").status == 0
    leader = next(node for node in ours(cluster) if node.says()["role"] == "leader")
    waiter = Cli(f"{cluster.url_of(leader.number, 4)},{other}:{stranger.port}").start("run", "job", "--", "echo", "in")
    assert "held by" in waiter.line("err")
    stop(ours(cluster), "paused")
    assert "belongs to cluster" in waiter.line("err")
    time.sleep(FOUND)
    assert waiter.queues["out"].empty()
    go_on(ours(cluster), "paused")
    ends_well(holder, waiter, cluster)


def test_the_only_server_of_a_url_sends_nobody_into_another_cluster(cluster):
    """At the address of the leader, of which it does not know yet that it is gone, is a server of another cluster by now."""
    holder = cluster.cli.hold("job", "--ttl", "60s")
    stranger = found_another(cluster)
    stranger.kill9()
    leader, follower = cluster.leader(), cluster.followers()[0]
    others = [node for node in ours(cluster) if node not in (leader, follower)]
    waiter = Cli(f"holdfast://{follower.client}").start("run", "job", "--", "echo", "in")
    assert "held by" in waiter.line("err")
    stop(others, "paused")  # nobody will be elected
    leader.kill9()
    stranger.port, leaders_port = leader.port, stranger.port
    stranger.launch()
    eventually(stranger.says, "it answers")
    time.sleep(FOUND)
    assert waiter.queues["out"].empty()
    stranger.kill9()
    leader.launch()
    go_on(others, "paused")
    assert holder.end() == 0 and waiter.line() == "in" and waiter.wait() == 0
    stranger.port = leaders_port
    stranger.launch()
    eventually(lambda: stranger.says() and stranger.says()["leader"] == 4, "it leads")
    assert objects(cluster.cli_of(4)("ls", "--all", "--json")) == [], "the other cluster gave nothing"


def test_a_leader_that_came_back_empty_is_no_last_word(cluster):
    """With ?cluster=: it belongs to none, and the others still say that it leads. They will choose another one."""
    leader = cluster.leader()
    url = f"{cluster.url}?cluster={leader.says()['cluster']}"
    holder = Cli(url).hold("job", "--ttl", "60s")
    leader.kill9()
    shutil.rmtree(leader.data)
    leader.launch()
    assert holder.end() == 0, holder.rest("err")
    assert Cli(url)("run", "-w", "20s", "job", "--", "true").status == 0


# ---- restored ----------------------------------------------------------------------------------------------------


def restore(cluster, tmp_path):
    """As docs/cluster.md has it: all of them are gone, the first one comes back from a copy, and the others join it, empty."""
    nodes = [cluster.nodes[number] for number in (1, 2, 3)]
    for node in nodes:
        node.kill9()
    shutil.copytree(nodes[0].data, tmp_path / "copy")
    for node in nodes:
        shutil.rmtree(node.data)
        node.args[node.args.index("--cluster") + 1] = f"{node.number}={cluster.peers[node.number]}"
    done = subprocess.run(argv_of("--id", 1, "--cluster", f"1={cluster.peers[1]}", "--data", nodes[0].data, "--restore-from", tmp_path / "copy"),
                          env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    nodes[0].launch()
    eventually(lambda: (nodes[0].says() or {}).get("role") == "leader", "it leads")
    for node in nodes[1:]:
        node.args.append("--join")
        node.launch()
        done = cluster.cli_of(1)("cluster", "add", str(node.number), cluster.peers[node.number], "--wait", "20s")
        assert done.status == 0, done


def test_whoever_waits_goes_over_to_the_restored_cluster(cluster, tmp_path):
    """In whatever order the URL has them: when most of them are of it."""
    lease = cluster.cli("lock", "job", "--ttl", "10m")
    assert lease.status == 0
    orders = list(itertools.permutations((1, 2, 3)))
    waiters = [cluster.cli_of(*order).start("run", "job", "--", "echo", "in") for order in orders]
    for waiter in waiters:
        assert "held by" in waiter.line("err")
    restore(cluster, tmp_path)
    eventually(lambda: len(objects(cluster.cli("show", "--json", "job"))[0]["waiters"]) == len(waiters), "all of them wait there")
    assert cluster.cli("break", "--now", "job").status == 0
    for waiter in waiters:
        assert waiter.line() == "in"
        assert waiter.wait() == 0, waiter.rest("err")
