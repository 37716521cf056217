"""What goes wrong with ZooKeeper is said in one clear line, and leaves nothing behind."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest
from conftest import Ensemble, children
from holder import hold, start_holder  # noqa: F401
from holdfast_cli import eventually
from kazoo.exceptions import KazooException
from kazoo.security import make_digest_acl
from relay import Relay

CONFIGURATION = ("maxSessionTimeout=40000",)  # ZooKeeper's default, of 20 ticks of 2 s


def refused(done, status, words):
    assert done.status == status, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and words in lines[0]


def test_the_default_ttl_fits_into_the_longest_session_of_the_defaults(ensemble, cli_on):
    cli = cli_on(ensemble.url("/ttl"))
    assert cli("run", "one", "--", "true").status == 0
    refused(cli("run", "--ttl", "60s", "one", "--", "true"), 64, "maxSessionTimeout")


def test_credentials_keep_others_out(ensemble, cli_on):
    ours, theirs, nobody = (cli_on(ensemble.url("/secret", access)) for access in ("me:pw@", "me:hunter2@", ""))
    assert ours("run", "one", "--", "true").status == 0
    refused(theirs("run", "one", "--", "true"), 77, "ACL")
    refused(nobody("run", "one", "--", "true"), 77, "no user and password were given")
    # None of them hangs, or shows a password.
    assert "hunter2" not in theirs("run", "one", "--", "true").stderr
    acls, _ = ensemble.kazoo(auth_data=[("digest", "me:pw")]).get_acls("/secret")
    assert acls == [make_digest_acl("me", "pw", all=True)]


def test_what_others_put_at_the_path_is_refused_in_words(ensemble, cli_on):
    kazoo = ensemble.kazoo()
    kazoo.ensure_path("/shape")
    kazoo.create("/shape/ephemeral", ephemeral=True)
    cli = cli_on(ensemble.url("/shape"))
    refused(cli("run", "ephemeral", "--", "true"), 77, "ephemeral")
    kazoo.ensure_path("/shape/parent/child")
    refused(cli("run", "parent", "--", "true"), 77, "/shape/parent/child")
    assert children(kazoo, "/shape/parent") == ["child"]


def test_nothing_stays_of_a_lock_but_its_container(ensemble, cli_on):
    kazoo = ensemble.kazoo()
    cli = cli_on(ensemble.url("/left"))
    holder = cli.hold("a/b %.. \u00e9")
    waiter = cli.start("run", "--wait", "100ms", "a/b %.. \u00e9", "--", "true")
    assert waiter.wait() == 75
    assert holder.end() == 0
    names = [name for name in children(kazoo, "/left") if name != "%id"]
    assert len(names) == 1
    assert children(kazoo, "/left/" + names[0]) == []
    # ZooKeeper deletes it a minute later, and may do so any time. Tokens go on.
    kazoo.delete("/left/" + names[0])
    again = cli.hold("a/b %.. \u00e9")
    assert again.token > holder.token
    assert again.end() == 0


def test_a_job_inherits_no_descriptors(ensemble, cli_on):
    """The library makes its own without close-on-exec."""
    cli = cli_on(ensemble.url("/descriptors"))
    done = cli("run", "one", "--", "ls", "-l", "/proc/self/fd")
    others = [line.rpartition(" -> ")[::2] for line in done.stdout.splitlines() if " -> " in line]
    assert [end for start, end in others if int(start.split()[-1]) > 2 and end.startswith(("socket:", "pipe:"))] == []


def test_a_job_ends_when_the_node_of_its_lock_is_gone(ensemble, cli_on):
    """Whoever deleted it: the job does not run on."""
    kazoo = ensemble.kazoo()
    cli = cli_on(ensemble.url("/lost"))
    holder = cli.hold("one", "--ttl", "30s")  # renewed after 10 s: before that only the watch on its node tells it
    (node,) = children(kazoo, "/lost/one")
    began = time.monotonic()
    kazoo.delete("/lost/one/" + node)
    assert holder.wait() == 76
    assert time.monotonic() - began < 8
    eventually(lambda: children(kazoo, "/lost/one") == [], "nothing left")


def test_no_majority_is_said_and_sat_out(ensemble, cli_on):
    cli = cli_on(ensemble.url("/majority"))
    assert cli("run", "one", "--", "true").status == 0
    for node in (0, 1):
        ensemble.say(f"kill {node}")
    done = cli("run", "--wait", "3s", "one", "--", "true")
    assert done.status == 69
    assert "have no majority" in done.stderr
    waiter = cli.start("run", "one", "--", "echo", "in")
    assert "have no majority" in waiter.line("err")
    for node in (0, 1):
        ensemble.say(f"start {node}")
    assert waiter.line() == "in"
    assert waiter.wait() == 0
    ensemble.say("whole")


# ---- a full disk


def four_letters(hosts, node, word):
    """What this server says to one of ZooKeeper's commands; "" if nobody answers."""
    host, port = hosts.split(",")[node].split(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=2) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    return ""


