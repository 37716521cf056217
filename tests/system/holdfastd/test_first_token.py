"""What the tokens of a new store begin at: the wall clock, in microseconds; and never those of one that is not new."""
import glob
import os
import random
import shutil
import sqlite3
import subprocess
import time

import pytest
from conftest import ROOT, TTL_MAX, Process, argv_of, die_with_parent, environment, run_refused

HOLDFAST = os.environ.get("HOLDFAST_BIN", str(ROOT / "build-check/src/cli/holdfast"))
DAY_US = 86400 * 10**6


def now_us():
    return time.time_ns() // 1000


def clock(text):
    """Words before a command, for which the wall clock shows this; the others go on as they are."""
    (library,) = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    return ["env", f"LD_PRELOAD={library}", f"FAKETIME={text}", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1"]


def aloud(server):
    return [line for line in server.logged() if "wall clock" in line]


def test_it_is_the_clock(start):
    before = now_us()
    server = start()
    token = server.cmd("ACQUIRE", "x", "l")
    assert before < token <= now_us() + 1
    assert [server.cmd("ACQUIRE", name, "l") for name in "abc"] == [token + 1, token + 2, token + 3]
    assert int(server.info("Locks")["last_token"]) == token + 3 and not aloud(server)


def guard(path):
    """A resource with a guard in front of it."""
    ddl = subprocess.run([HOLDFAST, "guard", "sql", "--dialect", "sqlite"], check=True, capture_output=True, text=True).stdout
    resource = sqlite3.connect(path, isolation_level=None)
    resource.executescript(ddl)

    def enter(token):
        resource.execute("INSERT INTO holdfast_enter(key, token) VALUES ('ledger', ?)", (token,))

    return enter


def test_a_store_that_was_lost_goes_on_above(start, tmp_path):
    """The guard has seen tokens of the first one. It takes those of the second, and then no more of the first."""
    enter = guard(tmp_path / "shop.db")
    server = start()
    old = server.cmd("ACQUIRE", "ledger", "l1", "TTL", TTL_MAX)
    enter(old)
    server.kill9()
    shutil.rmtree(server.data)
    server.restart()
    new = server.cmd("ACQUIRE", "ledger", "l2", "TTL", TTL_MAX)
    assert new > old
    enter(new)
    with pytest.raises(sqlite3.DatabaseError):
        enter(old)


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_store_with_data_never_jumps(start, end):
    """Whatever the clock shows when it is started again."""
    server = start()
    token = server.cmd("ACQUIRE", "x-0", "l", "TTL", TTL_MAX)
    for turn, wrapper in enumerate([[], clock("+3000d"), clock("-3000d"), clock("@2001-02-03 04:05:06")], 1):
        if end == "killed":
            server.kill9()
        server.wrapper = wrapper
        server.restart()
        assert server.cmd("ACQUIRE", f"x-{turn}", "l", "TTL", TTL_MAX) == token + turn
        assert not aloud(server), "nobody asked it"


def test_without_a_grant_it_is_not_new_either(start):
    """The first start has decided, before anybody was granted anything."""
    before = now_us()
    server = start()
    after = now_us()
    for wrapper in (clock("+3000d"), []):
        server.kill9()
        server.wrapper = wrapper
        server.restart()
    assert before < server.cmd("ACQUIRE", "x", "l") <= after + 1


@pytest.mark.parametrize("text", ["@2001-02-03 04:05:06", "@2019-12-30 12:00:00", "@2100-01-03 12:00:00"])
def test_a_clock_that_is_wrong(start, text):
    """It is said aloud, once, and the store works: tokens begin at 1, and can be raised."""
    server = start(wrapper=clock(text))
    assert server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX) == 1
    (line,) = aloud(server)
    assert " warning " in line and "holdfast floor" in line
    server.restart()
    assert server.cmd("ACQUIRE", "y", "l") == 2
    assert server.cmd("FLOOR", 5000) == 5000 and server.cmd("ACQUIRE", "z", "l") == 5001
    assert len(aloud(server)) == 1


def test_killed_in_its_first_moments(start, tmp_path):
    """Whenever that was, the tokens begin at a moment of the first starts, and go on by one from there."""
    chance = random.Random(6)
    for turn in range(6):
        data, before = tmp_path / str(turn), now_us()
        for _ in range(3):
            process = Process(argv_of("--data", data, "--listen", "127.0.0.1:0"), environment(), preexec_fn=die_with_parent)
            time.sleep(chance.uniform(0, 0.05))  # up to chance
            process.popen.kill()
            process.wait()
        server = start(data=data)
        token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
        assert before < token <= now_us() + 1
        server.kill9()
        server.wrapper = clock("+30d")
        server.restart()
        assert server.cmd("ACQUIRE", "y", "l", "TTL", TTL_MAX) == token + 1
        server.kill9()


def test_a_new_store_is_told_of(start):
    """Once: a wrong path, or a volume that is not mounted, is a store without locks."""
    server = start()

    def told():
        return [line for line in server.logged() if "the data directory is new: this store begins without locks" in line]

    assert len(told()) == 1 and " warning " in told()[0]
    server.restart()
    assert len(told()) == 1


def test_a_directory_of_something_else_is_refused(tmp_path):
    """Nothing stays among its files."""
    (tmp_path / "README.md").write_text("mine")
    status, line = run_refused("--data", tmp_path, "--listen", "127.0.0.1:0")
    assert status == 69
    assert line.endswith(f"{tmp_path} is no data directory of holdfastd, and not empty (there is README.md): name an empty one, or one "
                         "that is not there yet")
    assert {path.name for path in tmp_path.iterdir()} == {"README.md"}
