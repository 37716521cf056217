"""lock, renew and unlock, from a script; nested runs."""
import json
import os
import re
import signal
import subprocess

import pytest
from conftest import BIN, Process
from holdfast_cli import ROOT


def sh(cli, script):
    return subprocess.run(["sh", "-ec", script], env={**cli.env, "H": BIN}, capture_output=True, text=True, timeout=60)


def test_by_eval(ttl_cli):
    done = sh(ttl_cli, """
        lease=$($H lock deploy --ttl 20s)
        eval "$lease"
        echo $HOLDFAST_TOKEN
        $H renew deploy --ttl 20s
        $H run -n deploy true && exit 1
        $H check deploy $HOLDFAST_TOKEN
        $H unlock deploy
        $H run -n deploy true
        set +e
        $H unlock deploy; echo unlock $?
        $H renew deploy; echo renew $?
    """)
    assert done.returncode == 0, done.stderr
    token, left, alive, unlock, renew = done.stdout.splitlines()
    assert int(token) > 0
    assert 10000 < int(left) <= 20000
    assert (alive, unlock, renew) == ("alive", "unlock 1", "renew 1")


def test_eval_fails_when_there_is_no_lock(ttl_cli):
    """With the exit status of lock: an empty text would be evaluated with success, and the script go on."""
    held = ttl_cli("lock", "x").status
    done = sh(ttl_cli, """
        set +e
        eval "$($H lock x --no-wait)"; echo $?
        eval "$($H lock x y)"; echo $?
        eval "$($H --on no-such-store: lock x)"; echo $?
        echo "token: $HOLDFAST_TOKEN"
    """)
    assert held == 0 and done.stdout.splitlines() == ["75", "64", "64", "token: "]
    assert ttl_cli("lock", "x", "--no-wait", "--json").stdout == ""


def await_lock_waiting(cli, name):
    """The process that waits, which a shell started: its number is in what it shows others."""
    cli.await_waiters(name)
    owner = cli.show(name)["waiters"][0]["owner"]
    return int(re.search(r" lock\[(\d+)\]$", owner)[1])


ENDING = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]


@pytest.mark.parametrize("number", ENDING)
def test_eval_fails_when_lock_is_ended_by_a_signal(ttl_cli, number):
    """Say, by timeout(1), which sends SIGTERM."""
    assert ttl_cli("lock", "x").status == 0
    script = Process(["sh", "-c", 'eval "$($H lock x)" || exit; echo went on'], {**ttl_cli.env, "H": BIN})
    ttl_cli.started.append(script)
    os.kill(await_lock_waiting(ttl_cli, "x"), number)
    assert script.wait() == 128 + number and script.rest() == []


@pytest.fixture(params=["lock.1", "lock", "renew", "unlock", "complaint"])
def documented(request, ttl_cli, directory):
    """How a script takes a lock, as people find it written; and a PATH on which it finds holdfast."""
    if request.param == "lock.1":
        text = (ROOT / "man" / "holdfast-lock.1").read_text()
    elif request.param == "complaint":
        text = ttl_cli("renew", "deploy").stderr.replace("NAME", "deploy")
    else:
        text = ttl_cli(request.param, "--help").stdout
    found = re.findall(r"(?:eval \"|lease=)\$\(holdfast lock deploy.*\|\| exit", text)
    assert len(found) == 1, text
    (directory / "bin").mkdir()
    (directory / "bin" / "holdfast").symlink_to(BIN)

    def start(path):
        script = found[0] + '; echo "went on: $HOLDFAST_TOKEN"'
        process = Process(["/bin/sh", "-c", script], {**ttl_cli.env, "PATH": str(path)})
        ttl_cli.started.append(process)
        return process

    start.path = directory / "bin"
    return start


def test_the_documented_line_takes_the_lock(ttl_cli, documented):
    script = documented(documented.path)
    assert script.wait() == 0
    assert script.rest() == [f"went on: {ttl_cli.show('deploy')['holders'][0]['token']}"]


def test_the_documented_line_when_there_is_no_holdfast(documented, directory):
    """As under cron, whose PATH is short."""
    script = documented(directory / "no-such-folder")
    assert script.wait() == 127 and script.rest() == []


def test_the_documented_line_when_lock_is_killed(ttl_cli, documented):
    """Then it cannot say anything."""
    assert ttl_cli("lock", "deploy").status == 0
    script = documented(documented.path)
    os.kill(await_lock_waiting(ttl_cli, "deploy"), signal.SIGKILL)
    assert script.wait() == 137 and script.rest() == []


def test_a_signal_prints_nothing_for_eval_with_json(ttl_cli):
    assert ttl_cli("lock", "x").status == 0
    waiter = ttl_cli.start("lock", "x", "--json")
    ttl_cli.await_waiters("x")
    waiter.kill(signal.SIGTERM)
    assert waiter.wait() == 143 and waiter.rest() == []


def test_lines_are_as_documented(ttl_cli):
    one, two, three = ttl_cli("lock", "x", "--ttl", "5m").stdout.splitlines()
    assert one.startswith("HOLDFAST_LEASE=") and one.endswith("; export HOLDFAST_LEASE")
    assert two.startswith("HOLDFAST_TOKEN=") and two.endswith("; export HOLDFAST_TOKEN")
    assert three == "HOLDFAST_TTL=300000ms; export HOLDFAST_TTL"


