"""Users of a server as `holdfast user` makes them, and as the command meets them: what is refused is told in one line, at once."""
import json
import os
import signal

import pytest
from conftest import PATIENCE, eventually
from holdfast_cli import Cli, only_line

PASSWORD = "correct horse battery staple"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "users"


@pytest.fixture
def keep(file):
    """holdfast user: the file's keeper."""
    def run(*words, password=PASSWORD):
        asks = words[0] in ("add", "password") and "--generate" not in words and "--drop-old" not in words
        done = Cli("file:/nowhere")("user", *words, "--file", str(file), *(["--password-file", "-"] if asks else []),
                                    **({"input": password + "\n", "stdin": None} if asks else {}))
        assert done.status == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def server(start, keep, file, tmp_path):
    keep("add", "ci", "--allow", "acquire look: build/*")
    keep("add", "taker", "--allow", "acquire: build/*")
    keep("add", "looker", "--allow", "look: build/*")
    keep("add", "ops", "--allow", "look break", "--allow", "floor admin")
    keep("add", "member-keeper", "--allow", "admin")
    keep("add", "nobody")
    server = start("--users-file", file, "--audit-file", tmp_path / "audit")
    server.audit = tmp_path / "audit"
    return server


@pytest.fixture
def as_user(server):
    made = []

    def make(user, password=PASSWORD):
        said = f"{user}:{password.replace(' ', '%20')}@" if password is not None else f"{user}@" if user else ""
        cli = Cli(f"holdfast://{said}127.0.0.1:{server.port}")
        made.append(cli)
        return cli

    yield make
    for cli in made:
        cli.clean()


def reload(server):
    server.logged()
    os.kill(server.pid, signal.SIGHUP)
    return server.await_line("the users file was read again")


# ---- who is let in -------------------------------------------------------------------------------------------------------------------


def test_who_was_added_is_let_in(server, as_user, keep):
    assert as_user("ci")("run", "build/a", "--", "true").status == 0
    keep("add", "late", "--allow", "acquire")
    assert as_user("late")("run", "x", "--", "true").status == 77
    reload(server)
    assert as_user("late")("run", "x", "--", "true").status == 0
    keep("remove", "late")
    reload(server)
    assert as_user("late")("run", "x", "--", "true").status == 77


def test_the_variable_has_the_password_of_the_user_of_the_url(as_user):
    cli = as_user("ci", None)
    assert cli("ls", env={"HOLDFAST_PASSWORD": PASSWORD}).status == 0
    assert cli("ls", env={"HOLDFAST_PASSWORD": "wrong"}).status == 77


def test_a_password_is_exchanged(server, as_user, keep):
    made = keep("password", "ci", "--keep-old", "--generate").strip()
    reload(server)
    assert [as_user("ci", word)("ls").status for word in (PASSWORD, made)] == [0, 0]
    keep("password", "ci", "--drop-old")
    reload(server)
    assert [as_user("ci", word)("ls").status for word in (PASSWORD, made)] == [77, 0]


@pytest.mark.parametrize("user, password", [("ci", "wrong"), ("ci", None), ("stranger", PASSWORD), ("", None)])
@pytest.mark.parametrize("words", [["ls"], ["run", "build/a", "true"], ["show", "x"], ["cluster", "status"]], ids=lambda words: words[0])
def test_who_is_not_let_in_hears_it_once(server, as_user, user, password, words):
    """However long the server takes to compare: it is not asked again and again, in one round of the search after another."""
    before = server.audit.read_text().count("login_refused")
    done = as_user(user, password)(*words)
    assert done.status == 77
    line = only_line(done.stderr)
    assert "does not accept this user and password" in line or "needs a password" in line
    # One of them looks at the cluster with another connection.
    assert server.audit.read_text().count("login_refused") - before <= 4


