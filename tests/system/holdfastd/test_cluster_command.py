"""`holdfast cluster` against real nodes: three that a test starts, and more that join. test_cluster_answers.py has what no
real node does on demand."""
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import time

import pytest
from conftest import (PORT_TRIES, Ended, Holdfastd, Process, Refused, argv_of, die_with_parent, environment, eventually,
                      free_port, pairs_of)
from holdfast_cli import Cli, objects, only_line

SOON = 8  # seconds within which it is found out that nobody is there
ELECTION = "1s"  # longer than a machine with other things to do makes a leader wait
NONE_TO_LOSE = "holdfast: from now on no member can be lost: with one less, nothing is granted\n"
TITLES = ["ID", "ROLE", "CLIENTS", "PEERS", "BEHIND", "HEARD"]
names = (f"lock-{number}" for number in itertools.count(1))


# ---- nodes -------------------------------------------------------------------------------------------------------


class Node(Holdfastd):
    """One of several: it does not serve as soon as it is started. `peers`: as after --cluster."""

    def __init__(self, number, peers, port, *args, wrapper=()):
        base = os.environ.get("HF_TEST_TMP") or "/tmp"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cluster-", dir=base))
        self.data, self.port, self.number, self.password = self.directory / "data", port, number, None
        self.args = ["--id", number, "--cluster", peers, "--election-timeout", ELECTION, *args]
        self.process, self.log, self.wrapper, self.listen = None, [], wrapper, None

    def launch(self):
        argv = [*self.wrapper, *argv_of("--data", self.data, "--listen", self.listen or self.client, *self.args)]
        self.process = Process(argv, environment(), preexec_fn=die_with_parent)
        return True

    @property
    def client(self):
        return f"127.0.0.1:{self.port}"

    def says(self):
        """CLUSTER STATUS of this very node, or None while it does not answer."""
        try:
            status = pairs_of(self.cmd("CLUSTER", "STATUS"))
        except OSError:
            return None
        status["members"] = [pairs_of(member) for member in status["members"]]
        return status


class Cluster:
    """Three nodes and a command that knows them all."""

    def __init__(self, *args):
        self.args, self.nodes, self.peers = args, {}, {}
        self.stack = contextlib.ExitStack()
        for left in reversed(range(PORT_TRIES)):
            self.peers = {number: f"127.0.0.1:{free_port()}" for number in (1, 2, 3)}
            for number in self.peers:
                self.start(number, ",".join(f"{n}={peer}" for n, peer in self.peers.items()), *args)
            if self.await_leader():
                break
            assert left, "they do not start: " + str([node.logged() for node in self.nodes.values()])
            self.clean()
        self.url = self.url_of(*self.nodes)
        self.cli = self.cli_of(*self.nodes)

    def start(self, number, peers, *args):
        node = self.nodes[number] = Node(number, peers, free_port(), *args)
        self.stack.callback(node.clean)
        node.launch()
        return node

    def join(self, number, run=True, wrapper=()):
        """A node that waits to be added; or that could be started, by .launch()."""
        self.peers[number] = f"127.0.0.1:{free_port()}"
        node = Node(number, f"{number}={self.peers[number]}", free_port(), "--join", *self.args, wrapper=wrapper)
        self.stack.callback(node.clean)
        self.nodes[number] = node
        if run:
            node.launch()
        return node

    def await_leader(self):
        """Founds it. True: somebody leads. False: one has ended, because somebody else took its port."""
        eventually(lambda: not all(n.running() for n in self.nodes.values()) or all(n.says() for n in self.nodes.values()),
                   "all answer")
        with contextlib.suppress(OSError, Ended, Refused):
            self.nodes[1].cmd("CLUSTER", "INIT")
        return eventually(lambda: not all(n.running() for n in self.nodes.values()) and "ended" or self.find_leader(),
                          "a leader") != "ended"

    def find_leader(self):
        for node in self.nodes.values():
            status = node.running() and node.says()
            if status and status["role"] == "leader":
                return node
        return None

    def leader(self):
        return eventually(self.find_leader, "a leader")

    def followers(self):
        leader = self.leader()
        return [node for node in self.nodes.values() if node is not leader]

    def url_of(self, *numbers):
        return "holdfast://" + ",".join(self.nodes[number].client for number in numbers)

    def cli_of(self, *numbers):
        cli = Cli(self.url_of(*numbers))
        self.stack.callback(cli.clean)
        return cli

    def status(self):
        done = self.cli("cluster", "status", "--json")
        assert done.status == 0, done.stderr
        return {member["id"]: member for member in objects(done)}

    def hand_over_to(self, number):
        """One that was just added may have to be asked twice: it does not know the others yet."""
        eventually(lambda: self.cli("cluster", "transfer", str(number)).status == 0, f"node {number} leads")

    def clean(self):
        """The hard way: asked to end, each would try to let another lead."""
        for node in self.nodes.values():
            node.kill9()
        self.stack.close()
        self.nodes = {}


