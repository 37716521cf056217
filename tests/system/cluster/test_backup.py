"""Backups that are taken while a cluster serves, and what a store is that was made of one: test_cluster_upkeep.py has what a quiet one
shows."""
import contextlib
import shutil
import subprocess
import threading

import pytest
from helpers import add, held, pour, restore
from load import Load
from nodes import PATIENCE, TTL_MAX, argv_of, environment, fresh, until

RAISED = 2**40  # so far are the tokens of a restored store above the clock, and above those of the copy
SHORT_MS = 2000
WRITES_UNDER_WAY = 4  # at most
COPIES = 6


def last_token(cluster):
    return int(cluster.leader().info("Locks")["last_token"])


def backup(node, to):
    """As docs/cluster.md has it: one node stops, is copied, and starts again. The others serve meanwhile."""
    assert node.stop() == 0
    shutil.copytree(node.data, to)
    assert node.launch()


def restored(start, copy, *args):
    """A cluster of three from that copy."""
    cluster = start(1, *args, founded=False)
    restore(copy, cluster[1])
    assert cluster[1].launch()
    until(cluster[1].leads, "it serves")
    for number in (2, 3):
        add(cluster, number)
    cluster.settled()
    return cluster


def test_a_backup_under_load_becomes_a_cluster(start, tmp_path, figures):
    """Nobody notices the backup. After the restore: what was held is held, also what was given back since; leases end when their time is
    over; whoever waited waits no more than that; and every token is above all that were ever given."""
    old = start(3, "--snapshot-bytes", "64KiB")
    with old.session() as session:
        kept = held(old, 5)
        given_back = fresh("given-back")
        returned = session.ask("ACQUIRE", given_back, "its lease", "TTL", TTL_MAX)
        short = fresh("short")
        passing = session.ask("ACQUIRE", short, "a lease that ends", "TTL", SHORT_MS)
    load = Load(old)
    with load:
        until(lambda: len(load.record.holds) > 50, "the load is one")
        source = old.followers()[0]
        with old.session() as session:
            while not list(source.data.glob("snapshot-*")):
                pour(session)
            passing = session.ask("ACQUIRE", short, "a lease that ends", "TTL", SHORT_MS) or passing
        backup(source, tmp_path / "copy")
        with old.session() as session:
            assert session.ask("RELEASE", given_back, "its lease") == 1
            after = held(old, 5)
        count = len(load.record.holds)
        until(lambda: len(load.record.holds) > count + 50, "the load goes on")
        old.settled()
    load.verdict()
    highest = last_token(old)
    assert highest >= max(token for _, token in after)

    new = restored(start, tmp_path / "copy", "--snapshot-bytes", "64KiB")
    with new.session() as session:
        for name, token in kept + [(given_back, returned)]:
            assert session.ask("CHECK", name, token) == 1
        for name, token in after:
            assert session.ask("CHECK", name, token) == 0
        # Its lease ran on, from where the copy had it, and whoever waits gets it then.
        token = session.ask("ACQUIRE", short, fresh(), "TTL", TTL_MAX, "WAIT", int(PATIENCE * 1000), answer_max=PATIENCE)
        assert token > highest + RAISED and session.ask("CHECK", short, passing) == 0
    again = Load(new, seed=2)
    with again:
        until(lambda: len(again.record.holds) > 50, "the restored cluster works")
        leader = new.leader()
        leader.kill9()
        count = len(again.record.holds)
        until(lambda: len(again.record.holds) > count + 50, "and goes on")
        assert leader.launch()
        new.settled()
    again.verdict()
    assert min(hold.token for hold in again.record.holds) > highest + RAISED
    with new.session() as session:
        assert all(session.ask("CHECK", name, token) == 1 for name, token in kept)
    figures(f"before: {load.figures()}; after: {again.figures()}")


@contextlib.contextmanager
def pouring(cluster):
    """Entries without end, so that files of the log come and go."""
    over, failures = threading.Event(), []

    def work():
        try:
            with cluster.session() as session:
                while not over.is_set():
                    pour(session)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)
    assert not failures, failures


def copy_as_it_comes(source, to, names):
    """File by file, in this order, while the server writes. What is gone by then is not in it."""
    to.mkdir()
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(source / name, to / name)


def until_on_disk(node):
    """What a node has applied, a majority has on its disks, and that may be the others: until its own has it, too. While it is under load."""
    writes = int(node.info("Disk")["log_writes"])
    until(lambda: int(node.info("Disk")["log_writes"]) >= writes + WRITES_UNDER_WAY, "its disk has it")


def try_restore(copy, node):
    done = subprocess.run(argv_of("--id", node.number, "--cluster", node.line, "--data", node.data, "--restore-from", copy),
                          env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (0, 69), done.stderr
    if done.returncode:
        assert done.stderr.startswith("holdfastd: not restored: ") and len(done.stderr.splitlines()) == 1
        assert not node.data.exists(), "nothing is left of it"
    return done.returncode == 0


@pytest.mark.parametrize("backwards", [False, True])
def test_a_copy_of_a_node_that_runs_is_whole_or_refused(start, tmp_path, figures, backwards):
    """The files are not of one moment, which docs/server.md warns of. Restored or refused: but never a store that has forgotten what was
    acknowledged before the copy was begun, or that gives a token again."""
    cluster, taken = start(3, "--snapshot-bytes", "256KiB"), 0
    with pouring(cluster):
        for turn in range(COPIES):
            source = cluster.followers()[0] if turn % 2 else cluster.leader()
            kept, copy = held(cluster, 3), tmp_path / f"copy-{turn}"
            # A follower may be behind what a majority has: what it has itself is looked at.
            has = int(source.info("Locks")["last_token"])
            kept = [(name, token) for name, token in kept if token <= has]
            until_on_disk(source)
            copy_as_it_comes(source.data, copy, sorted((path.name for path in source.data.iterdir()), reverse=backwards))
            highest = last_token(cluster)
            elsewhere = start(1, founded=False)
            node = elsewhere[1]
            if not try_restore(copy, node):
                continue
            taken += 1
            assert node.launch()
            until(node.leads, "it serves")
            with node.connect() as client:
                assert client.pipeline(*[["CHECK", *hold] for hold in kept]) == [1] * len(kept)
                assert client.cmd("ACQUIRE", fresh(), "l") > highest + RAISED
            node.kill9()
    figures(f"{taken} of {COPIES} copies restored, {COPIES - taken} refused")
