"""What was acknowledged is there after every kind of end: a clean stop, damage, a full disk. Of kill -9: test_kill.py."""
import hashlib
import os
import re
import subprocess
import time

import pytest
from conftest import (PATIENCE, SLOW_DISK, SOAK, TTL_MAX, Process, Refused, argv_of, boot_ms, die_with_parent, environment, eventually,
                      run_refused)
from holdfast_cli import Cli

AFTER_DISK = "; make room on its disk, or repair it, then restart this node: it does not recover by itself"
OWNER = "o" * 128  # so that there is more to write


# ---- clean ends --------------------------------------------------------------------------------------------------


def test_a_clean_restart_keeps_everything(start):
    server = start()
    with server.connect(3) as client:
        store = client.info("Locks")["store_id"]
        client.cmd("ACQUIRE", "x", "l1", "OWNER", "me", "TTL", 60000, "DELAY", 5)
        client.cmd("ACQUIRE", "x", "l2", "PUSH", "OWNER", "you")
        client.cmd("ACQUIRE", "s", "l1", "SHARED")
        client.cmd("ACQUIRE", "p", "l3", "PERMITS", 3)
        client.cmd("ACQUIRE", b"\xff\r\n", "l3")
        client.cmd("ONCE", "CLAIM", "k", "l4")
        client.cmd("ONCE", "CLAIM", "done", "l5")
        token = client.info("Locks")["last_token"]
        client.cmd("ONCE", "FINISH", "done", "l5", "TOKEN", token, "KEEP", 60000, b"\0result")
        client.cmd("END", "l6")
        client.cmd("ACQUIRE", "b", "l7", "TTL", 60000)
        client.cmd("BREAK", "b")
        floor = client.cmd("FLOOR", int(token) + 1000)
        everything(client)
        began = time.monotonic()
        before = everything(client)
    for end in (server.stop, server.kill9):
        end()
        ran_ms = 1000 * (time.monotonic() - began)
        time.sleep(1)  # nobody can see this pass
        began = time.monotonic()
        server.restart()
        with server.connect(3) as client:
            after = everything(client)
            ran_ms += 1000 * (time.monotonic() - began)
            assert after[0] == before[0]
            assert all(now >= then - ran_ms - 1 for now, then in zip(after[1], before[1])), "its clock stood still meanwhile"
            assert client.info("Locks")["store_id"] == store
            assert client.cmd("ONCE", "READ", "done")[:3] == ["DONE", int(token), "\0result"]
            assert client.cmd("ONCE", "READ", "k")[0] == "RUNNING"
            assert client.error("ACQUIRE", "x", "l6").startswith("ENDED ")
            began = time.monotonic()
            before = everything(client)
    assert server.cmd("ACQUIRE", "new", "new") == floor + 1 == int(token) + 1001


def everything(client):
    """All that LOCKS and SHOW tell, and apart from it how much time is left."""
    _, rows = client.cmd("LOCKS", "COUNT", 1000)
    rows = sorted((client.show(row["name"]) for row in rows), key=lambda row: row["name"])
    left = []
    for row in rows:
        for claim in row["holders"] + row["waiters"]:
            left.append(claim.pop("left_ms"))
            claim.pop("age_ms")
    return rows, left


def test_the_clock_stands_still_while_it_is_down(start):
    server = start()
    server.cmd("ACQUIRE", "x", "l", "TTL", 1000)
    before = boot_ms()
    server.kill9()
    while boot_ms() - before < 1200:
        time.sleep(0.05)
    server.restart()
    assert server.show("x")["holds"] == 1, "late, never early"
    eventually(lambda: server.show("x")["holds"] == 0, "and then it ends")


def test_a_server_that_was_stopped_for_a_while(start):
    """SIGSTOP, as a machine without CPU time would have it. What is renewed in time stays, what is not ends."""
    server = start()
    with server.connect(3) as client:
        client.cmd("ACQUIRE", "x", "l1", "TTL", 1000)
        client.cmd("ACQUIRE", "x", "l2", "PUSH", "TTL", 60000)
        server.pause()
        renewed = boot_ms()
        client.send("RENEW", "l1", "TTL", 1500)
        time.sleep(0.3)
        server.resume()
        assert client.read() == [1500]
        assert client.push()[:3] == ("granted", "x", "l2")
        assert boot_ms() - renewed >= 1500


def test_sigint_is_a_clean_end_too(start):
    server = start()
    server.cmd("ACQUIRE", "x", "l")
    server.process.kill(2)
    assert server.process.wait() == 0
    server.restart()
    assert server.show("x")["holds"] == 1


