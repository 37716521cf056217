"""What happens to the job when its lock is being lost."""
import os
import re
import signal
import subprocess
import time

from conftest import BIN, PATIENCE, await_gone, eventually, is_running, shell_status

# Says when it is told to end, and does not care.
STUBBORN = 'trap "echo term" TERM; echo in $HOLDFAST_TOKEN $$; while :; do sleep 0.02; done'
OBEDIENT = 'echo in $HOLDFAST_TOKEN $$; exec sleep 100'


def left_ms(cli, name):
    holders = cli.show(name)["holders"]
    return holders[0]["left_ms"] if holders else 0


def test_max_hold(cli):
    started = time.monotonic()
    holder = cli.hold("x", "--max-hold", "600ms", script=STUBBORN)
    assert holder.line() == "term"
    assert holder.wait() == 76
    assert time.monotonic() - started >= 0.5, "not long before its time"
    assert not is_running(holder.job)
    assert any("maximum" in line for line in holder.rest("err"))
    assert cli("run", "-n", "x", "true").status == 0


def test_max_hold_is_no_trouble_for_a_quick_job(cli):
    assert cli("run", "--max-hold", "10s", "x", "--", "sh", "-c", "exit 3").status == 3


def test_max_hold_kill(cli):
    holder = cli.hold("x", "--max-hold", "300ms", "--on-lost", "kill", script=STUBBORN)
    assert holder.wait() == 76
    assert holder.rest() == [], "no SIGTERM"
    assert not is_running(holder.job)


def test_max_hold_ignore(cli):
    holder = cli.hold("x", "--max-hold", "200ms", "--on-lost", "ignore")
    assert "lost" in holder.line("err")
    assert is_running(holder.job)
    assert holder.end() == 76, "whatever the job returned"


def test_unreachable_store(ttl_cli, directory):
    """SIGTERM when what is left equals the grace, SIGKILL at zero, all before the store gives the lock to
    the next one."""
    log = directory / "log"
    script = f'trap "echo term" TERM; echo in $HOLDFAST_TOKEN $$; while :; do echo old >>{log}; sleep 0.002; done'
    holder = ttl_cli.hold("x", "--ttl", "3s", "--grace", "1s", script=script)
    second = ttl_cli.start("run", "x", "--", "sh", "-c", f"echo new >>{log}")
    ttl_cli.await_waiters("x")
    for call in ("renew", "release"):
        ttl_cli.faults("unreachable", call, "on")
    assert holder.line() == "term"
    assert 0 < left_ms(ttl_cli, "x") <= 1300
    assert holder.wait() == 76
    assert not is_running(holder.job)
    assert second.wait() == 0
    words = log.read_text().split()
    assert words.count("new") == 1 and words[-1] == "new", "never two inside"
    assert any("lost 'x'" in line and "stopping the job" in line for line in holder.rest("err"))


def test_obedient_job_is_not_killed_late(ttl_cli):
    holder = ttl_cli.hold("x", "--ttl", "3s", "--grace", "1s", script=OBEDIENT)
    ttl_cli.faults("unreachable", "renew", "on")
    assert holder.wait() == 76
    assert not is_running(holder.job)


def test_short_outage_does_no_harm(ttl_cli):
    holder = ttl_cli.hold("x", "--ttl", "3s")
    ttl_cli.faults("counts", "reset")
    ttl_cli.faults("unreachable", "renew", "1")

    def renewed():
        counts = dict(line.split() for line in ttl_cli.faults("counts").splitlines())
        return int(counts["renew"]) >= 2
    eventually(renewed, "a second renewal")
    assert holder.end() == 0


def test_hanging_store(ttl_cli):
    """A renewal that never answers must not hold up the decision."""
    holder = ttl_cli.hold("x", "--ttl", "2s", "--grace", "500ms", script=STUBBORN)
    ttl_cli.faults("hang", "renew", "on")
    assert holder.line() == "term"
    assert holder.wait() == 76
    assert not is_running(holder.job)
    assert left_ms(ttl_cli, "x") >= 0


def test_expired_behind_our_back(ttl_cli):
    """The store ended the lease: told at the next renewal, TERM, then KILL."""
    holder = ttl_cli.hold("x", "--ttl", "1s", "--grace", "100ms", script=STUBBORN)
    ttl_cli.faults("expire", "x")
    assert holder.wait() == 76
    assert not is_running(holder.job)


def test_break_told_and_ended(cli):
    holder = cli.hold("x", "--grace", "300ms", script=STUBBORN)
    done = cli("break", "x")
    assert done.status == 0 and "broke 1 hold of 'x'" in done.stdout
    assert holder.line() == "term"
    assert holder.wait() == 76
    assert not is_running(holder.job)
    assert any("lost 'x'" in line for line in holder.rest("err"))
    next_one = cli.hold("x")
    assert next_one.token > holder.token, "the fence rises"
    assert next_one.end() == 0


