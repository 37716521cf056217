"""Limits of a user on what all nodes share: they outlive leaders, restarts, snapshots and catching up, and are in force as soon as all members can read
them. What a client is told of them is in tests/system/holdfastd/test_quotas.py."""
import os
import subprocess

import pytest
from nodes import PATIENCE, Cluster, Node, Process, Refused, Session, argv_of, die_with_parent, environment, until

LAST = os.environ.get("HF_SERVER_LAST", "build-check/src/server/holdfastd-last")
PASSWORD = "a password of this test"
TTL = 3600000
HOLDS, PLACES = 20, 5


def stored(password):
    """As crypt(5) has it, made in no time."""
    done = subprocess.run(["openssl", "passwd", "-5", "-salt", "rounds=1000$abcdefgh", "-stdin"], input=password, capture_output=True, text=True,
                          timeout=PATIENCE, check=True)
    return done.stdout.strip()


STORED = stored(PASSWORD)


class Changing(Node):
    """Of the last version of the formats, if it is `older`."""
    older = False

    def begin(self):
        if not self.older:
            return super().begin()
        self.log.append(f"---- started, the last version: {' '.join(map(str, self.words()))}")
        self.process = Process([LAST, *argv_of(*self.words())[1:]], environment(), preexec_fn=die_with_parent)


class Older(Changing):
    older = True


class UserSession(Session):
    """Of the user ci; whoever says only a password is `default`, who may do everything."""

    def _connect(self):
        fresh = not self.client
        super()._connect()
        if fresh:
            self.client.cmd("AUTH", "ci", PASSWORD)


def write(path):
    path.touch(0o600)
    path.write_text(f"user = default\npassword = {STORED}\nallow = acquire look break\nallow = floor admin\n\n"
                    f"user = ci\npassword = {STORED}\nallow = acquire\nholds = {HOLDS}\nplaces = {PLACES}\n")


def make(tmp_path, node_class):
    users = tmp_path / "users"
    write(users)

    class Made(Cluster):
        pass

    Made.node_class = node_class
    cluster = Made(3, "--users-file", users, "--snapshot-bytes", "64KiB", password=PASSWORD)
    cluster.session = lambda **kwargs: Session([(node.host, node.port) for node in cluster], password=PASSWORD, **kwargs)
    return cluster


@pytest.fixture
def cluster(tmp_path):
    made = make(tmp_path, Changing)
    yield made
    made.clean()


@pytest.fixture
def older(tmp_path):
    made = make(tmp_path, Older)
    yield made
    made.clean()


def user(cluster):
    return UserSession([(node.host, node.port) for node in cluster], protocol=3, password=PASSWORD)


def in_force(cluster):
    for node in cluster.running():
        until(lambda node=node: "version 2 of the formats is in use" in "".join(node.logged()), f"{node} knows it")


def full(session):
    """It has as much as it may, and not less."""
    with pytest.raises(Refused, match=f"^QUOTA user 'ci' has {HOLDS} holds and places in queues, and may have {HOLDS} "):
        session.ask("ACQUIRE", "one more", "one more", "TTL", TTL)


def snapshots(node):
    return {path.name for path in node.data.glob("snapshot-*") if path.name[len("snapshot-"):].isdigit()}


def write_a_snapshot(cluster, session):
    """All nodes have taken one since, of a table in which the user's leases are."""
    before = {node: snapshots(node) for node in cluster.running()}

    def another():
        for i in range(200):
            session.ask("ACQUIRE", "filling" * 20, "filler", "TTL", TTL)
            session.ask("RELEASE", "filling" * 20, "filler")
        return all(snapshots(node) - before[node] for node in before)

    until(another, "snapshots")


def test_what_a_user_has_is_counted_by_whoever_leads(cluster):
    """Through leaders that change and die, restarts, snapshots, and a node that has it all from a snapshot."""
    in_force(cluster)
    with user(cluster) as session, cluster.session() as other:
        other.ask("ACQUIRE", "busy", "other", "TTL", TTL)
        session.ask("ACQUIRE", "busy", "waits", "TTL", TTL, "WAIT", TTL, "PUSH")
        for i in range(HOLDS - 1):
            assert session.ask("ACQUIRE", f"name-{i}", f"lease-{i % 7}", "TTL", TTL) > 0
        full(session)
        cluster.transfer()
        full(session)
        write_a_snapshot(cluster, other)
        cluster.leader().kill9()
        full(session)
        for node in [node for node in cluster if not node.running()]:
            assert node.launch()
        cluster.settled()
        # One that was away while the log was cut has it from a snapshot, and leads.
        away = cluster.followers()[0]
        away.kill9()
        write_a_snapshot(cluster, other)
        assert away.launch()
        cluster.settled()
        cluster.lead_by(away)
        full(session)
        # All at once, after which there is nothing but what is on the disks.
        for node in cluster:
            node.kill9()
        for node in cluster:
            assert node.launch()
        cluster.settled()
        full(session)
        # What is given back is given back for all.
        session.ask("RELEASE", "name-3", "lease-3")
        cluster.transfer()
        assert session.ask("ACQUIRE", "one more", "one more", "TTL", TTL) > 0
        with pytest.raises(Refused, match="^QUOTA "):
            session.ask("ACQUIRE", "name-3", "lease-3", "TTL", TTL)
        other.ask("RELEASE", "busy", "other")
        session.ask("END", "waits")
        cluster.transfer()
        assert session.ask("ACQUIRE", "name-3", "lease-3", "TTL", TTL) > 0


def test_limits_are_in_force_when_the_last_node_is_new(older):
    """Until then nobody is counted, and the leader says so once; what was taken before is not lost, nor counted."""
    cluster = older
    with user(cluster) as session:
        for i in range(HOLDS + 3):
            assert session.ask("ACQUIRE", f"name-{i}", f"lease-{i}", "TTL", TTL) > 0
        for number in (1, 2, 3):
            assert sum("not in force yet" in line for node in cluster for line in node.logged()) <= number, "each leader says so once"
            node = cluster[number]
            assert "version 2 of the formats is in use" not in "".join(node.logged())
            assert session.ask("ACQUIRE", f"new-{number}", f"new-{number}", "TTL", TTL) > 0
            node.stop()
            node.older = False
            assert node.launch()
            cluster.settled()
        in_force(cluster)
        assert any("not in force yet" in line for node in cluster for line in node.logged())
        for i in range(HOLDS):
            assert session.ask("ACQUIRE", f"later-{i}", f"later-{i}", "TTL", TTL) > 0
        full(session)
        cluster.transfer()
        full(session)
        assert session.ask("ACQUIRE", "name-3", "lease-3", "TTL", TTL) > 0, "that it had before"
        # From now on the older one does not start, in words.
        node = cluster.followers()[0]
        node.stop()
        node.older = True
        node.begin()
        node.await_line("reads only up to version 1: run a newer holdfastd", " or ended")
        node.process.wait()
        node.older = False
        assert node.launch()
        cluster.settled()
        full(session)