# ---- what is refused --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user, right, words", [
    ("ci", "acquire", ["run", "other", "true"]), ("ci", "acquire", ["lock", "other"]), ("ci", "acquire", ["once", "other", "true"]),
    ("ci", "acquire", ["elect", "other", "true"]), ("ci", "look", ["show", "other"]), ("ci", "look", ["check", "other", "5"]),
    ("ci", "look", ["watch", "other"]), ("ci", "look", ["leader", "other"]), ("ci", "break", ["break", "build/a"]),
    ("ci", "floor", ["floor", "5"]), ("ci", "admin", ["cluster", "transfer"]), ("ci", "admin", ["cluster", "remove", "1"]),
    ("taker", "look", ["ls"]), ("taker", "look", ["show", "build/a"]), ("taker", "look", ["cluster", "status"]),
    ("looker", "acquire", ["run", "build/a", "true"]), ("nobody", "look", ["ls"]), ("nobody", "acquire", ["run", "a", "true"])])
def test_a_right_that_is_missing_is_named(as_user, user, right, words):
    done = as_user(user)(*words)
    assert done.status == 77, (done.status, done.stderr)
    line = only_line("".join(row for row in done.stderr.splitlines(keepends=True)))
    assert f"user '{user}' has no right '{right}'" in line
    assert "NOPERM" in line


def test_who_may_only_acquire_does_all_that_a_holder_does(as_user):
    cli = as_user("taker")
    assert cli("run", "build/a", "--", "true").status == 0
    taken = dict(line.split(";")[0].split("=", 1) for line in cli("lock", "build/b").stdout.splitlines())
    assert cli("renew", "build/b", env=taken).status == 0
    assert cli("unlock", "build/b", env=taken).status == 0
    assert cli("once", "build/k", "--", "echo", "x").stdout == "x\n"
    holder = cli.hold("build/c")
    assert cli("run", "-n", "build/c", "true").status == 75, "and who holds it is not told"
    assert holder.end() == 0


def test_who_may_look_at_some_names_sees_these_and_the_cluster(as_user):
    holder = as_user("ci").hold("build/x")
    cli = as_user("looker")
    assert [json.loads(line)["name"] for line in cli("ls", "--json").stdout.splitlines()] == ["build/x"]
    assert cli("show", "build/x").status == 0 and "ci: " in cli("show", "build/x").stdout
    assert cli("check", "build/x", str(holder.token)).status == 0
    assert cli("cluster", "status").status == 0
    assert cli("stores").stderr == ""
    assert holder.end() == 0


def test_operators(server, as_user):
    holder = as_user("ci").hold("build/x", "--on-lost", "term")
    ops = as_user("ops")
    assert ops("break", "--now", "build/x").status == 0
    assert holder.wait() == 76
    assert ops("floor", "5").status == 0
    for user in ("ops", "member-keeper"):
        done = as_user(user)("cluster", "transfer")
        assert done.status == 77 and "no other node" in only_line(done.stderr)
    ends = [json.loads(line) for line in server.audit.read_text().splitlines() if '"command_end"' in line]
    assert [(end["user"], end["command"].split()[0], end["outcome"]) for end in ends] == [
        ("ops", "BREAK", "done"), ("ops", "FLOOR", "done"), ("ops", "CLUSTER", "refused"), ("member-keeper", "CLUSTER", "refused")]


def test_who_waits_when_its_right_is_taken_is_told(server, as_user, keep):
    """Once its user is gone it is not let in again. Whoever was served before sits that out as it would an outage, and the job is not run."""
    holder = as_user("ci").hold("build/x")
    waiter = as_user("taker").start("run", "build/x", "--", "echo", "ran")
    eventually(lambda: as_user("ops").show("build/x")["waiters"], "it waits", PATIENCE)
    keep("remove", "taker")
    reload(server)
    assert waiter.wait() in (69, 77) and waiter.rest() == []
    assert "does not accept this user and password" in waiter.rest("err")[-1]
    assert holder.end() == 0
