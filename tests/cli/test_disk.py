"""Directories that cannot be used, and disks that are full."""
import os
import subprocess

import pytest
from conftest import Cli


def as_nobody():
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def test_unsafe_directory_is_refused(directory):
    for mode in (0o777, 0o1777, 0o770):
        unsafe = directory / oct(mode)
        unsafe.mkdir()
        unsafe.chmod(mode)
        done = Cli(f"file:{unsafe}")("run", "x", "--", "echo", "ran")
        assert (done.status, done.stdout) == (77, ""), (oct(mode), done.stderr)
        assert str(unsafe) in done.stderr


def test_tmpfs_is_refused_unless_allowed():
    path = "/dev/shm/holdfast-cli-test"
    os.makedirs(path, mode=0o700, exist_ok=True)
    try:
        done = Cli(f"file:{path}")("run", "x", "true")
        assert done.status == 77 and "tmpfs" in done.stderr
        assert Cli(f"file:{path}?allow=tmpfs")("run", "x", "true").status == 0
    finally:
        subprocess.run(["rm", "-r", path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_directory_of_somebody_else(directory):
    for parent in [directory, *directory.parents]:
        if not os.stat(parent).st_mode & 0o001 and parent != directory:
            pytest.skip(f"{parent} lets nobody else in")
    directory.chmod(0o755)
    locked = directory / "locked"
    locked.mkdir(mode=0o500)
    cli = Cli(f"file:{locked}")
    done = cli("run", "x", "--", "echo", "ran", preexec_fn=as_nobody)
    assert (done.status, done.stdout) == (77, ""), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a read-only directory that binds")
def test_read_only_directory(directory):
    for parent in directory.parents:
        if not os.stat(parent).st_mode & 0o001:
            pytest.skip(f"{parent} lets nobody else in")
    directory.chmod(0o755)
    locked = directory / "locked"
    locked.mkdir()
    os.chown(locked, 65534, 65534)
    locked.chmod(0o500)
    done = Cli(f"file:{locked}")("run", "x", "--", "echo", "ran", preexec_fn=as_nobody)
    assert (done.status, done.stdout) == (77, ""), done.stderr


@pytest.fixture
def small_disk(directory):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    mount = directory / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", mount],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("cannot mount: " + done.stderr.strip())
    yield mount
    subprocess.run(["umount", mount], check=True)


def fill(path):
    with open(path / "fill", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def test_full_disk_grants_nothing(small_disk):
    fill(small_disk)
    cli = Cli(f"file:{small_disk}?allow=tmpfs")
    done = cli("run", "x", "--", "echo", "ran")
    assert (done.status, done.stdout) == (69, ""), done.stderr
    assert done.stderr.startswith("holdfast: ")
    (small_disk / "fill").unlink()
    assert cli("run", "x", "--", "echo", "ran").stdout == "ran\n", "and is well again with room"


def test_full_disk_after_the_first_use(small_disk):
    """Names that exist go on; a new one may need room, and then nothing is granted."""
    cli = Cli(f"file:{small_disk}?allow=tmpfs")
    first = cli("run", "x", "-c", "echo $HOLDFAST_TOKEN")
    assert first.status == 0
    fill(small_disk)
    done = cli("run", "fresh name", "-c", "echo $HOLDFAST_TOKEN")
    assert done.status in (0, 69), done.stderr
    if done.status == 0:
        assert int(done.stdout) > int(first.stdout)
