"""`holdfast cluster backup FILE` of one server that serves, and `--restore-from FILE`: what is in it, which file it becomes, and who goes on meanwhile. The
same of a cluster whose leaders come and go: tests/system/cluster/test_live_backup.py."""
import contextlib
import itertools
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time

import pytest
from conftest import PATIENCE, TTL_MAX, Refused, Unfounded, argv_of, environment, eventually, free_port
from holdfast_cli import BIN, Cli, only_line
from test_users import PASSWORD, block, events, write

HEAD, END = 60, 4  # bytes of the file before and behind the snapshot
BACKUPS_MAX = 4
IDLE = 30  # seconds without a question after which a backup is given up
LARGE = "r" * 60000
MANY = 100000
numbers = itertools.count()


@pytest.fixture
def cli_of():
    made = []

    def make(server, **kwargs):
        made.append(Cli(f"holdfast://127.0.0.1:{server.port}", **kwargs))
        return made[-1]

    yield make
    for cli in made:
        cli.clean()


def restore(file, data):
    return subprocess.run(argv_of("--data", data, "--restore-from", file), env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)


def refused(file, data, words):
    done = restore(file, data)
    assert done.returncode == 69 and not done.stdout, done
    assert done.stderr.startswith("holdfastd: not restored: ") and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not data.exists(), "it leaves nothing behind"


def backup(cli, file):
    done = cli("cluster", "backup", str(file))
    assert (done.status, done.stderr) == (0, ""), done
    assert done.stdout.startswith(f"{file}: a backup of cluster "), done.stdout
    return file.read_bytes()


def fill(client, count=20):
    """Some pieces of a backup."""
    for _ in range(count):
        key = f"large-{next(numbers)}"
        _, token = client.cmd("ONCE", "CLAIM", key, "l", "TTL", TTL_MAX)
        client.cmd("ONCE", "FINISH", key, "l", "TOKEN", token, "KEEP", TTL_MAX, LARGE)


def alone_in(directory, *names):
    assert sorted(path.name for path in directory.iterdir()) == sorted(names)


# ---- what is in it -----------------------------------------------------------------------------------------------


def test_all_that_was_acknowledged_is_in_it(start, tmp_path, cli_of):
    server = start()
    with server.connect() as client, server.connect(3) as other:
        held = client.cmd("ACQUIRE", "held", "its lease", "TTL", TTL_MAX)
        shared = client.cmd("ACQUIRE", "shared", "another", "TTL", TTL_MAX, "SHARED")
        assert other.cmd("ACQUIRE", "held", "waits", "PUSH", "TTL", TTL_MAX) == "QUEUED"
        _, token = client.cmd("ONCE", "CLAIM", "key", "k", "TTL", TTL_MAX)
        client.cmd("ONCE", "FINISH", "key", "k", "TOKEN", token, "KEEP", TTL_MAX, "its result")
        client.cmd("ONCE", "CLAIM", "running", "r", "TTL", TTL_MAX)
        floor = server.last_token() + 1000
        client.cmd("FLOOR", floor)
        backup(cli_of(server), tmp_path / "it")
        later = client.cmd("ACQUIRE", "later", "l", "TTL", TTL_MAX)
    highest = server.last_token()
    assert later > floor
    done = restore(tmp_path / "it", tmp_path / "new")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "The copy was of node" not in done.stdout and "Start it with --data" in done.stdout
    again = start(data=tmp_path / "new")
    assert any("restored from a backup" in line for line in again.logged())
    with again.connect() as client:
        assert client.cmd("CHECK", "held", held) == client.cmd("CHECK", "shared", shared) == 1
        assert client.cmd("CHECK", "later", later) == 0
        assert client.cmd("ONCE", "READ", "key")[0] == "DONE" and "its result" in client.cmd("ONCE", "READ", "key")
        assert client.cmd("ONCE", "READ", "running")[0] == "RUNNING"
        assert len(client.show("held")["waiters"]) == 1
        assert client.cmd("RENEW", "waits")[0] > 0
        assert client.cmd("RELEASE", "held", "its lease") == 1
        granted = client.cmd("ACQUIRE", "held", "waits", "TTL", TTL_MAX)
        assert granted > highest + 2**40
        assert client.cmd("ACQUIRE", "new", "n") > granted


