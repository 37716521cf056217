"""`holdfast cluster backup` of a cluster that serves: under load, while leaders come and go, and from one who leads no more. What is in the file is what every
restore must bring back: all that was acknowledged before the command began. Of one server alone: tests/system/holdfastd/test_backup.py."""
import contextlib
import pathlib
import subprocess
import sys
import threading
import time

import pytest
from helpers import all_there, held, pour, restore
from load import Load
from nodes import PATIENCE, TTL_MAX, Ended, Refused, boot_ms, fresh, until

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from holdfast_cli import Cli  # noqa: E402

RAISED = 2**40
ROUNDS = 4
LARGE = "r" * 60000


@pytest.fixture
def cli_of():
    made = []

    def make(cluster):
        made.append(Cli("holdfast://" + ",".join(node.address for node in cluster)))
        return made[-1]

    yield make
    for cli in made:
        cli.clean()


def backup(cli, file):
    done = cli("cluster", "backup", str(file), "--wait", "60s")
    assert (done.status, done.stderr) == (0, ""), done
    assert file.read_bytes().startswith(b"HFback1\n")


@contextlib.contextmanager
def restored(start, file):
    """A client of the one node of the store that is made of this file."""
    node = start(1, founded=False)[1]
    restore(file, node)
    assert node.launch()
    until(node.leads, "it serves")
    with node.connect(3) as client:
        yield client
    node.kill9()


def some_of_everything(cluster):
    """What has to be in a backup that is begun now: as commands, and what is answered to them."""
    with cluster.session() as session:
        name, lease, key, running = fresh("name"), fresh(), fresh("key"), fresh("key")
        token = session.ask("ACQUIRE", name, lease, "TTL", TTL_MAX)
        _, at = session.ask("ONCE", "CLAIM", key, lease, "TTL", TTL_MAX)
        session.ask("ONCE", "FINISH", key, lease, "TOKEN", at, "KEEP", TTL_MAX, "its result")
        session.ask("ONCE", "CLAIM", running, lease, "TTL", TTL_MAX)
        gone = session.ask("ACQUIRE", fresh("gone"), "its lease", "TTL", TTL_MAX)
    with cluster.session(protocol=3) as session:
        waits = fresh()
        assert session.ask("ACQUIRE", name, waits, "PUSH", "TTL", TTL_MAX) == "QUEUED"
        floor = int(cluster.leader().info("Locks")["last_token"]) + 1000
        session.ask("FLOOR", floor)
        return {"name": name, "lease": lease, "token": token, "key": key, "running": running, "waits": waits, "floor": floor, "gone": gone,
                "place": session}


def is_there(client, kept, highest):
    assert client.cmd("CHECK", kept["name"], kept["token"]) == 1
    assert "its result" in client.cmd("ONCE", "READ", kept["key"])
    assert client.cmd("ONCE", "READ", kept["running"])[0] == "RUNNING"
    assert len(client.cmd("SHOW", kept["name"])["waiters"]) == 1 and client.cmd("RENEW", kept["waits"])[0] > 0
    assert client.cmd("RELEASE", kept["name"], kept["lease"]) == 1
    token = client.cmd("ACQUIRE", kept["name"], kept["waits"], "TTL", TTL_MAX)
    assert token > highest + RAISED and token > kept["floor"]


def test_under_load_all_that_was_acknowledged_is_in_it(start, tmp_path, cli_of, figures):
    cluster = start(3, "--snapshot-bytes", "64KiB")
    cli, load = cli_of(cluster), Load(cluster)
    with load:
        until(lambda: len(load.record.holds) > 100, "the load is one")
        for turn in range(ROUNDS):
            kept, holds, began = some_of_everything(cluster), held(cluster, 5), boot_ms()
            acknowledged = [hold for hold in list(load.record.holds) if hold.ttl == TTL_MAX]
            backup(cli, tmp_path / "it")
            ended = boot_ms()
            with cluster.session() as session:
                assert all_there(session, holds)
                later = held(cluster, 1)
        count = len(load.record.holds)
        until(lambda: len(load.record.holds) > count + 20, "the load goes on")
    load.verdict()
    still = [hold for hold in acknowledged if hold.got < began and (hold.released is None or hold.released > ended)]
    highest = int(cluster.leader().info("Locks")["last_token"])
    with restored(start, tmp_path / "it") as client:
        assert all(client.cmd("CHECK", name, token) == 1 for name, token in holds)
        assert all(client.cmd("CHECK", name, token) == 0 for name, token in later)
        alive = client.pipeline(*[["RENEW", hold.lease] for hold in still])
        assert all(left[0] > 0 for left in alive), "an acknowledged hold is not in it"
        is_there(client, kept, highest)
    figures(f"{load.figures()}; {len(still)} of its holds looked for in the last backup")


