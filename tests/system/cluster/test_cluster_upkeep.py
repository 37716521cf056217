"""What an operator does, and what can happen to them: secrets, backups, full disks, restarts one after the other."""
import contextlib
import glob
import os
import select
import shutil
import socket
import subprocess
import threading
import time

import pytest
from helpers import add, all_there, content, has_all, held, pour, restore, unchanged
from nodes import PATIENCE, SLOW_DISK, TTL_MAX, Node, Refused, fresh, put_first, run_refused, until


# ---- the first tokens --------------------------------------------------------------------------------------------


def clock(text):
    """Words before a command, for which the wall clock shows this; the others go on as they are."""
    (library,) = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    return ["env", f"LD_PRELOAD={library}", f"FAKETIME={text}", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"]


def test_tokens_of_a_new_cluster(start):
    """They begin at the wall clock of the node that led first, and go on by one, whoever leads and whatever its clock shows."""
    before = time.time_ns() // 1000
    cluster = start()
    token = cluster.ask("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert before < token <= time.time_ns() // 1000 + 1
    for turn in range(1, 6):
        leader = cluster.leader()
        leader.kill9()
        assert cluster.ask("ACQUIRE", f"x-{turn}", "l", "TTL", TTL_MAX) == token + turn
        leader.wrapper = clock(f"+{turn * 300}d")
        assert leader.launch()
        cluster.settled()
    assert not any("wall clock" in line for node in cluster for line in node.logged())


def test_a_new_cluster_without_the_time(start):
    """All clocks are wrong: one says so, and it works."""
    cluster = start(wrapper=clock("@2001-02-03 04:05:06"))
    assert cluster.ask("ACQUIRE", "x", "l", "TTL", TTL_MAX) == 1
    assert any("wall clock" in line and " warning " in line for node in cluster for line in node.logged())


# ---- the secret --------------------------------------------------------------------------------------------------


SAME, OTHER = "0123456789abcdef", "fedcba9876543210"


def secret_file(cluster, number, text):
    path = cluster.directory / f"secret-{number}"
    path.touch(0o600)
    path.write_text(text + "\n")
    return path


def test_a_node_with_another_secret_is_not_let_in(start):
    cluster = start()
    for node in cluster:
        assert node.stop() == 0
        node.args += ["--secret-file", secret_file(cluster, node.number, SAME if node.number < 3 else OTHER)]
    for node in cluster:
        node.begin()
    leader = cluster.leader()
    assert leader is not cluster[3]
    for node, other in [(cluster[3], "node="), (leader, f"node=3 peer={cluster[3].peer} ")]:
        line = node.await_line("why=\"it does not know the cluster's secret")
        while "a node cannot be reached" not in line:
            line = node.await_line("why=\"it does not know the cluster's secret")
        assert " warning " in line and other in line
    before = cluster[3].status()["applied"]
    token = leader.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    status = cluster[3].status()
    assert status["role"] == "follower" and status["leader"] == 0
    assert status["applied"] == before, "not more than it had"
    assert leader.members()[3]["silent"] == -1
    # It counts for nothing: without the other one there is no majority.
    other = cluster[3 - leader.number]
    other.kill9()
    until(lambda: not leader.leads(), "it notices that it is alone")
    with leader.connect() as client:
        assert client.error("ACQUIRE", "y", "l").startswith("TRYAGAIN ")
    secret_file(cluster, 3, SAME)
    assert cluster[3].stop() == 0
    assert cluster[3].launch()
    cluster.leader()
    has_all(cluster, cluster[3], [("x", token)])


def test_nodes_with_different_secrets_are_not_founded(start):
    """One has a secret, and the others have none."""
    cluster = start(founded=False)
    cluster[1].args += ["--secret-file", secret_file(cluster, 1, SAME)]
    for node in cluster:
        assert node.launch()
    with cluster[1].connect() as client:
        answer = client.error("CLUSTER", "INIT")
    assert answer.endswith("none of the others accepts this node's secret (compare secret-file on all)"), answer
    with cluster[2].connect() as client:
        assert f"node 1 at {cluster[1].peer} does not answer" in client.error("CLUSTER", "INIT")
    assert cluster[1].await_line("does not know the cluster's secret")


STRANGERS = 70  # more than a node bears at its port for peers


def test_strangers_do_not_keep_a_member_out(start):
    """They connect to the ports of peers, say nothing, and come again when they are closed."""
    cluster = start()
    away = cluster.followers()[0]
    away.kill9()
    leader = cluster.leader()
    until(lambda: leader.members()[away.number]["silent"] > 1000, "it is missed")
    stopped = threading.Event()
    ports = [int(node.peer.rsplit(":", 1)[1]) for node in cluster.running()]

    def knock(port):
        with contextlib.ExitStack() as stack:
            knocking = []
            while not stopped.wait(0.01):
                ended = [one for one in knocking if select.select([one], [], [], 0)[0]]
                knocking = [one for one in knocking if one not in ended]
                for one in ended:
                    one.close()
                for _ in range(min(STRANGERS - len(knocking), 10)):
                    with contextlib.suppress(OSError):
                        knocking.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 1)))
                full.append(port) if len(knocking) == STRANGERS else None

    full = []
    threads = [threading.Thread(target=knock, args=(port,), daemon=True) for port in ports]
    try:
        for thread in threads:
            thread.start()
        until(lambda: set(full) == set(ports), "they are all there")
        assert away.launch()
        until(lambda: 0 <= leader.members()[away.number]["silent"] < 500, "the leader hears it", PATIENCE / 4)
        cluster.settled()
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


