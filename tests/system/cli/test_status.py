"""Every exit status, usage errors and help."""
import glob
import json
import os
import signal
import subprocess

import pytest
from conftest import BIN, FAULTS, Cli

COMMANDS = "run lock renew unlock elect leader check ls show watch break floor stores cluster user bench".split()


def test_child_status_is_ours(cli):
    for status in (0, 1, 7, 64, 75, 76, 255):
        assert cli("run", "x", "--", "sh", "-c", f"exit {status}").status == status


def test_not_found_and_not_executable(cli, directory):
    plain = directory / "plain"
    plain.write_text("#!/bin/sh\n")
    plain.chmod(0o644)
    done = cli("run", "x", "--", "no-such-command-at-all")
    assert done.status == 127 and "no-such-command-at-all" in done.stderr
    done = cli("run", "x", "--", str(plain))
    assert done.status == 126 and done.stderr.startswith("holdfast: ")
    assert cli("run", "x", "--", str(directory)).status == 126
    assert cli("run", "-n", "x", "true").status == 0, "and the lock is free again"
    for command in ("run", "once", "elect"):
        done = cli(command, "x", "echo hi && echo there")
        assert done.status == 127 and done.stderr == ("holdfast: cannot run 'echo hi && echo there': No such file or directory (-c TEXT runs TEXT "
                                                      "with the shell)\n")


def test_busy(cli):
    holder = cli.hold("x", "--owner", "the first")
    done = cli("run", "-n", "x", "true")
    assert done.status == 75 and "the first" in done.stderr
    assert cli("run", "-n", "-q", "x", "true").stderr == ""
    assert cli("run", "-w", "0", "x", "true").status == 75
    assert cli("run", "-w", "0.1", "x", "true").status == 75
    assert cli("run", "--wait=100ms", "x", "true").status == 75
    assert cli("run", "-n", "-E", "9", "x", "true").status == 9
    assert cli("run", "-nE0", "x", "true").status == 0
    assert cli("run", "-s", "-n", "x", "true").status == 75
    assert holder.end() == 0
    assert cli("run", "-n", "x", "true").status == 0


def test_shared_holders_share(cli):
    holder = cli.hold("x", "-s")
    assert cli("run", "-s", "-n", "x", "true").status == 0
    assert cli("run", "-n", "x", "true").status == 75
    assert holder.end() == 0


def test_other_permits_refused(cli):
    holder = cli.hold("x", "--permits", "3")
    assert cli("run", "-n", "--permits", "4", "x", "true").status == 77
    assert holder.end() == 0


def test_too_weak(directory):
    if not FAULTS:
        pytest.skip("no test store")
    weak = Cli(f"testweak:{directory}/weak")
    done = weak("run", "--need", "strict", "x", "--", "echo", "ran")
    assert (done.status, done.stdout) == (78, "")
    assert weak("run", "x", "--", "echo", "ran").stdout == "ran\n"


def test_module_that_does_not_fit(directory):
    if not FAULTS:
        pytest.skip("no test store")
    done = Cli(f"testabi:{directory}/x")("run", "x", "true")
    assert done.status in (64, 69) and done.stderr.startswith("holdfast: ")


def test_unreachable_and_unknown(ttl_cli):
    for fault in ("unreachable", "lose-request", "lose-reply"):
        ttl_cli.faults(fault, "on")
        done = ttl_cli("run", "-n", "x", "--", "echo", "ran")
        assert (done.status, done.stdout) == (69, ""), (fault, done.stderr)
        ttl_cli.faults("clear")
    ttl_cli.faults("unreachable", "on")
    assert ttl_cli("run", "x", "true").status == 69, "not a wait without end"
    ttl_cli.faults("clear")
    ttl_cli.faults("refuse", "acquire", "on")
    assert ttl_cli("run", "-n", "x", "true").status == 77


def test_outage_while_waiting_is_sat_out(ttl_cli):
    holder = ttl_cli.hold("x", "--ttl", "20s")
    waiter = ttl_cli.start("run", "--ttl", "20s", "x", "--", "echo", "mine")
    ttl_cli.await_waiters("x")
    ttl_cli.faults("unreachable", "acquire", "3")
    ttl_cli.faults("unreachable", "show", "1")
    assert "still trying" in waiter.line("err")
    assert holder.end() == 0
    assert waiter.line() == "mine"
    assert waiter.wait() == 0


