"""Directories that cannot be used, and disks that are full."""
import contextlib
import os
import resource
import shutil
import signal
import subprocess

import pytest
from conftest import Cli
from holdfast_cli import PATIENCE, eventually


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


SHARE = ("; a store for several users is made for their group before its first use (mkdir -m 2770 DIR && chgrp GROUP DIR), and all of them "
         "add ?allow=writable to file:DIR")


def let_others_in(directory):
    for parent in directory.parents:
        if not os.stat(parent).st_mode & 0o001:
            pytest.skip(f"{parent} lets nobody else in")
    directory.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_what_is_closed_is_named(directory):
    """And how a store is shared. Each time one more thing is opened."""
    let_others_in(directory)
    store = directory / "store"
    assert Cli(f"file:{store}")("run", "x", "true").status == 0
    other = Cli(f"file:{store}?allow=writable")
    for closed, doing in ((store, "open the store"), (store / "locks", "open the directory of locks"),
                          (store / "holdfast-state", "open the token file")):
        done = other("run", "y", "true", preexec_fn=as_nobody)
        assert (done.status, done.stderr) == (77, f"holdfast: cannot {doing}: you may not write to {closed}{SHARE}\n")
        closed.chmod(0o777)
    assert other("run", "y", "true", preexec_fn=as_nobody).status == 0
    done = other("run", "x", "true", preexec_fn=as_nobody)
    assert done.status == 77 and f"you may not write to {store}/locks{SHARE}" in done.stderr, "root's lock file"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("first", [0, 4001, 4002])
def test_a_store_for_a_group(directory, first):
    """As the error above has it: whoever comes first, though the group is nobody's own."""
    def become(user):
        os.setgroups([4000])
        if user != 0:
            os.setgid(user)
            os.setuid(user)

    let_others_in(directory)
    store = directory / "store"
    store.mkdir()
    os.chown(store, 0, 4000)
    store.chmod(0o2770)
    cli = Cli(f"file:{store}?allow=writable")
    for user in (first, 4001, 0, 4002, 4001):
        for words in (("run", "x"), ("run", "--shared", "y"), ("once", f"by-{user}"), ("once", "k")):
            done = cli(*words, "--", "true", preexec_fn=lambda user=user: become(user))
            assert done.status == 0, (user, words, done.stderr)


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


def quietly(*words):
    """What keeps this machine from doing it, in words; or None."""
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError as error:
        return str(error)
    return done.stderr.strip() or "failed" if done.returncode != 0 else None


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(directory, request):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    mount = directory / "small"
    mount.mkdir()
    if request.param == "tmpfs":
        failure = quietly("mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", mount)
    else:
        with open(directory / "image", "wb") as image:
            image.truncate(8 << 20)
        failure = quietly("mkfs.ext4", "-q", "-F", directory / "image") or \
            quietly("mount", "-o", "loop", directory / "image", mount)
    if failure:
        pytest.skip("cannot mount: " + failure)
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def fill(path):
    """To the last byte."""
    size = 65536
    with open(path / ".fill", "wb", buffering=0) as file:
        while size > 0:
            try:
                file.write(b"x" * size)
                os.fsync(file.fileno())
            except OSError:
                size //= 2


def test_full_disk_grants_nothing(small_disk):
    fill(small_disk)
    cli = Cli(f"file:{small_disk}?allow=tmpfs")
    done = cli("run", "x", "--", "echo", "ran")
    assert (done.status, done.stdout) == (69, ""), done.stderr
    assert done.stderr.startswith("holdfast: ")
    (small_disk / ".fill").unlink()
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


def test_full_disk_while_somebody_holds(small_disk):
    """What is held is let go of, and given to whoever waits; what needs room says so, and leaves nothing behind."""
    cli = Cli(f"file:{small_disk}?allow=tmpfs")
    holder = cli.hold("x")
    waiter = cli.start("run", "-w", "20s", "x", "-c", "echo in $HOLDFAST_TOKEN")
    eventually(lambda: len(cli.show("x")["waiters"]) == 1, "somebody waits")
    fill(small_disk)
    for words in (("run", "fresh", "true"), ("once", "key", "true"), ("break", "x")):
        done = cli(*words)
        assert done.status == 69 and "is full" in done.stderr, (words, done.status, done.stderr)
    assert holder.end() == 0
    assert int(waiter.line().split()[1]) > holder.token
    assert waiter.wait() == 0
    (small_disk / ".fill").unlink()
    assert cli("run", "fresh", "true").status == 0
    assert cli("once", "key", "echo", "done").stdout == "done\n"


def test_read_only_disk(small_disk):
    """Those who only look are answered, also of what was done once; nobody is granted anything."""
    cli = Cli(f"file:{small_disk}?allow=tmpfs")
    assert cli("run", "x", "true").status == 0
    assert cli("once", "key", "echo", "done").status == 0
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert cli("ls", "--all").stdout.count("x") >= 1
    assert cli("show", "x").status == 0
    assert cli("check", "x", "1").status == 1
    assert cli("once", "key", "echo", "again").stdout == "done\n"
    for words in (("run", "x", "true"), ("run", "fresh", "true"), ("once", "fresh", "true"), ("floor", "99")):
        done = cli(*words)
        assert done.status == 77 and "read-only" in done.stderr, (words, done.status, done.stderr)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert cli("run", "x", "true").status == 0


# ---- what does not belong there -----------------------------------------------------------------------------------------------

