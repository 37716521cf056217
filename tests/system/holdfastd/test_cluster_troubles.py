"""What an operator is told when something is wrong with a node: it must be true, and name the remedy."""
import json
import re
import resource
import shutil
import signal
import time

import pytest
from conftest import Process, argv_of, die_with_parent, environment, eventually, free_port, is_running
from holdfast_cli import Cli, objects, only_line
from test_cluster_command import Cluster, Node

AT_ONCE = 6  # seconds: much less than the 10 s that a change waits for a leader
SHORT = "3s"
OUTAGE = 7  # seconds
LOST = ("the members of the cluster know this node with other data: its directory was lost or is not mounted; mount it, or "
        "remove this node and add it under another id (if a majority lost its data: holdfastd --restore-from)")

REMOVED = "this node was removed from the cluster"
REMOVED_ADVICE = ("stop it, and do not start it again with this data; to let the machine come back, empty its data directory, start it "
                  "with a new id and --join, and add that")


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.clean()


def lose_data(node):
    node.kill9()
    shutil.rmtree(node.data)
    node.launch()
    eventually(node.says, "it answers")


def said_once(node, text):
    """That line of its log, which may come a moment after an answer that says the same."""
    said = eventually(lambda: [line for line in node.logged() if text in line], "it is in the log")
    assert len(said) == 1, said
    return said[0]


def row_of(cli, number):
    rows = cli("cluster", "status").stdout.splitlines()
    return next((row for row in rows if row.startswith(f"{number} ")), "")


def answer_of(node):
    """To somebody who wants a lock."""
    with node.connect() as client:
        return client.error("ACQUIRE", "x", "lease")


# ---- a node that has stopped -------------------------------------------------------------------------------------


