"""Limits of a user on leases, holds and places: what a client is told, what is written down, what a reload and a restart do, and how the command
ends. That they outlive leaders is in tests/system/cluster/test_quotas.py."""
import json
import os
import signal
import subprocess
import time

import pytest
from conftest import PATIENCE, Client, Refused, argv_of, environment, eventually

HOLDFAST = os.environ.get("HOLDFAST_BIN", "build-check/src/cli/holdfast")
PASSWORD = "a password of this test"


def stored(password):
    """As crypt(5) has it, made in no time."""
    done = subprocess.run(["openssl", "passwd", "-5", "-salt", "rounds=1000$abcdefgh", "-stdin"], input=password, capture_output=True, text=True,
                          timeout=PATIENCE, check=True)
    return done.stdout.strip()


STORED = stored(PASSWORD)


def write(path, **users):
    """NAME=(line, ...); all may take locks and break them."""
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text("".join(f"user = {name}\npassword = {STORED}\nallow = acquire look break\n" + "".join(f"{line}\n" for line in lines) + "\n"
                           for name, lines in users.items()))
    new.replace(path)


@pytest.fixture
def users(tmp_path):
    write(tmp_path / "users", ci=["holds = 2"], ann=[], bob=["leases = 1", "places = 1"], root=["allow = admin"])
    return tmp_path / "users"


@pytest.fixture
def server(start, users, tmp_path):
    server = start("--users-file", users, "--audit-file", tmp_path / "audit.json")
    server.audit = tmp_path / "audit.json"
    in_force(server)
    return server


def in_force(server):
    """A node alone agrees with itself, a moment after it leads."""
    eventually(lambda: "version 2 of the formats is in use" in "".join(server.logged()), "limits are in force")


def log_in(server, user):
    client = Client(("127.0.0.1", server.port))
    client.cmd("HELLO", 3, "AUTH", user, PASSWORD)
    client.protocol = 3
    return client


def reload(server, users, **lines):
    write(users, **lines)
    os.kill(server.pid, signal.SIGHUP)
    server.await_line("the users file was read again")


def events(server, event):
    return [line for line in map(json.loads, server.audit.read_text().splitlines()) if line["event"] == event]


# ---- what a client is told ---------------------------------------------------------------------------------------------------------------


def test_a_user_has_no_more_holds_than_it_may(server):
    with log_in(server, "ci") as client, log_in(server, "ann") as other:
        for name in ("a", "b"):
            assert client.cmd("ACQUIRE", name, "L") > 0
        said = client.error("ACQUIRE", "c", "L")
        assert said == "QUOTA user 'ci' has 2 holds and places in queues, and may have 2 (holds = 2)"
        assert client.error("ACQUIRE", "c", "M", "WAIT", 60000) == said, "at once, and not when its turn comes"
        assert client.error("ONCE", "CLAIM", "k", "L") == said
        assert [lock["name"] for lock in other.cmd("LOCKS")[1]] == ["a", "b"], "nothing has changed"
        assert [other.cmd("ACQUIRE", name, "O") > 0 for name in ("c", "d", "e")] == [True] * 3
        assert client.cmd("RELEASE", "a", "L") == 1
        assert client.cmd("ACQUIRE", "f", "M") > 0
        assert client.error("ACQUIRE", "a", "L") == said
        assert client.cmd("END", "L") == 1 and client.cmd("ACQUIRE", "a", "N") > 0


def test_a_retry_is_not_counted_twice(server):
    with log_in(server, "ci") as client:
        token = client.cmd("ACQUIRE", "a", "L")
        assert [client.cmd("ACQUIRE", "a", "L") for _ in range(5)] == [token] * 5
        assert client.cmd("ACQUIRE", "b", "L") > 0 and client.cmd("ACQUIRE", "b", "L", "WAIT", 1000) > 0