@pytest.mark.parametrize("how", ["transfer", "kill9", "pause"])
def test_leaders_that_come_and_go(start, tmp_path, cli_of, how):
    """The command begins anew, as often as it must: a file that is there is whole, and has what was acknowledged before."""
    cluster = start(3)
    cli = cli_of(cluster)
    with cluster.session() as session:
        for _ in range(20):  # some pieces
            key, lease = fresh("key"), fresh()
            _, token = session.ask("ONCE", "CLAIM", key, lease, "TTL", TTL_MAX)
            with contextlib.suppress(Refused):
                session.ask("ONCE", "FINISH", key, lease, "TOKEN", token, "KEEP", TTL_MAX, LARGE)
    for turn in range(ROUNDS):
        file, holds, leader = tmp_path / f"it-{turn}", held(cluster, 3), cluster.leader()
        process = cli.start("cluster", "backup", str(file), "--wait", "60s")
        time.sleep(turn * 0.02)  # a different moment in each turn: no answer depends on it
        if how == "transfer":
            with contextlib.suppress(AssertionError, Refused):
                cluster.ask("CLUSTER", "TRANSFER")
        elif how == "kill9":
            leader.kill9()
        else:
            leader.pause()
        assert process.wait(4 * PATIENCE) == 0, process.rest("err")
        if how == "kill9":
            assert leader.launch()
        elif how == "pause":
            leader.resume()
        cluster.settled()
        assert sorted(path.name for path in tmp_path.iterdir()) == [f"it-{number}" for number in range(turn + 1)]
        with restored(start, file) as client:
            assert all(client.cmd("CHECK", name, token) == 1 for name, token in holds)


def test_another_leader_knows_nothing_of_it(start):
    """Pieces of two leaders are never one backup."""
    cluster = start(3)
    before = cluster.leader()
    with before.connect(3) as client:
        held(cluster, 3)
        token = client.cmd("CLUSTER", "BACKUP")
        piece = until(lambda: client.cmd("CLUSTER", "PIECE", token, 0), "its first piece")
        assert piece["size"] > 0 and piece["cluster"]
    after = cluster.transfer()
    for node in (before, after):
        with node.connect(3) as client:
            assert client.error("CLUSTER", "PIECE", token, 0).startswith("NOBACKUP there is no such backup here")
    with before.connect(3) as client:
        assert client.error("CLUSTER", "BACKUP") == f"MOVED 0 {after.address}"
    cluster.transfer(before)
    with before.connect(3) as client:
        assert client.error("CLUSTER", "PIECE", token, 0).startswith("NOBACKUP "), "also when it leads again"


def test_who_has_lost_its_majority_gives_none(start, tmp_path, cli_of):
    """It does not know yet that it leads no more: what another leader has acknowledged meanwhile would be missing."""
    cluster = start(3)
    held(cluster, 3)
    leader = cluster.leader()
    others = cluster.followers()
    with leader.connect(3, 2) as client:
        for node in others:
            node.pause()
        with pytest.raises((OSError, Ended, Refused)) as failure:
            client.cmd("CLUSTER", "BACKUP")
        if isinstance(failure.value, Refused):
            assert failure.value.code in ("TRYAGAIN", "UNKNOWN", "MOVED")
    done = cli_of(cluster)("cluster", "backup", str(tmp_path / "it"), "--wait", "1s")
    assert done.status == 69 and len(done.stderr.splitlines()) == 1, done
    assert not list(tmp_path.iterdir())
    for node in others:
        node.resume()
    cluster.settled()
    backup(cli_of(cluster), tmp_path / "it")


def test_snapshots_of_the_cluster_come_and_go_beside_it(start, tmp_path, cli_of):
    """The file of a snapshot is removed by the next one while a backup is read from it, and while it is opened."""
    cluster, over, failures = start(3, "--snapshot-bytes", "64KiB"), threading.Event(), []

    def work():
        try:
            with cluster.session() as session:
                while not over.is_set():
                    pour(session)
        except BaseException as failure:
            failures.append(failure)

    thread, cli = threading.Thread(target=work), cli_of(cluster)
    thread.start()
    try:
        for turn in range(3 * ROUNDS):
            holds = held(cluster, 3)
            backup(cli, tmp_path / "it")
    finally:
        over.set()
        thread.join(PATIENCE)
    assert not failures, failures
    with restored(start, tmp_path / "it") as client:
        assert all(client.cmd("CHECK", name, token) == 1 for name, token in holds)


def test_what_is_restored_becomes_a_cluster(start, tmp_path, cli_of):
    """A backup of that one is restored, too; an old one is not mixed up with it."""
    cluster = start(3)
    holds = held(cluster, 3)
    backup(cli_of(cluster), tmp_path / "first")
    highest = int(cluster.leader().info("Locks")["last_token"])
    second = start(1, founded=False)
    said = restore(tmp_path / "first", second[1])
    assert "as the only member" in said, said
    assert second[1].launch()
    until(second[1].leads, "it serves")
    assert second[1].status()["cluster"] != cluster.leader().status()["cluster"]
    backup(cli_of(second), tmp_path / "second")
    again = int(second[1].info("Locks")["last_token"])
    assert again > highest
    with restored(start, tmp_path / "second") as client:
        assert all(client.cmd("CHECK", name, token) == 1 for name, token in holds)
        assert client.cmd("ACQUIRE", "new", "n") > again
    done = subprocess.run(["cmp", tmp_path / "first", tmp_path / "second"], capture_output=True, check=False)
    assert done.returncode == 1
