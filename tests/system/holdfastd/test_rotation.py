"""A password is exchanged for another while locks are held: in the documented order nobody loses anything, whatever restarts,
reconnects or elections come between."""
import re
import shutil
import subprocess
import time

import pytest
from conftest import ROOT, Ended, eventually
from holdfast_cli import Cli, is_running
from test_cluster_command import Cluster
from test_reload import AGAIN, NEW, OLD, S1, all_heard, hang_up, opens, restart, write

TTL = ["--ttl", "10s"]
LONG = ["--ttl", "20s", "--grace", "1s"]  # for what takes an election or two on a busy machine


@pytest.fixture
def files(tmp_path):
    """The server's, and the clients'."""
    server, client = tmp_path / "password", tmp_path / "client-password"
    write(server, OLD)
    write(client, OLD)
    return server, client


@pytest.fixture
def cli_on():
    made = []

    def make(url, env=None):
        made.append(Cli(url))
        made[-1].env.update(env or {})
        return made[-1]

    yield make
    for cli in made:
        cli.clean()


def renewed(cli, holder, name="x"):
    """The holder has reached the server again, and renewed: what was left has grown."""
    least = []

    def has_grown():
        done = cli("show", name, "--json")
        if done.status != 0:
            return False
        (row,) = cli.show(name)["holders"]
        assert row["token"] == holder.token
        least.append(row["left_ms"])
        return row["left_ms"] > min(least)
    eventually(has_grown, "it is renewed")
    assert is_running(holder.job)


def come_anew(server):
    """All connections are lost, and have to be made again."""
    server.kill9()
    server.restart()


def test_a_holder_and_a_waiter_live_through_it(start, files, cli_on):
    """After each step all connections are made anew."""
    file, client_file = files
    server = start("--password-file", file)
    cli = cli_on(f"holdfast://127.0.0.1:{server.port}?password-file={client_file}")
    holder = cli.hold("x", *TTL)
    waiter = cli.start("run", *TTL, "x", "--", "sh", "-c", "echo in $HOLDFAST_TOKEN")
    cli.await_waiters("x")
    for path, lines in ((file, [OLD, NEW]), (client_file, [NEW]), (file, [NEW])):
        write(path, *lines)
        if path == file:
            hang_up(server)
        renewed(cli, holder)
        come_anew(server)
        renewed(cli, holder)
        cli.await_waiters("x")
    assert holder.end() == 0
    assert int(waiter.line().split()[1]) > holder.token
    assert waiter.wait() == 0
    assert cli_on(f"holdfast://:{OLD.replace(' ', '%20')}@127.0.0.1:{server.port}")("ls").status == 77


def test_a_file_that_client_conf_names(start, files, cli_on, tmp_path):
    file, client_file = files
    server = start("--password-file", file)
    conf = tmp_path / "client.conf"
    conf.write_text(f"url = holdfast://127.0.0.1:{server.port}\npassword-file = {client_file}\n")
    conf.chmod(0o600)
    cli = cli_on("", {"HOLDFAST_CLIENT_CONF": str(conf)})
    del cli.env["HOLDFAST_URL"]
    holder = cli.hold("x", *TTL)
    write(file, NEW)
    write(client_file, NEW)
    come_anew(server)
    renewed(cli, holder)
    assert holder.end() == 0


def test_a_file_that_is_being_written(start, files, cli_on):
    """It is empty, or gone, at the moment when a connection is made: the password that was read last is said."""
    file, client_file = files
    server = start("--password-file", file)
    url = f"holdfast://127.0.0.1:{server.port}?password-file={client_file}"
    cli, other = cli_on(url), cli_on(f"holdfast://:{NEW.replace(' ', '%20')}@127.0.0.1:{server.port}")
    holder = cli.hold("x", *TTL)
    write(file, NEW)
    write(client_file, NEW)
    come_anew(server)
    renewed(other, holder)
    for spoil in (lambda: client_file.write_text(""), client_file.unlink):
        spoil()
        come_anew(server)
        renewed(other, holder)
    assert holder.end() == 0