def test_break_of_a_stopped_holder(cli):
    """SIGSTOP of the holder: break waits its grace, then the next one gets in; the old one learns of it
    when it goes on."""
    holder = cli.hold("x", "--grace", "300ms", script=STUBBORN)
    holder.kill(signal.SIGSTOP)
    try:
        done = cli("break", "x", "--grace", "200ms")
        assert done.status == 0, done.stderr
        second = cli.hold("x", "-w", "10s")
        assert second.token > holder.token
        assert cli("check", "x", str(holder.token)).status == 1
        assert cli("check", "x", str(second.token)).status == 0
    finally:
        holder.kill(signal.SIGCONT)
    assert holder.wait() == 76
    assert not is_running(holder.job)
    assert cli("check", "x", str(second.token)).status == 0, "and touches nothing of theirs"
    assert second.end() == 0


def test_break_now(cli):
    holder = cli.hold("x", script=OBEDIENT)
    done = cli("break", "--now", "x")
    assert done.status == 0 and "guard" in done.stdout
    assert holder.wait() == 76
    await_gone(holder.job)


def test_a_killed_break_still_withholds_the_name(cli):
    """Whoever broke it is gone, and the old holder has not let go: nobody else gets in, but for --now."""
    for way_out in ("let go", "--now", "grace"):
        holder = cli.hold("x", "--on-lost", "ignore")
        breaker = cli.start("break", "x", "--grace", "2s" if way_out == "grace" else "1h")
        assert "lost 'x'" in holder.line("err")
        breaker.kill(signal.SIGKILL)
        breaker.wait()
        assert cli("run", "--wait=0", "x", "true").status == 75
        if way_out == "let go":
            holder.end()
        elif way_out == "--now":
            assert cli("break", "x", "--now").status == 0
        second = cli.hold("x", "-w", "20s")
        assert second.token > holder.token
        assert second.end() == 0
        if way_out != "let go":
            holder.end()


def test_break_on_a_store_with_ttl(ttl_cli):
    holder = ttl_cli.hold("x", "--ttl", "1s", script=OBEDIENT)
    assert ttl_cli("break", "x").status == 0
    assert holder.wait() == 76
    assert not is_running(holder.job)
    second = ttl_cli.hold("x")
    assert second.token > holder.token
    assert second.end() == 0


def test_group_survivors_are_killed(cli):
    """The child obeys, one it started does not: nobody of the group may run on after a loss."""
    script = 'sh -c \'trap "" TERM; echo $$; while :; do sleep 0.05; done\' & read x; exec sleep 100'
    holder = cli.start("run", "--grace", "300ms", "x", "--", "sh", "-c", script)
    survivor = int(holder.line())
    holder.say("go")
    assert cli("break", "x", "--grace", "5s").status == 0
    assert holder.wait() == 76
    assert not is_running(survivor)


def test_stopped_job_is_ended_too(cli):
    holder = cli.hold("x", "--max-hold", "400ms", script=OBEDIENT)
    os.kill(-holder.job, signal.SIGSTOP)
    assert holder.wait() == 76
    assert not is_running(holder.job)


def test_holdfast_stopped_past_its_ttl(ttl_cli):
    """Pause: nothing can stop the job in time, but on waking it is killed at once, and the next holder's lock
    is not touched."""
    holder = ttl_cli.hold("x", "--ttl", "1s", script=STUBBORN)
    holder.kill(signal.SIGSTOP)
    try:
        second = ttl_cli.hold("x", "-w", "20s")
    finally:
        holder.kill(signal.SIGCONT)
    assert holder.wait() == 76
    assert holder.rest() == [], "no time for SIGTERM: somebody else is inside"
    assert not is_running(holder.job)
    assert ttl_cli("check", "x", str(second.token)).status == 0
    assert second.end() == 0


def test_a_terminal_that_stands_still(cli):
    """Whoever reads our stderr does not: the job that does not obey is killed in time all the same."""
    master, slave = os.openpty()
    os.set_blocking(slave, False)
    try:
        while True:
            os.write(slave, b"x" * 1000)
    except BlockingIOError:
        os.set_blocking(slave, True)
    script = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
    holder = subprocess.Popen([BIN, "run", "--grace", "300ms", "x", "--", "sh", "-c", script], env=cli.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, text=True)
    try:
        job = int(holder.stdout.readline())
        assert cli("break", "x", "--grace", "60s").status == 0
        assert not is_running(job), "it ran on after its lock was another's"
        assert shell_status(holder.wait(PATIENCE)) == 76
    finally:
        os.close(master)
        os.close(slave)
        holder.kill()
        holder.wait()


def test_a_job_that_is_given_time_to_end_before_its_maximum_hears_so(cli):
    """Nothing was held for its maximum yet."""
    process = cli.start("run", "--max-hold", "6s", "--grace", "3s", "x", "--", "sleep", "100")
    assert process.wait() == 76
    (line,) = process.rest("err")
    assert re.fullmatch(r"holdfast: lost 'x' \(token \d+\): (3\.0|2\.\d) s are left of its maximum of 6\.0 s, so that the job has time to end; "
                        r"stopping the job", line), line