@pytest.fixture(scope="module")
def three():
    """For tests that leave three nodes behind, whoever leads."""
    cluster = Cluster()
    yield cluster
    cluster.clean()


@pytest.fixture
def cluster():
    """For tests that do not."""
    made = Cluster()
    yield made
    made.clean()


# ---- status ------------------------------------------------------------------------------------------------------


def test_status_is_a_table(three):
    leader = three.leader()
    done = three.cli("cluster", "status")
    assert (done.status, done.stderr) == (0, "")
    titles, *rows, blank, last, survives, cluster = done.stdout.splitlines()
    assert titles.split() == TITLES
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    for row in rows:
        number, role, client, peer, behind, heard = row.split(maxsplit=5)
        assert client == three.nodes[int(number)].client and peer == three.peers[int(number)]
        assert int(behind) >= 0
        if int(number) == leader.number:
            assert (role, behind, heard) == ("leader", "0", "-")
        else:
            assert role == "follower" and re.fullmatch(r"\d+ ms ago|\d\.\d s ago", heard)
    assert blank == ""
    assert last == f"Term {leader.says()['term']}, as node {leader.number} sees it, which leads."
    assert survives == "The cluster survives the loss of 1 more member."
    assert cluster == f"Cluster {leader.says()['cluster']}."


def test_status_as_json(three):
    leader = three.leader()
    members = objects(three.cli("--json", "cluster", "status"))
    assert [member["id"] for member in members] == [1, 2, 3]
    for member in members:
        assert {"id", "role", "client", "peer", "votes", "behind", "silent_ms", "term"} <= set(member)
        assert member["role"] == ("leader" if member["id"] == leader.number else "follower")
        assert member["client"] == three.nodes[member["id"]].client and member["peer"] == three.peers[member["id"]]
        assert member["votes"] is True and member["behind"] >= 0 and member["silent_ms"] >= 0
        assert member["term"] == leader.says()["term"]
        assert member["leader"] == member["answered_by"] == leader.number


def test_status_through_a_follower_is_the_leaders(three):
    for follower in three.followers():
        (own,) = [m for m in follower.says()["members"] if m["id"] == three.leader().number]
        assert own["behind"] == -1, "it does not know"
        members = objects(three.cli_of(follower.number)("cluster", "status", "--json"))
        assert {member["answered_by"] for member in members} == {three.leader().number}
        assert all(member["behind"] >= 0 for member in members)


def test_status_as_a_follower_sees_it_where_the_leader_cannot_be_reached():
    """All say that clients find them where nobody is."""
    cluster = Cluster("--advertise", f"127.0.0.1:{free_port()}")
    try:
        leader, (follower, other) = cluster.leader(), cluster.followers()
        eventually(lambda: follower.says()["members"][leader.number - 1]["client"], "the leader's address is known")
        cli = cluster.cli_of(follower.number)
        done = cli("cluster", "status", "--json", "--wait", "1s")
        assert done.status == 69
        line = only_line(done.stderr)
        assert f"what node {follower.number} sees" in line and f"node {leader.number} leads" in line
        members = {member["id"]: member for member in objects(done)}
        assert {number: members[number]["role"] for number in members} == {
            leader.number: "leader", follower.number: "follower", other.number: "unknown"}
        assert all(m["behind"] is None and m["answered_by"] == follower.number for m in members.values())
        done = cli("cluster", "status", "--wait", "1s")
        assert done.status == 69 and f"which follows node {leader.number}." in done.stdout
        assert all(row.split()[4] == "?" for row in done.stdout.splitlines()[1:4])
    finally:
        cluster.clean()


def test_status_of_a_node_alone(start):
    server = start()
    done = Cli(f"holdfast://127.0.0.1:{server.port}")("cluster", "status", "--json")
    (member,) = objects(done)
    assert done.status == 0 and member["role"] == "leader" and member["peer"] is None


