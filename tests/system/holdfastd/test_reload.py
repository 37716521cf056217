"""SIGHUP: the password and the peers' secret are read again, and two of each may be valid."""
import os
import signal
import subprocess

import pytest
from conftest import PATIENCE, Client, Process, Refused, argv_of, die_with_parent, environment, eventually, put_first, run_refused
from test_cluster_command import Cluster

OLD, NEW, NEXT = "the old password", "the new password", "the next password"
S1, S2 = "the first secret of peers", "the second secret of peers"
AGAIN = "a file was read again"
REFUSED = "a file could not be read again: what was valid before stays valid"


def write(path, *lines, mode=0o600):
    """As `install` or an editor does: another file takes its place."""
    new = path.with_suffix(".new")
    new.touch(mode)
    new.write_text("".join(line + "\n" for line in lines))
    new.chmod(mode)
    new.replace(path)


def hang_up(server, word=AGAIN):
    """The line that it logs for it."""
    server.logged()
    os.kill(server.pid, signal.SIGHUP)
    return server.await_line(word)


def opens(server, password):
    """Whether a new client is let in by this password."""
    try:
        with Client(("127.0.0.1", server.port), password=password) as client:
            return client.cmd("PING") == "PONG"
    except Refused as error:
        assert error.code == "WRONGPASS"
        return False


def valid(server):
    return [word for word in (OLD, NEW, NEXT) if opens(server, word)]


@pytest.fixture
def server(start, tmp_path):
    file = tmp_path / "password"
    write(file, OLD)
    server = start("--password-file", file)
    server.file, server.password = file, None
    return server


# ---- the password ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines, let_in", [
    ([OLD], [OLD]), ([OLD, NEW], [OLD, NEW]), ([OLD, ""], [OLD]), ([OLD, "", ""], [OLD]), ([OLD, NEW, ""], [OLD, NEW]),
    ([OLD, OLD], [OLD])], ids=repr)
def test_the_lines_of_the_file(start, tmp_path, lines, let_in):
    file = tmp_path / "password"
    write(file, *lines)
    server = start("--password-file", file)
    assert valid(server) == let_in
    for wrong in ("", OLD + "\n", OLD + "\n" + NEW, NEW[:-1]):
        with Client(("127.0.0.1", server.port)) as client:
            assert client.error("AUTH", wrong).startswith("WRONGPASS ")


@pytest.mark.parametrize("lines, words", [
    ([OLD, NEW, NEXT], "it has more than two lines"), ([OLD, "", NEW], "it has more than two lines"),
    ([OLD, "x" * 1025], "its second line is longer than 1024 bytes"), (["", NEW], "its first line is empty"),
    ([OLD, "a\0b"], "its second line has a NUL byte")], ids=["three", "a gap", "long", "empty first", "NUL"])
def test_lines_that_are_refused(start, server, tmp_path, lines, words):
    """At the start, and while it runs: then those before stay valid."""
    file = tmp_path / "wrong"
    write(file, *lines)
    assert run_refused("--password-file", file) == (78, f"holdfastd: password-file {file}: {words}")
    write(server.file, *lines)
    assert hang_up(server, REFUSED).endswith(f'why="password-file {server.file}: {words}"')
    assert valid(server) == [OLD]


def test_a_short_one_of_two_is_warned_of(server):
    write(server.file, OLD, "short")
    hang_up(server)
    assert "is short, and can be guessed" in server.await_line("is short")
    assert opens(server, "short") and opens(server, OLD)


def test_a_password_is_exchanged_while_it_runs(server):
    with Client(("127.0.0.1", server.port), password=OLD) as inside, Client(("127.0.0.1", server.port)) as outside:
        write(server.file, OLD, NEW)
        assert hang_up(server).endswith(f"info  {AGAIN}, and has changed file={server.file} valid=2 added=1 removed=0")
        assert valid(server) == [OLD, NEW]
        write(server.file, NEW)
        assert hang_up(server).endswith(f"info  {AGAIN}, and has changed file={server.file} valid=1 added=0 removed=1")
        assert valid(server) == [NEW]
        assert inside.cmd("ACQUIRE", "x", "lease") > 0, "who has authenticated stays"
        assert outside.error("PING").startswith("NOAUTH"), "who has not has not"
        assert outside.error("AUTH", OLD).startswith("WRONGPASS")
        assert outside.cmd("AUTH", NEW) == "OK"
    assert hang_up(server).endswith(f"info  {AGAIN}, and has not changed file={server.file} valid=1 added=0 removed=0")
    server.restart()
    assert valid(server) == [NEW], "after a restart too"
    assert not any(word in line for line in server.logged() for word in (OLD, NEW))


NONE_LEFT = "nothing that was valid before is so any more"


def warns(server):
    """Whether it does at a SIGHUP; all of that has been logged when the next one is."""
    before = len(server.logged())
    hang_up(server)
    hang_up(server)
    return any(NONE_LEFT in line for line in server.logged()[before:])


def test_whoever_locks_everybody_out_is_warned(server):
    """Two passwords in one line, say: the old one had no line end."""
    server.file.write_text(OLD)
    with server.file.open("a") as file:
        file.write(NEW + "\n")
    line = hang_up(server, NONE_LEFT)
    assert " warning " in line and line.endswith(f": whoever does not have the new one yet is refused file={server.file}")
    assert valid(server) == []
    for lines in ([OLD + NEW, OLD], [OLD, NEW], [NEW, OLD], [NEW], [NEW]):
        write(server.file, *lines)
        assert not warns(server)
    write(server.file, NEXT)
    assert warns(server)


