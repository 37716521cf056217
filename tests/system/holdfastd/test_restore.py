"""A directory made from a copy of another: another store, whose tokens are above all that were given before."""
import os
import re
import shutil
import subprocess
import time

import pytest
from conftest import PATIENCE, TTL_MAX, argv_of, environment, run_refused
from test_first_token import clock


def restore(server, copy, data, wrapper=()):
    """Makes `data` from the copy; what it said."""
    done = subprocess.run([*wrapper, *argv_of("--data", data, "--restore-from", copy)], env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def next_above(said):
    """What the tokens of a restored store are greater than."""
    return int(re.search(r"the next ones are above (\d+),", said)[1])


@pytest.mark.parametrize("ahead", [False, True])
def test_one_backup_restored_twice_gives_no_token_twice(start, ahead):
    """A disaster, a restore, some work, and another disaster before the next backup. ahead: the backup's tokens are ahead of the
    clock, as after an earlier restore."""
    server = start()
    server.cmd("ACQUIRE", "x", "l")
    if ahead:
        server.cmd("FLOOR", time.time_ns() // 1000 + 10**12)
        server.cmd("ACQUIRE", "y", "l")
    assert server.stop() == 0
    copy, given = server.data, []
    for place in ("first", "second"):
        server.data = server.directory / place
        assert restore(server, copy, server.data)[0] == 0
        server.restart()
        given += [server.cmd("ACQUIRE", f"{place}{number}", "l") for number in range(5)]
        assert server.stop() == 0
    assert given == sorted(set(given))


def test_a_clock_that_is_wrong_is_said(start):
    """Nothing else says which of two restores is the later one: neither gives the other's tokens, and whoever restores is told."""
    server = start()
    server.cmd("ACQUIRE", "x", "l")
    assert server.stop() == 0
    above = []
    for place in ("first", "second"):
        status, said, aloud = restore(server, server.data, server.directory / place, clock("1980-01-01 00:00:00"))
        assert status == 0 and "the wall clock is obviously wrong" in aloud and "holdfast floor" in aloud, aloud
        above.append(next_above(said))
    assert above[0] != above[1]


def test_a_restored_backup_is_another_store(start):
    """An old copy: no token that may have been given since is given again, sequencers of before are refused, and every later
    start says so."""
    server = start()
    store = server.info("Locks")["store_id"]
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    status, _, said = restore(server, server.data, server.directory / "new")
    assert status == 69 and "in use by a server" in said, "not from one that runs"
    assert server.stop() == 0
    status, _, said = restore(server, server.data, server.data)
    assert status == 69 and "is not to be written to" in said, "not into the backup itself"
    other = server.directory / "other"
    other.mkdir()
    (other / "node").write_text("node 1\n")
    status, _, said = restore(server, server.data, other)
    assert status == 69 and "is not empty" in said, "not over what is there"
    status, out, said = restore(server, server.data, server.directory / "new")
    assert (status, said) == (0, "") and f"its last token was {token}" in out and ", and 1 lock is held.\n" in out
    above = next_above(out)
    assert above >= token + 2**40
    server.data = server.directory / "new"
    for attempt in range(3):
        server.restart()
        assert above < server.cmd("ACQUIRE", f"y{attempt}", "l") < above + 10, "once"
        assert server.cmd("CHECK", "x", token) == 1, "what was held is held"
        with server.connect() as client:
            assert client.error("CHECK", f"hf1.{store}.x.1.x").startswith("STORE ")
        assert any("was restored from a backup" in line and f"after token {token}" in line for line in server.logged())
        server.kill9()
        server.log.clear()


def test_a_restore_that_was_killed_is_begun_again(start):
    """At any moment: then nobody can start in that directory, or it is done."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert server.stop() == 0
    new = server.directory / "new"
    for after_ms in range(0, 60, 4):
        process = subprocess.Popen(argv_of("--data", new, "--restore-from", server.data), env=environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(after_ms / 1000)
        process.kill()
        process.wait()
        if not new.exists():
            continue
        files = set(os.listdir(new))
        if "restoring" in files:
            status, said = run_refused("--data", new, "--listen", "127.0.0.1:0")
            assert status == 69 and "did not come to its end" in said, said
            assert restore(server, server.data, new)[0] == 0
        elif "node" not in files:
            assert restore(server, server.data, new)[0] == 0
        before, server.data = server.data, new
        server.restart()
        clock = time.time_ns() // 1000
        assert max(token, clock - 3600 * 10**6) + 2**40 < server.cmd("ACQUIRE", "y", "l") < clock + 2**40 + 10, "once"
        server.kill9()
        server.data = before
        shutil.rmtree(new)


def test_a_restore_says_how_it_is_started(start):
    """The copy was of node 2: started with the flags of before, it would be refused."""
    server = start("--id", "2")
    assert server.stop() == 0
    new = server.directory / "new"
    status, out, said = restore(server, server.data, new)
    assert (status, said) == (0, "")
    assert out.splitlines()[1:] == [
        f"The copy was of node 2, and is node 1 now. Start it with --data {new} --id 1, without --cluster; else as before. To make it a cluster, "
        "start it with --cluster 1=HOST:PORT, and add others, empty, with 'holdfast cluster add'."], out
    assert start("--id", "1", data=new).cmd("PING") == "PONG"


def test_a_restore_names_its_directory(start, tmp_path):
    """The usual one may be a server's."""
    server = start()
    assert server.stop() == 0
    done = subprocess.run(argv_of("--restore-from", server.data), env={**environment(), "XDG_STATE_HOME": tmp_path, "STATE_DIRECTORY": f"{tmp_path}/state"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "holdfastd: not restored: into which directory? Name a new one with --data DIR\n"
    assert list(tmp_path.iterdir()) == []


def test_a_restore_is_no_setting(tmp_path):
    file = tmp_path / "conf"
    file.write_text("restore-from = /backup\n")
    done = subprocess.run([argv_of()[0], "--config", file], env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode == 78 and "restore-from is no setting: it is done once" in done.stderr, done.stderr


@pytest.mark.parametrize("where", ["flag", "variable", "file"])
def test_the_restored_of_before_is_an_error_that_says_what_to_do(tmp_path, where):
    """Left in a unit, it made another cluster with each start."""
    file, variables, words = tmp_path / "conf", {}, []
    file.write_text("restored = yes\n" if where == "file" else "")
    if where == "variable":
        variables = {"HOLDFASTD_RESTORED": "yes"}
    elif where == "flag":
        words = ["--restored"]
    done = subprocess.run([argv_of()[0], "--config", file, "--data", tmp_path / "data", *words],
                          env={**environment(), **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == (64 if where == "flag" else 78)
    assert "--restore-from" in done.stderr and not (tmp_path / "data").exists()