def test_what_expires_or_is_broken_is_given_back(server):
    with log_in(server, "ci") as client, log_in(server, "ann") as other:
        client.cmd("ACQUIRE", "a", "L", "TTL", 100)
        client.cmd("ACQUIRE", "b", "M", "TTL", 100, "DELAY", 60000)
        eventually(lambda: not isinstance(attempt(client, "ACQUIRE", "c", "N"), Refused), "the first of them has expired")
        assert "QUOTA" in client.error("ACQUIRE", "d", "N"), "the name that is withheld counts"
        assert other.cmd("BREAK", "b", "NOW") == 1
        assert client.cmd("ACQUIRE", "d", "N") > 0
        assert other.cmd("BREAK", "c", "NOW") == 1
        assert client.cmd("ACQUIRE", "e", "O") > 0


def attempt(client, *words):
    client.send(*words)
    return client.read_any()


def test_leases_and_places(server):
    with log_in(server, "bob") as client, log_in(server, "ann") as other:
        assert other.cmd("ACQUIRE", "a", "A") and other.cmd("ACQUIRE", "b", "A")
        assert attempt(client, "ACQUIRE", "a", "L", "WAIT", 60000, "PUSH") == "QUEUED"
        assert client.error("ACQUIRE", "c", "M") == "QUOTA user 'bob' has 1 lease, and may have 1 (leases = 1)"
        assert client.error("ACQUIRE", "b", "L", "WAIT", 60000, "PUSH") == "QUOTA user 'bob' has 1 place in queues, and may have 1 (places = 1)"
        assert client.cmd("ACQUIRE", "b", "L") is None, "busy: whoever does not wait takes no place"
        assert client.cmd("ACQUIRE", "c", "L") > 0
        assert other.cmd("RELEASE", "a", "A") == 1
        assert client.push()[1] == "a"
        assert attempt(client, "ACQUIRE", "b", "L", "WAIT", 60000, "PUSH") == "QUEUED", "its place has become a hold"


def test_a_place_is_a_hold_to_come(server):
    """Nobody in a queue is passed over: who could not hold it is refused when it would queue."""
    with log_in(server, "ci") as client, log_in(server, "ann") as other:
        other.cmd("ACQUIRE", "a", "A")
        assert attempt(client, "ACQUIRE", "a", "L", "WAIT", 60000, "PUSH") == "QUEUED"
        assert client.cmd("ACQUIRE", "b", "L") > 0
        assert "has 2 holds and places" in client.error("ACQUIRE", "c", "L")
        other.cmd("RELEASE", "a", "A")
        assert client.push()[1] == "a"
        assert "has 2 holds and places" in client.error("ACQUIRE", "c", "L")


# ---- what is written down ----------------------------------------------------------------------------------------------------------------


def test_a_refusal_is_in_the_audit_file_once(server):
    with log_in(server, "ci") as client:
        answers = client.pipeline(*[("ACQUIRE", f"n{i}", "L") for i in range(4)], ("ONCE", "CLAIM", "key", "L"))
        assert [isinstance(answer, Refused) for answer in answers] == [False, False, True, True, True]
    told = [(line["user"], line["command"], line["quota"], line["name"]) for line in events(server, "over_quota")]
    assert told == [("ci", "ACQUIRE", "holds", "n2"), ("ci", "ACQUIRE", "holds", "n3"), ("ci", "ONCE", "holds", "key")]
    assert not events(server, "denied")
    with log_in(server, "ann") as client:
        assert "\nholdfast_commands_over_quota_total 3\n" in str(client.cmd("INFO", "prometheus")).replace("\r", "")
    assert "its user has as much as it may" in "".join(server.logged())


# ---- reload and restart ------------------------------------------------------------------------------------------------------------------