def test_the_clients_come_too_early(start, files, cli_on):
    """They have the new password, and the server does not know it yet: it does before the lease is over."""
    file, client_file = files
    server = start("--password-file", file)
    cli = cli_on(f"holdfast://127.0.0.1:{server.port}?password-file={client_file}")
    holder = cli.hold("x", *LONG)
    write(client_file, NEW)
    server.kill9()
    server.launch()
    server.await_line("a client said a wrong password")
    write(file, NEW)
    hang_up(server)
    renewed(cli, holder)
    assert holder.end() == 0


# ---- a cluster ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(files):
    """Each node has a password file of its own, as on machines of their own."""
    made = Cluster()
    for node in made.nodes.values():
        node.file = node.directory / "password"
        write(node.file, OLD)
        node.args += ["--password-file", node.file]
        node.password = OLD
        node.kill9()
    for node in made.nodes.values():
        node.launch()
    for node in made.nodes.values():
        answers(node)
    made.cli = Cli(made.url + f"?password-file={files[1]}")
    made.leader()
    yield made
    made.cli.clean()
    made.clean()


def answers(node):
    """As soon as it runs."""
    def is_there():
        try:
            return node.says()
        except Ended:
            return None
    return eventually(is_there, "it answers")


def exchange(cluster, *lines):
    for node in cluster.nodes.values():
        write(node.file, *lines)
        hang_up(node)
        node.password = lines[0]


def depose(cluster):
    """The leader dies, and comes back when another leads."""
    leader = cluster.leader()
    leader.kill9()
    eventually(lambda: cluster.find_leader(), "another leads")
    leader.launch()
    answers(leader)


def test_a_holder_lives_through_it_on_a_cluster(cluster, files):
    """The leader is killed after each step."""
    holder = cluster.cli.hold("x", *LONG)
    steps = [lambda: exchange(cluster, OLD, NEW), lambda: write(files[1], NEW), lambda: exchange(cluster, NEW)]
    for step in steps:
        step()
        depose(cluster)
        renewed(cluster.cli, holder)
    assert holder.end() == 0


def test_a_follower_that_was_forgotten_comes_to_lead(cluster, files):
    """It refuses the new password; reloaded before the lease is over, it costs nothing."""
    leader, forgotten = cluster.leader(), cluster.followers()[0]
    holder = cluster.cli.hold("x", *LONG)
    for node in cluster.nodes.values():
        if node is not forgotten:
            write(node.file, OLD, NEW)
            hang_up(node)
    write(files[1], NEW)
    assert leader.cmd("CLUSTER", "TRANSFER", forgotten.number) == "OK"
    eventually(lambda: forgotten.says()["role"] == "leader", "it leads")
    forgotten.await_line("a client said a wrong password")
    write(forgotten.file, OLD, NEW)
    hang_up(forgotten)
    renewed(cluster.cli, holder)
    assert holder.end() == 0


def test_a_follower_that_was_forgotten_throws_nobody_out_of_an_election(cluster, files):
    """While nobody leads it refuses the new password. Another node has let the client in, and will lead: whoever comes meanwhile
    waits for that."""
    leader, (chosen, forgotten) = cluster.leader(), cluster.followers()
    forgotten.kill9()
    at = forgotten.args.index("--election-timeout") + 1
    forgotten.args[at] = "40s"  # it does not stand
    for node in (leader, chosen):
        write(node.file, OLD, NEW)
        hang_up(node)
    write(files[1], NEW)
    holder = cluster.cli.hold("x", *LONG)
    leader.kill9()
    early = cluster.cli.start("run", "-w", "60s", "y", "--", "echo", "mine")
    forgotten.launch()  # now: had it heard the leader, it would give its vote to nobody for 40 s
    assert early.line() == "mine"
    assert early.wait() == 0, early.rest("err")
    renewed(cluster.cli, holder)
    assert holder.end() == 0


