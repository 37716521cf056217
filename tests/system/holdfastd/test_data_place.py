"""Where the data directory may be: not in memory, unless that is meant."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import pytest
from conftest import PATIENCE, argv_of, environment

FORGETS = ("{} is on tmpfs, which forgets the locks and the fencing tokens at a reboot; use a directory on disk, or add --allow tmpfs to "
           "accept that")


@pytest.fixture
def memory():
    """A directory on tmpfs, that whoever runs the tests can write to."""
    mounts = pathlib.Path("/proc/mounts").read_text()
    if not re.search(r"^\S+ /dev/shm tmpfs ", mounts, re.M):
        pytest.skip("/dev/shm is no tmpfs")
    path = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-test-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


def run(*args):
    """As an operator starts it: the tests' own servers may be anywhere."""
    env = {name: value for name, value in environment().items() if name != "HOLDFASTD_ALLOW"}
    return subprocess.run(argv_of(*args), env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("below", ["", "new", "new/and/deeper"])
def test_memory_is_refused(memory, below):
    """Also if the directory is still to be made: and then nothing is."""
    data = memory / below
    done = run("--data", data, "--listen", "127.0.0.1:0")
    assert done.returncode == 69
    assert done.stderr.splitlines()[-1].split(" error ", 1)[1] == FORGETS.format(data)
    assert list(memory.iterdir()) == []


BUT = "holdfastd: the settings are right, but a start would fail now: "


def test_the_check_of_the_settings_tells_it(memory):
    """It makes nothing, and does not fail: the disk may not be mounted yet."""
    done = run("--check-config", "--data", memory / "data")
    assert (done.returncode, done.stderr) == (0, BUT + FORGETS.format(memory / "data") + "\n") and f"data = {memory}/data" in done.stdout
    assert list(memory.iterdir()) == []
    assert run("--check-config", "--data", memory / "data", "--allow", "tmpfs").stderr == ""


@pytest.mark.parametrize("end", ["", "/"])
def test_the_check_of_the_settings_tells_of_a_missing_parent(tmp_path, end):
    """Here a start would say the same, whatever file system it is on."""
    data = f"{tmp_path}/no/such{end}"
    done = run("--check-config", "--allow", "tmpfs", "--data", data)
    assert (done.returncode, done.stderr) == (0, f"{BUT}the directory that the data directory {data} would be in is not there: make it with "
                                                 "'mkdir -p'\n")
    assert run("--allow", "tmpfs", "--data", data, "--listen", "127.0.0.1:0").returncode == 69
    (tmp_path / "no").mkdir()
    assert run("--check-config", "--allow", "tmpfs", "--data", data).stderr == ""
    assert list((tmp_path / "no").iterdir()) == []


def test_the_check_of_the_settings_warns_of_a_short_password(tmp_path):
    """As a start does, in its log."""
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("short\n")
    done = run("--check-config", "--allow", "tmpfs", "--data", tmp_path / "data", "--password-file", file)
    assert (done.returncode, done.stderr) == (0, f"holdfastd: the password of clients ({file}) is short, and can be guessed: make one with "
                                                 "'openssl rand -hex 32'\n")


def test_memory_is_accepted_where_it_is_meant(start, memory):
    server = start("--allow", "tmpfs", data=memory / "data")
    token = server.cmd("ACQUIRE", "x", "l")
    server.restart()
    assert server.cmd("CHECK", "x", token) == 1


def test_a_backup_is_not_restored_into_memory(start, memory):
    server = start()
    assert server.stop() == 0
    done = run("--restore-from", server.data, "--data", memory / "data")
    assert (done.returncode, done.stdout, done.stderr) == (69, "", f"holdfastd: not restored: {FORGETS.format(memory / 'data')}\n")
    done = run("--restore-from", server.data, "--data", memory / "data", "--allow", "tmpfs")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_allowance_that_there_is_not(memory):
    done = run("--data", memory / "data", "--allow", "network")
    assert done.returncode == 64 and "--allow: 'network'" in done.stderr, done.stderr


# What becomes of the directory of a server that runs.


def removed(data):
    shutil.rmtree(data)


def moved(data):
    data.rename(data.with_name("elsewhere"))


def replaced(data):
    moved(data)
    shutil.copytree(data.with_name("elsewhere"), data)


def emptied(data):
    for path in data.iterdir():
        path.unlink()


@pytest.mark.parametrize("becomes", [removed, moved, replaced, emptied])
def test_a_directory_that_goes_while_the_server_runs(start, tmp_path, becomes):
    """What it would acknowledge from then on is not there after a start: it acknowledges nothing more, and says why."""
    server = start(data=tmp_path / "data")
    with server.connect() as client:
        assert client.cmd("ACQUIRE", "x", "l", "TTL", 600000) > 0
        becomes(server.data)
        line = server.await_line("cannot go on")
        assert f"the data directory {server.data}, or its file 'lock', was removed, moved, or replaced" in line
        assert client.error("ACQUIRE", "y", "l").startswith("STOPPED ")
        assert client.info("Raft")["role"] == "stopped"
    assert server.stop() == 0


def test_a_directory_behind_a_link(start, tmp_path):
    """It goes where the link leads: one that leads to the same directory by another way is none that was moved; one that leads to another is,
    though ours is still there."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "now").symlink_to("v1")
    server = start(data=tmp_path / "now" / "data")
    assert server.cmd("ACQUIRE", "x", "l", "TTL", 600000) > 0
    (tmp_path / "v1").rename(tmp_path / "v2")
    point(tmp_path / "now", "v2")
    with server.connect() as client:
        deadline = time.monotonic() + 3  # of looking each second
        while time.monotonic() < deadline:
            assert client.cmd("ACQUIRE", "y", "l2", "TTL", 600000) > 0
    shutil.copytree(tmp_path / "v2", tmp_path / "v3")
    point(tmp_path / "now", "v3")
    line = server.await_line("cannot go on")
    assert f"the data directory {tmp_path / 'now' / 'data'}, or its file 'lock', was removed, moved, or replaced" in line, \
        "it names the one that was looked for"


def point(link, to):
    new = link.with_name("new")
    new.symlink_to(to)
    new.rename(link)


def test_a_directory_that_was_moved_goes_on_where_it_is_put_back(start, tmp_path):
    server = start(data=tmp_path / "data")
    token = server.cmd("ACQUIRE", "x", "l", "TTL", 600000)
    moved(server.data)
    server.await_line("cannot go on")
    server.data.with_name("elsewhere").rename(server.data)
    with server.connect() as client:
        assert client.error("ACQUIRE", "y", "l").startswith("STOPPED "), "it does not go on by itself"
    server.restart()
    assert server.cmd("CHECK", "x", token) == 1
