"""`holdfast cluster status --health`: the line and the exit status that a monitoring system sees, of real nodes; and what `status` and
`remove` say of how many may be lost."""
import json
import re
import time

import pytest
from conftest import Disk, Unfounded, eventually, free_port
from holdfast_cli import Cli, only_line
from test_cluster_command import NONE_TO_LOSE, Cluster

WAIT = "3s"
NONE_LEFT = "No member can be lost: with one less, nothing is granted."


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.clean()


def health(cli, *words, wait=WAIT):
    done = cli("cluster", "status", "--health", "--wait", wait, *words)
    assert done.stderr == "" and done.stdout.count("\n") == 1 and done.stdout[-1] == "\n", done
    return done.status, done.stdout[:-1]


def becomes(cli, expected):
    eventually(lambda: health(cli) == expected, str(expected))


def test_well_degraded_down_and_well_again(cluster):
    leader, (follower, other) = cluster.leader(), cluster.followers()
    well = f"OK: node {leader.number} leads, all 3 members are reachable and caught up; 1 more may be lost"
    becomes(cluster.cli, (0, well))
    follower.kill9()
    becomes(cluster.cli, (1, f"WARNING: node {follower.number} cannot be reached; 1 more loss and nothing is granted"))
    done = cluster.cli("cluster", "status")
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2] == NONE_LEFT
    seen = json.loads(health(cluster.cli, "--json")[1])
    expected = {"health": "degraded", "status": 1, "leader": leader.number, "members": 3, "voters": 3, "reachable": 2, "may_lose": 0,
                "why": f"node {follower.number} cannot be reached; 1 more loss and nothing is granted",
                "answered_by": leader.number, "term": leader.says()["term"], "cluster": leader.says()["cluster"]}
    assert seen == expected
    other.kill9()
    missing = ", ".join(f"node {node.number} ({cluster.peers[node.number]})" for node in sorted((follower, other), key=lambda n: n.number))
    becomes(cluster.cli, (2, "CRITICAL: nobody leads: 2 of the 3 nodes that vote must be there, and node "
                             f"{leader.number} hears of 1, itself included; bring back 1 of {missing}"))
    assert json.loads(health(cluster.cli, "--json")[1])["health"] == "not serving"
    for node in (follower, other):
        node.launch()
    eventually(lambda: health(cluster.cli)[0] == 0, "all are there again")


@pytest.mark.parametrize("who", ["follower", "leader"])
def test_a_member_that_was_killed_is_gone_at_once(cluster, who):
    """Its connections end with it: nobody waits for two seconds of silence, or says meanwhile that one more may be lost."""
    eventually(lambda: health(cluster.cli)[0] == 0, "all are well")
    leader = cluster.leader()
    killed = leader if who == "leader" else cluster.followers()[0]
    killed.kill9()
    if who == "leader":
        cluster.leader()

    def is_gone():
        seen = cluster.status()
        return seen[killed.number]["role"] == "silent" and seen[killed.number]
    seen = eventually(is_gone, "it is silent")
    assert seen["behind"] is None and (who == "leader" or seen["silent_ms"] < 2000), "that is how it is known"
    assert cluster.cli("cluster", "status").stdout.splitlines()[-2] == NONE_LEFT
    assert health(cluster.cli) == (1, f"WARNING: node {killed.number} cannot be reached; 1 more loss and nothing is granted")
    killed.launch()
    eventually(lambda: health(cluster.cli)[0] == 0, "all are well again")


def test_a_member_that_catches_up(cluster):
    node = cluster.join(4)
    assert cluster.cli("cluster", "add", "4", cluster.peers[4]).status == 0
    leader = cluster.leader()
    becomes(cluster.cli, (0, f"OK: node {leader.number} leads, all 4 members are reachable and caught up; 1 more may be lost"))
    node.kill9()
    becomes(cluster.cli, (1, "WARNING: node 4 cannot be reached; 1 more loss and nothing is granted"))
    assert cluster.cli("cluster", "remove", "4").stderr == "", "it takes nothing away"


def test_a_node_alone(start):
    server = start()
    done = Cli(f"holdfast://127.0.0.1:{server.port}")("cluster", "status", "--health")
    assert (done.status, done.stdout) == (
        0, "OK: node 1 leads, and is the only member; 1 more loss and nothing is granted\n")


def test_a_cluster_that_is_not_founded(request):
    node = Unfounded()
    request.addfinalizer(node.clean)
    peer = node.args[node.args.index("--cluster") + 1]
    advice = (f"node 1 belongs to no cluster yet: it lists nobody else: add it, at a member of the cluster that it is to belong to, with "
              f"'holdfast cluster add {peer.replace('=', ' ')}'; or 'holdfast cluster init' founds a cluster of it alone")
    cli = Cli(f"holdfast://127.0.0.1:{node.port}")
    assert health(cli) == (2, f"CRITICAL: {advice}")
    done = cli("cluster", "status", "--wait", "200ms")
    assert (done.status, done.stdout, done.stderr) == (69, "Node 1 knows of no members.\n", f"holdfast: {advice}\n")