def test_a_leader_that_is_slow_to_answer_may_let_one_in(cluster, files):
    """A follower that was forgotten has refused by then: that is not the last word."""
    leader, (forgotten, other) = cluster.leader(), cluster.followers()
    for node in (leader, other):
        write(node.file, OLD, NEW)
        hang_up(node)
    write(files[1], NEW)
    cluster.cli.env["HOLDFAST_URL"] = cluster.url_of(forgotten.number, leader.number) + f"?password-file={files[1]}"
    leader.pause()
    early = cluster.cli.start("run", "-w", "60s", "y", "--", "echo", "mine")
    forgotten.await_line("a client said a wrong password")
    time.sleep(0.1)  # longer than between two servers that are tried, and much less than an election timeout
    leader.resume()
    assert early.line() == "mine"
    assert early.wait() == 0, early.rest("err")


# ---- as documented -----------------------------------------------------------------------------------------------


def recipe():
    """The commands of docs/server.md, step by step: for the password, and for the secret, each made once, then three steps."""
    text = (ROOT / "docs/server.md").read_text()
    section = text.split("\n## Exchanging the password\n")[1].split("\n## ")[0]
    steps = [[line[2:] for line in block.splitlines() if line.startswith("# ")]
             for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL)]
    assert len(steps) == 8 and all(steps)
    return steps[:4], steps[4:]


def do(commands, directory, server):
    """In a directory of the test's instead of /etc/holdfast, and without systemd: ExecReload of the unit sends SIGHUP."""
    for command in commands:
        if command == "systemctl reload holdfastd":
            said = hang_up(server)
            assert f"{AGAIN}, and has changed" in said, said
        else:
            subprocess.run(["sh", "-ec", command.replace("/etc/holdfast", str(directory))], check=True)


@pytest.mark.parametrize("end", ["\n", ""], ids=["with line end", "without"])
def test_the_recipe_for_a_password(start, cli_on, tmp_path, end):
    """A holder lives through it, and through a restart of the server after each step."""
    file, client_file = tmp_path / "password", tmp_path / "client-password"
    write(file, OLD)
    write(client_file, OLD, mode=0o640)
    file.write_text(OLD + end)
    client_file.write_text(OLD + end)
    server = start("--password-file", file)
    cli = cli_on(f"holdfast://127.0.0.1:{server.port}?password-file={client_file}")
    holder = cli.hold("x", *TTL)
    for commands in recipe()[0]:
        do(commands, tmp_path, server)
        come_anew(server)
        renewed(cli, holder)
    assert holder.end() == 0
    assert not opens(server, OLD) and opens(server, file.read_text().strip())
    assert client_file.read_text() == file.read_text() and client_file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["client-password", "password"]


@pytest.mark.parametrize("end", ["\n", ""], ids=["with line end", "without"])
def test_the_recipe_for_a_secret(tmp_path, end):
    """On each node after the other, and the cluster serves after each."""
    making, *steps = recipe()[1]
    first = tmp_path / "secret"
    write(first, S1)
    cluster = Cluster("--secret-file", first)
    try:
        for node in cluster.nodes.values():
            node.args[node.args.index("--secret-file") + 1] = node.directory / "secret"
            write(node.directory / "secret", S1)
            (node.directory / "secret").write_text(S1 + end)
            restart(node)
        do(making, tmp_path, None)
        for node in cluster.nodes.values():
            shutil.copy(tmp_path / "secret.next", node.directory)
        holder = cluster.cli.hold("x", *LONG)
        for commands in steps:
            for node in cluster.nodes.values():
                do(commands, node.directory, node)
                all_heard(cluster)
            restart(cluster.followers()[0])
            all_heard(cluster)
        made = (tmp_path / "secret.next").read_text()
        assert all((node.directory / "secret").read_text() == made for node in cluster.nodes.values())
        assert is_running(holder.job) and holder.end() == 0
    finally:
        cluster.clean()


def test_the_unit_reloads():
    unit = (ROOT / "dist/holdfastd.service.in").read_text()
    assert "\nExecReload=/bin/sh -c 'kill -HUP $$MAINPID'\n" in unit
