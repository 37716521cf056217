"""A fence and processes that are killed, stopped, or come too late; and the commands for operators.

Told by the environment, which meson sets: HF_FENCE_USER (the program of fence_user.c), HF_SERVER (holdfastd, whose leases
run out; without it the stories are left out), HOLDFAST_BIN, HF_TEST_TMP, HF_SOAK=1 (the long forms).
"""
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
USER = os.environ.get("HF_FENCE_USER", str(ROOT / "build-check/tests/system/guard/fence-user"))
SERVER = os.environ.get("HF_SERVER", "")
BIN = os.environ.get("HOLDFAST_BIN", str(ROOT / "build-check/src/cli/holdfast"))
SOAK = os.environ.get("HF_SOAK") == "1"
PATIENCE = 60  # seconds until a test gives up on an event

KILLS = 2000 if SOAK else 200
KEYS = 8
ROUND = 1_000_000  # tokens of one round
TTL_MS = 300
STALE_TRIES = 1_000_000 if SOAK else 20_000


@pytest.fixture
def directory():
    """On a disk: a fence refuses tmpfs, and /tmp may be one."""
    base = os.environ.get("HF_TEST_TMP") or pathlib.Path(USER).resolve().parent
    path = tempfile.mkdtemp(prefix="fence-", dir=base)
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