# ---- backups -----------------------------------------------------------------------------------------------------


def test_backup_and_restore(start, tmp_path):
    """A copy of one node's directory, restored elsewhere as a cluster of its own: what was held is held, tokens are far above,
    and sequencers of before are refused."""
    cluster = start()
    holds = held(cluster)
    store = cluster.settled().info("Locks")["store_id"]
    source = cluster.followers()[0]
    assert source.stop() == 0
    shutil.copytree(source.data, tmp_path / "copy")
    later = held(cluster, 5)
    highest = max(token for _, token in later)
    elsewhere = start(1, founded=False)
    node = Node(source.number, elsewhere.directory)
    elsewhere.nodes = {source.number: node}
    before = content(tmp_path / "copy")
    status, said = run_refused("--id", node.number, "--cluster", node.line, "--listen", node.address, "--data",
                               tmp_path / "copy")
    assert status == 69 and unchanged(tmp_path / "copy", before), "not by mistake"
    restore(tmp_path / "copy", node)
    status, said = run_refused("--id", node.number, "--cluster", cluster.line, "--listen", node.address, "--data", node.data)
    assert status == 69 and "alone" in said, "not beside the others"
    assert node.launch()
    until(node.leads, "it serves")
    assert [member["peer"] for member in node.members().values()] == [node.peer]
    token = node.cmd("ACQUIRE", "x", "l")
    assert highest + 2**40 < token <= time.time_ns() // 1000 + 2**40 + 1
    with node.connect() as client:
        assert client.pipeline(*[["CHECK", *hold] for hold in holds]) == [1] * len(holds)
        assert client.pipeline(*[["CHECK", *hold] for hold in later]) == [0] * len(later)
        assert client.info("Locks")["store_id"] != store
        assert client.error("CHECK", f"hf1.{store}.x.{holds[0][1]}.{holds[0][0]}").startswith("STORE ")
    assert node.stop() == 0
    assert node.launch()
    until(node.leads, "it serves")
    assert any("was restored from a backup" in line for line in node.logged())
    assert node.cmd("ACQUIRE", "y", "l") == token + 1, "once"
    for number in (8, 9):
        add(elsewhere, number)
    elsewhere.settled()
    node.kill9()
    assert elsewhere.ask("CHECK", "x", token) == 1
    # The old cluster knows nothing of all that.
    assert source.launch()
    cluster.settled()
    assert cluster.ask("ACQUIRE", "x", "l") == highest + 1


