"""holdfast top: on a terminal, as a table, and as JSON."""
import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import time

import pytest
from conftest import BIN, PATIENCE, eventually
from holdfast_cli import objects
from test_terminal import Terminal

ENTERED = r"\x1b\[\?1049h"
LEFT = r"\x1b\[\?1049l"


class Top(Terminal):
    """On a screen of so many lines, whose settings can be looked at when it has ended."""

    def __init__(self, cli, *words, lines=12, columns=100):
        self.leader, self.tty = pty.openpty()
        self.before = termios.tcgetattr(self.tty)
        self.lines, self.columns = lines, columns
        self.resize(lines, columns, tell=False)
        self.seen = ""
        self.pid = os.fork()
        self.fd = self.leader
        if self.pid == 0:
            os.login_tty(self.tty)
            os.execve(BIN, [BIN, "top", *words], cli.env)

    def resize(self, lines, columns, tell=True):
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            os.kill(self.pid, signal.SIGWINCH)

    def end(self):
        """The exit status, once the terminal is as it was."""
        self.expect(LEFT)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                assert termios.tcgetattr(self.tty)[3] == self.before[3], "echo and lines are back"
                os.close(self.tty)
                os.close(self.leader)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise AssertionError("did not end")

    def frame(self):
        """The lines of the next frame that is drawn to its end."""
        self.expect(r"\x1b\[H")
        found = self.expect(r"\x1b\[\?2026l")
        text = found.string[:found.start()]
        return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split("\r*\n", text)]