def missing(file):
    file.unlink()


def empty(file):
    write(file)


def open_to_others(file):
    write(file, NEW, mode=0o644)


def directory(file):
    file.unlink()
    file.mkdir()


def fifo(file):
    file.unlink()
    os.mkfifo(file, 0o600)


def too_long(file):
    write(file, "x" * 1025)


@pytest.mark.parametrize("spoil, words", [
    (missing, "No such file"), (empty, "its first line is empty"), (open_to_others, "others can use it (mode 0644)"),
    (directory, "is not a regular file"), (fifo, "is not a regular file"), (too_long, "longer than 1024 bytes")],
    ids=lambda value: getattr(value, "__name__", ""))
def test_a_bad_file_changes_nothing(server, spoil, words):
    spoil(server.file)
    line = hang_up(server, REFUSED)
    assert " warning " in line and "setting=password-file" in line and words in line
    assert sum(REFUSED in line for line in server.logged()) == 1
    assert valid(server) == [OLD]
    if server.file.is_dir():
        server.file.rmdir()
    write(server.file, NEW)
    hang_up(server)
    assert valid(server) == [NEW], "and a good one counts again"


def test_nothing_to_read_again(start):
    server = start()
    line = hang_up(server, "SIGHUP")
    assert line.endswith("info  SIGHUP: there is nothing to read again, neither password-file nor users-file nor secret-file nor tls-cert nor peer-tls is set")
    assert server.cmd("PING") == "PONG"


def test_a_credential_of_systemd_is_a_copy(start, tmp_path):
    """Whoever reloads such a service is told what helps."""
    copy = tmp_path / "password"
    write(copy, OLD)
    server = start("--password-file", copy, wrapper=["env", f"CREDENTIALS_DIRECTORY={tmp_path}"])
    assert "it is the copy that systemd made when the service was started; restart it" in hang_up(server)


def test_a_signal_while_it_starts_does_not_end_it(tmp_path):
    """It has a long log to read, say: it comes from the moment on that it says that it starts."""
    file = tmp_path / "password"
    write(file, OLD)
    process = Process(argv_of("--data", tmp_path / "data", "--listen", f"unix:{tmp_path}/s", "--password-file", file),
                      environment(), preexec_fn=die_with_parent)
    while " starting " not in process.line("err"):
        pass
    for _ in range(20):
        process.kill(signal.SIGHUP)
    lines = [process.line("err")]
    while " serving " not in lines[-1]:
        lines.append(process.line("err"))
    process.kill(signal.SIGTERM)
    assert process.wait() == 0


def test_many_signals(server):
    for i in range(200):
        write(server.file, OLD, f"{NEW} {i}")
        os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: opens(server, f"{NEW} 199"), "the last one counts")
    assert opens(server, OLD)


# ---- the secret of peers -----------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path):
    file = tmp_path / "secret"
    write(file, S1)
    made = Cluster("--secret-file", file)
    for node in made.nodes.values():
        node.file = node.directory / "secret"
        node.args[node.args.index("--secret-file") + 1] = node.file
        write(node.file, S1)
    yield made
    made.clean()


def restart(node):
    node.kill9()
    node.launch()
    eventually(node.says, "it answers")


def all_heard(cluster):
    """Every follower has what the leader has."""
    def is_so():
        status = cluster.status()
        return all(member["behind"] == 0 and (member["silent_ms"] or 0) < 1000 for member in status.values())
    return eventually(is_so, "all members follow")


def test_a_secret_is_exchanged_node_by_node(cluster):
    """In each step every node is reloaded alone, and restarted, so that it has to prove itself to nodes that were not."""
    for node in cluster.nodes.values():  # from the file of all to one of its own
        restart(node)
    all_heard(cluster)
    for lines in ([S1, S2], [S2, S1], [S2]):
        for node in cluster.nodes.values():
            write(node.file, *lines)
            hang_up(node)
            all_heard(cluster)
            restart(node)
            all_heard(cluster)
    assert not any(word in line for node in cluster.nodes.values() for line in node.logged() for word in (S1, S2))


def test_open_connections_of_peers_stay(cluster):
    """A follower whose secret is no good any more is still followed; one that comes anew is not."""
    for node in cluster.nodes.values():
        restart(node)
    all_heard(cluster)
    put_first(cluster.nodes.values())
    term = cluster.leader().says()["term"]
    follower = cluster.followers()[0]
    write(follower.file, S2)
    line = hang_up(follower, NONE_LEFT)
    assert " warning " in line and line.endswith(f"file={follower.file}")
    all_heard(cluster)
    assert cluster.leader().says()["term"] == term, "no election"
    restart(follower)
    assert "compare secret-file on both" in follower.await_line("cannot be reached")
    write(follower.file, S1, S2)
    hang_up(follower)
    all_heard(cluster)


@pytest.mark.parametrize("lines, words", [([], "its first line is empty"), (["short"], "less than 16 characters"),
                                          ([S1, "short"], "less than 16 characters")], ids=["empty", "short", "one short"])
def test_a_bad_secret_changes_nothing(cluster, lines, words):
    node = cluster.followers()[0]
    for each in cluster.nodes.values():
        restart(each)
    write(node.file, *lines)
    line = hang_up(node, REFUSED)
    assert "setting=secret-file" in line and words in line
    restart_others = [each for each in cluster.nodes.values() if each is not node]
    for each in restart_others:
        restart(each)
        all_heard(cluster)
    done = subprocess.run(argv_of("--secret-file", node.file, "--check-config"), env=environment(), capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode == 78 and words in done.stderr, "nor would it start"