def test_need_strict_on_a_strict_store(cli):
    assert cli("run", "--need", "strict", "x", "true").status == 0


@pytest.mark.parametrize("args", [
    [],
    ["no-such-command"],
    ["--no-such-option", "ls"],
    ["--on"],
    ["run"],
    ["run", "x"],
    ["run", "x", "--"],
    ["run", "", "true"],
    ["run", "x" * 513, "true"],
    ["run", "--ttl", "30s", "x", "true"],  # on a store without TTL
    ["run", "--ttl", "0", "x", "true"],
    ["run", "--ttl", "-5", "x", "true"],
    ["run", "--ttl", "25h", "x", "true"],
    ["run", "--ttl", "99999999999999999999d", "x", "true"],
    ["run", "--ttl", "soon", "x", "true"],
    ["run", "--ttl"],
    ["run", "--wait", "-1", "x", "true"],
    ["run", "--wait", "5 s", "x", "true"],
    ["run", "--permits", "0", "x", "true"],
    ["run", "--permits", "1025", "x", "true"],
    ["run", "--permits", "2", "-s", "x", "true"],
    ["run", "-E", "256", "x", "true"],
    ["run", "--need", "speed", "x", "true"],
    ["run", "--on-lost", "cry", "x", "true"],
    ["run", "--max-hold", "1s", "--grace", "600ms", "x", "true"],
    ["run", "--max-hold", "1s", "--hold-at-least", "2s", "x", "true"],
    ["run", "--owner", "o" * 129, "x", "true"],
    ["run", "--delay", "1s", "x", "true"],  # on a store without lock-delay
    ["run", "--json", "x", "true"],
    ["run", "-c", "true", "x", "true"],
    ["run", "x", "-c", ""],
    ["once", "x", "-c", ""],
    ["lock", "x"],  # a hold in a file store lives with its process
    ["renew", "x"],
    ["unlock", "x", "--lease", "abc", "--token", "1"],
    ["elect", "x", "--on-lost", "ignore", "true"],
    ["leader"],
    ["check"],
    ["check", "x", "0"],
    ["check", "x", "9007199254740992"],
    ["check", "not-a-sequencer"],
    ["ls", "a", "b"],
    ["ls", "--no-such"],
    ["show"],
    ["show", "a", "b"],
    ["watch"],
    ["break"],
    ["break", "x", "--now", "--grace", "1s"],
    ["floor", "-1"],
    ["floor", "0"],
    ["floor", "9007199254740991"],
    ["stores", "x"],
    ["cluster"],
    ["cluster", "stats"],
    ["cluster", "status", "1"],
    ["cluster", "status", "--no-wait"],
    ["cluster", "status", "--wait", "0"],
    ["cluster", "status"],  # on a store without a cluster
    ["cluster", "init", "1"],
    ["cluster", "init"],  # on a store without a cluster
    ["cluster", "add", "4"],
    ["cluster", "add", "4", "nowhere"],
    ["cluster", "add", "4", "host:1,host:2"],
    ["cluster", "add", "0", "host:1"],
    ["cluster", "add", "x", "host:1"],
    ["cluster", "add", "4294967297", "host:1"],
    ["cluster", "add", "4", "host:1", "more"],
    ["cluster", "add", "4", "host:1"],
    ["cluster", "remove"],
    ["cluster", "remove", "-1"],
    ["cluster", "remove", "1", "2"],
    ["cluster", "remove", "1"],
    ["cluster", "transfer", "1", "2"],
    ["cluster", "transfer"],
    ["--on", "nonsense:", "ls"],
    ["--on", "no scheme", "ls"],
    ["--on", "file:/x?no-such-option=1", "ls"],
])
def test_usage(cli, args):
    done = cli(*args, env={"HOLDFAST_LEASE": "", "HOLDFAST_TOKEN": ""})
    assert done.status == 64, done.stderr
    assert done.stdout == ("(exit 64)\n" if "lock" in args else "")  # for eval
    if args:
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("holdfast: "), done.stderr


