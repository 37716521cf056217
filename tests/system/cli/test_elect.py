"""Election: one leader, observers told, again when leader again."""
import json
import os
import signal

from conftest import await_gone, is_running

JOB = 'echo lead $HOLDFAST_TOKEN $$; read line; exit 5'


def elect(cli, name, owner, *options, script=JOB):
    return cli.start("elect", name, "--owner", owner, *options, "--", "sh", "-c", script)


def lead(process):
    word, token, pid = process.line().split()
    assert word == "lead"
    return int(token), int(pid)


def test_one_leader_and_the_next(cli):
    first = elect(cli, "svc", "one")
    token, _ = lead(first)
    done = cli("leader", "svc")
    assert (done.status, done.stdout) == (0, f"one, token {token}\n")
    second = elect(cli, "svc", "two")
    cli.await_waiters("svc")
    first.popen.stdin.close()
    assert first.wait() == 5, "a command that ends by itself resigns, and its status is ours"
    second_token, _ = lead(second)
    assert second_token > token
    found = json.loads(cli("leader", "svc", "--json").stdout)
    assert (found["leader"], found["token"]) == ("two", second_token)
    second.popen.stdin.close()
    assert second.wait() == 5


def test_nobody(cli):
    done = cli("leader", "svc")
    assert done.status == 1 and done.stdout == "" and "nobody" in done.stderr
    done = cli("leader", "svc", "--json")
    assert done.status == 1 and json.loads(done.stdout) == {"name": "svc", "leader": None}


def test_leader_again_after_a_break(cli):
    first = elect(cli, "svc", "one", script="echo lead $HOLDFAST_TOKEN $$; exec sleep 100")
    token, job = lead(first)
    assert cli("break", "svc").status == 0
    again, new_job = lead(first)
    assert again > token and new_job != job
    assert not is_running(job)
    first.kill(signal.SIGTERM)
    assert first.wait() == 143


def test_leader_dies(cli):
    first = elect(cli, "svc", "one")
    lead(first)
    second = elect(cli, "svc", "two")
    cli.await_waiters("svc")
    first.kill(signal.SIGKILL)
    lead(second)
    second.popen.stdin.close()
    assert second.wait() == 5


def test_campaign_gives_up_when_told(cli):
    first = elect(cli, "svc", "one")
    lead(first)
    second = elect(cli, "svc", "two")
    cli.await_waiters("svc")
    second.kill(signal.SIGTERM)
    assert second.wait() == 143
    assert cli.show("svc")["waiters"] == []
    first.popen.stdin.close()
    assert first.wait() == 5


def test_outage_and_return(ttl_cli):
    """The lead is lost with the store, the command is stopped in time; when it is back, it leads again."""
    first = elect(ttl_cli, "svc", "one", "--ttl", "1s", script="echo lead $HOLDFAST_TOKEN $$; exec sleep 100")
    token, job = lead(first)
    ttl_cli.faults("unreachable", "on")
    await_gone(job)
    ttl_cli.faults("clear")
    again, _ = lead(first)
    assert again > token
    first.kill(signal.SIGTERM)
    assert first.wait() == 143


def test_unreachable_at_the_start(ttl_cli):
    ttl_cli.faults("unreachable", "on")
    assert ttl_cli("elect", "svc", "--", "true").status == 69


def test_cannot_run(cli):
    assert cli("elect", "svc", "--", "no-such-command").status == 127
    assert cli("run", "-n", "svc", "true").status == 0


def test_follow(cli):
    follower = cli.start("leader", "svc", "--follow")
    assert follower.line() == "nobody"
    first = elect(cli, "svc", "one")
    token, _ = lead(first)
    assert follower.line() == f"one, token {token}"
    first.popen.stdin.close()
    assert first.wait() == 5
    assert follower.line() == "nobody"
    os.kill(follower.pid, signal.SIGINT)
    assert follower.wait() == 130