# ---- what cannot be ----------------------------------------------------------------------------------------------


def test_the_parents_of_the_data_directory(tmp_path):
    """Of the default place they are made, of another they are asked for."""
    argv = [argv_of()[0], "--config", "/dev/null", "--listen", "127.0.0.1:0"]
    done = subprocess.run([*argv, "--data", tmp_path / "no" / "data"], env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 69 and "make it with 'mkdir -p'" in done.stderr and not (tmp_path / "no").exists()
    process = Process(argv, {**environment(), "STATE_DIRECTORY": str(tmp_path / "a" / "b")})
    try:
        while " serving " not in process.line("err"):
            pass
        assert (tmp_path / "a" / "b" / "log-1").exists()
    finally:
        process.kill(15)
        process.wait()


def test_two_on_one_directory(start):
    server = start()
    token = server.cmd("ACQUIRE", "x", "l")
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69
    assert f"{server.data} is in use by process {server.pid}" in line
    assert server.cmd("CHECK", "x", token) == 1
    server.restart()
    assert server.cmd("CHECK", "x", token) == 1


BLOCK = 4096  # of the log: no two appends have one in common


def filled(server, count=100):
    """A log with something in it."""
    with server.connect() as client:
        for index in range(count):
            client.cmd("ACQUIRE", f"n-{index}", f"l-{index}", "TTL", TTL_MAX)
    assert server.stop() == 0


def content(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir() if path.name != "lock"}


@pytest.mark.parametrize("what", ["a byte of an entry", "a byte of the last one", "its beginning", "cut short", "removed"])
def test_a_damaged_segment(start, what):
    """It is refused in words, nothing is made worse, and with the segment put right all is there."""
    server = start()
    filled(server)
    if what != "a byte of the last one":
        server.restart()
        assert server.stop() == 0
    segment = server.data / "log-1"
    whole = segment.read_bytes()
    if what.startswith("a byte"):
        at = 50 * BLOCK + 20
        segment.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
    elif what == "its beginning":
        segment.write_bytes(bytes(64) + whole[64:])
    elif what == "cut short":
        segment.write_bytes(whole[:50 * BLOCK])
    else:
        segment.unlink()
    before = content(server.data)
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69 and " error " in line
    assert ("missing" if what in ("removed", "cut short") else segment.name) in line, "it says where"
    assert content(server.data) == before, "it is left as it is"
    segment.write_bytes(whole)
    server.restart()
    assert server.count("holds") == 100


@pytest.mark.parametrize("what", ["content", "description"])
def test_a_damaged_snapshot(start, what):
    server = start("--snapshot-bytes", "64KiB")
    with server.connect() as client:
        index = 0
        while not list(server.data.glob("snapshot-[0-9]*")):
            client.pipeline(*[["ACQUIRE", f"n-{index + i}", "l", "OWNER", OWNER, "TTL", TTL_MAX] for i in range(100)])
            index += 100
    assert server.stop() == 0
    (damaged,) = server.data.glob("snapshot-*")
    whole = damaged.read_bytes()
    at = 16 if what == "description" else len(whole) // 2
    damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    before = content(server.data)
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69 and " error " in line and "snapshot" in line
    assert content(server.data) == before, "it is left as it is"
    damaged.write_bytes(whole)
    server.restart()
    assert server.count("holds") == index


def test_a_slow_disk_is_told_of(start):
    """Once, for each that was slower than all before; and INFO knows it."""
    server = start(wrapper=["env", f"LD_PRELOAD={SLOW_DISK}", "HF_SLOW_AT=20", "HF_SLOW_MS=600"])
    with server.connect() as client:
        for index in range(30):
            client.cmd("ACQUIRE", f"n-{index}", "l", "TTL", TTL_MAX)
        assert int(re.search(r"ms=(\d+)", server.await_line("the disk was slow"))[1]) >= 600
        info = client.info()
        assert int(info["log_write_usec_max"]) >= 600000 > int(info["log_write_usec_mean"])
        assert int(info["log_writes"]) >= 30 and int(info["log_bytes_written"]) >= 30 * BLOCK


def test_a_system_without_durable_writes(start):
    """pwritev2 with RWF_DSYNC is refused: it writes and syncs instead, says so once, and loses nothing."""
    server = start(wrapper=["env", f"LD_PRELOAD={SLOW_DISK}", "HF_NO_DSYNC=1"])
    with server.connect() as client:
        tokens = [client.cmd("ACQUIRE", f"n-{index}", "l", "TTL", TTL_MAX) for index in range(20)]
    server.kill9()
    assert [" warning " in line for line in server.logged() if "fdatasync" in line] == [True]
    server.restart()
    with server.connect() as client:
        assert client.pipeline(*[["CHECK", f"n-{index}", token] for index, token in enumerate(tokens)]) == [1] * 20


@pytest.mark.parametrize("what", ["a file", "not ours", "missing parent"])
def test_a_data_directory_that_cannot_be_used(tmp_path, what):
    path = tmp_path / "data"
    if what == "a file":
        path.write_text("mine")
    elif what == "not ours":
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        path.mkdir(mode=0o500)
    else:
        path = tmp_path / "no" / "data"
    status, line = run_refused("--data", path, "--listen", "127.0.0.1:0")
    assert status == 69 and str(path) in line


# ---- a full disk -------------------------------------------------------------------------------------------------


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


def fill_disk(client):
    """Once-records until the server refuses one. Those that were acknowledged, and the refusal."""
    done, result = {}, "r" * 60000
    for index in range(1000):
        key, lease = f"k-{index}", f"l-{index}"
        try:
            _, token = client.cmd("ONCE", "CLAIM", key, lease, "TTL", TTL_MAX)
            done[key] = ["RUNNING"]
            client.cmd("ONCE", "FINISH", key, lease, "TOKEN", token, "KEEP", TTL_MAX, result)
            done[key] = ["DONE", token, result]
        except Refused as refusal:
            doubt = key if refusal.code == "UNKNOWN" else None
            return done, doubt, refusal
    raise AssertionError("the disk is not full")


def says_what_to_do(server):
    """To whoever looks at the node, and to clients: who waits for the node says what would end that."""
    cli = Cli(f"holdfast://127.0.0.1:{server.port}")
    waiters = [cli.start(word, "y", "--", "true") for word in ("run", "once")]
    for words in (("--health",), ()):
        done = cli("cluster", "status", *words)
        assert done.status != 0 and AFTER_DISK in done.stdout + done.stderr, done
    for waiter in waiters:
        line = waiter.line("err")
        assert line.startswith("holdfast: waiting for 'y': ") and line.endswith(f"{AFTER_DISK}; still trying"), line
    cli.clean()


def test_a_full_disk(start, small_disk):
    server = start(data=small_disk / "data")
    with server.connect() as client, server.connect() as other:
        token = other.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
        other.send("ACQUIRE", "x", "waits", "WAIT", 600000)
        done, doubt, refusal = fill_disk(client)
        assert refusal.code in ("UNKNOWN", "STOPPED")
        text = client.error("ACQUIRE", "y", "l")
        assert text.startswith("STOPPED ") and "No space left on device" in text
        assert client.error("SHOW", "x") == text and client.error("RELEASE", "x", "l") == text
        with pytest.raises(Refused, match="^STOPPED "):
            other.read()
        assert client.cmd("PING") == "PONG" and "No space left" in client.info("Server")["stopped"]
        assert client.info("Raft")["role"] == "stopped"
        line = server.await_line("cannot go on")
        assert "No space left on device" in line and AFTER_DISK in line and text.endswith(AFTER_DISK)
    says_what_to_do(server)
    assert server.stop() == 0
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    server.restart()
    with server.connect() as client:
        assert client.cmd("CHECK", "x", token) == 1
        assert len(done) > 20
        for key, expected in done.items():
            answer = client.cmd("ONCE", "READ", key)
            assert answer[:len(expected)] == expected or key == doubt, "an acknowledgement is gone"
        assert client.cmd("ACQUIRE", "y", "l2") > 0


@pytest.mark.skipif(not SOAK, reason="a disk that takes nothing is given five seconds")
def test_no_room_to_begin(start, small_disk):
    """It says so, and starts when there is room."""
    (small_disk / "ballast").write_bytes(b"x" * (19 << 20))
    process = Process(argv_of("--data", small_disk / "data", "--listen", "127.0.0.1:0"), environment(),
                      preexec_fn=die_with_parent)
    while "cannot go on" not in (line := process.line("err")):
        assert " serving " not in line
    assert "No space left on device" in line
    process.kill(15)
    assert process.wait() == 0
    (small_disk / "ballast").unlink()
    server = start(data=small_disk / "data")
    first = server.last_token()
    assert first > 10**15 - 1, "it is new, and begins at the wall clock"
    assert server.cmd("ACQUIRE", "x", "l") == first + 1