@pytest.mark.parametrize("args, meant", [
    (["rnu", "x", "true"], "'run'"),
    (["unlok", "x"], "'unlock'"),
    (["shwo", "x"], "'show'"),
    (["run", "--tll", "5s", "x", "true"], "'--ttl'"),
    (["run", "--nowait", "x", "true"], "'--no-wait'"),
    (["ls", "--jsn"], "'--json'"),
    (["cluster", "stauts"], "'status'"),
    (["list"], "'ls'"),
    (["status"], "'cluster status'"),
    (["release", "x"], "'unlock'"),
])
def test_did_you_mean(cli, args, meant):
    done = cli(*args)
    assert done.status == 64
    assert f"did you mean {meant}?" in done.stderr


def test_ttl_on_the_file_store_says_what_to_use(cli):
    assert "--max-hold" in cli("run", "--ttl", "30s", "x", "true").stderr


def test_lock_on_the_file_store_says_what_to_use(cli):
    assert "holdfast run" in cli("lock", "x").stderr


def test_explicit_grace_above_half_the_ttl(ttl_cli):
    assert ttl_cli("run", "--ttl", "2s", "--grace", "1.1s", "x", "true").status == 64
    assert ttl_cli("run", "--ttl", "2s", "--grace", "1s", "x", "true").status == 0
    assert ttl_cli("run", "--ttl", "2s", "x", "true").status == 0


def test_options_before_and_after_the_name(cli):
    for args in (["run", "-n", "x", "echo", "-n", "ran"], ["run", "x", "-n", "--", "echo", "-n", "ran"],
                 ["run", "-n", "--", "x", "--", "echo", "-n", "ran"], ["run", "x", "-n", "echo", "-n", "ran"],
                 ["run", "--", "x", "--", "echo", "-n", "ran"]):
        assert cli(*args).stdout == "ran", args
    assert cli("run", "--", "-x", "echo", "ran").stdout == "ran\n", "a name that begins with a dash"


@pytest.mark.parametrize("command", ["run", "elect", "once"])
def test_the_name_was_forgotten(cli, command):
    """'echo' would be the lock, and 'ran' the command."""
    done = cli(command, "--", "echo", "ran")
    assert (done.status, done.stdout) == (64, "")
    assert "which lock? before '--' there is no NAME; usage: holdfast " + command in done.stderr


def test_shell_command(cli):
    assert cli("run", "x", "-c", "echo $HOLDFAST_NAME; exit 4", env={"SHELL": "/bin/sh"}).stdout == "x\n"
    done = cli("run", "x", "-c", "exit 4", env={"SHELL": ""})
    assert done.status == 4


def test_help():
    for args in (["--help"], ["help"], ["-h"]):
        done = subprocess.run([BIN, *args], capture_output=True, text=True)
        assert done.returncode == 0 and all(f"  {c} " in done.stdout for c in COMMANDS)
    for command in COMMANDS:
        for args in ([command, "--help"], ["help", command], [command, "-h"]):
            done = subprocess.run([BIN, *args], capture_output=True, text=True)
            assert done.returncode == 0 and done.stderr == ""
            for part in (f"usage: holdfast [--on URL] {command}", "Options:", "Examples:", "Exit status:"):
                assert part in done.stdout, (command, part)
            assert (" DUR" in done.stdout.split("Options:")[1]) == ("a bare number is seconds" in done.stdout), command
    version = subprocess.run([BIN, "--version"], capture_output=True, text=True)
    assert version.returncode == 0 and version.stdout.startswith("holdfast 0.")


def test_full_output_is_an_error(cli):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN, "stores"], env=cli.env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 69 and done.stderr.count("cannot write") == 1
    assert done.stderr.endswith(": No space left on device\n"), "whatever went wrong after it"


@pytest.mark.parametrize("command", ["run", "once", "lock"])
@pytest.mark.parametrize("order", [("-n", "--wait", "3"), ("--wait", "3", "-n")], ids=" ".join)
def test_waiting_and_not_waiting_exclude_each_other(cli, command, order):
    done = cli(command, *order, "x", *([] if command == "lock" else ["--", "true"]))
    assert done.status == 64 and "leave out one of the two" in done.stderr, done


