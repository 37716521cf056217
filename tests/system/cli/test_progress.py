"""A job that hangs does not hold its lock for ever: --progress, and how a job reports."""
import os
import pathlib
import re
import subprocess
import sys
import time

from conftest import BIN, is_running
from holdfast_cli import objects

HANGS = "echo in $HOLDFAST_TOKEN $$; exec sleep 100"
QUIET_FOR = re.compile(r"no progress was reported for .*\(--progress ")


def cpu_ms(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def test_a_job_that_hangs_loses_its_lock(ttl_cli):
    """Whoever waits gets it, with a greater token, when the first job is no more."""
    holder = ttl_cli.hold("x", "--ttl", "1500ms", "--progress", "500ms", script=HANGS)
    second = ttl_cli.start("run", "x", "--", "sh", "-c", f"kill -0 {holder.job} 2>/dev/null; echo $? $HOLDFAST_TOKEN")
    alive, token = second.line().split()
    assert alive == "1", "the first had ended"
    assert int(token) > int(holder.token)
    assert holder.wait() == 76
    lines = holder.rest("err")
    assert any(QUIET_FOR.search(line) and "is not renewed" in line and "stopping the job" in line for line in lines), lines
    assert second.wait() == 0


def test_on_a_store_without_ttl(cli):
    holder = cli.hold("x", "--progress", "500ms", script=HANGS)
    assert holder.wait() == 76
    assert not is_running(holder.job)
    assert any(QUIET_FOR.search(line) and "is given up" in line for line in holder.rest("err"))
    assert cli("run", "-n", "x", "true").status == 0


def test_what_is_done_on_loss_is_done(ttl_cli):
    holder = ttl_cli.hold("x", "--ttl", "900ms", "--progress", "100ms", "--on-lost", "ignore")
    assert "no progress was reported" in holder.line("err")
    assert is_running(holder.job)
    assert holder.end() == 76, "whatever the job returned"


def reporting(command, every="0.1"):
    """Three seconds of work, of which the lock would last less than half without reports."""
    return f"for i in $(seq 30); do sleep {every}; {command} || exit 9; done"


def test_a_job_that_reports_keeps_its_lock(ttl_cli):
    """By its descriptor, by the command, and from a program that closes what it has inherited."""
    child = f"{sys.executable} -c 'import subprocess, sys; sys.exit(subprocess.call([\"{BIN}\", \"progress\"], close_fds=True))'"
    for command in ("echo > /dev/fd/$HOLDFAST_PROGRESS_FD", f"{BIN} progress", child):
        done = ttl_cli("run", "x", "--ttl", "1s", "--progress", "1s", "--", "sh", "-c", reporting(command))
        assert done.status == 0, (command, done.stderr)
    done = ttl_cli("run", "x", "--ttl", "1s", "--progress", "1s", "--", "bash", "-c", reporting("echo >&$HOLDFAST_PROGRESS_FD"))
    assert done.status == 0, done.stderr


def test_elect_and_once(ttl_cli):
    leader = ttl_cli.start("elect", "x", "--ttl", "900ms", "--progress", "100ms", "--", "sh", "-c", "echo led; exec sleep 100")
    assert leader.line() == "led"
    assert leader.line() == "led", "again, after it was lost"
    leader.kill(15)
    leader.wait()
    done = ttl_cli("once", "k", "--ttl", "900ms", "--progress", "100ms", "--", "sleep", "100")
    assert done.status == 76
    assert QUIET_FOR.search(done.stderr)
    done = ttl_cli("once", "k", "--ttl", "1s", "--progress", "1s", "--", "sh", "-c", reporting(f"{BIN} progress") + "; echo out")
    assert (done.status, done.stdout) == (0, "out\n")


def test_a_closed_descriptor_is_no_report(ttl_cli):
    """Nor does holdfast hear of it again and again."""
    holder = ttl_cli.hold("x", "--ttl", "20s", "--progress", "100ms",
                          script="echo in $HOLDFAST_TOKEN $$; eval \"exec $HOLDFAST_PROGRESS_FD>&-\" || :; exec sleep 100")
    before = cpu_ms(holder.pid)
    time.sleep(1)
    assert cpu_ms(holder.pid) - before <= 300
    holder.kill(15)
    holder.wait()


def test_a_grandchild_may_report(ttl_cli):
    """That of a job that has closed its own."""
    script = f"( {reporting(f'{BIN} progress')} ) & exec 3>&1; wait $!"
    assert ttl_cli("run", "x", "--ttl", "1s", "--progress", "1s", "--", "bash", "-c", script).status == 0


def test_a_job_that_writes_all_the_time_costs_little(ttl_cli):
    holder = ttl_cli.hold("x", "--ttl", "3s", "--progress", "3s",
                          script="echo in $HOLDFAST_TOKEN $$; exec yes > /dev/fd/$HOLDFAST_PROGRESS_FD")
    before = cpu_ms(holder.pid)
    time.sleep(5)
    assert is_running(holder.job)
    assert cpu_ms(holder.pid) - before <= 300, "it looks ten times a second"
    holder.kill(15)
    assert holder.wait() == 143


def test_a_job_that_writes_all_the_time_can_be_ended(ttl_cli):
    """Its pipe is full at times, and it stands still before that."""
    holder = ttl_cli.hold("x", "--max-hold", "2s", "--progress", "2s",
                          script="trap 'echo term; exit 0' TERM; echo in $HOLDFAST_TOKEN $$; yes > /dev/fd/$HOLDFAST_PROGRESS_FD & wait")
    assert holder.line() == "term"
    assert holder.wait() == 76


def test_reports_of_an_inner_job_are_for_the_outer_run_too(ttl_cli):
    inner = f"{BIN} run inner --progress 1s --ttl 1s -- sh -c '{reporting(f'{BIN} progress')}'"
    assert ttl_cli("run", "outer", "--ttl", "1s", "--progress", "1s", "-c", inner, env={"SHELL": "/bin/sh"}).status == 0
    plain = f"{BIN} run inner -- sh -c '{reporting(f'{BIN} progress')}'"
    assert ttl_cli("run", "outer", "--ttl", "1s", "--progress", "1s", "-c", plain, env={"SHELL": "/bin/sh"}).status == 0


def test_holding_on_needs_no_reports(cli):
    started = time.monotonic()
    done = cli("run", "x", "--progress", "300ms", "--hold-at-least", "2s", "--", "true")
    assert done.status == 0, done.stderr
    assert time.monotonic() - started >= 1.9


def test_nobody_asks(cli):
    done = cli("progress")
    assert done.status == 1 and "nobody asks for reports" in done.stderr
    assert cli("progress", "-q").stderr == ""
    assert cli("run", "x", "--", BIN, "progress").status == 1, "without --progress"
    assert cli("progress", "word").status == 64


def test_only_the_pipe_is_written_to(cli, directory):
    """Numbers that are something else's by now, or were never right."""
    path = directory / "file"
    with open(path, "w") as file:
        fd = file.fileno()
        for pipe in (f"{os.getpid()}:{fd}:1", f"1:{fd}:99", f"{2**31 - 1}:7:7"):
            env = {**cli.env, "HOLDFAST_PROGRESS_FD": str(fd), "HOLDFAST_PROGRESS_PIPE": pipe}
            done = subprocess.run([BIN, "progress"], env=env, pass_fds=[fd], capture_output=True, text=True)
            assert done.returncode == 1, (pipe, done.stderr)
        for fd_text, pipe in (("x", "1:2:3"), ("-1", "1:2:3"), ("5", "1:2"), ("5", "1:2:3:4"), ("5", "::"), ("5", "1:2:3x"),
                              ("9" * 30, "1:2:3"), ("5", "1" * 200 + ":2:3")):
            done = cli("progress", env={"HOLDFAST_PROGRESS_FD": fd_text, "HOLDFAST_PROGRESS_PIPE": pipe})
            assert done.status == 64, (fd_text, pipe)
    assert path.read_text() == ""


def test_whoever_asked_has_gone(cli):
    holder = cli.hold("x", "--progress", "20s", script="echo in $HOLDFAST_TOKEN $$; env | grep HOLDFAST_PROGRESS; read line")
    env = dict(holder.line().split("=", 1) for _ in range(2))
    assert cli("progress", env=env).status == 0, "from anywhere, while it runs"
    assert holder.end() == 0
    done = cli("progress", env=env)
    assert done.status == 1 and "has ended" in done.stderr


def test_values(cli):
    for words in (["--progress", "0"], ["--progress", "50ms"], ["--progress", "soon"], ["--progress", "-1s"],
                  ["--warn-after", "0"], ["--warn-after", "x"]):
        done = cli("run", "x", *words, "--", "true")
        assert done.status == 64 and words[0] in done.stderr, words


def test_the_grace_fits_what_a_silent_job_has_left(cli):
    done = cli("run", "x", "--progress", "10s", "--grace", "6s", "--", "true")
    assert done.status == 64 and "--grace" in done.stderr


def test_warnings_of_a_long_hold(cli):
    """Once, and then each time that it has lasted twice as long."""
    holder = cli.hold("x", "--warn-after", "200ms")
    times = []
    for _ in range(3):
        found = re.search(r"'x' \(token (\d+)\) has been held for ([0-9.]+) (ms|s), and the job runs on", holder.line("err"))
        assert found and found[1] == str(holder.token)
        times.append(float(found[2]) * (1 if found[3] == "ms" else 1000))
    assert times[0] >= 200 and times[1] >= 400 and times[2] >= 800, times
    assert holder.end() == 0
    quick = cli("run", "x", "--warn-after", "1h", "--", "true")
    assert (quick.status, quick.stderr) == (0, "")
    slow = cli("once", "k", "--warn-after", "100ms", "--", "sh", "-c", "sleep 0.3; echo done")
    assert slow.status == 0 and "has been held for" in slow.stderr and slow.stdout == "done\n"


def test_ls_longest(cli):
    for name in ("b", "c", "a"):
        cli.hold(name)
        time.sleep(0.05)  # ages differ by milliseconds
    lines = cli("ls", "--longest").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "b", "c", "a"]
    assert [entry["name"] for entry in objects(cli("ls", "--longest", "--json"))] == ["b", "c", "a"]
    assert [entry["name"] for entry in objects(cli("ls", "--json"))] == ["a", "b", "c"]