def test_the_ttl_goes_with_its_lease(ttl_cli):
    """Of another lease, by hand, it says nothing."""
    locked = json.loads(ttl_cli("lock", "x", "--json", "--ttl", "1m").stdout)
    assert locked["ttl_ms"] == 60000
    words = ["--lease", locked["lease"], "--token", str(locked["token"])]
    env = {"HOLDFAST_LEASE": locked["lease"], "HOLDFAST_TOKEN": str(locked["token"]), "HOLDFAST_TTL": "2m"}
    assert int(ttl_cli("renew", "x", *words, env={"HOLDFAST_TTL": "2m"}).stdout) <= 60000
    assert 60000 < int(ttl_cli("renew", "x", env=env).stdout) <= 120000
    assert ttl_cli("renew", "x", env={**env, "HOLDFAST_TTL": "soon"}).status == 64


def test_lease_outlives_the_process_and_runs_out(ttl_cli):
    assert ttl_cli("lock", "x", "--ttl", "1s").status == 0
    assert ttl_cli("run", "-n", "x", "true").status == 75
    assert ttl_cli("run", "-w", "20s", "x", "true").status == 0


def test_json(ttl_cli):
    locked = json.loads(ttl_cli("lock", "x", "--json", "--ttl", "20s").stdout)
    assert locked["name"] == "x" and locked["mode"] == "exclusive" and 0 < locked["left_ms"] <= 20000
    words = ["x", "--lease", locked["lease"], "--token", str(locked["token"]), "--json"]
    renewed = json.loads(ttl_cli("renew", *words, "--ttl", "40s").stdout)
    assert renewed["token"] == locked["token"] and 20000 < renewed["left_ms"] <= 40000
    shown = ttl_cli.show("x")["holders"][0]
    assert locked["lease"] not in json.dumps(shown), "the lease is a secret"
    assert json.loads(ttl_cli("unlock", *words).stdout) == {"name": "x", "unlocked": True}
    assert ttl_cli("unlock", *words).status == 1


def test_shared_lock_needs_no_word_of_that(ttl_cli):
    """What was taken as shared is renewed and given up by its lease alone, and is nothing else on the way."""
    locked = json.loads(ttl_cli("lock", "x", "--shared", "--json").stdout)
    words = ["x", "--lease", locked["lease"], "--token", str(locked["token"]), "--json"]
    renewed = json.loads(ttl_cli("renew", *words).stdout)
    assert (locked["mode"], renewed["mode"]) == ("shared", "shared")
    assert ttl_cli("run", "-n", "--shared", "x", "true").status == 0
    assert ttl_cli("unlock", *words).status == 0
    assert ttl_cli("run", "-n", "x", "true").status == 0


def test_wrong_lease_touches_nothing(ttl_cli):
    locked = json.loads(ttl_cli("lock", "x", "--json").stdout)
    token = str(locked["token"])
    assert ttl_cli("unlock", "x", "--lease", "0123456789abcdef", "--token", token).status == 1
    assert ttl_cli("unlock", "x", "--lease", locked["lease"], "--token", str(int(token) + 1)).status == 1
    done = ttl_cli("unlock", "y", "--lease", locked["lease"], "--token", token)
    assert (done.status, done.stderr) == (1, "holdfast: this lease and token do not hold 'y': the hold was released, broken or not renewed in "
                                             "time, or is another name's\n")
    assert ttl_cli("check", "x", token).status == 0


def test_unlock_of_an_unreachable_store(ttl_cli):
    locked = json.loads(ttl_cli("lock", "x", "--json").stdout)
    ttl_cli.faults("unreachable", "on")
    done = ttl_cli("unlock", "x", "--lease", locked["lease"], "--token", str(locked["token"]))
    assert done.status == 69, done.stderr


def test_a_lease_that_nobody_could_read_is_given_up(ttl_cli):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN, "lock", "x"], env=ttl_cli.env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 69
    assert ttl_cli("run", "-n", "x", "true").status == 0


def test_nested_run_is_an_error(cli):
    done = cli("run", "x", "--", BIN, "run", "x", "true")
    assert done.status == 64 and "already runs under the lock 'x'" in done.stderr
    done = cli("run", "x", "--", BIN, "run", "y", "--", BIN, "run", "-s", "x", "true")
    assert done.status == 64, "also with another one between"
    assert cli("run", "x", "--", BIN, "elect", "x", "true").status == 64


def test_nested_run_of_another_name_or_store(cli, directory):
    other = directory / "other"
    other.mkdir(mode=0o700)
    assert cli("run", "x", "--", BIN, "run", "y", "--", "echo", "ran").stdout == "ran\n"
    done = cli("run", "x", "--", BIN, "--on", f"file:{other}", "run", "x", "--", "echo", "ran")
    assert done.stdout == "ran\n"


def test_nested_run_through_another_spelling(cli, directory):
    (directory / "link").symlink_to(directory / "locks")
    done = cli("run", "x", "--", BIN, "--on", f"file:{directory}/./locks", "run", "x", "true")
    assert done.status == 64


def test_leftover_environment_of_a_lock_that_is_over_does_no_harm(cli):
    held = cli("run", "x", "-c", 'echo "$HOLDFAST_HELD"').stdout.strip()
    assert cli("run", "-n", "x", "true", env={"HOLDFAST_HELD": held}).status == 0
    assert cli("run", "-n", "x", "true", env={"HOLDFAST_HELD": "garbage x:y  z"}).status == 0


def test_nested_on_the_test_store(ttl_cli):
    assert ttl_cli("run", "x", "--", BIN, "run", "x", "true").status == 64
    assert ttl_cli("run", "x", "--", BIN, "lock", "x").status == 64