def test_status_of_a_node_that_waits_to_be_added(three):
    node = three.join(9)
    eventually(node.says, "it answers")
    done = three.cli_of(9)("cluster", "status", "--wait", "200ms")
    assert (done.status, done.stdout) == (69, "Node 9 knows of no members.\n"), "no empty table"
    assert only_line(done.stderr) == (
        "holdfast: node 9 belongs to no cluster yet: it was started with --join: add it, at a member of the cluster that it is "
        f"to belong to, with 'holdfast cluster add 9 {three.peers[9]}'")
    assert node.stop() == 0
    del three.nodes[9]


def test_a_silent_node_is_shown_as_such_and_keeps_nobody_from_seeing_it(three):
    """It is the first that is asked: it takes the connection, and says nothing."""
    leader, (paused, other) = three.leader(), three.followers()
    cli = three.cli_of(paused.number, other.number)
    paused.pause()
    try:
        def is_seen():
            members = {member["id"]: member for member in objects(cli("cluster", "status", "--json"))}
            return members[paused.number]["role"] == "silent" and members
        members = eventually(is_seen, "it is silent")
        assert members[paused.number]["silent_ms"] > 2000 and members[leader.number]["role"] == "leader"
        (row,) = [row for row in cli("cluster", "status").stdout.splitlines() if row.startswith(f"{paused.number} ")]
        assert row.split()[1] == "silent" and row.endswith(" s ago")
    finally:
        paused.resume()
    eventually(lambda: three.status()[paused.number]["role"] == "follower", "it is there again")


# ---- nobody there, nobody leads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["status"], ["add", "4", "127.0.0.1:1"], ["transfer", "--wait", "1h"]], ids=" ".join)
def test_dead_servers(words):
    cli = Cli("holdfast://" + ",".join(f"127.0.0.1:{free_port()}" for _ in range(3)))
    began = time.monotonic()
    done = cli("cluster", *words)
    assert (done.status, done.stdout) == (69, "")
    assert "refused" in only_line(done.stderr)
    assert time.monotonic() - began < SOON


def test_two_of_three_down(cluster):
    leader, (follower, last) = cluster.leader(), cluster.followers()
    for node in (leader, follower):
        node.kill9()
    eventually(lambda: last.says()["leader"] == 0, "it knows that nobody leads")
    silent = lambda: sum(not 0 <= m["silent"] <= 2000 for m in last.says()["members"])  # noqa: E731
    eventually(lambda: silent() == 2, "it has not heard of the others for long")
    nobody = ("nobody leads: 2 of the 3 nodes that vote must be there, "
              f"and node {last.number} hears of 1, itself included; bring back 1 of "
              + ", ".join(f"node {number} ({cluster.peers[number]})" for number in sorted((leader.number, follower.number))))
    done = cluster.cli("cluster", "status", "--wait", "1s")
    assert done.status == 69 and only_line(done.stderr) == "holdfast: " + nobody
    roles = {int(row.split()[0]): row.split()[1] for row in done.stdout.splitlines()[1:4]}
    assert roles == {leader.number: "silent", follower.number: "silent", last.number: "follower"}
    assert f"as node {last.number} sees it, which knows of no leader." in done.stdout
    for words in (["add", "4", "127.0.0.1:1"], ["remove", str(leader.number)], ["transfer"]):
        began = time.monotonic()
        done = cluster.cli("cluster", *words, "--wait", "1s")
        assert (done.status, done.stdout) == (69, "")
        assert done.stderr.splitlines() == ["holdfast: " + nobody, "holdfast: nothing was changed"]
        assert time.monotonic() - began < SOON
    done = cluster.cli("cluster", "transfer", "--wait", "3s")
    assert done.stderr.splitlines() == ["holdfast: no leader has answered yet; waiting, at most 3.0 s", "holdfast: " + nobody,
                                        "holdfast: nothing was changed"]
    follower.launch()
    assert cluster.cli("cluster", "status").status == 0, "as soon as there are two"


# ---- init ----------------------------------------------------------------------------------------------------------


