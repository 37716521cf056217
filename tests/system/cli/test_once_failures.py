"""holdfast once: runners that die, servers that are killed, answers that are lost. Never two results."""
import signal

import pytest
from conftest import SOAK, await_gone, eventually, is_running
from once_cli import JOB, Once, faulty, holdfast, load, need_server, store  # noqa: F401


# ---- whoever runs it dies ----------------------------------------------------------------------------------------


def test_killed_and_replaced_by_a_waiter(store):
    first = store.begin("k", *store.lease("2s"))
    second = store.wait_for("k", script="echo mine $HOLDFAST_TOKEN")
    first.kill(signal.SIGKILL)
    await_gone(first.job)
    word, token = second.line().split()
    assert word == "mine" and int(token) > first.token
    assert second.wait() == 0
    assert store.once("k", *store.counted("x")).stdout == f"mine {token}\n" and store.runs() == []


def test_killed_and_replaced_by_a_later_caller(store):
    first = store.begin("k", *store.lease("500ms"))
    first.kill(signal.SIGKILL)
    known = eventually(lambda: (now := store.known("k"))["state"] == "died" and now, "the death is known")
    assert known["token"] == first.token and 0 < known["left_ms"] <= 86400000
    assert "died" in store.once("k", "--show").stdout
    assert store.once("k", *store.counted("x")).stdout == "x\n"
    assert int(store.runs()[0]) > first.token


def test_killed_and_not_replaced(store):
    first = store.begin("k", *store.lease("2s"))
    second = store.wait_for("k", "--if-died", "fail")
    first.kill(signal.SIGKILL)
    assert second.wait() == 76
    line = second.rest("err")[-1]
    assert f"whoever ran 'k' (token {first.token}) died before it was finished, and it is not run again" in line
    done = store.once("k", "--if-died", "fail", *store.counted("never"))
    assert done.status == 76 and store.runs() == []
    assert store.once("k", "--if-died", "rerun", *store.counted("x")).stdout == "x\n"
    assert store.once("k", "--if-died", "fail", *store.counted("y")).stdout == "x\n", "it has a result now"


def test_one_would_not_inherit_and_another_does(holdfast):
    first = holdfast.begin("k", "--ttl", "3s")
    fails = holdfast.wait_for("k", "--if-died", "fail")  # first in the queue
    heir = holdfast.wait_for("k", script=JOB)
    first.kill(signal.SIGKILL)
    word, token, _ = heir.line().split()
    assert word == "in" and int(token) > first.token
    assert fails.wait() == 76, "though by now somebody runs it"
    assert heir.end() == 0


def test_stopped_past_its_lease(store):
    """It wakes when another one has run it: refused, and the result is the successor's."""
    if not store.ttl:
        pytest.skip("without a TTL nobody is replaced who lives")
    first = store.begin("k", "--ttl", "1s")
    first.kill(signal.SIGSTOP)
    first.say("late")  # and its job, which nobody stopped, ends
    await_gone(first.job)
    second = store.once("k", *store.counted("successor"))
    assert second.stdout == "successor\n"
    first.kill(signal.SIGCONT)
    assert first.wait() == 76
    assert any("lost 'k'" in line for line in first.rest("err"))
    known = store.known("k")
    assert known["state"] == "done" and known["token"] == int(store.runs()[0]) > first.token
    assert store.once("k", *store.counted("never")).stdout == "successor\n"


def test_refused_as_stale(faulty):
    """The store took it away, and it has not heard of that when it comes to finish."""
    first = faulty.begin("k", "--ttl", "60s")
    faulty.faults("expire", "\1k")
    assert faulty.once("k", *faulty.counted("successor")).stdout == "successor\n"
    assert first.end() == 76
    line = first.rest("err")[-1]
    assert f"the result of 'k' (token {first.token}) is not kept" in line
    assert line.endswith("; unless somebody else has run it since, the next call runs the command again"), line
    assert faulty.once("k", *faulty.counted("never")).stdout == "successor\n"


def test_lost(faulty):
    """It is stopped in time, and nothing is kept of it."""
    first = faulty.begin("k", "--ttl", "2s", "--grace", "500ms",
                         script='trap "echo term; exit 0" TERM; echo in $HOLDFAST_TOKEN $$; while :; do sleep 0.02; done')
    faulty.faults("unreachable", "renew", "on")
    assert first.line() == "term"
    assert first.wait() == 76
    assert not is_running(first.job)
    assert faulty.known("k")["state"] == "nothing", "it had ended before its lease did"


