"""A holder that cannot renew says why, in its last line: one test for each cause that a client of holdfastd can know of."""
import re
import resource

import pytest
from holdfast_cli import Cli, eventually, is_running
from relay import Relay
from test_cluster_command import Cluster
from test_reload import NEW, OLD, write

TTL = ["--ttl", "3s", "--grace", "500ms"]


@pytest.fixture
def cli_on():
    made = []

    def make(url):
        made.append(Cli(url))
        return made[-1]

    yield make
    for cli in made:
        cli.clean()


def last_words(holder):
    """Why it was lost: what is in the line about that, after how much of the hold was left."""
    assert holder.wait() == 76
    lines = [line for line in holder.rest("err") if " lost '" in line]
    assert len(lines) == 1, lines
    found = re.fullmatch(r"holdfast: lost 'x' \(token \d+\): it could not be renewed(?:, and [\d.]+ m?s are left| in time): "
                         r"(.*); stopping the job", lines[0])
    assert found, lines[0]
    return found.group(1)


def test_the_password_is_wrong(start, cli_on, tmp_path):
    """It was exchanged, and whoever did it forgot the clients; given in the URL, and in a file."""
    file, client_file = tmp_path / "password", tmp_path / "client-password"
    write(file, OLD)
    write(client_file, OLD)
    server = start("--password-file", file)
    at = f"127.0.0.1:{server.port}"
    holders = [cli_on(f"holdfast://:{OLD.replace(' ', '%20')}@{at}").hold("x", *TTL),
               cli_on(f"holdfast://{at}?password-file={client_file}&prefix=another/").hold("x", *TTL)]
    write(file, NEW)
    server.restart()
    assert last_words(holders[0]) == f"{at}: it does not accept this password"
    assert last_words(holders[1]) == f"{at}: it does not accept this password (from password-file {client_file})"
    named = cli_on(f"holdfast://default:wrong@{at}")("ls")
    assert named.status == 77 and named.stderr.endswith(f"{at}: it does not accept this password\n"), named
    stranger = cli_on(f"holdfast://ann:{NEW.replace(' ', '%20')}@{at}")("ls")
    assert stranger.status == 77 and stranger.stderr.endswith(f"{at}: it has no users, only a password: name no user in the URL\n"), stranger
    forgotten = cli_on(f"holdfast://default@{at}")("ls")
    assert forgotten.status == 77 and f"{at}: it needs a password, and only the user is named: give it in the URL" in forgotten.stderr, forgotten


def test_the_password_is_missing(start, cli_on, tmp_path):
    file = tmp_path / "password"
    server = start()
    at = f"127.0.0.1:{server.port}"
    holder = cli_on(f"holdfast://{at}").hold("x", *TTL)
    write(file, NEW)
    server.args += ["--password-file", file]
    server.restart()
    assert last_words(holder) == (f"{at}: it needs a password (of 'default', unless the URL names a user: holdfast://USER@...): give it in the "
                                  "URL, in ?password-file=, in HOLDFAST_PASSWORD, or with the url in client.conf")


def test_the_password_of_client_conf_is_for_its_own_url(start, cli_on, tmp_path):
    """Which is said to who names another one, or the same by other means, and has none."""
    file, conf = tmp_path / "password", tmp_path / "client.conf"
    write(file, NEW)
    server = start("--password-file", file)
    url = f"holdfast://127.0.0.1:{server.port}"
    cli = cli_on(url)
    conf.write_text(f"url = {url}\npassword-file = {file}\n")
    conf.chmod(0o600)
    cli.env["HOLDFAST_CLIENT_CONF"] = str(conf)
    done = cli("ls")
    assert done.status == 77 and done.stderr.endswith(
        f" (that of {conf} is for the url there, and not used for one from --on, HOLDFAST_URL or hf_open)\n"), done
    conf.write_text(f"url = {url}\n")
    assert cli("ls").stderr.endswith(", or with the url in client.conf\n")
    conf.write_text(f"url = {url}\npassword-file = {file}\n")
    cli.env.pop("HOLDFAST_URL")
    assert cli("ls").status == 0


def test_the_connection_is_refused(start, cli_on):
    server = start()
    holder = cli_on(f"holdfast://127.0.0.1:{server.port}").hold("x", *TTL)
    server.kill9()
    assert last_words(holder) == f"127.0.0.1:{server.port}: Connection refused; is the server running there?"


def test_the_server_does_not_answer(start, cli_on):
    server = start()
    holder = cli_on(f"holdfast://127.0.0.1:{server.port}").hold("x", *TTL)
    server.pause()
    assert last_words(holder) == f"127.0.0.1:{server.port} did not answer in time"


