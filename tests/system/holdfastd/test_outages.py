"""Stores that are not there, and stores that go away: who never reached one is told at once, who waits sits it out and says so."""
import re
import signal
import socket
import time

import pytest
from conftest import Holdfastd, Unfounded, different_ports
from holdfast_cli import Cli, eventually

AT_ONCE = 8  # seconds, on a machine with other things to do: the search for a server takes two
EARLY = 5  # seconds: likewise, for a line that should come within two
DEAD = ["redis://127.0.0.1:{}", "redlock://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}", "holdfast://127.0.0.1:{}",
        "holdfast://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}", "holdfast://nowhere.invalid:{}", "redis://nowhere.invalid:{}"]
LONG = 600000  # ms: a hold that only a release ends


@pytest.fixture
def start_cli():
    started = []

    def start(url):
        started.append(Cli(url))
        return started[-1]

    yield start
    for cli in started:
        cli.clean()


@pytest.fixture
def server():
    server = Holdfastd()
    yield server
    server.clean()


@pytest.fixture
def cli(server, start_cli):
    return start_cli(f"holdfast://127.0.0.1:{server.port}")


# ---- never reached -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", DEAD)
@pytest.mark.parametrize("words", [["run", "x", "true"], ["run", "-w", "10m", "x", "true"], ["lock", "x"], ["watch", "x"],
                                   ["leader", "x", "--follow"], ["elect", "x", "true"]], ids=" ".join)
def test_a_store_that_was_never_reached(start_cli, url, words):
    cli = start_cli(url.format(*different_ports(url.count("{}"))))
    began = time.monotonic()
    process = cli.start(*words)
    assert process.wait(AT_ONCE) == 69
    assert time.monotonic() - began < AT_ONCE
    said = process.rest("err")
    assert len(said) == 1 and ("refused" in said[0] or "nowhere.invalid" in said[0]), said


@pytest.mark.parametrize("words", [["ls"], ["break", "x"], ["break", "x", "--now"]], ids=str)
def test_a_server_that_hangs_is_named_early(server, cli, words):
    """Others end after two seconds. These try for longer, and say so, but not for how long: that is for one that has answered before.
    Unless somebody wants to hear of errors only."""
    server.pause()
    asking, quiet = cli.start(*words), cli.start(*words, "-q")
    word = words[0]
    assert asking.line("err") == f"holdfast: {word}: no answer from 127.0.0.1:{server.port} for 2.0 s; still trying"
    server.resume()
    for process in (asking, quiet):
        assert process.wait() == 0
        assert process.rest("err") == []
    assert cli(*words).stderr == "", "nothing is said of one that answers"


@pytest.mark.parametrize("words", [["watch", "x"], ["leader", "x", "--follow"]], ids=str)
def test_a_signal_ends_whoever_follows_a_server_that_never_answered(start_cli, words):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = start_cli(f"holdfast://127.0.0.1:{mute.getsockname()[1]}?timeout=60s").start(*words)
        connection, _ = mute.accept()
        with connection:
            assert connection.recv(1), "it asks, and waits for the answer"
            process.kill(signal.SIGINT)
            assert process.wait(20) == 128 + signal.SIGINT, "it had a minute"


# ---- reached -----------------------------------------------------------------------------------------------------


def test_a_wait_at_a_node_that_is_to_be_added(start_cli):
    """'cluster init' is refused there: nobody is sent to it."""
    server = Unfounded(2, None, "--join")
    try:
        process = start_cli(f"holdfast://127.0.0.1:{server.port}").start("run", "x", "--", "true")
        line = process.line("err", EARLY)
        assert line.endswith(": this node was started with --join and belongs to no cluster yet: add it, at a member of that cluster, with "
                             "'holdfast cluster add'; still trying"), line
    finally:
        server.clean()


def test_a_wait_at_a_node_that_answers_and_does_not_serve_yet(start_cli):
    """The address is right: so it is waited for, and said within seconds."""
    server = Unfounded()
    try:
        cli = start_cli(f"holdfast://127.0.0.1:{server.port}")
        process = cli.start("run", "-w", "5m", "x", "--", "echo", "in")
        line = process.line("err", EARLY)
        assert "'x'" in line and "still trying" in line and "cluster init" in line, line
        assert server.cmd("CLUSTER", "INIT") == "OK"
        assert process.line() == "in" and process.wait() == 0
    finally:
        server.clean()


