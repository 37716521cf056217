"""Job control on a pseudo-terminal."""
import os
import pty
import re
import select
import signal
import time

import pytest
from conftest import BIN, PATIENCE, shell_status
from holdfast_cli import eventually


class Terminal:
    """A program that is the session leader of its own terminal."""

    def __init__(self, argv, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(argv[0], argv, env)
        self.seen = ""

    def expect(self, pattern):
        """Reads until the pattern has been seen; what came before it is forgotten."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            assert time.monotonic() < deadline, (pattern, self.seen)
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    raise AssertionError((pattern, self.seen)) from None

    def peek(self, pattern):
        """Whether it has been seen by now; nothing is forgotten."""
        while select.select([self.fd], [], [], 0.05)[0]:
            self.seen += os.read(self.fd, 4096).decode(errors="replace")
        return re.search(pattern, self.seen) is not None

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return shell_status(os.waitstatus_to_exitcode(status))
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 4096)  # a terminal nobody reads holds up its writer
                except OSError:
                    time.sleep(0.01)
        raise AssertionError("did not end")


@pytest.fixture
def terminal(cli):
    try:
        for fd in os.openpty():
            os.close(fd)
    except OSError as error:
        pytest.skip(f"no terminals to be had here: {error}")
    made = []

    def make(*argv):
        made.append(Terminal(list(argv), {**cli.env, "H": BIN, "PS1": "PROMPT> ", "TERM": "dumb"}))
        return made[-1]

    yield make
    for t in made:
        try:
            os.kill(t.pid, signal.SIGKILL)
            os.waitpid(t.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass




def test_job_is_in_front(terminal):
    t = terminal(BIN, "run", "x", "--", "sh", "-c", "set -- $(cut -d')' -f2 /proc/$$/stat); echo groups $3 $6 end; read line; echo got $line")
    own, front = t.expect(r"groups (\d+) (-?\d+) end").groups()
    assert own == front and int(own) != t.pid
    t.type("hello\n")
    t.expect("got hello")
    assert t.wait() == 0


def test_interrupt_reaches_the_job_and_then_us(terminal, cli):
    t = terminal(BIN, "run", "x", "--", "sh", "-c", "echo in; exec sleep 100")
    t.expect("in\r\n")
    t.type("\x03")
    assert t.wait() == 130
    assert cli("run", "-n", "x", "true").status == 0


def test_interrupt_that_the_job_handles(terminal):
    t = terminal(BIN, "run", "x", "--", "sh", "-c", "trap 'echo handled; exit 4' INT; echo in; while :; do sleep 0.02; done")
    t.expect("in\r\n")
    t.type("\x03")
    t.expect("handled")
    assert t.wait() == 4


def test_interrupt_while_waiting(terminal, cli):
    holder = cli.hold("x")
    t = terminal(BIN, "run", "x", "true")
    cli.await_waiters("x")
    t.type("\x03")
    assert t.wait() == 130
    assert cli.show("x")["waiters"] == []
    assert holder.end() == 0


def test_stop_and_continue_under_a_shell(terminal, cli):
    t = terminal("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
    t.expect("PROMPT> ")
    t.type("$H run x -- sh -c 'echo i''n; read line; echo got $line; exit 3'\n")
    t.expect("\nin\r\n")
    t.type("\x1a")
    t.expect(r"Stopped")
    t.expect("PROMPT> ")
    assert cli("run", "-n", "x", "true").status == 75, "stopped, and still holding"
    t.type("fg\n")
    t.expect("run x")
    t.type("hello\n")
    t.expect("got hello")
    t.expect("PROMPT> ")
    t.type("echo status $?\n")
    t.expect("status 3\r")
    t.type("exit\n")
    assert t.wait() == 0


@pytest.mark.parametrize("command", ["run", "elect", "once"])
def test_script_around_us_is_interrupted_too(terminal, command):
    """for i in 1 2 3; do holdfast run ...; done: Ctrl-C must end the loop, as with flock(1)."""
    t = terminal("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
    t.expect("PROMPT> ")
    t.type(f"""bash -c 'for i in 1 2 3; do $H {command} x -- sh -c "echo i""n; exec sleep 100"; done'\n""")
    t.expect("\nin\r\n")
    t.type("\x03")
    assert t.expect(r"PROMPT> |\nin\r").group(0) == "PROMPT> ", "not the second round"
    t.type("echo sta''tus $?\n")
    assert t.expect(r"status (\d+)").group(1) == "130"
    t.type("exit\n")
    assert t.wait() in (0, 130)


def test_pipeline_keeps_its_terminal(terminal):
    """holdfast run x report | reader-of-the-terminal: we do not take the terminal away from the reader."""
    t = terminal("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
    t.expect("PROMPT> ")
    t.type("$H run x -- sh -c 'echo report; exec sleep 2' | sh -c 'head -1; echo as''k; read answer </dev/tty; echo go''t $answer'\n")
    t.expect("ask")
    t.type("yes\n")
    t.expect("got yes")
    t.expect("PROMPT> ")
    t.type("exit\n")
    assert t.wait() == 0


def test_job_in_a_pipeline_gets_the_terminal_when_it_reads(terminal):
    t = terminal("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
    t.expect("PROMPT> ")
    t.type("$H run x -- sh -c 'echo as''k; read answer </dev/tty; echo go''t $answer' | cat\n")
    t.expect("ask")
    t.type("yes\n")
    t.expect("got yes")
    t.expect("PROMPT> ")
    t.type("exit\n")
    assert t.wait() == 0


def prompt(terminal):
    t = terminal("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
    t.expect("PROMPT> ")
    return t


def test_job_in_the_background_that_reads_is_stopped_until_it_is_in_front(terminal, cli):
    t = prompt(terminal)
    t.type("$H run x -- sh -c 'echo i''n; read line; echo got $line' &\n")
    t.expect("in\r\n")

    def is_stopped():
        t.type("\n")
        return t.peek("Stopped")

    eventually(is_stopped, "the job is stopped")
    assert cli("run", "-n", "x", "true").status == 75, "stopped, and still holding"
    t.type("fg\n")
    t.expect("run x")
    t.type("hello\n")
    t.expect("got hello")
    t.type("exit\n")
    assert t.wait() == 0
    assert cli("run", "-n", "x", "true").status == 0


def test_job_in_the_background_that_may_not_write_is_stopped_until_it_is_in_front(terminal, cli, directory):
    """stty tostop: SIGTTOU."""
    t = prompt(terminal)
    go = directory / "go"
    os.mkfifo(go)
    t.type(f"stty tostop; $H run x -- sh -c 'read line < {go}; echo wro''te' &\n")

    def is_held():
        return cli("run", "-n", "x", "true").status == 75

    eventually(is_held, "the job holds the lock")
    t.type(f"echo go > {go}\n")

    def is_stopped():
        t.type("\n")
        return t.peek("Stopped")

    eventually(is_stopped, "the job is stopped")
    assert is_held()
    t.type("fg\n")
    t.expect("wrote")
    t.type("stty -tostop; exit\n")
    assert t.wait() == 0
    assert cli("run", "-n", "x", "true").status == 0


def test_stopped_goes_on_in_the_background_and_is_still_ended_by_a_loss(terminal, cli):
    """The command starts nothing of its own: a ^Z that meets dash between its vfork() and the
    exec() stops the child alone, and dash, waiting for that exec, is not stopped at all."""
    t = prompt(terminal)
    t.type("$H run --grace 300ms x -- sh -c 'echo i''n; exec sleep 1000'\n")
    t.expect("\nin\r\n")
    t.type("\x1a")
    t.expect("Stopped")
    t.type("bg\n")
    t.expect(r"\]\+? .*run --grace")
    assert cli("break", "x").status == 0
    t.type("wait %1; echo status $?\n")
    t.expect(r"status 76\r")
    t.type("exit\n")
    assert t.wait() == 0