def test_the_disk_is_full(start, cli_on):
    server = start()
    holder = cli_on(f"holdfast://127.0.0.1:{server.port}").hold("x", *TTL)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    assert last_words(holder) == (f"127.0.0.1:{server.port}: the log cannot be written: cannot write to the log in "
                                  f"{server.data}: File too large; make room on its disk, or repair it, then restart this node: it does not "
                                  "recover by itself")
    server.kill9()


def test_after_the_job_has_ended(start, cli_on):
    """It holds on to the lock, and cannot."""
    server = start()
    holder = cli_on(f"holdfast://127.0.0.1:{server.port}").hold("x", *TTL, "--hold-at-least", "1m")
    holder.say("go")
    eventually(lambda: not is_running(holder.job), "the job ends")
    server.kill9()
    said = holder.line("err")
    assert re.fullmatch(r"holdfast: lost 'x' \(token \d+\) after the job had ended, while holding on to it: it could not be renewed "
                        rf"in time: 127\.0\.0\.1:{server.port}: Connection refused; is the server running there\?", said), said


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.clean()


def test_nobody_leads(cluster):
    """The others of three are gone: a follower is left, and says so."""
    follower = cluster.followers()[0]
    holder = cluster.cli.hold("x", *TTL)
    for node in cluster.nodes.values():
        if node is not follower:
            node.kill9()
    assert last_words(holder) == f"{follower.client}: there is no leader at the moment"


def test_nobody_leads_and_where_to_look(cluster):
    """Whoever asks is told which command says more, and so is whoever waits."""
    follower = cluster.followers()[0]
    for node in cluster.nodes.values():
        if node is not follower:
            node.kill9()
    eventually(lambda: "no leader" in cluster.cli("show", "x").stderr, "the last one knows that nobody leads")
    told = "there is no leader at the moment ('holdfast cluster status' says which nodes are missing)"
    for command in (["ls"], ["show", "x"], ["run", "-n", "x", "--", "true"], ["lock", "-n", "x"], ["leader", "x"], ["floor", "5"],
                    ["once", "--no-wait", "k", "--", "true"]):
        done = cluster.cli(*command)
        assert done.status == 69 and done.stderr.splitlines()[-1].endswith(told), (command, done)
    waiter = cluster.cli.start("run", "--wait", "5s", "x", "--", "true")
    assert told + "; still trying" in waiter.line("err")
    assert waiter.wait() == 69
    done = cluster.cli("cluster", "status", "--wait", "1s")
    assert "says which nodes are missing" not in done.stdout + done.stderr, done


@pytest.mark.parametrize("ttl", ["4s", "6s"])
def test_with_the_usual_grace(start, cli_on, ttl):
    """The first renewal has been given up before the job has to be stopped: why that was is known."""
    server = start()
    holder = cli_on(f"holdfast://127.0.0.1:{server.port}").hold("x", "-v", "--ttl", ttl)
    server.kill9()
    assert holder.wait() == 76
    lines = holder.rest("err")
    assert re.search(rf"it could not be renewed, and [\d.]+ s are left: 127\.0\.0\.1:{server.port}: Connection refused; is the server "
                     r"running there\?; stopping", "\n".join(lines)), lines
    assert "holdfast: 'x' was not released; the job ended with 143" in lines and not any("free again" in line for line in lines), lines


def test_nobody_leads_with_the_usual_grace(cluster):
    follower = cluster.followers()[0]
    holder = cluster.cli.hold("x", "--ttl", "5s")
    for node in cluster.nodes.values():
        if node is not follower:
            node.kill9()
    assert last_words(holder) == f"{follower.client}: there is no leader at the moment"


def test_the_disk_is_full_with_the_usual_grace(start, cli_on):
    server = start()
    holder = cli_on(f"holdfast://127.0.0.1:{server.port}").hold("x", "--ttl", "5s")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    assert "the log cannot be written" in last_words(holder)
    server.kill9()


@pytest.mark.parametrize("now", [(), ("--now",)], ids=["break", "now"])
def test_a_hold_that_was_broken_is_not_told_as_released(start, cli_on, now):
    """It did not hear of the break, and the first release, or the answer to it, was lost."""
    server = start()
    relay = Relay(server.port)
    try:
        runner = cli_on(f"holdfast://{relay.address}").start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
        assert runner.line() == "inside"
        relay.cut("down")
        assert cli_on(f"holdfast://127.0.0.1:{server.port}")("break", *now, "x").status == 0
        runner.say("go")
        assert "releasing 'x': no answer" in runner.line("err")
        relay.reset()
        relay.heal()
        assert runner.wait() == 76, runner.rest("err")
    finally:
        relay.stop()