@pytest.fixture
def top_of(cli):
    if not hasattr(os, "login_tty"):
        def login_tty(fd):
            os.setsid()
            fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(fd, number)
        os.login_tty = login_tty
    tops = []

    def start(*words, **size):
        tops.append(Top(cli, *words, **size))
        return tops[-1]

    yield start
    for top in tops:
        try:
            os.kill(top.pid, signal.SIGKILL)
            os.waitpid(top.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def names_of(frame):
    return [line.split()[0] for line in frame[4:] if line.strip()]


def test_table(cli):
    assert cli("top").stdout == "", "nothing is held"
    first = cli.hold("a")
    time.sleep(0.05)  # ages differ by milliseconds
    cli.hold("b")
    cli.start("run", "-q", "b", "--", "true")
    cli.await_waiters("b")
    for words in ((), ("--once",)):
        lines = cli("top", *words).stdout.splitlines()
        assert lines[0].split() == ["NAME", "MODE", "HELD", "LEFT", "WAIT", "LONGEST", "TOKEN", "OWNER"]
        assert [line.split()[0] for line in lines[1:]] == ["a", "b"]
        assert str(first.token) in lines[1]
    row = objects(cli("top", "--json", "--once", "b"))[0]["rows"]
    assert [(entry["name"], entry["waiters"]) for entry in row] == [("b", 1)]
    assert [row["name"] for row in objects(cli("top", "--json", "--once", "--sort", "name"))[0]["rows"]] == ["a", "b"]


def test_rows_are_bounded(cli):
    for name in "abc":
        cli.hold(name)
    lines = cli("top", "--rows", "2").stdout.splitlines()
    assert len(lines) == 4 and lines[-1].startswith("... and 1 more")
    assert len(objects(cli("top", "--json", "--once", "--rows", "2"))[0]["rows"]) == 2


def test_values(cli):
    for words in (["--interval", "1ms"], ["--interval", "x"], ["--rows", "0"], ["--rows", "1001"], ["--sort", "size"],
                  ["a", "b"], ["--on", "nowhere:x"]):
        assert cli("top", *words).status == 64, words


def test_json_goes_on(cli):
    """A line for each look; what changes hands is counted."""
    cli.hold("cold")
    top = cli.start("top", "--json", "--interval", "100ms")
    look = json.loads(top.line())
    assert (look["look"], look["changes"]) == (1, 0)
    tokens = set()

    def hot():
        holder = cli.hold("hot")
        tokens.add(holder.token)
        while (look := json.loads(top.line()))["rows"][-1]["name"] != "hot" or not look["rows"][-1]["held"]:
            pass
        assert holder.end() == 0
        return look

    hot()
    eventually(lambda: (look := json.loads(top.line()))["names_held"] == 1 and look, "hot is free")
    look = hot()
    rows = {row["name"]: row for row in look["rows"]}
    assert rows["hot"]["changes"] == 2 and rows["cold"]["changes"] == 0
    assert rows["hot"]["changes_per_hour"] > 0 and rows["cold"]["changes_per_hour"] == 0
    assert look["changes"] == 2
    top.kill(signal.SIGINT)
    assert top.wait() == 130


def test_the_screen(cli, top_of):
    for name in ("job/1", "job/2", "other"):
        cli.hold(name)
        time.sleep(0.05)
    top = top_of("--interval", "200ms")
    top.expect(ENTERED)
    frame = top.frame()
    assert "locks" in frame[0] and "3 names held" in frame[1] and frame[3].split()[0] == "NAME"
    assert names_of(frame) == ["job/1", "job/2", "other"], "longest first"
    cli.start("run", "-q", "other", "--", "true")
    top.expect(r"other +exclusive [^\n]* 1  ")
    top.type("/job\r")
    top.expect(r"2 names held[^\n]* only \*job\*")
    top.type("/\r")
    top.expect(r"3 names held")
    top.type("s")
    top.expect(r"hottest first")
    top.type("s")
    top.expect(r"name first")
    top.type("p")
    top.expect(r"PAUSED")
    top.type("q")
    assert top.end() == 0


def test_resizes_and_scrolls(cli, top_of):
    for number in range(8):
        cli.hold(f"n{number}")
    top = top_of("--sort", "name", "--interval", "1h", lines=7, columns=60)
    top.expect(ENTERED)
    assert names_of(top.frame()) == ["n0", "n1", "n2"]
    top.type("j")
    assert names_of(top.frame()) == ["n1", "n2", "n3"]
    top.type("\x1b[6~")
    assert names_of(top.frame()) == ["n3", "n4", "n5"]
    top.type("G")
    assert names_of(top.frame()) == ["n5", "n6", "n7"]
    top.type("\x1b[24~x")  # F12, which is no key of ours, and no letter
    top.type("g")
    eventually(lambda: names_of(top.frame()) == ["n0", "n1", "n2"], "the beginning")
    top.resize(14, 40)
    eventually(lambda: len(names_of(frame := top.frame())) == 8 and all(len(line) <= 40 for line in frame), "all of them")
    top.resize(2, 10)
    eventually(lambda: top.frame() and True, "a screen that is too small")
    top.type("q")
    assert top.end() == 0


@pytest.mark.parametrize("how, status", [("\x03", 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)])
def test_the_terminal_is_restored(cli, top_of, how, status):
    top = top_of()
    top.expect(ENTERED)
    top.frame()
    if isinstance(how, str):
        top.type(how)
    else:
        os.kill(top.pid, how)
    assert top.end() == status


def test_stopped_and_continued(cli, top_of):
    """As by Ctrl-Z: whoever is in front meanwhile has a terminal that echoes, and after it the screen is drawn anew."""
    top = top_of("--interval", "1h")
    top.expect(ENTERED)
    top.frame()
    os.kill(top.pid, signal.SIGTSTP)
    top.expect(LEFT)
    os.kill(top.pid, signal.SIGCONT)
    top.expect(ENTERED)
    top.frame()
    top.type("q")
    assert top.end() == 0


def test_a_store_that_goes_away_is_said(ttl_cli, top_of):
    """The last list stays, and it goes on when the store is back."""
    ttl_cli.hold("x", "--ttl", "1h")
    top = Top(ttl_cli, "--interval", "100ms")
    top.expect(ENTERED)
    assert names_of(top.frame()) == ["x"]
    ttl_cli.faults("unreachable", "list", "on")
    top.expect("no list: ")
    assert names_of(top.frame()) == ["x"]
    ttl_cli.faults("clear")
    top.expect("longest first")
    top.type("q")
    assert top.end() == 0


def test_names_do_not_draw(cli, top_of):
    """What is in a name or an owner cannot reach the terminal."""
    cli.hold("a\x1b[2Jb", "--owner", "x\x1b]0;t\x07")
    top = top_of()
    top.expect(ENTERED)
    text = "\n".join(top.frame())
    assert "a\\x1b[2Jb" in text and "\x07" not in text
    top.type("q")
    assert top.end() == 0
