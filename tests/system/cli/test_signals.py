"""Signals: to a waiter, to a holder, and while only holding."""
import fcntl
import os
import pathlib
import signal
import struct
import subprocess
import time

import pytest
from conftest import BIN, await_gone, eventually, is_running

F_OFD_SETLK = 37  # Linux; Python's fcntl knows it from 3.9 on


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_waiter_gives_up_its_place(cli, number):
    holder = cli.hold("x")
    waiter = cli.start("run", "x", "--", "echo", "never")
    cli.await_waiters("x")
    waiter.kill(number)
    assert waiter.wait() == 128 + number
    assert waiter.rest() == []
    assert cli.show("x")["waiters"] == []
    assert holder.end() == 0


def test_waiter_gives_up_its_place_in_a_queue(ttl_cli):
    holder = ttl_cli.hold("x")
    waiter = ttl_cli.start("run", "x", "true")
    ttl_cli.await_waiters("x")
    waiter.kill(signal.SIGTERM)
    assert waiter.wait() == 143
    assert ttl_cli.show("x")["waiters"] == [], "at once, not when its lease runs out"
    assert holder.end() == 0


@pytest.fixture
def stopped_drawer(cli, directory):
    """As after a boot, with another process stopped while it makes the first draw: it has the lock of the counter."""
    assert cli("run", "before", "true").status == 0
    with open(directory / "locks" / "holdfast-state", "r+b", buffering=0) as state:
        state.seek(8)
        state.write(bytes(40))  # the boot id: another one
        fcntl.fcntl(state, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        yield state


def test_who_waits_for_a_stopped_drawer_can_be_ended(cli, stopped_drawer):
    waiter = cli.start("run", "--wait", "1m", "x", "--", "echo", "never")
    time.sleep(3)  # far longer than one attempt takes
    assert waiter.popen.poll() is None, "it goes on waiting"
    waiter.kill(signal.SIGTERM)
    assert waiter.wait() == 143
    assert waiter.rest() == []


def test_who_waits_for_a_stopped_drawer_goes_on_with_it(cli, stopped_drawer):
    assert cli("run", "-n", "x", "true").status == 69
    waiter = cli.start("run", "--wait", "1m", "x", "--", "echo", "ran")
    time.sleep(3)
    assert waiter.popen.poll() is None, "it goes on waiting"
    stopped_drawer.close()
    assert waiter.line() == "ran"
    assert waiter.wait() == 0


def test_signals_are_forwarded(cli):
    # A shell runs its traps between commands, so these must be short.
    script = 'for s in TERM INT HUP QUIT USR1 USR2; do trap "echo got $s" $s; done; ' \
             'echo in $HOLDFAST_TOKEN $$; while :; do sleep 0.02; done'
    holder = cli.hold("x", script=script)
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"]:
        holder.kill(getattr(signal, "SIG" + name))
        assert holder.line() == "got " + name
    os.kill(holder.job, signal.SIGKILL)
    assert holder.wait() == 137


def test_the_whole_group_gets_it(cli):
    holder = cli.start("run", "x", "--", "sh", "-c", 'trap "" TERM; (trap - TERM; echo $$; exec sleep 100) & echo $!; wait; echo over')
    work = max(int(holder.line()), int(holder.line()))
    holder.kill(signal.SIGTERM)
    assert holder.line() == "over"
    assert holder.wait() == 0
    assert not is_running(work)


def test_death_by_signal_is_reported(cli):
    holder = cli.hold("x", script="echo in $HOLDFAST_TOKEN $$; read line; kill -TERM $$")
    assert holder.end() == 143
    assert cli("run", "x", "-c", "kill -9 $$").status == 137


def test_ignored_signals_stay_ignored(cli):
    """nohup must go on working."""
    process = subprocess.Popen(["sh", "-c", f'trap "" HUP; exec {BIN} run x -- sh -c "echo in; read line; echo out"'],
                               env=cli.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate("go\n", timeout=30)
    assert (out, process.returncode) == ("out\n", 0)


def test_ignored_signals_do_not_end_a_wait(cli):
    holder = cli.hold("x")
    waiter = cli.start("run", "x", "--", "echo", "mine", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    cli.await_waiters("x")
    waiter.kill(signal.SIGHUP)
    assert holder.end() == 0
    assert waiter.line() == "mine"
    assert waiter.wait() == 0


def test_child_sees_the_mask_and_dispositions_we_inherited(cli):
    """Not ours: we block signals to read them."""
    want = subprocess.run(["grep", "^Sig[BIC]", "/proc/self/status"], capture_output=True, text=True).stdout
    done = cli("run", "x", "--", "grep", "^Sig[BIC]", "/proc/self/status")
    assert done.stdout == want


def test_ignored_sigchld_does_not_hide_the_status(cli):
    done = subprocess.run(["sh", "-c", f'{BIN} run x -- sh -c "exit 7"'], env=cli.env,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), timeout=30)
    assert done.returncode == 7


def test_stopped_job_ends_when_told(cli):
    holder = cli.hold("x", script="echo in $HOLDFAST_TOKEN $$; exec sleep 100")
    os.kill(-holder.job, signal.SIGSTOP)
    eventually(lambda: pathlib.Path(f"/proc/{holder.job}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "stopped")
    holder.kill(signal.SIGTERM)
    assert holder.wait() == 143


def test_hold_at_least_keeps_it_and_a_signal_ends_that(cli):
    holder = cli.start("run", "--hold-at-least", "1h", "x", "--", "sh", "-c", "echo $$")
    job = int(holder.line())
    await_gone(job)
    assert cli("run", "-n", "x", "true").status == 75, "kept though the job is over"
    holder.kill(signal.SIGTERM)
    assert holder.wait() == 143
    assert cli("run", "-n", "x", "true").status == 0


def test_a_signal_to_the_job_ends_hold_at_least_too(cli):
    """It may come as the job ends, before that is known: whoever sent it wants an end, and does not send it again."""
    holder = cli.start("run", "--hold-at-least", "1h", "x", "--", "sh", "-c", "trap 'exit 3' TERM; echo $$; while :; do sleep 0.05; done")
    holder.line()
    holder.kill(signal.SIGTERM)
    assert holder.wait() == 143
    assert cli("run", "-n", "x", "true").status == 0


def test_hold_at_least_ends(cli):
    holder = cli.start("run", "--hold-at-least", "300ms", "x", "--", "sh", "-c", "echo out; exit 3")
    assert holder.line() == "out"
    assert cli("run", "-n", "x", "true").status == 75
    assert holder.wait() == 3
    assert cli("run", "-n", "x", "true").status == 0


def test_child_does_not_outlive_kill_9(ttl_cli):
    holder = ttl_cli.hold("x", script="echo in $HOLDFAST_TOKEN $$; exec sleep 100")
    holder.kill(signal.SIGKILL)
    await_gone(holder.job)


def test_no_descriptor_of_ours_leaks_into_the_job(cli):
    """Only the lock itself, and with --close not even that."""
    listing = "ls -l /proc/self/fd | grep -v ' -> /proc/' | awk '$9 > 2 {print $9, $11}'"
    plain = cli("run", "x", "-c", listing).stdout.splitlines()
    assert len(plain) == 1 and int(plain[0].split()[0]) >= 100, plain
    assert cli("run", "x", "--close", "-c", listing).stdout == ""
    eventually(lambda: cli("run", "-n", "x", "true").status == 0, "free")
