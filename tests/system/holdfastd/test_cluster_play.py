"""make cluster: three nodes to play with."""
import os
import pathlib
import re
import signal
import socket
import tempfile

from conftest import BIN, PATIENCE, ROOT, Process, environment, eventually, free_port
from holdfast_cli import Cli, await_gone, objects
from ports import reserve

BUILD = pathlib.Path(BIN).parents[2]


def free_base():
    """The first of the ports that it needs, all of them free."""
    def reserved(last):
        return last - 12 if all(reserve(last - port) for port in (12, 11, 10, 2, 1)) else 0
    return eventually(lambda: reserved(free_port()), "ports in a row")


def play(**env):
    return Process([str(ROOT / "tools/cluster"), str(BUILD)], {**environment(), **env})


def test_a_cluster_to_play_with():
    """It says how to use it, starts again what was killed, and leaves nothing behind."""
    base, before = free_base(), set(BUILD.glob("cluster.*"))
    playing = play(CLUSTER_PORT=str(base))
    try:
        said = []
        while not said or not said[-1].startswith("Enter here"):
            said.append(playing.line())
        text = "\n".join(said)
        url = re.search(r"export HOLDFAST_URL=(\S+)", text).group(1)
        assert url == "holdfast://" + ",".join(f"127.0.0.1:{base + i}" for i in range(3))
        pids = {int(number): int(pid) for number, pid in re.findall(r"node (\d) is (\d+)", text)}
        cli = Cli(url)
        leader = objects(cli("cluster", "status", "--json"))[0]["leader"]
        os.kill(pids[leader], signal.SIGKILL)
        await_gone(pids[leader])
        eventually(lambda: objects(cli("cluster", "status", "--json"))[0]["leader"] not in (0, leader), "another leads")
        playing.say("")

        def is_back():
            (killed,) = [m for m in objects(cli("cluster", "status", "--json")) if m["id"] == leader]
            return killed["behind"] == 0 and killed["silent_ms"] < 1000
        eventually(is_back, "it is back")
        playing.kill(signal.SIGINT)
        assert playing.wait() == 0
        for pid in pids.values():
            await_gone(pid)
        assert set(BUILD.glob("cluster.*")) == before
    finally:
        playing.popen.kill()


def test_a_cluster_that_cannot_start_says_what_to_do():
    base = free_base()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", base + 11))
        taken.listen()
        playing = play(CLUSTER_PORT=str(base))
        assert playing.wait() == 1
        (line,) = playing.rest("err")
        assert line == f"cluster: cannot start: port {base + 11} is taken: leave out CLUSTER_PORT, or give another"
    with tempfile.TemporaryDirectory() as nothing:
        playing = Process([str(ROOT / "tools/cluster"), nothing], environment())
        assert playing.wait() == 1 and playing.rest("err")[0].endswith("is not built: run make")


def shown():
    return Process([str(ROOT / "tools/cluster"), "--show", str(BUILD)], environment())


def test_what_make_try_shows_of_a_cluster():
    """The job survives the leader, and nothing is left behind."""
    before = set(BUILD.glob("cluster.*"))
    showing = shown()
    try:
        assert showing.wait(PATIENCE) == 0, showing.rest("err")
        text = "\n".join(showing.rest())
        token, killed, pid = re.search(r"the job holds the lock, token (\d+); node (\d) leads, and is killed: kill -9 (\d+)$", text, re.M).groups()
        leader, following = re.search(r"node (\d) leads now; the job went on, and ended well; the next one got token (\d+)$", text, re.M).groups()
        assert leader != killed and int(following) > int(token)
        await_gone(int(pid))
        assert set(BUILD.glob("cluster.*")) == before and showing.rest("err") == []
    finally:
        showing.popen.kill()


def test_an_interrupt_ends_what_make_try_shows():
    before = set(BUILD.glob("cluster.*"))
    showing = shown()
    try:
        while "the job holds the lock" not in (line := showing.line()):
            pass
        showing.kill(signal.SIGINT)
        assert showing.wait(PATIENCE) == 130
        await_gone(int(line.rsplit(" ", 1)[1]))
        assert set(BUILD.glob("cluster.*")) == before
    finally:
        showing.popen.kill()