def test_init(request):
    """It names who does not answer, founds the cluster when all do, and only once."""
    peers = {number: f"127.0.0.1:{free_port()}" for number in (1, 2, 3)}
    line = ",".join(f"{number}={peer}" for number, peer in peers.items())
    nodes = {number: Node(number, line, free_port()) for number in peers}
    for node in nodes.values():
        request.addfinalizer(node.clean)
    for number in (1, 2):
        nodes[number].launch()
        eventually(nodes[number].says, "it answers")
    cli = Cli("holdfast://" + ",".join(node.client for node in nodes.values()))
    request.addfinalizer(cli.clean)
    done = cli("cluster", "status", "--wait", "200ms")
    assert done.status == 69 and "holdfast cluster init" in done.stderr
    done = cli("run", "x", "--wait", "200ms", "true")
    assert done.status == 69 and "holdfast cluster init" in done.stderr
    done = cli("cluster", "init")
    assert done.status == 69 and f"node 3 at {peers[3]} does not answer" in done.stderr and done.stderr.count("nothing was changed") == 1
    for wait in ("1s", "6s"):
        done = cli("cluster", "init", "--wait", wait)
        assert done.status == 69 and f"node 3 at {peers[3]} does not answer" in done.stderr, done
        assert "may or may not" not in done.stderr, "what is said is true to the end of the wait"
    founding = cli.start("cluster", "init", "--json", "--wait", "1m")
    line = founding.line("err")
    line = founding.line("err") if "asking all members" in line else line
    assert f"node 3 at {peers[3]} does not answer" in line and "; asking again, for up to " in line
    nodes[3].launch()
    assert founding.wait() == 0
    (said,) = map(json.loads, founding.rest())
    assert said["founded"] and said["members"] == 3 and said["leader"] in peers
    done = cli("cluster", "init")
    assert done.status == 77 and "founded already" in done.stderr
    assert cli("run", "x", "true").status == 0


def test_init_of_a_cluster_whose_members_have_changed():
    """However young it is: nothing tells its age."""
    cluster = Cluster()
    try:
        gone = cluster.followers()[0]
        assert cluster.cli("cluster", "remove", str(gone.number)).status == 0
        gone.kill9()
        done = cluster.cli("cluster", "init")
        assert done.status == 77 and "has been founded already: nodes are added with 'holdfast cluster add'" in done.stderr, done
    finally:
        cluster.clean()


# ---- add ---------------------------------------------------------------------------------------------------------


def test_add(cluster):
    holder = cluster.cli.hold(name := next(names))
    node = cluster.join(4)
    done = cluster.cli("cluster", "add", "4", cluster.peers[4])
    assert (done.status, done.stdout) == (0, "node 4 is a member, and votes\n"), done.stderr
    assert {m["id"]: m["votes"] for m in node.says()["members"]} == {1: 1, 2: 1, 3: 1, 4: 1}
    assert cluster.status()[4]["peer"] == cluster.peers[4]
    eventually(lambda: cluster.status()[4]["client"] == node.client, "clients learn where it is")
    # It has all that was there before, because it can lead with it.
    cluster.hand_over_to(4)
    (held,) = cluster.cli_of(4).show(name)["holders"]
    assert held["token"] == holder.token
    assert holder.end() == 0


def test_add_again_is_fine(three):
    """At the same address: nothing is to be done. At another: it is another node, which needs an id of its own."""
    number = three.followers()[0].number
    done = three.cli("cluster", "add", str(number), three.peers[number], "--json")
    assert done.status == 0
    assert objects(done) == [{"id": number, "peer": three.peers[number], "member": True, "votes": True}]
    done = three.cli("cluster", "add", str(number), "127.0.0.1:1")
    assert done.status == 77 and only_line(done.stderr).endswith(
        f"node {number} is a member already, at {three.peers[number]}: a new node needs an id of its own, for instance 4")
    assert three.status()[number]["peer"] == three.peers[number]


def test_add_waits_for_a_node_that_does_not_run_yet(cluster):
    node = cluster.join(4, run=False)
    adding = cluster.cli.start("cluster", "add", "4", cluster.peers[4], "--wait", "1m")
    line = adding.line("err")
    assert f": node 4 at {cluster.peers[4]} does not answer, and is not added: " in line and line.endswith("; waiting for it"), line
    assert 4 not in cluster.status()
    node.launch()
    assert adding.wait() == 0
    assert adding.rest() == ["node 4 is a member, and votes"]
    assert cluster.status()[4]["votes"] is True