def test_each_region_of_the_file_counts(start, tmp_path, cli_of):
    server = start()
    with server.connect() as client:
        client.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    whole = backup(cli_of(server), tmp_path / "it")
    bad = tmp_path / "bad"
    for at in (8, 24, 32, 40, 48, 56, HEAD, HEAD + 9, HEAD + 70, len(whole) // 2, len(whole) - END - 1, len(whole) - 1):
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        refused(bad, tmp_path / "new", f"{bad} is damaged")
    bad.write_bytes(b"x" + whole[1:])
    refused(bad, tmp_path / "new", f"{bad} is no backup")
    for size in (1, HEAD - 1, HEAD, len(whole) // 2, len(whole) - END, len(whole) - 1):
        bad.write_bytes(whole[:size])
        refused(bad, tmp_path / "new", f"{bad} is cut off")
    bad.write_bytes(whole + b"\0")
    refused(bad, tmp_path / "new", "is damaged")
    refused(tmp_path / "nothing", tmp_path / "new", "cannot open the backup")
    assert restore(tmp_path / "it", tmp_path / "new").returncode == 0


def test_pieces_are_of_one_backup(start, tmp_path):
    """The protocol, as docs/protocol.md has it."""
    server = start()
    with server.connect(3) as client:
        fill(client, 10)
        token = client.cmd("CLUSTER", "BACKUP")
        pieces, offset = [], 0
        while True:
            piece = client.cmd("CLUSTER", "PIECE", token, offset)
            if piece is None:
                continue
            pieces.append(piece)
            assert piece["offset"] == offset and len(piece["bytes"]) <= 256 << 10
            fill(client, 1)  # what comes later is not in it
            if offset == piece["size"]:
                break
            offset += len(piece["bytes"])
        assert len(pieces) > 3 and pieces[-1]["bytes"] in ("", b"")
        assert len({(piece["index"], piece["term"], piece["size"], piece["sum"], piece["cluster"]) for piece in pieces}) == 1
        for words in ((token, 0), ("0" * 16, 0), ("x", 0), ("Z" * 16, 0)):
            assert client.error("CLUSTER", "PIECE", *words).startswith("NOBACKUP there is no such backup here")
        token = client.cmd("CLUSTER", "BACKUP")
        eventually(lambda: client.cmd("CLUSTER", "PIECE", token, 0), "its first piece")
        assert client.error("CLUSTER", "PIECE", token, 2**40).startswith("ERR this backup has ")
        assert client.error("CLUSTER", "PIECE", token, "x").startswith("ERR an offset is a number")


def test_clients_that_break_off(start):
    """In the middle of an answer, and while a piece is read for them; the backup is there for who asks next, until the server stops."""
    server = start()
    with server.connect(3) as client:
        fill(client, 10)
        token = client.cmd("CLUSTER", "BACKUP")
        eventually(lambda: client.cmd("CLUSTER", "PIECE", token, 0), "its first piece")
        for turn in range(50):
            with server.connect(3) as other:
                other.send("CLUSTER", "BACKUP" if turn == 7 else "PIECE", *([] if turn == 7 else [token, 0]))
        whole = eventually(lambda: client.cmd("CLUSTER", "PIECE", token, 0), "its first piece")["size"]
        last = eventually(lambda: client.cmd("CLUSTER", "PIECE", token, whole - 1), "its last byte")
        assert len(last["bytes"]) == 1
        client.send("CLUSTER", "PIECE", token, 0)
        assert server.stop() == 0


def test_small_output_buffers_get_small_pieces(start, tmp_path, cli_of):
    server = start("--max-output-bytes", "64KiB")
    with server.connect() as client:
        fill(client, 10)
    backup(cli_of(server), tmp_path / "it")
    assert restore(tmp_path / "it", tmp_path / "new").returncode == 0


# ---- who may, and who goes on ------------------------------------------------------------------------------------


def test_operators_may_and_it_is_written_down(start, tmp_path, cli_of):
    users, audit = tmp_path / "users", tmp_path / "audit.json"
    write(users, block("ann", "allow = admin"), block("bob", "allow = acquire look break", "allow = floor"))
    server = start("--users-file", users, "--audit-file", audit)
    server.audit = audit
    cli = cli_of(server)
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text(PASSWORD + "\n")
    cli.env["HOLDFAST_URL"] = f"holdfast://bob@127.0.0.1:{server.port}?password-file={password}"
    done = cli("cluster", "backup", str(tmp_path / "it"))
    assert done.status == 77 and "NOPERM user 'bob' has no right 'admin', which CLUSTER BACKUP needs" in done.stderr, done
    assert not (tmp_path / "it").exists()
    cli.env["HOLDFAST_URL"] = f"holdfast://ann@127.0.0.1:{server.port}?password-file={password}"
    backup(cli, tmp_path / "it")
    said = [(event["event"], event["user"], event.get("outcome")) for event in events(server) if event.get("command", "").startswith("CLUSTER")]
    assert said == [("denied", "bob", None), ("command", "ann", None), ("command_end", "ann", "done")], said
    assert any(event["event"] == "denied" and event["user"] == "bob" and event["right"] == "admin" for event in events(server))


def test_so_many_and_no_more(start, tmp_path, cli_of):
    """Those that nobody asks for end by themselves, and give back what they have open."""
    server = start()
    with server.connect() as client:
        client.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
        before = server.descriptors()
        begun = [client.cmd("CLUSTER", "BACKUP") for _ in range(BACKUPS_MAX)]
        assert len(set(begun)) == BACKUPS_MAX
        for token in begun:
            eventually(lambda token=token: client.cmd("CLUSTER", "PIECE", token, 0), "its first piece")
        assert client.error("CLUSTER", "BACKUP") == f"TRYAGAIN {BACKUPS_MAX} backups are being taken, and no more at a time: ask again when one is over"
        done = cli_of(server)("cluster", "backup", str(tmp_path / "it"), "--wait", "500ms")
        assert done.status == 69 and "no more at a time" in done.stderr, done
        alone_in(tmp_path)
        deadline = time.monotonic() + IDLE + PATIENCE
        while True:
            try:
                client.cmd("CLUSTER", "BACKUP")
                break
            except Refused:
                assert time.monotonic() < deadline, "they are not given up"
                time.sleep(0.5)
        assert client.error("CLUSTER", "PIECE", begun[0], 0).startswith("NOBACKUP ")
        eventually(lambda: server.descriptors() <= before + 6, "files are closed")
    assert any("a backup was given up: nobody has asked for more of it" in line for line in server.logged())


class Others:
    """A client that asks for something all the time."""

    def __init__(self, server):
        self.server, self.over, self.answers, self.failure = server, threading.Event(), 0, None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            with self.server.connect() as client:
                while not self.over.is_set():
                    assert client.cmd("CHECK", "name-1", 1) == 0
                    self.answers += 1
        except BaseException as failure:
            self.failure = failure

    def __enter__(self):
        self.thread.start()
        eventually(lambda: self.answers, "an answer")
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(PATIENCE)
        assert not self.failure, self.failure


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A server with many names, for several tests."""
    from conftest import Holdfastd
    server = Holdfastd()
    with server.connect() as client:
        for first in range(0, MANY, 1000):
            client.pipeline(*[["ACQUIRE", f"name-{index}", f"lease-{index % 100}", "TTL", TTL_MAX] for index in range(first, first + 1000)])
    yield server
    server.clean()


def test_a_large_table_while_others_are_served(large, tmp_path, cli_of):
    cli = cli_of(large)
    with Others(large) as others:
        before = others.answers
        whole = backup(cli, tmp_path / "it")
        served = others.answers - before
    assert len(whole) > 3 << 20 and served > 20, "they are served in between"
    done = restore(tmp_path / "it", tmp_path / "new")
    assert f" and {MANY} locks are held." in done.stdout, done


def test_a_reader_that_is_slow_or_stopped(large, tmp_path, cli_of):
    """It keeps nobody waiting, and gets all of it in the end."""
    cli, rss = cli_of(large), large.rss()
    process = subprocess.Popen([BIN, "cluster", "backup", "-"], env=cli.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    try:
        with Others(large) as others:
            got = process.stdout.read(1)
            os.kill(process.pid, signal.SIGSTOP)
            before = others.answers
            eventually(lambda: others.answers > before + 200, "others are served")
            os.kill(process.pid, signal.SIGCONT)
            while len(got) < 2 << 20:
                got += process.stdout.read(64 << 10)
                time.sleep(0.01)
            with large.connect() as client:
                client.cmd("ACQUIRE", "meanwhile", "m", "TTL", TTL_MAX)
            assert large.rss() < rss + (100 << 20)
            while more := process.stdout.read(1 << 20):
                got += more
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    (tmp_path / "it").write_bytes(got)
    done = restore(tmp_path / "it", tmp_path / "new")
    assert done.returncode == 0 and f"{MANY} locks are held." in done.stdout, "and what came meanwhile is not in it"


def test_a_server_that_is_killed_in_the_middle(start, tmp_path, cli_of):
    """Of what went to the standard output nothing can be taken back; and it is no backup."""
    server = start()
    with server.connect() as client:
        fill(client, 40)
    cli = cli_of(server)
    process = subprocess.Popen([BIN, "cluster", "backup", "-"], env=cli.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    got = process.stdout.read(1)
    server.kill9()
    server.restart()
    rest, said = process.communicate(timeout=4 * PATIENCE)
    assert process.returncode == 69 and "cannot be taken back: it is no backup; take another" in only_line(said.decode()), said
    (tmp_path / "it").write_bytes(got + rest)
    refused(tmp_path / "it", tmp_path / "new", "is cut off")


# ---- the file ----------------------------------------------------------------------------------------------------


def test_which_file_it_becomes(start, tmp_path, cli_of):
    server = start()
    cli = cli_of(server)
    file = tmp_path / "it"
    first = backup(cli, file)
    assert file.stat().st_mode & 0o7777 == 0o600
    with server.connect() as client:
        client.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert backup(cli, file) != first, "a backup is replaced by a newer one"
    (tmp_path / "empty").touch()
    backup(cli, tmp_path / "empty")
    (tmp_path / "link").symlink_to("it")
    done = cli("cluster", "backup", str(tmp_path / "link"))
    assert done.status == 0 and (tmp_path / "link").is_symlink() and done.stdout.startswith(f"{file}: ")
    said = json.loads(cli("cluster", "backup", "--json", str(file)).stdout)
    assert said["file"] == str(file) and said["bytes"] == file.stat().st_size and len(said["cluster"]) == 32 and said["index"] > 1
    to_stdout = subprocess.run([BIN, "cluster", "backup", "-"], env=cli.env, capture_output=True, timeout=PATIENCE)
    assert to_stdout.returncode == 0 and to_stdout.stdout.startswith(b"HFback1\n") and not to_stdout.stderr
    alone_in(tmp_path, "it", "empty", "link")


def test_what_is_no_backup_is_left_alone(start, tmp_path, cli_of):
    cli = cli_of(start())
    (tmp_path / "letter").write_text("dear")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("letter", "is there, and is no backup: it is left alone"), ("folder", "is no file: name a file"), ("fifo", "is no file: name a file"),
                        ("dangling", "a symbolic link that leads nowhere"), ("none/x", "the directory it would be in is not there"), ("letter/x", "Not a directory")):
        done = cli("cluster", "backup", str(tmp_path / name))
        assert done.status == 77 and words in only_line(done.stderr), (name, done)
    done = cli("cluster", "backup", "/dev/null")
    assert done.status == 77 and "/dev/null is there, and is no file" in only_line(done.stderr) and "remove" not in done.stderr, done
    assert (tmp_path / "letter").read_text() == "dear"
    alone_in(tmp_path, "letter", "folder", "dangling", "fifo")
    for words in (["cluster", "backup"], ["cluster", "backup", "a", "b"], ["cluster", "backup", "--no-wait", "a"], ["cluster", "backup", "--health", "a"]):
        assert cli(*words).status == 64
    done = Cli("file:" + str(tmp_path / "store"))("cluster", "backup", str(tmp_path / "it"))
    assert done.status == 64 and not (tmp_path / "it").exists(), done


def writes_in(pid, folder):
    """Has this process a file open there?"""
    with contextlib.suppress(OSError):
        return any(os.readlink(entry).startswith(f"{folder}/") for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir())


@pytest.fixture
def before_its_first_byte(start, tmp_path, cli_of):
    """A backup whose server does not answer yet: (server, process, the folder of its file)."""
    server = start()
    folder = tmp_path / "folder"
    folder.mkdir()
    server.pause()
    process = cli_of(server).start("cluster", "backup", str(folder / "it"))
    eventually(lambda: writes_in(process.pid, folder), "what is written beside it, or has no name yet")
    yield server, process, folder
    server.resume()


def test_its_folder_is_removed_meanwhile(before_its_first_byte):
    server, process, folder = before_its_first_byte
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    server.resume()
    assert process.wait() == 77
    assert "No such file or directory" in process.rest("err")[-1]


def test_somebody_else_makes_the_file_meanwhile(before_its_first_byte):
    server, process, folder = before_its_first_byte
    (folder / "it").write_text("mine")
    server.resume()
    assert process.wait() == 77
    assert "was made by somebody else meanwhile, and is left alone" in process.rest("err")[-1]
    assert (folder / "it").read_text() == "mine"
    alone_in(folder, "it")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupt_leaves_nothing_behind(before_its_first_byte, number):
    server, process, folder = before_its_first_byte
    if number == signal.SIGKILL and not has_nameless_files(folder):
        pytest.skip("this file system has no files without names")
    process.kill(number)
    assert process.wait() in (128 + number, -number)
    alone_in(folder)


def has_nameless_files(folder):
    with contextlib.suppress(OSError):
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
        return True


def test_files_have_no_cluster(tmp_path, cli_of, start):
    """And no store of files is made to find that out."""
    cli = cli_of(start())
    for words in (["--on", f"file:{tmp_path}/store"], []):
        done = cli(*words, "cluster", "backup", str(tmp_path / "it"), env={"HOLDFAST_URL": f"file:{tmp_path}/store"})
        assert done.status == 64 and only_line(done.stderr) == "holdfast: a file store has no cluster to look after: that is for holdfast:// stores"
    alone_in(tmp_path)


def test_a_standard_output_that_is_closed(start, cli_of):
    """What is opened in its place is not written to."""
    cli = cli_of(start())
    for words in (["cluster", "backup", "-"], ["cluster", "status"], ["run", "x", "--", "sh", "-c", "test -e /proc/self/fd/1 && exit 3; exit 4"]):
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", BIN, *words], env=cli.env, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        assert done.returncode == (4 if words[0] == "run" else 69), (words, done)
        assert words[1] != "backup" or only_line(done.stderr) == "holdfast: no backup: the standard output is closed", done


def test_those_whose_clients_have_gone_keep_nobody_out(start):
    """And the one that is still fetched goes on."""
    server = start()
    with server.connect(3) as client:
        client.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
        stays = client.cmd("CLUSTER", "BACKUP")
        gone = []
        for _ in range(BACKUPS_MAX + 1):
            with server.connect(3) as other:
                gone.append(eventually(lambda other=other: begun(other), "one is given up"))
        assert eventually(lambda: client.cmd("CLUSTER", "PIECE", stays, 0), "its first piece")["offset"] == 0
        assert client.error("CLUSTER", "PIECE", gone[0], 0).startswith("NOBACKUP ")
    server.await_line("a backup was given up for another one: its client has gone")


def begun(client):
    """Whoever went just before may not be known to have gone yet."""
    with contextlib.suppress(Refused):
        return client.cmd("CLUSTER", "BACKUP")


def test_without_a_leader_it_says_what_it_waits_for(tmp_path, cli_of):
    """Also where there is no terminal."""
    node = Unfounded(1, f"1=127.0.0.1:{free_port()},2=127.0.0.1:{free_port()}")
    try:
        process = cli_of(node).start("cluster", "backup", str(tmp_path / "it"))
        line = process.line("err")
        assert "belongs to no cluster yet" in line and "; trying for up to 10.0 s in all" in line, line
        process.kill(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
    finally:
        node.clean()


def test_nobody_is_there(start, tmp_path, cli_of):
    server = start()
    cli = cli_of(server)
    assert server.stop() == 0
    done = cli("cluster", "backup", str(tmp_path / "it"), "--wait", "1s")
    assert done.status == 69 and only_line(done.stderr)
    alone_in(tmp_path)


def test_who_waits_for_nobody_is_told_so(start, tmp_path, cli_of):
    """Once, and early; whether or not there is a terminal."""
    server = start()
    cli = cli_of(server)
    assert server.stop() == 0
    done = cli("cluster", "backup", str(tmp_path / "it"), "--wait", "3s")
    said = done.stderr.splitlines()
    assert done.status == 69 and len(said) == 2, done
    assert re.fullmatch(rf"holdfast: cluster backup: no answer from 127.0.0.1:{server.port} for [\d.]+ s; trying for up to 3.0 s in all", said[0]), said


# ---- full disks --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "holdfast-test", str(place)], capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_leaves_the_backup_of_before(start, small_disk, cli_of):
    server = start()
    cli = cli_of(server)
    before = backup(cli, small_disk / "it")
    with server.connect() as client:
        fill(client, 30)
    done = cli("cluster", "backup", str(small_disk / "it"))
    assert done.status == 69 and "no backup: cannot write" in done.stderr and "No space left on device" in only_line(done.stderr), done
    alone_in(small_disk, "it")
    assert (small_disk / "it").read_bytes() == before
    assert cli("cluster", "backup", str(small_disk / "new")).status == 69
    alone_in(small_disk, "it")


def test_a_limit_on_files(start, tmp_path, cli_of):
    server = start()
    with server.connect() as client:
        fill(client, 10)
    done = cli_of(server)("cluster", "backup", str(tmp_path / "it"),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000)))
    assert done.status == 69 and "File too large" in only_line(done.stderr), done
    alone_in(tmp_path)


def test_a_standard_output_that_is_full(start, cli_of):
    cli = cli_of(start())
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BIN, "cluster", "backup", "-"], env=cli.env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 69 and "No space left on device" in only_line(done.stderr)