def no_more_files():
    die_with_parent()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_node_that_has_stopped_says_why_and_advises_no_init(request):
    """Its disk is full, so to speak."""
    node = Node(1, f"1=127.0.0.1:{free_port()}", free_port())
    request.addfinalizer(node.clean)
    node.process = Process(argv_of("--data", node.data, "--listen", node.client, *node.args), environment(),
                           preexec_fn=no_more_files)
    eventually(node.says, "it answers")
    cli = Cli("holdfast://" + node.client)
    request.addfinalizer(cli.clean)
    assert cli("cluster", "init").status == 0
    resource.prlimit(node.process.popen.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    cli("run", "x", "--wait", "200ms", "true")
    eventually(lambda: node.says()["role"] == "stopped", "it stops")
    why = node.says()["trouble"]
    assert "File too large" in why
    done = cli("cluster", "status", "--wait", "200ms")
    assert done.status == 69 and only_line(done.stderr) == f"holdfast: node 1 has stopped: {why}"
    assert done.stdout.splitlines()[1].split()[:2] == ["1", "stopped"]
    began = time.monotonic()
    done = cli("cluster", "init")
    assert done.status == 77 and f"this node has stopped: {why}" in only_line(done.stderr)
    assert time.monotonic() - began < AT_ONCE


def test_a_member_that_has_stopped_is_not_only_silent(cluster):
    """Its leader hears nothing of it; but the URL names it, and it says itself what has happened."""
    node = cluster.followers()[0]
    node.kill9()
    node.process = Process(argv_of("--data", node.data, "--listen", node.client, *node.args), environment(), preexec_fn=no_more_files)
    eventually(lambda: cluster.status()[node.number]["role"] == "follower", "it is back")
    resource.prlimit(node.process.popen.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    assert cluster.cli("run", "x", "true").status == 0
    eventually(lambda: node.says()["role"] == "stopped", "it stops")
    why = node.says()["trouble"]
    assert "File too large" in why
    row = eventually(lambda: "follower" not in row_of(cluster.cli, node.number) and row_of(cluster.cli, node.number), "its leader knows")
    assert row.split()[:2] == [str(node.number), "stopped"]
    done = cluster.cli("cluster", "status")
    assert done.status == 0 and f"\nNode {node.number} has stopped: {why}\n" in done.stdout, done
    shown = cluster.status()
    assert (shown[node.number]["role"], shown[node.number]["stopped"]) == ("stopped", why)
    assert [member.get("stopped") for member in shown.values()].count(None) == 2
    # A monitoring system hears the same, and not that it cannot be reached.
    health = f"node {node.number} has stopped: {why}; 1 more loss and nothing is granted"
    done = cluster.cli("cluster", "status", "--health")
    assert (done.status, done.stdout, done.stderr) == (1, f"WARNING: {health}\n", "")
    assert json.loads(cluster.cli("cluster", "status", "--health", "--json").stdout)["why"] == health
    node.kill9()
    assert cluster.status()[node.number]["role"] == "silent"
    assert "has stopped" not in cluster.cli("cluster", "status").stdout


def test_who_has_stopped_is_heard_above_who_only_has_no_leader(cluster):
    """Two of three have no room on their disks. The third knows of no reason, nor does one that waits to be added."""
    waits = cluster.join(4)
    eventually(waits.says, "it answers")
    full = [cluster.nodes[1], cluster.nodes[2]]
    for node in full:
        resource.prlimit(node.process.popen.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    eventually(lambda: cluster.cli("run", "x", "--wait", "200ms", "true") and
               all(node.says()["role"] == "stopped" for node in full), "both stop")
    for order in [(1, 2, 3, 4), (4, 3, 2, 1), (3, 1, 4, 2)]:
        done = cluster.cli_of(*order)("run", "y", "--wait", "1s", "true")
        assert done.status == 69 and "File too large" in done.stderr, done.stderr


# ---- a node that lost its data -----------------------------------------------------------------------------------


def test_a_member_that_came_back_without_its_data_is_shown_and_not_added(cluster):
    node = cluster.followers()[0]
    number = node.number
    lose_data(node)
    eventually(lambda: "lost its data" in row_of(cluster.cli, number), "it is shown")
    assert cluster.status()[number]["role"] == "lost its data"
    assert (f"\nNode {number} has lost its data: mount its directory, if it is not mounted, and start it again; else "
            f"'holdfast cluster remove {number}', and add a node in its place under another id.\n") in cluster.cli("cluster", "status").stdout
    done = cluster.cli("cluster", "add", str(number), cluster.peers[number])
    assert done.status == 77
    assert only_line(done.stderr).endswith(
        f"node {number} has come back without its data: remove it, then add it under another id")
    # As it says, though the removed id would do as well.
    assert cluster.cli("cluster", "remove", str(number)).status == 0
    cluster.join(4)
    assert cluster.cli("cluster", "add", "4", cluster.peers[4]).status == 0


def test_a_node_that_lost_its_data_is_told(cluster):
    node = cluster.followers()[0]
    lose_data(node)
    eventually(lambda: answer_of(node) == "TRYAGAIN " + LOST, "clients hear it")
    assert " error " in said_once(node, LOST)
    done = cluster.cli_of(node.number)("cluster", "status", "--wait", "200ms")
    assert done.status == 69 and only_line(done.stderr) == f"holdfast: node {node.number} waits: {LOST}"
    others = [other for other in cluster.nodes.values() if other is not node]
    time.sleep(2)  # a connection that lasts for a second was taken for one that is let in
    said = [line for other in others for line in other.logged() if f" node={node.number} peer=" in line]
    assert said and not [line for line in said if "is there again" in line]


def test_init_where_two_of_three_lost_their_data_names_the_remedy(cluster):
    left = cluster.leader()
    lost = [node for node in cluster.nodes.values() if node is not left]
    for node in cluster.nodes.values():
        node.kill9()
    for node in lost:
        lose_data(node)
    left.launch()
    for node in lost:
        eventually(lambda node=node: LOST in answer_of(node), "it knows")
    for node in cluster.nodes.values():
        done = cluster.cli_of(node.number)("cluster", "init")
        text = only_line(done.stderr)
        assert done.status == 77 and "--restore-from" in text and "those that wait are told" not in text, text


@pytest.mark.parametrize("survivor_first", [True, False])
def test_the_survivor_of_two_lost_disks_is_heard(cluster, survivor_first):
    """The emptied ones know nothing, and may not be removed without a majority: their words would lead in a circle."""
    left = cluster.leader()
    lost = [node for node in cluster.nodes.values() if node is not left]
    for node in lost:
        node.kill9()
    for node in lost:
        lose_data(node)
    for node in lost:
        eventually(lambda node=node: "with other data" in answer_of(node), "it knows")
    alone = cluster.cli_of(left.number)
    eventually(lambda: sum("lost its data" in row for row in alone("cluster", "status", "--wait", "100ms").stdout.splitlines()) == 2,
               "the survivor knows")
    order = [left, *lost] if survivor_first else [*lost, left]
    cli = cluster.cli_of(*(node.number for node in order))
    names = ", ".join(f"node {node.number} ({cluster.peers[node.number]})" for node in sorted(lost, key=lambda node: node.number))
    remedy = (f"nobody leads, and nobody will: of the 3 nodes that vote 2 have lost their data: {names}; mount their directories if they are "
              f"not mounted; else stop node {left.number} and begin anew from its directory, with 'holdfastd --restore-from' "
              "(holdfastd(8), docs/cluster.md)")
    for _ in range(3):  # whichever answers first
        done = cli("cluster", "status")
        assert done.status == 69 and only_line(done.stderr) == f"holdfast: {remedy}"
        assert done.stdout.count("lost its data") == 2 and f"as node {left.number} sees it" in done.stdout
        done = cli("cluster", "status", "--health")
        assert done.status == 2 and done.stdout == f"CRITICAL: {remedy}\n"
    done = cli("cluster", "remove", str(lost[0].number), "--wait", "1s")
    assert done.status == 69 and done.stderr.splitlines() == [f"holdfast: {remedy}", "holdfast: nothing was changed"]
    for words in (["ls"], ["run", "-n", "x", "true"]):
        done = cli(*words)
        assert done.status == 69 and ("--restore-from" in done.stderr or "no leader" in done.stderr), done.stderr


def test_status_without_a_majority_is_not_silent(cluster):
    for node in cluster.followers():
        node.kill9()
    process = cluster.cli.start("cluster", "status")
    where = ", ".join(node.client for node in cluster.nodes.values())
    assert process.line("err") == (f"holdfast: cluster status: no word of a leader from {where} for 2.0 s; trying for up to 5.0 s in all")
    assert process.wait() == 69
    assert len(process.rest("err")) == 1


# ---- adding ------------------------------------------------------------------------------------------------------


def test_add_at_the_address_of_another_member(cluster):
    done = cluster.cli("cluster", "add", "4", cluster.peers[2])
    assert done.status == 77 and only_line(done.stderr).endswith(f"node 2 is at {cluster.peers[2]} already")


def test_add_waits_no_longer_than_it_was_told(cluster):
    cluster.join(4, run=False)
    began = time.monotonic()
    done = cluster.cli("cluster", "add", "4", cluster.peers[4], "--wait", SHORT)
    assert done.status == 69 and 2.2 <= time.monotonic() - began < 3 + AT_ONCE  # no question begins whose answer would be late
    last = done.stderr.splitlines()[-1]
    assert re.match(r"holdfast: nothing was changed within [234]\.\d s: ", last) and "node 4 at " in last and "the same secret" in last
    assert "goes on catching up" not in done.stderr and 4 not in cluster.status()


# ---- secrets -----------------------------------------------------------------------------------------------------


def secret(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def test_a_wrong_secret_is_named_on_both_sides(request, tmp_path):
    peers = {number: f"127.0.0.1:{free_port()}" for number in (1, 2)}
    line = ",".join(f"{number}={peer}" for number, peer in peers.items())
    nodes = [Node(number, line, free_port(), "--secret-file", secret(tmp_path, f"s{number}", str(number) * 40))
             for number in peers]
    for node in nodes:
        request.addfinalizer(node.clean)
        node.launch()
        eventually(node.says, "it answers")
    cli = Cli("holdfast://" + nodes[0].client)
    request.addfinalizer(cli.clean)
    done = cli("cluster", "init")
    assert done.status == 69 and f"node 2 at {peers[2]} does not answer" in done.stderr and "secret" in done.stderr
    for node in nodes:
        assert " warning " in said_once(node, "compare secret-file on both")


def test_an_empty_secret_is_called_a_secret(tmp_path):
    empty = secret(tmp_path, "s2", "")
    node = Process(argv_of("--data", tmp_path / "data", "--id", 1, "--cluster", f"1=127.0.0.1:{free_port()}",
                           "--secret-file", empty), environment(), preexec_fn=die_with_parent)
    assert node.wait() != 0
    text = "".join(node.rest("err"))
    assert f"secret-file {empty}: its first line is empty" in text and "password-file" not in text


# ---- which cluster, and who was removed --------------------------------------------------------------------------


def test_status_shows_the_clusters_id(cluster):
    number = cluster.leader().says()["cluster"]
    assert cluster.cli("cluster", "status").stdout.splitlines()[-1] == f"Cluster {number}."
    assert {member["cluster"] for member in objects(cluster.cli("cluster", "status", "--json"))} == {number}


def test_a_removed_node_knows_it(cluster):
    node = cluster.followers()[0]
    assert cluster.cli("cluster", "remove", str(node.number)).status == 0
    eventually(lambda: node.says()["trouble"] == REMOVED, "it hears of it")
    assert " warning " in said_once(node, f"{REMOVED}: {REMOVED_ADVICE}")
    assert (node.says()["role"], node.says()["advice"]) == ("removed", REMOVED_ADVICE)
    cli = cluster.cli_of(node.number)
    done = cli("cluster", "status", "--wait", "200ms")
    assert (done.status, only_line(done.stderr)) == (69, f"holdfast: node {node.number} takes no part: {REMOVED}: {REMOVED_ADVICE}")
    roles = {int(row.split()[0]): row.split()[1] for row in done.stdout.splitlines()[1:3]}
    assert roles == {number: "unknown" for number in (1, 2, 3) if number != node.number}, "the members as it knows them: the others"
    assert f"as node {node.number} sees it, which is no member any more." in done.stdout
    done = cli("cluster", "status", "--health", "--wait", "2s")
    assert (done.status, done.stdout) == (3, f"UNKNOWN: node {node.number} takes no part: {REMOVED}: {REMOVED_ADVICE}\n"), "the others serve"