def test_add_uses_all_of_its_time(cluster):
    """Nobody comes: it is asked for until the time is over, and what is said is the time that it took."""
    cluster.join(4, run=False)
    began = time.monotonic()
    done = cluster.cli("cluster", "add", "4", cluster.peers[4], "--wait", "2s")
    took = time.monotonic() - began
    assert done.status == 69 and took > 1.5, (took, done)  # a question takes 0.7 s, and the last one ends with the time
    said = re.search(r"nothing was changed within (\d+\.\d) s: ", done.stderr)
    assert said and 1.5 <= float(said[1]) <= took + 0.05, (took, done)


def test_add_without_waiting(cluster, disk):
    node = cluster.join(4, run=False, wrapper=disk.wrapper)
    done = cluster.cli("cluster", "add", "--no-wait", "4", cluster.peers[4])
    assert done.status == 69 and "does not answer, and is not added" in only_line(done.stderr)
    assert 4 not in cluster.status()
    disk.hang()
    node.launch()
    done = eventually(lambda: (again := cluster.cli("cluster", "add", "--no-wait", "4", cluster.peers[4])).status == 0 and again, "it answers")
    assert (done.stdout, done.stderr) == ("node 4 is a member, and votes as soon as it has caught up\n", "")
    assert cluster.status()[4]["votes"] is False
    done = cluster.cli("cluster", "remove", "4", "--json")
    assert objects(done) == [{"id": 4, "member": False}], done.stderr
    assert 4 not in cluster.status()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_the_change_going_on(cluster, disk, number):
    """Of a node that is a member, and does not catch up: its disk hangs."""
    disk.hang()
    cluster.join(4, wrapper=disk.wrapper)
    adding = cluster.cli.start("cluster", "add", "4", cluster.peers[4], "--wait", "1m")
    eventually(lambda: 4 in cluster.status(), "it is a member")
    adding.line("err")
    adding.kill(number)
    assert adding.wait() == 128 + number
    line = adding.rest("err")[-1]
    assert "holdfast cluster remove 4" in line
    disk.go_on()
    eventually(lambda: cluster.status()[4]["votes"], "it votes without us")


# ---- remove ------------------------------------------------------------------------------------------------------


def test_remove_a_follower(cluster):
    holder = cluster.cli.hold(name := next(names))
    leader, (follower, _) = cluster.leader(), cluster.followers()
    done = cluster.cli("cluster", "remove", str(follower.number))
    assert (done.status, done.stderr) == (0, NONE_TO_LOSE)
    first, then = done.stdout.splitlines()[:2]
    assert first == f"node {follower.number} is no member any more"
    assert then.startswith("Stop its process, and do not start it again")
    assert set(cluster.status()) == {1, 2, 3} - {follower.number}
    assert cluster.leader() is leader, "and nobody had to go for it"
    assert cluster.cli.show(name)["holders"][0]["token"] == holder.token
    assert holder.end() == 0


def test_remove_the_leader(cluster):
    holder = cluster.cli.hold(name := next(names))
    leader = cluster.leader()
    done = cluster.cli("cluster", "remove", str(leader.number))
    assert done.status == 0, done.stderr
    assert done.stderr == f"holdfast: node {leader.number} led, and has let another node lead\n" + NONE_TO_LOSE
    members = cluster.status()
    assert set(members) == {1, 2, 3} - {leader.number}
    assert sorted(member["role"] for member in members.values()) == ["follower", "leader"]
    assert cluster.cli.show(name)["holders"][0]["token"] == holder.token
    assert holder.end() == 0


def test_a_removed_node_comes_back_as_the_message_says(cluster):
    number = cluster.followers()[0].number
    assert cluster.cli("cluster", "remove", str(number)).status == 0
    node = cluster.nodes[number]
    assert node.stop() == 0
    shutil.rmtree(node.data)
    done = cluster.cli("cluster", "add", str(number), cluster.peers[number])
    assert done.status == 77 and "an id is used once" in only_line(done.stderr)
    new = int(re.search(r"take (\d+)", done.stderr).group(1))
    node.number, cluster.nodes[new], cluster.peers[new] = new, cluster.nodes.pop(number), cluster.peers.pop(number)
    node.args = ["--id", new, "--cluster", f"{new}={cluster.peers[new]}", "--join", "--election-timeout", ELECTION]
    node.launch()
    done = cluster.cli("cluster", "add", str(new), cluster.peers[new])
    assert done.status == 0, done.stderr
    assert all(member["votes"] for member in cluster.status().values())
    cluster.hand_over_to(new)  # it is as good as any other