def test_a_reload_lowers_a_limit(server, users):
    """What is held stays, also when it is asked for again; nothing comes until there is room."""
    with log_in(server, "ci") as client, log_in(server, "ann") as other:
        tokens = [client.cmd("ACQUIRE", name, "L") for name in ("a", "b")]
        other.cmd("ACQUIRE", "x", "X")
        reload(server, users, ci=["holds = 1"], ann=["leases = 1"])
        assert [client.cmd("ACQUIRE", name, "L") for name in ("a", "b")] == tokens
        client.cmd("RELEASE", "a", "L")
        assert client.error("ACQUIRE", "a", "L") == "QUOTA user 'ci' has 1 hold and places in queues, and may have 1 (holds = 1)"
        client.cmd("RELEASE", "b", "L")
        assert client.cmd("ACQUIRE", "a", "L") > 0
        # One that had none: what it has already counts when it takes more with that lease.
        assert other.cmd("ACQUIRE", "y", "X") > 0
        assert other.error("ACQUIRE", "z", "Z") == "QUOTA user 'ann' has 1 lease, and may have 1 (leases = 1)"
        reload(server, users, ci=[], ann=[])
        assert client.cmd("ACQUIRE", "b", "L") > 0 and other.cmd("ACQUIRE", "z", "Z") > 0


def test_a_restart_counts_on(server):
    with log_in(server, "ci") as client:
        client.cmd("ACQUIRE", "a", "L", "TTL", 600000)
        client.cmd("ACQUIRE", "b", "M", "TTL", 600000)
    for end in (server.stop, server.kill9):
        end()
        assert server.launch()
        with log_in(server, "ci") as client:
            assert "has 2 holds" in client.error("ACQUIRE", "c", "N")
    with log_in(server, "ci") as client:
        client.cmd("RELEASE", "a", "L")
        assert client.cmd("ACQUIRE", "c", "N") > 0


def test_a_backup_that_is_restored_counts_on(server, start, users, tmp_path):
    with log_in(server, "ci") as client:
        client.cmd("ACQUIRE", "a", "L", "TTL", 600000)
        client.cmd("ACQUIRE", "b", "M", "TTL", 600000)
    file = tmp_path / "backup"
    done = subprocess.run([HOLDFAST, "--on", f"holdfast://root@127.0.0.1:{server.port}", "cluster", "backup", str(file)], capture_output=True, text=True,
                          timeout=PATIENCE, env={**environment(), "HOLDFAST_PASSWORD": PASSWORD})
    assert done.returncode == 0, done
    data = tmp_path / "restored"
    subprocess.run(argv_of("--restore-from", file, "--data", data), capture_output=True, timeout=PATIENCE, check=True, env=environment())
    again = start("--users-file", users, data=data)
    with log_in(again, "ci") as client:
        assert "has 2 holds" in client.error("ACQUIRE", "c", "N")
        assert client.cmd("RELEASE", "a", "L") == 1 and client.cmd("ACQUIRE", "c", "N") > 0


# ---- the command -------------------------------------------------------------------------------------------------------------------------


def holdfast(server, *words):
    began = time.monotonic()
    done = subprocess.run([HOLDFAST, "--on", f"holdfast://ci@127.0.0.1:{server.port}", *words], capture_output=True, text=True, timeout=PATIENCE,
                          env={**environment(), "HOLDFAST_PASSWORD": PASSWORD})
    return done, time.monotonic() - began


@pytest.mark.parametrize("words", [["run", "--wait", "60s", "c", "--", "true"], ["run", "--wait", "0", "c", "--", "true"], ["once", "c", "--", "true"]],
                         ids=["wait", "try", "once"])
def test_the_command_says_so_and_does_not_try_again(server, words):
    with log_in(server, "ci") as client:
        client.cmd("ACQUIRE", "a", "L")
        client.cmd("ACQUIRE", "b", "L")
        done, lasted = holdfast(server, *words)
        assert done.returncode == 77 and done.stdout == "", done
        assert done.stderr.count("\n") == 1 and "user 'ci' has 2 holds and places in queues, and may have 2 (holds = 2)" in done.stderr, done
        assert lasted < 20, "it does not wait for room"
        assert len(events(server, "over_quota")) == 1, "once"
        client.cmd("RELEASE", "a", "L")
        done, _ = holdfast(server, *words)
        assert done.returncode == 0, done