class User:
    """A started fence-user. Its lines are read by a thread, with the moment they came."""

    def __init__(self, *words):
        self.popen = subprocess.Popen([USER, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
        self.lines, self.taken = [], 0
        self.news = threading.Condition()
        self.ended = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.popen.stdout:
            with self.news:
                self.lines.append(line.rstrip("\n"))
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def expect(self, word):
        """The next line; it begins with this word. Returns the rest of it."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.lines) > self.taken or self.ended, PATIENCE), "no " + word
            assert len(self.lines) > self.taken, f"ended before '{word}': {self.popen.stderr.read()}"
            line = self.lines[self.taken]
            self.taken += 1
        first, _, rest = line.partition(" ")
        assert first == word, f"'{line}', not '{word}'"
        return rest

    def await_lines(self, count):
        with self.news:
            assert self.news.wait_for(lambda: len(self.lines) >= count or self.ended, PATIENCE)
            assert len(self.lines) >= count, self.popen.stderr.read()

    def has_said(self):
        with self.news:
            return len(self.lines)

    def go(self):
        self.popen.stdin.write("go\n")
        self.popen.stdin.flush()

    def signal(self, number):
        """When it is to stop, it has."""
        os.kill(self.popen.pid, number)
        deadline = time.monotonic() + PATIENCE
        while number == signal.SIGSTOP and not self.is_stopped():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def is_stopped(self):
        return re.search(r"^State:\s+T", pathlib.Path(f"/proc/{self.popen.pid}/status").read_text(), re.M)

    def kill(self):
        """All it had said is in .lines afterwards."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self.reader.join(PATIENCE)
        assert not self.reader.is_alive()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            pipe.close()

    def finish(self):
        """It ends by itself, and well."""
        assert self.popen.wait(PATIENCE) == 0, self.popen.stderr.read()
        self.kill()


@pytest.fixture
def start():
    users = []

    def make(*words):
        users.append(User(*words))
        return users[-1]

    yield make
    for user in users:
        if not user.popen.stdout.closed:
            user.kill()


def holdfast(*words):
    return subprocess.run([BIN, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)


def run_user(*words):
    return subprocess.run([USER, *map(str, words)], capture_output=True, text=True, timeout=10 * PATIENCE)


# ---- killed ------------------------------------------------------------------------------------------------------


def marks_of(fence):
    """As the command shows them."""
    done = holdfast("guard", "marks", "--fence", fence, "--json")
    assert done.returncode == 0, done.stderr
    return {row["key"]: row["mark"] for row in map(json.loads, done.stdout.splitlines())}


def note_acks(users, acked):
    """What was answered OK, by everybody, as the greatest token of each key."""
    for user in users:
        for line in user.lines:
            key, token = line.split()
            acked[key] = max(acked.get(key, 0), int(token))


def assert_nothing_went_back(marks, acked, before):
    for key, token in acked.items():
        assert marks.get(key, 0) >= token, f"{key}: {token} was answered OK, and the mark is {marks.get(key)}"
    for key, mark in before.items():
        assert marks.get(key, 0) >= mark, f"{key}: the mark went back from {mark} to {marks.get(key)}"


def test_kill_at_random_moments(directory, start):
    """Three use a fence. One is killed, and the others must go on; then all are, and no key may be held."""
    fence, acked, marks, kills, number = directory / "fence", {}, {}, 0, 0
    while kills < KILLS:
        number += 1
        users = [start("play", fence, KEYS, number * ROUND + i, 3) for i in range(3)]
        for user in users:
            user.await_lines(1)
        time.sleep(random.uniform(0, 0.02))
        users[0].kill()
        for user in users[1:]:
            user.await_lines(user.has_said() + 20)
        time.sleep(random.uniform(0, 0.01))
        for user in users[1:]:
            user.popen.kill()
        for user in users[1:]:
            user.kill()
        kills += 3
        note_acks(users, acked)
        if number % 10 == 0:
            before, marks = marks, marks_of(fence)
            assert_nothing_went_back(marks, acked, before)
        done = run_user("enter", fence, KEYS, number * ROUND + ROUND - 1)
        assert done.returncode == 0, done.stderr
        before, marks = marks, {key: int(mark) for key, mark in map(str.split, done.stdout.splitlines())}
        assert_nothing_went_back(marks, acked, before)
        for key in marks:
            acked[key] = number * ROUND + ROUND - 1
    assert number >= 10 and len(acked) == KEYS
    assert_nothing_went_back(marks_of(fence), acked, marks)


def test_processes_exclude_each_other(directory):
    """Each adds one to a number in a file, which is no single step. Inside a key it is."""
    fence, file, processes, times = directory / "fence", directory / "number", 8, 50
    file.write_text("0")
    users = [subprocess.Popen([USER, "count", str(fence), str(file), str(times)]) for _ in range(processes)]
    for user in users:
        assert user.wait(PATIENCE) == 0
    assert file.read_text() == str(processes * times)


# ---- stale tokens by the thousand --------------------------------------------------------------------------------


def test_no_stale_token_passes_and_every_fresh_one_does(directory):
    began = time.monotonic()
    done = run_user("storm", directory / "fence", 4, 8, STALE_TRIES)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    print(f"{counts} in {time.monotonic() - began:.1f} s")
    assert counts["accepted"] == 0 and counts["refused"] == 0, done.stderr
    assert counts["stale"] >= STALE_TRIES * 0.99 and counts["fresh"] >= 100


# ---- stopped past its lease --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    """A real server, whose leases run out."""
    if not SERVER:
        pytest.skip("HF_SERVER is not set: there is no server")
    spec = importlib.util.spec_from_file_location("holdfastd_server", ROOT / "tests/system/holdfastd/conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(1, str(ROOT / "tests/system/cli"))
    spec.loader.exec_module(module)
    holdfastd = module.Holdfastd()
    yield f"holdfast://127.0.0.1:{holdfastd.port}"
    holdfastd.clean()


class Story:
    """Two holders of one lock, one file, and a fence or none."""

    def __init__(self, start, server, directory, guarded, when, first, second):
        self.file = directory / "file"
        words = [server, f"story/{directory.name}", TTL_MS, directory / "fence" if guarded else "-", "k", self.file, when]
        self.file.write_text("100")
        self.first = start("hold", *words, first)
        self.token = int(self.first.expect("held"))
        self.start_second = lambda: start("hold", *words, second)

    def stop_first_past_its_lease(self):
        """The second one gets the lock, which proves that the lease has run out."""
        self.first.signal(signal.SIGSTOP)
        self.second = self.start_second()
        assert int(self.second.expect("held")) > self.token

    def wake_first(self):
        self.first.signal(signal.SIGCONT)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_late_write(start, server, directory, guarded):
    """The first holder sleeps through the end of its lease, and wakes up in the belief that it holds the lock."""
    story = Story(start, server, directory, guarded, "enter", "=first", "=second")
    story.stop_first_past_its_lease()
    story.second.go()
    if guarded:
        story.second.expect("inside")
    story.second.expect("read")
    story.second.go()
    story.second.expect("wrote")
    story.second.finish()
    story.wake_first()
    story.first.go()
    if guarded:
        words = story.first.expect("stale")
        assert str(story.token) in words and str(story.token + 1) in words
        assert story.file.read_text() == "second"
    else:
        story.first.expect("read")
        story.first.go()
        story.first.expect("wrote")
        assert story.file.read_text() == "first"  # wrong: the newest holder's write is gone
    story.first.finish()


def read_modify_write(story, guarded_reads):
    """A reads, pauses; B reads; A writes; B writes. Each adds to the number that it has read."""
    story.first.go()
    if guarded_reads:
        story.first.expect("inside")
    assert story.first.expect("read") == "100"
    story.stop_first_past_its_lease()
    story.second.go()
    if not guarded_reads:
        assert story.second.expect("read") == "100"
    story.wake_first()
    story.first.go()
    story.first.expect("wrote")
    if guarded_reads:  # only now
        story.second.expect("inside")
        assert story.second.expect("read") == "105"
    story.second.go()
    story.second.expect("wrote")
    story.first.finish()
    story.second.finish()


@pytest.mark.parametrize("guarded, when, outcome", [
    (False, "enter", "107"),  # wrong: no guard
    (True, "late", "107"),    # wrong too: a mark that rises with the write comes too late
    (True, "enter", "112"),
])
def test_read_modify_write(start, server, directory, guarded, when, outcome):
    story = Story(start, server, directory, guarded, when, "+5", "+7")
    read_modify_write(story, guarded and when == "enter")
    assert story.file.read_text() == outcome


def test_killed_inside_instead_of_woken(start, server, directory):
    """Whoever waits gets in as soon as the one inside is dead."""
    story = Story(start, server, directory, True, "enter", "+5", "+7")
    story.first.go()
    story.first.expect("inside")
    story.first.expect("read")
    story.stop_first_past_its_lease()
    story.second.go()
    story.first.kill()
    story.second.expect("inside")
    assert story.second.expect("read") == "100"
    story.second.go()
    assert story.second.expect("wrote") == "107"
    story.second.finish()


# ---- the commands ------------------------------------------------------------------------------------------------


@pytest.fixture
def fence(directory):
    """One with marks for key/000 to key/007."""
    path = directory / "fence"
    assert run_user("enter", path, KEYS, 350).returncode == 0
    return path


def test_marks(fence):
    done = holdfast("guard", "marks", "--fence", fence)
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines()] == [["350", f"key/{i:03}"] for i in range(KEYS)]
    assert marks_of(fence) == {f"key/{i:03}": 350 for i in range(KEYS)}
    done = holdfast("guard", "marks", "--fence", fence, "key/003")
    assert done.returncode == 0 and done.stdout.split() == ["350", "key/003"]
    done = holdfast("guard", "marks", "--fence", fence, "other", "--json")
    assert done.returncode == 1 and json.loads(done.stdout) == {"key": "other", "mark": 0}


def test_reset(fence):
    done = holdfast("guard", "reset", "--fence", fence, "key/001", "--to", 12, "--why", "moved to another store")
    assert done.returncode == 0 and "'key/001'" in done.stdout and "350" in done.stdout and "12" in done.stdout
    assert marks_of(fence)["key/001"] == 12
    done = holdfast("guard", "reset", "--fence", fence, "key/002", "--json")
    assert json.loads(done.stdout) == {"key": "key/002", "was": 350, "mark": 0}
    assert "key/002" not in marks_of(fence)
    log = (fence / "resets.log").read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ key/001 350 -> 12 by .* holdfast\[\d+\]: moved to another store", log[0])
    assert re.search(r" key/002 350 -> 0 by .*\]$", log[1]) and len(log) == 2


@pytest.mark.parametrize("words, status, said", [
    (["marks"], 64, "--fence"),
    (["reset", "key"], 64, "--fence"),
    (["reset", "--fence", "DIR"], 64, "usage"),
    (["reset", "--fence", "DIR", "key", "--to", "-1"], 64, "--to"),
    (["reset", "--fence", "DIR", "key", "--to", str(2**53)], 64, "--to"),
    (["reset", "--fence", "DIR", "key", "--why", "w" * 201], 64, "200 bytes"),
    (["reset", "--fence", "DIR", "k" * 401], 64, "400 bytes"),
    (["marks", "--fence", "DIR", "one", "two"], 64, "too many"),
    (["marks", "--fence", "DIR", "--allow", "everything"], 64, "tmpfs"),
    (["marks", "--fence", "DIR/none"], 77, "there is no fence"),
])
def test_wrong_words(fence, words, status, said):
    done = holdfast("guard", *[word.replace("DIR", str(fence)) for word in words])
    assert done.returncode == status and said in done.stderr and done.stderr.count("\n") == 1
    assert not (fence / "none").exists() and not (fence / "resets.log").exists()
    assert marks_of(fence) == {f"key/{i:03}": 350 for i in range(KEYS)}


def test_a_directory_that_others_can_write_to(fence):
    fence.chmod(0o770)
    done = holdfast("guard", "marks", "--fence", fence)
    assert done.returncode == 77 and "others can write" in done.stderr
    assert holdfast("guard", "marks", "--fence", fence, "--allow", "tmpfs").returncode == 77
    assert holdfast("guard", "marks", "--fence", fence, "--allow", "tmpfs,writable").returncode == 0