def test_the_last_node_cannot_be_removed(start):
    server = start()
    done = Cli(f"holdfast://127.0.0.1:{server.port}")("cluster", "remove", "1")
    assert (done.status, done.stdout) == (77, "") and "no other node that could lead" in only_line(done.stderr)


# ---- transfer ----------------------------------------------------------------------------------------------------


def test_transfer(three):
    for follower in three.followers():
        done = three.cli("cluster", "transfer", str(follower.number))
        assert (done.status, done.stdout) == (0, f"node {follower.number} leads\n"), done.stderr
        assert three.leader() is follower
        done = three.cli("cluster", "transfer", str(follower.number), "--json")
        assert objects(done) == [{"leader": follower.number, "term": follower.says()["term"]}], "it does already"


def test_transfer_to_whoever_is_nearest(three):
    before = three.leader()
    done = three.cli_of(three.followers()[0].number)("cluster", "transfer")
    assert done.status == 0 and three.leader() is not before
    assert done.stdout == f"node {three.leader().number} leads\n"


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, why", [
    (["remove", "8"], "node 8 is no member"),
    (["transfer", "8"], "node 8 is not a member that votes"),
    (["add", "8", "127.0.0.1:port"], "'port' is not a port"),
], ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_refused(three, words, why):
    before = three.status()
    done = three.cli("cluster", *words)
    assert (done.status, done.stdout) == (77, "") and why in only_line(done.stderr)
    assert set(three.status()) == set(before)


def test_wrong_words(three):
    """Found before anybody is asked."""
    for words in (["add", "4"], ["add", "4", "nowhere"], ["remove", "0"], ["transfer", "x"], ["go"],
                  ["remove", "-n", "2"]):
        done = three.cli("cluster", *words)
        assert (done.status, done.stdout) == (64, ""), words
        assert only_line(done.stderr).startswith("holdfast: cluster: "), words
    assert set(three.status()) == {1, 2, 3}


@pytest.mark.parametrize("words", [["status"], ["add", "4", "127.0.0.1:1"], ["remove", "1"], ["transfer"]],
                         ids=" ".join)
def test_another_store(words):
    base = os.environ.get("HF_TEST_TMP") or "/tmp"
    with tempfile.TemporaryDirectory(dir=base) as directory:
        done = Cli(f"file:{directory}?allow=tmpfs")("cluster", *words)
    assert (done.status, done.stdout) == (64, "")
    assert "a file store has no cluster" in only_line(done.stderr) and "holdfast://" in done.stderr


def test_password(start):
    server = start(password="open sesame")
    url = f"holdfast://127.0.0.1:{server.port}"
    for cli, env in ((Cli(url), {}), (Cli(url), {"HOLDFAST_PASSWORD": "guessed"})):
        done = cli("cluster", "status", env=env)
        assert (done.status, done.stdout) == (77, "") and "password" in only_line(done.stderr)
        assert "guessed" not in done.stderr
    assert Cli(url)("cluster", "status", env={"HOLDFAST_PASSWORD": "open sesame"}).status == 0
    assert Cli(f"{url}?password-file={server.directory}/password")("cluster", "status").status == 0


def test_an_id_with_digits_too_many_is_refused(cluster):
    """It would be the greatest, and there would be none left for the next node."""
    for number in ("4294967296", "1000004"):
        done = cluster.cli("cluster", "add", number, "127.0.0.1:9")
        assert done.status == 77
        assert only_line(done.stderr).endswith(
            f"{number} is far above 3, the greatest id so far, and ids only grow: take 4, and start the new node with it")


def test_leadership_is_not_transferred_to_a_silent_node(three):
    """It is refused at once, and nobody has to wait for it."""
    leader, paused = three.leader(), three.followers()[0]
    paused.pause()
    try:
        eventually(lambda: three.status()[paused.number]["role"] == "silent", "it is silent")
        done = three.cli("cluster", "transfer", str(paused.number))
        assert done.status == 77
        assert only_line(done.stderr).endswith(
            f"node {paused.number} is silent, and cannot lead: bring it back first, or name another")
        assert three.leader() is leader
    finally:
        paused.resume()
    eventually(lambda: three.status()[paused.number]["role"] == "follower", "it is there again")