def test_with_if_died_fail_a_job_that_was_stopped_counts_as_dead(store):
    done = store.once("k", *store.lease("500ms"), "--if-died", "fail", "--", "sh", "-c", "kill -9 $$")
    when = " when its lease has run out, in about " if store.ttl else "\n"
    assert done.status == 137 and "it counts as dead" + when in done.stderr, done
    eventually(lambda: store.known("k")["state"] == "died", "the death is known")
    assert store.once("k", "--if-died", "fail", *store.counted("never")).status == 76
    assert store.once("k", *store.counted("x")).stdout == "x\n"


# ---- answers that are lost ---------------------------------------------------------------------------------------


def test_a_lost_answer_is_found_again(faulty):
    for call in ("acquire", "finish"):
        faulty.faults("lose-reply", call, "1")
    done = faulty.once("k", *faulty.counted("x"))
    assert (done.status, done.stdout, done.stderr) == (0, "x\n", "")
    assert faulty.once("k", *faulty.counted("y")).stdout == "x\n" and len(faulty.runs()) == 1


def test_not_known_whether_it_is_kept(faulty):
    faulty.faults("lose-reply", "finish", "on")
    done = faulty.once("k", "--ttl", "1s", *faulty.counted("x"))
    assert done.status == 69 and done.stdout == "x\n"
    assert "the result of 'k' may or may not be kept" in done.stderr
    assert done.stderr.endswith("; if it is not, the next call runs the command again when this run's lease has expired, 1.0 s after the store is "
                                "back at the latest\n"), done.stderr
    assert faulty.known("k")["state"] == "done"


def test_refused_by_the_store(faulty):
    faulty.faults("refuse", "finish", "on")
    done = faulty.once("k", *faulty.counted("x"))
    assert done.status == 77 and "is not kept" in done.stderr
    assert done.stderr.endswith("; the next call runs the command again when this run's lease has expired, 30.0 s from now at the latest\n"), done


def test_no_store(directory):
    done = Once("holdfast://127.0.0.1:1", directory).once("k", "--", "echo", "never")
    assert done.status == 69 and done.stdout == ""


def test_the_server_is_killed_between_claim_and_finish(holdfast):
    first = holdfast.begin("k")
    second = holdfast.wait_for("k")
    holdfast.server.kill9()
    holdfast.server.restart()
    assert holdfast.known("k")["token"] == first.token, "it runs"
    assert first.end() == 0
    assert second.wait() == 0
    assert second.rest() == [f"in {first.token} {first.job}", "out go"]
    holdfast.server.kill9()
    holdfast.server.restart()
    assert holdfast.once("k", *holdfast.counted("never")).stdout == f"in {first.token} {first.job}\nout go\n"


def test_the_server_is_away_while_it_finishes(holdfast):
    first = holdfast.begin("k")
    holdfast.server.pause()
    first.say("go")
    await_gone(first.job)
    holdfast.server.resume()
    assert first.wait() == 0
    assert holdfast.known("k")["state"] == "done"


def test_the_leader_is_killed_while_it_finishes(directory):
    """Whatever is answered: never two results, and what was said to be kept is."""
    need_server()
    cluster = load("nodes", "cluster/nodes.py").Cluster(3)
    once = Once("holdfast://" + ",".join(f"{node.host}:{node.port}" for node in cluster), directory)
    kept = 0
    try:
        for turn in range(40 if SOAK else 3):
            key = f"k{turn}"
            leader = cluster.settled()
            first = once.begin(key)
            first.say("go")
            if turn % 2:
                await_gone(first.job)
            leader.kill9()
            status = first.wait()
            mine = [f"in {first.token} {first.job}", "out go"]
            assert status in (0, 69), first.rest("err")
            results = {once.once(key, "--", "sh", "-c", "echo again $HOLDFAST_TOKEN").stdout for _ in range(3)}
            assert len(results) == 1, results
            if status == 0:
                assert results == {"\n".join(mine) + "\n"}
            kept += status == 0
            leader.restart()
        assert kept > 0
    finally:
        once.clean()
        cluster.clean()