@pytest.mark.parametrize("words, missing", [(["ls"], "no list"), (["break", "x"], "no word that it is done")], ids=str)
def test_a_question_that_a_node_cannot_answer_yet(start_cli, words, missing):
    """For how long it is tried is not said: while nobody leads, the URL's timeout ends it, long before the command's own limit."""
    server = Unfounded()
    try:
        cli = start_cli(f"holdfast://127.0.0.1:{server.port}")
        asking, quiet = cli.start(*words), cli.start(*words, "-q")
        assert asking.line("err", EARLY) == f"holdfast: {words[0]}: {missing} from 127.0.0.1:{server.port} for 2.0 s; still trying"
        assert server.cmd("CLUSTER", "INIT") == "OK"
        for process in (asking, quiet):
            assert process.wait() == 0
            assert process.rest("err") == []
    finally:
        server.clean()


def test_a_limited_wait_ends_when_it_is_over(start_cli):
    server = Unfounded()
    try:
        cli = start_cli(f"holdfast://127.0.0.1:{server.port}")
        began = time.monotonic()
        done = cli("run", "-w", "4s", "x", "--", "echo", "in")
        assert (done.status, done.stdout) == (69, "") and time.monotonic() - began > 3.5, done.stderr
        done = cli("run", "-n", "x", "--", "echo", "in")
        assert (done.status, done.stdout) == (69, "") and "still trying" not in done.stderr
    finally:
        server.clean()


def test_a_wait_that_is_over_ends_with_its_last_word(start_cli):
    """Who holds the lock was asked meanwhile, and nobody wants to know that any more: an answer would be waited for until five seconds are over."""
    server = Unfounded()
    try:
        process = start_cli(f"holdfast://127.0.0.1:{server.port}?timeout=20s").start("run", "-w", "1500ms", "x", "--", "true")
        while "still trying" in process.line("err"):
            pass
        said = time.monotonic()
        assert process.wait() == 69 and process.rest("err") == []
        assert time.monotonic() - said < 3
    finally:
        server.clean()


def test_an_outage_during_a_wait(server, cli):
    """Said early, and not again and again. When the server is back it is waited for as before."""
    assert server.cmd("ACQUIRE", "x", "lease", "TTL", LONG, "OWNER", "somebody")
    process = cli.start("run", "x", "--", "echo", "in")
    assert "held by somebody" in process.line("err")
    server.kill9()
    line = process.line("err", EARLY)
    assert "still trying" in line and "refused" in line, line
    assert server.launch()
    assert "held by somebody" in process.line("err"), "who it waits for now"
    assert server.cmd("RELEASE", "x", "lease") == 1
    assert process.line() == "in" and process.wait() == 0
    assert process.rest("err") == []


@pytest.mark.parametrize("words", [["run", "x", "--", "true"], ["lock", "x"], ["elect", "x", "--", "true"], ["once", "x", "--", "true"]],
                         ids=lambda words: words[0])
def test_a_second_signal_ends_a_wait_at_once(server, cli, words):
    """The first one wants to give up the place in the queue, at a server that hangs. The second does not come at once: that would be the
    same wish, sent to the group and to the process."""
    assert server.cmd("ACQUIRE", "x", "lease", "TTL", LONG, "OWNER", "somebody")
    assert server.cmd("ONCE", "CLAIM", "x", "another", "TTL", LONG, "OWNER", "somebody")
    process = cli.start(*words)
    assert "by somebody" in process.line("err")
    server.pause()
    process.kill(signal.SIGTERM)
    process.kill(signal.SIGTERM)

    def has_ended():
        if process.popen.poll() is None:
            time.sleep(0.1)
            process.kill(signal.SIGTERM)
        return process.popen.poll() is not None
    eventually(has_ended, "it ends")
    assert process.wait() == 128 + signal.SIGTERM
    assert process.rest("err")[-1].startswith("holdfast: ended while the store was being told that 'x' is not waited for any more")
    assert process.rest("out") == (["(exit 143)"] if words[0] == "lock" else [])
    server.resume()


@pytest.mark.parametrize("words, held", [(["watch", "x"], "held (exclusive) by somebody"),
                                         (["leader", "x", "--follow"], "somebody")], ids=["watch", "leader"])
def test_an_outage_while_somebody_watches(server, cli, words, held):
    process = cli.start(*words)
    process.line()
    server.kill9()
    line = process.line("err", EARLY)
    assert "'x'" in line and "still trying" in line and "refused" in line, line
    assert server.launch()
    assert server.cmd("ACQUIRE", "x", "lease", "TTL", LONG, "OWNER", "somebody")
    assert held in process.line()