def test_a_floor_that_leaves_no_tokens_is_called_too_high(cli):
    done = cli("floor", "9007199254740990")
    assert done.status == 77 and "so high a floor" in done.stderr, done
    assert cli("run", "x", "--", "true").status == 0


def test_on_beats_the_environment(cli, directory):
    other = directory / "other"
    other.mkdir(mode=0o700)
    holder = cli.hold("x")
    assert cli("--on", f"file:{other}", "run", "-n", "x", "true").status == 0
    assert cli("run", "-n", "--on", f"file:{other}", "x", "true").status == 0
    assert cli("run", "-n", "x", "true").status == 75
    assert holder.end() == 0


def test_environment_of_the_job(cli):
    done = cli("run", "a/b", "-c", "env", env={"HOLDFAST_LEASE": "secret", "HOLDFAST_PASSWORD": "secret"})
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert env["HOLDFAST_NAME"] == "a/b"
    assert int(env["HOLDFAST_TOKEN"]) > 0
    assert env["HOLDFAST_URL"] == cli.url
    assert env["HOLDFAST_SEQUENCER"]
    assert "secret" not in done.stdout


def test_verbose(cli):
    done = cli("run", "-v", "x", "true")
    assert done.status == 0 and "token" in done.stderr
    assert done.stderr.splitlines()[-1] == "holdfast: 'x' is free again; the job ended with 0"


LEFT_BEHIND = "sleep 100 >/dev/null 2>&1 & echo $!"


def test_what_the_job_left_behind_holds_on(cli):
    done = cli("run", "-v", "x", "-c", LEFT_BEHIND)
    child = int(done.stdout)
    try:
        assert done.stderr.splitlines()[-1] == "holdfast: the job ended with 0, and a process that it left behind still holds 'x' (--close lets go)"
        (holder,) = cli.show("x")["holders"]
        assert (f"\nx: process {holder['pid']} has ended, and one that it left behind holds the lock (or it runs in another container)\n"
                in cli("show", "x").stdout)
        broken = cli("break", "x", "--grace", "0").stdout
        assert broken.startswith("broke 1 hold of 'x'\n"), broken
    finally:
        os.kill(child, signal.SIGKILL)
    done = cli("run", "-v", "--close", "y", "-c", LEFT_BEHIND)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.stderr.splitlines()[-1] == "holdfast: 'y' is free again; the job ended with 0"


def test_a_break_tells_nobody_whose_process_has_ended(cli):
    child = int(cli("run", "x", "-c", LEFT_BEHIND).stdout)
    try:
        broken = cli("break", "x", "--grace", "10ms").stdout
    finally:
        os.kill(child, signal.SIGKILL)
    assert broken == ("broke 1 hold of 'x'\nOf the holder the process that took it is not to be seen from here. It runs in another container, and has "
                      "been told; or it has ended, and one that it left behind held on, which cannot be told, and runs on: only a guard keeps "
                      "its writes out, once somebody with a newer token has entered it.\n")


def test_default_directory(directory):
    """XDG for people; not tried as root, whose default is the system's."""
    if os.geteuid() == 0:
        pytest.skip("root's default is /var/lib/holdfast")
    cli = Cli("")
    del cli.env["HOLDFAST_URL"]
    done = cli("stores", env={"HOME": str(directory), "XDG_STATE_HOME": ""})
    assert f"{directory}/.local/state/holdfast" in done.stdout