def data_of(hosts, node):
    (line,) = [line for line in four_letters(hosts, node, "conf").splitlines() if line.startswith("dataDir=")]
    return pathlib.Path(line.partition("=")[2]).parent


def mount_small(directory):
    failure = "only root mounts" if os.geteuid() != 0 else subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(directory)], capture_output=True, text=True).stderr
    if failure:
        pytest.skip(f"cannot mount: {failure}")


@pytest.fixture
def cramped(tmp_path, servers):
    """Three servers, and one of them, which and where its data is, on a small disk."""
    made = Ensemble()
    servers.stack.callback(made.stop)
    node = 2  # the highest id leads, where all have the same
    data = data_of(made.hosts, node)
    made.say(f"kill {node}")
    shutil.copytree(data, tmp_path / "data")
    mount_small(data)
    servers.stack.callback(subprocess.run, ["umount", "-l", str(data)], check=True)
    servers.stack.callback(made.say, f"kill {node}")
    shutil.copytree(tmp_path / "data", data, dirs_exist_ok=True)
    made.say(f"start {node}")
    made.say("whole")
    return made, node, data


def fill(data, kazoo, full):
    """Its disk, and then the log that it has room for already, until full() says that it is."""
    with contextlib.suppress(OSError), open(data / "filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    with contextlib.suppress(KazooException):
        kazoo.ensure_path("/filler")
    for _ in range(200):
        if full():
            return
        with contextlib.suppress(KazooException):
            kazoo.retry(kazoo.set, "/filler", os.urandom(20000))
    eventually(full, "it is full: a follower may be behind")


@pytest.mark.parametrize("role", ["follower", "leader"])
def test_a_full_disk_of_one_server_costs_no_hold(cramped, cli_on, hold, role):
    """It cannot write its log, and goes. The two others serve: who holds keeps it, and who comes is served."""
    made, node, data = cramped
    for _ in range(10):
        leader = int(made.say("leader"))
        if (leader == node) == (role == "leader"):
            break
        made.say(f"kill {leader}")
        eventually(lambda: int(made.say("leader")) not in (-1, leader), "another leads")
        made.say(f"start {leader}")
        made.say("whole")
    else:
        pytest.skip("it never becomes a " + role)
    url = made.url("/cramped")
    # Some of them talk to that server. It still votes, and may be elected once more: the others wait initLimit, 10 s, for it.
    holders = [hold(url, f"held{i}", "ttl=30000") for i in range(4)]
    fill(data, made.kazoo(), lambda: "imok" not in four_letters(made.hosts, node, "ruok"))
    cli = cli_on(url)
    for _ in range(3):
        assert cli("run", "one", "--", "true").status == 0
    for holder in holders:  # each has renewed since
        before = holder.left()
        eventually(lambda: not 0 < holder.left() <= before, "it renews, or has lost it", patience=40)
        assert holder.left() > 0
    assert [holder.release() for holder in holders] == ["HF_OK"] * 4
    (data / "filler").unlink()
    made.say(f"start {node}")
    made.say("whole")
    assert cli("run", "one", "--", "true").status == 0


def test_a_hold_that_was_broken_is_not_told_as_released(ensemble, cli_on, servers):
    """It was not heard of, and the answer to the first release was lost."""
    relay = Relay(int(ensemble.hosts.split(",")[0].rsplit(":", 1)[1]))
    servers.stack.callback(relay.stop)
    runner = cli_on(f"zookeeper://{relay.address}/lost").start("run", "--ttl", "20s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    relay.cut("down")
    breaker = cli_on(ensemble.url("/lost")).start("break", "x")
    kazoo = ensemble.kazoo()
    eventually(lambda: any(kazoo.get(f"/lost/x/{child}")[1].version > 0 for child in children(kazoo, "/lost/x")), "it is marked")
    before = relay.count().up_bytes
    runner.say("go")
    eventually(lambda: relay.count().up_bytes > before, "it is asked for")
    relay.reset()
    relay.heal()
    assert runner.wait() == 76, runner.rest("err")
    assert breaker.wait() == 0