def strange_things(folder, names):
    """One of each kind that is no regular file, under those names."""
    os.mkfifo(folder / names[0])
    (folder / names[1]).mkdir()
    (folder / names[2]).symlink_to("/dev/zero")
    return names


def test_a_fifo_among_the_locks_hangs_nobody(directory):
    """Whoever opens a FIFO waits for its other end: for ever, and with the mutex that every fork needs."""
    cli = Cli(f"file:{directory}")
    holder = cli.hold("held")
    strange_things(directory / "locks", ("fifo", "folder", "link"))
    listed = cli("ls", timeout=PATIENCE)
    assert (listed.status, "held" in listed.stdout) == (0, True), listed.stderr
    assert cli("ls", "--all", timeout=PATIENCE).status == 0
    for name in ("fifo", "folder", "link"):
        for words in (("show", name), ("run", name, "true"), ("break", name), ("check", name, "1")):
            done = cli(*words, timeout=PATIENCE)
            assert done.status in (69, 77) and "not a regular file" in done.stderr, (words, done.status, done.stderr)
    assert holder.end() == 0


def test_a_fifo_among_the_keys_hangs_nobody(directory):
    cli = Cli(f"file:{directory}")
    assert cli("once", "key", "true").status == 0
    keys = directory / "once"
    strange_things(keys, ("fifo", "folder", "link"))
    (keys / ".sweep").unlink(missing_ok=True)
    os.mkfifo(keys / ".sweep")
    for name in ("fifo", "folder", "link"):
        done = cli("once", name, "true", timeout=PATIENCE)
        assert done.status in (69, 77) and "not a regular file" in done.stderr, (name, done.status, done.stderr)
    assert cli("once", "another key", "true", timeout=PATIENCE).status == 0, "which sweeps"
    (keys / "broken").symlink_to("nowhere")
    record = next(path for path in keys.iterdir() if path.name.startswith("key~"))
    record.unlink()
    os.mkfifo(record)
    done = cli("once", "key", "true", timeout=PATIENCE)
    assert done.status == 69 and "damaged" in done.stderr, (done.status, done.stderr)


def test_a_fifo_as_the_token_file_hangs_nobody(directory):
    os.mkfifo(directory / "holdfast-state")
    done = Cli(f"file:{directory}")("run", "x", "true", timeout=PATIENCE)
    assert done.status in (69, 77) and "not a regular file" in done.stderr, (done.status, done.stderr)


# ---- ulimit -f ----------------------------------------------------------------------------------------------------------------

def limited(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [0, 2048, 5000])
def test_a_limit_of_file_sizes_is_said_and_kills_nobody(directory, size):
    """The kernel sends SIGXFSZ to whoever writes beyond it: to the program that uses the library."""
    cli = Cli(f"file:{directory}")
    done = cli("run", "x", "--", "echo", "ran", preexec_fn=limited(size))
    assert (done.status, done.stdout) == (69, ""), done.stderr
    assert "file size limit" in done.stderr and "full" not in done.stderr, done.stderr
    assert cli("run", "x", "-c", "echo ran").stdout == "ran\n", "and is well again without"


def test_a_limit_of_file_sizes_on_a_store_that_is_there(directory):
    cli = Cli(f"file:{directory}")
    token = int(cli("run", "x", "-c", "echo $HOLDFAST_TOKEN").stdout)
    assert cli("once", "key", "true").status == 0
    for words in (("run", "new name", "true"), ("once", "new key", "true"), ("floor", str(token + 1000000))):
        done = cli(*words, preexec_fn=limited(0))
        assert done.status == 69 and "file size limit" in done.stderr, (words, done.status, done.stderr)
    assert cli("once", "key", "false", preexec_fn=limited(0)).status == 0, "what is known needs no room"
    assert cli("run", "--permits", "50", "many", "true").status == 0


def test_a_damaged_token_file_is_named(cli, directory):
    assert cli("run", "x", "true").status == 0
    state = directory / "locks" / "holdfast-state"
    for content in (os.urandom(state.stat().st_size), b"short"):
        state.write_bytes(content)
        tried = cli("run", "x", "true")
        assert tried.status == 69 and f"{state} is damaged" in tried.stderr, tried.stderr


def open_files(pid):
    names = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return names


def test_a_directory_that_is_removed_under_a_holder(cli, directory):
    """Its name is free to others then; it is told so, and its job ends."""
    holder = cli.hold("x", script="echo in $HOLDFAST_TOKEN $$; exec sleep 600")
    eventually(lambda: "anon_inode:inotify" in open_files(holder.pid), "it only listens by now")
    shutil.rmtree(directory / "locks")
    assert holder.wait() == 76
    assert any("lost 'x'" in line and "its lock file was removed" in line for line in holder.rest("err"))


@pytest.mark.parametrize("how", ["remove", "move"])
def test_a_lock_file_that_is_removed_and_made_again(cli, directory, how):
    """Whoever comes next makes another, and holds it: the first is told, as it would be if nobody had come."""
    holder = cli.hold("x", script="echo in $HOLDFAST_TOKEN $$; exec sleep 600")
    eventually(lambda: "anon_inode:inotify" in open_files(holder.pid), "it only listens by now")
    lock = directory / "locks/locks/x"
    if how == "remove":
        lock.unlink()
    else:
        lock.rename(directory / "elsewhere")
    assert cli("run", "-n", "x", "true").status == 0
    assert lock.exists()
    assert holder.wait() == 76
    assert any("lost 'x'" in line and "its lock file was removed" in line for line in holder.rest("err"))