def test_nobody_there():
    port = free_port()
    cli = Cli(f"holdfast://127.0.0.1:{port}")
    status, line = health(cli, wait="5s")
    assert status == 3 and line.startswith(f"UNKNOWN: 127.0.0.1:{port}: ") and "refused" in line
    status, line = health(cli, "--json", wait="5s")
    assert status == 3 and {**json.loads(line), "why": ""} == {"health": "unknown", "status": 3, "why": ""}


@pytest.mark.parametrize("words,expected", [((), "UNKNOWN: no answer within 1.0 s\n"),
                                            (("--json",), '{"health":"unknown","status":3,"why":"no answer within 1.0 s"}\n')])
def test_silent_servers_take_no_longer_than_the_wait(cluster, words, expected):
    for node in cluster.nodes.values():
        node.pause()
    began = time.monotonic()
    done = cluster.cli("cluster", "status", "--health", "--wait", "1s", *words)
    assert (done.status, done.stdout, done.stderr) == (3, expected, "")
    assert time.monotonic() - began < 4, "less than the library gives a silent server"
    for node in cluster.nodes.values():
        node.resume()


def test_a_store_without_a_cluster(tmp_path):
    done = Cli(f"file:{tmp_path}/locks?allow=tmpfs")("cluster", "status", "--health")
    assert done.status == 64 and done.stdout == "" and done.stderr.splitlines()[-1] == \
        "holdfast: a file store has no cluster to look after: that is for holdfast:// stores"


def test_health_is_for_status():
    done = Cli("holdfast://127.0.0.1")("cluster", "transfer", "--health")
    assert done.status == 64 and "--health is for status" in done.stderr


def test_remove_warns_when_no_member_can_be_lost_then(cluster):
    leader, (dead, other) = cluster.leader(), cluster.followers()
    dead.kill9()
    becomes(cluster.cli, (1, f"WARNING: node {dead.number} cannot be reached; 1 more loss and nothing is granted"))
    done = cluster.cli("cluster", "remove", str(dead.number))
    assert (done.status, done.stderr) == (0, NONE_TO_LOSE)
    becomes(cluster.cli, (0, f"OK: node {leader.number} leads, all 2 members are reachable and caught up; 1 more loss and nothing is granted"))
    other.kill9()
    becomes(cluster.cli, (2, f"CRITICAL: nobody leads: 2 of the 2 nodes that vote must be there, and node {leader.number} hears of 1, itself "
                             f"included; bring back node {other.number} ({cluster.peers[other.number]})"))


def test_remove_refuses_what_leaves_no_majority(cluster):
    """As etcd does: the change could not be taken back, since nobody would lead."""
    dead, other = cluster.followers()
    dead.kill9()
    becomes(cluster.cli, (1, f"WARNING: node {dead.number} cannot be reached; 1 more loss and nothing is granted"))
    done = cluster.cli("cluster", "remove", str(other.number))
    assert (done.status, done.stdout) == (77, "")
    assert f"without node {other.number} no majority of the members would be there" in only_line(done.stderr)
    assert set(cluster.status()) == {1, 2, 3}


def test_a_member_whose_disk_hangs(tmp_path):
    """Few entries behind: it does not take large ones any more, and says nothing meanwhile."""
    cluster = Cluster()
    try:
        leader, (follower, _) = cluster.leader(), cluster.followers()
        disk = Disk(tmp_path, "disk", least=8193)
        follower.kill9()
        follower.wrapper = disk.wrapper
        follower.launch()
        eventually(lambda: health(cluster.cli)[0] == 0, "all are there")
        disk.hang()
        with leader.connect() as client:
            _, token = client.cmd("ONCE", "CLAIM", "k", "l", "TTL", 60000)
            assert client.cmd("ONCE", "FINISH", "k", "l", "TOKEN", token, "KEEP", 60000, "r" * 60000) == 1
        disk.hangs()
        status, line = eventually(lambda: health(cluster.cli)[0] == 1 and health(cluster.cli), "it is noticed")
        assert status == 1 and re.fullmatch(f"WARNING: node {follower.number} (is behind, and has said nothing for [0-9.]+ m?s: it hangs, or is "
                                            "cut off|cannot be reached); 1 more loss and nothing is granted", line), line
        disk.go_on()
        eventually(lambda: health(cluster.cli)[0] == 0, "it has caught up")
    finally:
        cluster.clean()
