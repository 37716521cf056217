"""holdfast once, while whoever reads its output stands still: what the job did is known all the same, and a signal ends it."""
import os
import select
import signal
import subprocess

import pytest
from conftest import await_gone, eventually, shell_status
from holdfast_cli import BIN, PATIENCE
from once_cli import plain  # noqa: F401

WRITE = 'head -c {} /dev/zero | tr "\\0" x'


@pytest.fixture
def terminal():
    """One that nobody reads."""
    try:
        master, slave = os.openpty()
    except OSError as error:
        pytest.skip(f"no terminals to be had here: {error}")
    yield slave
    os.close(master)
    os.close(slave)


@pytest.fixture
def start(plain, directory, terminal):  # noqa: F811
    """Runs a script as the key k, with its output to the terminal; returns when the job has noted that it runs."""
    started = []

    def make(script, also_stderr, first=":"):
        noted = directory / "job"
        process = subprocess.Popen(
            [BIN, "once", "k", "--if-died", "fail", "--", "sh", "-c",
             f'{first}; echo $HOLDFAST_TOKEN >>{plain.log}; echo $$ >{noted}.new; mv {noted}.new {noted}; {script}'],
            env=plain.env, stdin=subprocess.DEVNULL, stdout=terminal,
            stderr=terminal if also_stderr else subprocess.DEVNULL, start_new_session=True)
        started.append(process)
        eventually(noted.exists, "the job runs")
        process.job = int(noted.read_text())
        return process

    yield make
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def await_standstill(terminal):
    """It takes no more."""
    eventually(lambda: not select.select([], [terminal], [], 0)[1], "the terminal stands still")


def ends(process):
    try:
        return shell_status(process.wait(PATIENCE))
    except subprocess.TimeoutExpired:
        raise AssertionError("it does not end") from None


def is_not_run_again(plain):
    plain.once("k", "--if-died", "fail", *plain.counted("again"))
    assert len(plain.runs()) == 1, "a finished job was run a second time"


@pytest.mark.parametrize("also_stderr", [False, True])
@pytest.mark.parametrize("size", [1, 20000, 65000, 100000])
def test_a_job_that_has_ended(plain, start, terminal, size, also_stderr):  # noqa: F811
    """Its output fits into the pipes. Then SIGTERM comes, for us: it changes nothing of what the job did."""
    process = start(WRITE.format(size), also_stderr)
    if size > 1:
        await_standstill(terminal)
    if size < 65536:
        await_gone(process.job)
    process.send_signal(signal.SIGTERM)
    status = ends(process)
    state = plain.known("k")["state"]
    assert state in (("done",) if size < 65536 else ("done", "died")), state
    assert status == 143 or (status == 0 and size == 1)
    is_not_run_again(plain)


@pytest.mark.parametrize("also_stderr", [False, True])
def test_a_job_that_was_told_and_ends_well(plain, start, directory, also_stderr):  # noqa: F811
    """The signal went to the job. When that has ended, one signal is enough for us as well."""
    process = start(f"while ! [ -e {directory}/told ]; do sleep 0.02; done; {WRITE.format(20000)}; exit 0", also_stderr,
                    first=f'trap "touch {directory}/told" TERM')
    process.send_signal(signal.SIGTERM)
    assert ends(process) == 143, "not all was delivered, because it was told to end"
    assert plain.known("k")["state"] == "done"
    is_not_run_again(plain)


@pytest.mark.parametrize("also_stderr", [False, True])
def test_a_job_that_the_signal_ends(plain, start, terminal, also_stderr):  # noqa: F811
    process = start("exec head -c 1000000 /dev/zero", also_stderr)
    await_standstill(terminal)
    process.send_signal(signal.SIGTERM)
    assert ends(process) == 143
    assert plain.known("k")["state"] == "died"
    is_not_run_again(plain)


def test_a_job_that_is_killed(plain, start, terminal):  # noqa: F811
    """Without a signal to us: we wait for our reader, as any program does, and others know already."""
    process = start("exec head -c 1000000 /dev/zero", False)
    await_standstill(terminal)
    os.kill(process.job, signal.SIGKILL)
    eventually(lambda: plain.known("k")["state"] == "died", "the death is known")
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert ends(process) == 143
    is_not_run_again(plain)