def test_an_age_lacks_the_time_in_which_the_server_was_down(server, cli):
    """Its clock stands still then: a time of day, reckoned from an age, would be wrong."""
    holder = cli.hold("x", "--ttl", "60s")
    granted = time.monotonic()
    waiter = cli.start("run", "-w", "10m", "x", "true")
    line = waiter.line("err")
    assert "since" not in line and re.search(r", for at least [\d.]+ m?s$", line), line
    server.kill9()
    time.sleep(2)
    server.restart()
    shown = eventually(lambda: cli("show", "x").stdout, "it serves")
    assert cli.show("x")["holders"][0]["age_ms"] < (time.monotonic() - granted) * 1000 - 1000
    assert re.search(r"^x: held \(exclusive\) by .*, token \d+, for at least [\d.]+ m?s, [\d.]+ s left$", shown, re.M), shown
    assert re.search(r"^x: waiting: .*, for at least [\d.]+ m?s$", shown, re.M) and "since" not in shown, shown
    assert holder.end() == 0 and waiter.wait() == 0


def test_a_release_that_nobody_answers_is_told(server, cli):
    """The job is over, and the command would end after five seconds of silence."""
    holder = cli.hold("x", "--ttl", "2s", script="echo in $HOLDFAST_TOKEN $$; exec sleep 100")
    quiet = cli.hold("y", "--ttl", "2s", "-q", script="echo in $HOLDFAST_TOKEN $$; exec sleep 100")
    server.kill9()
    assert holder.wait() == 76 and quiet.wait() == 76
    assert holder.rest("err")[-1] == (f"holdfast: releasing 'x': no answer from 127.0.0.1:{server.port} for 2.0 s; trying for up to 5.4 s "
                                      "in all")
    assert not [line for line in quiet.rest("err") if "releasing" in line]


def test_what_lock_took_is_told_early_that_the_store_is_away(server, cli):
    """renew and unlock ask for five seconds, of which the first two are silent."""
    taken = dict(re.findall(r"^(HOLDFAST_\w+)='?([^';]*)", cli("lock", "x", "--ttl", "60s").stdout, re.M))
    server.kill9()
    for word, process in [(word, cli.start(word, "x", env=taken)) for word in ("renew", "unlock")]:
        assert process.wait() == 69
        first, last = process.rest("err")
        assert first == f"holdfast: {word}: no answer from 127.0.0.1:{server.port} for 2.0 s; still trying"
        assert "refused" in last


def lose_result(server, cli, *options):
    """A run of once ends while its server is away, and stays away: its status, and what it says."""
    process = cli.start("once", "k", "--ttl", "6s", "--grace", "500ms", *options, "--", "sh", "-c", "echo in; read go; exit 3")
    assert process.line() == "in"
    server.kill9()
    process.say("go")
    return process.wait(), process.rest("err")


def doubt(line):
    """What the advice begins with: whoever has sent the result before it saw that the server is gone does not know."""
    said = re.search("(is not|may or may not be) kept: ", line)
    assert said, line
    return "" if said[1] == "is not" else "if it is not, "


def test_a_result_that_nobody_keeps_is_told(server, cli):
    """Early, that there is no answer; and at the end, that the command will be run again."""
    status, said = lose_result(server, cli)
    assert status == 69
    assert re.fullmatch(rf"holdfast: keeping the result of 'k': no answer from 127.0.0.1:{server.port} for 2.0 s; trying for up to 5.\d s in all",
                        said[0]), said
    assert said[1].endswith(f"; {doubt(said[1])}the next call runs the command again when this run's lease has expired, "
                            "6.0 s after the store is back at the latest"), said
    assert len(said) == 2
    assert server.launch()
    done = cli("once", "k", "--", "echo", "again")
    assert (done.status, done.stdout) == (0, "again\n"), "as it was said"


def test_a_result_that_nobody_keeps_of_a_command_that_is_not_run_again(server, cli):
    status, said = lose_result(server, cli, "--if-died", "fail", "-q")
    assert status == 69
    assert len(said) == 1 and said[0].endswith(
        f"; {doubt(said[0])}this run counts as dead when its lease has expired, 6.0 s after the store is back at the latest, "
        "and with --if-died fail the command is not run again"), said
    assert server.launch()
    assert cli("once", "k", "--if-died", "fail", "--", "echo", "again").status == 76, "as it was said"


def test_a_result_that_was_sent_to_a_server_that_hangs_may_be_kept(server, cli):
    process = cli.start("once", "k", "--ttl", "6s", "--grace", "500ms", "--", "sh", "-c", "echo in; read go; exit 3")
    assert process.line() == "in"
    server.pause()
    process.say("go")
    assert "keeping the result of 'k': no answer" in process.line("err")
    server.kill9()
    assert process.wait() == 69
    said = process.rest("err")
    assert len(said) == 1 and doubt(said[0]) == "if it is not, ", said
    assert said[0].endswith("; if it is not, the next call runs the command again when this run's lease has expired, "
                            "6.0 s after the store is back at the latest"), said