@pytest.mark.parametrize("jump", ["-20y", "+20y"])
def test_a_jump_of_the_wall_clock_changes_nothing(cli, jump):
    """No decision asks it: waits, maximum holds and what is kept count on a clock that only runs."""
    library = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
    if not library:
        pytest.skip("libfaketime is not here")
    elsewhen = {"LD_PRELOAD": library, "FAKETIME": jump, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    before = int(cli("run", "x", "-c", "echo $HOLDFAST_TOKEN").stdout)
    assert int(cli("run", "x", "-c", "echo $HOLDFAST_TOKEN", env=elsewhen).stdout) > before
    assert cli("once", "--keep", "1h", "k", "echo", "first", env=elsewhen).stdout == "first\n"
    assert cli("once", "k", "echo", "second").stdout == "first\n"
    holder = cli.hold("x")
    assert cli("run", "-w", "200ms", "x", "true", env=elsewhen).status == 75
    entry = cli("show", "x", "--json", env=elsewhen)
    assert 0 <= json.loads(entry.stdout)["holders"][0]["age_ms"] < 3600_000, entry.stdout
    assert holder.end() == 0
    assert cli("run", "--max-hold", "200ms", "x", "sleep", "100", env=elsewhen).status == 76


def test_a_tilde_that_no_shell_expanded(cli, tmp_path):
    said = cli("--on", "file:~/locks", "run", "x", "true", cwd=tmp_path)
    assert said.status == 64 and "file:$HOME/" in said.stderr and not (tmp_path / "~").exists(), said.stderr


@pytest.mark.parametrize("how", ["--on", "HOLDFAST_URL"])
@pytest.mark.parametrize("words", [["run", "x", "echo", "in"], ["ls"], ["lock", "x"], ["stores"]], ids=" ".join)
def test_an_empty_url_is_no_url(cli, how, words):
    """A variable that a script forgot to set is not a wish for locks in local files."""
    done = cli("--on", "", *words) if how == "--on" else cli(*words, env={"HOLDFAST_URL": ""})
    assert done.status == 64 and "in\n" not in done.stdout
    assert how in done.stderr and "is empty" in done.stderr, done.stderr


@pytest.mark.parametrize("url, said", [
    ("fil:/tmp/x", "no store has the scheme 'fil:': did you mean 'file:'?"),
    ("zookeper://h", "no store has the scheme 'zookeper:': did you mean 'zookeeper:'?"),
    ("hodlfast://h", "no store has the scheme 'hodlfast:': did you mean 'holdfast:'?"),
    ("memcached://h", "no store has the scheme 'memcached:' (see 'holdfast stores')"),
    *((f"{module}://h", f"no store has the scheme '{module}:' (see 'holdfast stores')") for module in ("fence", "http", "sqlite", "tls")),
    ("localhost:7420", "store URL: it does not begin with a scheme: holdfast://localhost:7420 is a holdfastd there (see 'holdfast stores')"),
    ("10.0.0.1:7420,10.0.0.2", "store URL: it does not begin with a scheme: holdfast://10.0.0.1:7420,10.0.0.2 is a holdfastd there (see 'holdfast stores')"),
    ("ann:4711@db1", "no store has the scheme 'ann:' (see 'holdfast stores')"),
    ("/tmp/x", "store URL: it does not begin with a scheme: file:/tmp/x is files in that directory (see 'holdfast stores')"),
    ("HOLDFAST://h", "store URL: write its scheme in small letters"),
    ("File:/tmp/x", "store URL: write its scheme in small letters"),
    ("holdfast://h?colour=red", "store URL: 'colour' is not an option of a holdfast store"),
    ("etcd://h?colour=red", "store URL: 'colour' is not an option of an etcd store"),
    ("holdfast://h?tll=5s", "store URL: 'tll' is not an option of a holdfast store: did you mean 'ttl'?"),
    ("redis://h?perfix=x", "store URL: 'perfix' is not an option of a redis store: did you mean 'prefix'?"),
    ("file:/tmp/x?alow=tmpfs", "store URL: 'alow' is not an option of a file store: did you mean 'allow'?"),
    ("etcd://h?ttl=25h", "store URL: ttl=25h is not a duration from 100ms to 1d"),
])
def test_what_is_wrong_with_a_url(cli, url, said):
    if url.startswith("etcd:") and '"missing"' in [line for line in cli("stores", "--json").stdout.splitlines() if '"etcd"' in line][0]:
        pytest.skip("no etcd store in this build")
    done = cli("--on", url, "run", "x", "--", "true")
    assert (done.status, done.stderr) == (64, f"holdfast: {said}\n")


def test_limits_are_written_as_they_can_be_typed(cli):
    done = cli("run", "-w", "9999d", "x", "--", "true")
    assert done.status == 64 and "--wait '9999d' is not a duration from 0 to 366d, such as 500ms, 30s or 5m30s" in done.stderr
    assert cli("run", "-w", "366d", "x", "--", "true").status == 0
    assert cli("run", "-w", "1m30s", "x", "--", "true").status == 0