@pytest.mark.parametrize("rolling", [True, False])
def test_a_restored_cluster_comes_back_with_the_numbers_of_before(start, tmp_path, rolling):
    """The copy has a snapshot, and in it who the members of the old cluster were. The new ones have their numbers."""
    old = start(3, "--snapshot-bytes", "64KiB")
    holds = held(old, 3)
    source = old.followers()[0]
    with old.session() as session:
        for _ in range(10):
            pour(session)
    old.settled()
    assert source.stop() == 0
    assert list(source.data.glob("snapshot-*"))
    shutil.copytree(source.data, tmp_path / "copy")
    new = start(1, "--snapshot-bytes", "64KiB", founded=False)
    restore(tmp_path / "copy", new[1])
    assert new[1].launch()
    until(new[1].leads, "it serves")
    for number in (2, 3):
        add(new, number)
    new.settled()
    holds += held(new, 3)
    if rolling:
        for node in new:
            assert node.stop() == 0
            assert node.launch()
            new.settled()
    else:
        for node in new:
            node.kill9()
        new[1].begin()
        new[2].begin()
        new.leader()
        new[3].begin()
        new.settled()
    with new.session() as session:
        assert all_there(session, holds)


def test_an_old_copy_at_the_same_address_is_not_heard(start, tmp_path):
    """A restored node, to which others were added; then its directory of before is started in its place. It believes in other
    members at the same addresses, and nobody hears it: not even who waits for somebody to lead."""
    old = start()
    held(old)
    for node in old:
        node.kill9()
    new = start(1, founded=False)
    first = Node(1, new.directory, peer=old[1].peer)
    new.nodes = {1: first}
    restore(old[1].data, first)
    assert first.launch()
    until(first.leads, "it serves")
    for number in (2, 3):
        add(new, number, peer=old[number].peer)
    new.settled()
    token = new.ask("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    cluster_id = first.status()["cluster"]
    first.kill9()
    new.leader()
    copy = old[1]
    assert copy.launch()
    for node in (new[2], new[3]):
        node.await_line("belongs to another cluster")
    copy.await_line("belongs to another cluster")
    deadline = time.monotonic() + 3  # some election timeouts
    while time.monotonic() < deadline:
        assert not copy.leads() and copy.status()["cluster"] != cluster_id
        with copy.connect() as client:
            assert client.error("ACQUIRE", "x", "m").startswith("TRYAGAIN ")
        assert new.ask("CHECK", "x", token) == 1
        time.sleep(0.05)
    said = [line for node in (new[2], new[3], copy) for line in node.logged() if "belongs to another cluster" in line]
    assert len(said) <= 6, "not again and again"
    assert copy.stop() == 0
    assert first.launch()
    new.settled()
    assert new.ask("CHECK", "x", token) == 1


# ---- disks -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs that can be made larger."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "holdfast-test", str(place)], capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def finish(session, key, lease, token, result):
    """A try whose answer was lost may have done it: the next one is too late then, and the record is ours."""
    try:
        session.ask("ONCE", "FINISH", key, lease, "TOKEN", token, "KEEP", TTL_MAX, result)
    except Refused as refusal:
        assert refusal.code == "STALE" and session.ask("ONCE", "READ", key)[:3] == ["DONE", token, result]


def fill(cluster, full):
    """Once-records until that node is full. Those that were acknowledged; what was unknown is asked again."""
    done = {}
    with cluster.session() as session:
        for index in range(600):
            key, lease, result = fresh("key"), fresh(), "r" * 60000
            _, token = session.ask("ONCE", "CLAIM", key, lease, "TTL", TTL_MAX)
            finish(session, key, lease, token, result)
            done[key] = token
            if full():
                return done
    raise AssertionError("the disk is not full")


def test_a_full_disk_when_a_node_is_added(start, small_disk):
    """It has no room to note that it belongs to the cluster: it stops, and says so, once. With more room it is a member."""
    cluster = start()
    cluster.settled()
    node = cluster.node(4, "--join")
    node.data = small_disk / "data"
    assert node.launch()
    with open(small_disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(b"x" * 4096)
    assert cluster.ask("CLUSTER", "ADD", 4, node.peer) == "OK"
    assert "No space left on device" in node.await_line("cannot go on")
    status = node.status()
    assert status["role"] == "stopped" and "No space left on device" in status["trouble"]
    assert sum("cannot become a member" in line for line in node.logged()) == 1
    assert node.stop() == 0
    subprocess.run(["mount", "-o", "remount,size=128m", str(small_disk)], check=True)
    assert node.launch()
    until(lambda: cluster.leader().members()[4]["votes"] == 1, "it has caught up, and votes")


@pytest.mark.parametrize("who", ["the leader", "a follower"])
def test_a_full_disk_of(start, small_disk, who):
    """It steps aside, the others go on; with more room it is a member again."""
    cluster = start(founded=False)
    node = cluster[1]
    node.data = small_disk / "data"
    cluster.begin()
    cluster.settled()
    if who == "the leader":
        cluster.lead_by(node)
    if who == "a follower" and node.leads():
        cluster.transfer()
    put_first(cluster)
    term = cluster.settled().status()["term"]
    holds = held(cluster)
    done = fill(cluster, lambda: node.status()["role"] == "stopped")
    assert len(done) > 20
    assert "No space left on device" in node.await_line("cannot go on")
    with node.connect() as client:
        text = client.error("ACQUIRE", "x", "l")
        assert text.startswith("STOPPED ") and "No space left on device" in text
    leader = cluster.leader()
    assert leader is not node
    if who == "a follower":
        assert leader.status()["term"] == term, "the leader did not have to go"
    with cluster.session() as session:
        assert all_there(session, holds)
        assert session.ask("ACQUIRE", "after", "l") > max(token for _, token in holds)
    assert node.stop() == 0
    subprocess.run(["mount", "-o", "remount,size=128m", str(small_disk)], check=True)
    assert node.launch()
    cluster.settled()
    has_all(cluster, node, holds)
    with node.connect() as client:
        for key, token in done.items():
            assert client.cmd("ONCE", "READ", key)[:2] == ["DONE", token]


class Crowd(threading.Thread):
    """Small commands, one after the other, as long as it may; what becomes of them is nobody's concern."""

    def __init__(self, node, over):
        super().__init__()
        self.node, self.over = node, over

    def run(self):
        with contextlib.suppress(OSError, Refused, AssertionError, EOFError), self.node.connect() as client:
            while not self.over.is_set():
                client.cmd("ACQUIRE", fresh("small"), fresh(), "TTL", 1000)


def test_nothing_is_written_behind_what_had_no_room(start, small_disk):
    """Others commit what the leader's own disk has no room for, and more behind it, which is small enough: its log has no gap."""
    cluster = start(founded=False)
    node = cluster[1]
    node.data = small_disk / "data"
    node.wrapper = ["env", f"LD_PRELOAD={SLOW_DISK}", "HF_SLOW_ROOM_MS=200"]
    cluster.begin()
    cluster.settled()
    cluster.lead_by(node)
    over = threading.Event()
    crowd = [Crowd(node, over) for _ in range(4)]
    for member in crowd:
        member.start()
    try:
        fill(cluster, lambda: node.status()["role"] == "stopped")
    finally:
        over.set()
        for member in crowd:
            member.join()
    assert node.stop() == 0
    subprocess.run(["mount", "-o", "remount,size=128m", str(small_disk)], check=True)
    node.wrapper = ()
    assert node.launch()
    cluster.settled()


def reads_an_old_snapshot(node):
    """A leader goes on with what it has begun to send, also to one that is away: for two seconds."""
    for fd in glob.glob(f"/proc/{node.pid}/fd/*"):
        with contextlib.suppress(FileNotFoundError):
            if "/snapshot-" in (path := os.readlink(fd)) and path.endswith(" (deleted)"):
                return True
    return False


def test_no_room_for_the_leaders_snapshot(start, small_disk):
    """It says so, stays behind, and catches up when there is room."""
    cluster = start(3, "--snapshot-bytes", "1MiB", founded=False)
    node = cluster[3]
    node.data = small_disk / "data"
    cluster.begin()
    cluster.settled()
    subprocess.run(["mount", "-o", "remount,size=14m", str(small_disk)], check=True)
    node.kill9()

    def is_large():
        with contextlib.suppress(FileNotFoundError):  # the next one is there, and this one has gone
            return any(path.stat().st_size > 14 * 2**20 for path in cluster.leader().data.glob("snapshot-*"))

    done = fill(cluster, is_large)
    with cluster.session() as session:  # more than a leader keeps in memory for those who are a little behind
        for _ in range(100):
            pour(session)
    until(lambda: not (cluster.leader().data / "log-1").exists(), "what it misses of the log is gone")
    until(lambda: not reads_an_old_snapshot(cluster.leader()), "no smaller one is sent")
    assert node.launch()
    line = node.await_line("the leader's snapshot cannot be stored, and nothing else is taken before")
    assert "No space left on device" in line
    subprocess.run(["mount", "-o", "remount,size=256m", str(small_disk)], check=True)
    cluster.settled()
    cluster.lead_by(node)
    with node.connect() as client:
        for key, token in done.items():
            assert client.cmd("ONCE", "READ", key)[:2] == ["DONE", token]


# ---- one after the other -----------------------------------------------------------------------------------------


class Holder(threading.Thread):
    """Renews a lock that it keeps, and takes and gives back others, until it is told to end."""

    def __init__(self, cluster):
        super().__init__()
        self.session, self.over = cluster.session(), threading.Event()
        self.name, self.lease, self.tokens, self.failure = fresh("kept"), fresh(), [], None

    def run(self):
        try:
            with self.session:
                token = self.session.ask("ACQUIRE", self.name, self.lease, "TTL", 10000)
                while not self.over.is_set():
                    mine = fresh()
                    got = self.session.ask("ACQUIRE", "common-" + mine, mine, "TTL", 10000)
                    assert not self.tokens or got > self.tokens[-1], "a token went back"
                    self.tokens.append(got)
                    assert self.session.ask("CHECK", "common-" + mine, got) == 1
                    assert self.session.ask("RELEASE", "common-" + mine, mine, "TOKEN", got) in (0, 1)
                    assert self.session.ask("CHECK", "common-" + mine, got) == 0
                    assert self.session.ask("RENEW", self.lease)[0] > 0, "a lease is lost"
                    assert self.session.ask("CHECK", self.name, token) == 1
        except BaseException as failure:  # in a thread: the test has to hear of it
            self.failure = failure


def test_all_nodes_restarted_one_after_the_other(start):
    cluster = start()
    holds = held(cluster, 50)
    holders = [Holder(cluster) for _ in range(4)]
    for holder in holders:
        holder.start()
    try:
        for turn in range(2):
            for node in cluster:
                so_far = [len(holder.tokens) for holder in holders]
                node.terminate()
                assert node.ended() == 0
                assert node.launch()
                cluster.settled()
                until(lambda: all(holder.failure or len(holder.tokens) > before
                                  for holder, before in zip(holders, so_far)), "all of them go on")
    finally:
        for holder in holders:
            holder.over.set()
        for holder in holders:
            holder.join(PATIENCE)
    for holder in holders:
        if holder.failure:
            raise holder.failure
    tokens = [token for holder in holders for token in holder.tokens]
    assert len(tokens) == len(set(tokens)), "a token was given twice"
    for node in cluster:
        has_all(cluster, node, holds)
