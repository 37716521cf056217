"""holdfast once on a Redis server that crashes, or loses its data. What the engine does is in test_once.c beside it, and
what the command does, on every store, in tests/system/cli/test_once.py."""
import threading
import time

import pytest
from conftest import PATIENCE, SOAK, eventually

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
CRASHES = 30 if SOAK else 3
CALLERS = 4
JOB = "echo run $HOLDFAST_TOKEN; read line; echo $line"


@pytest.fixture
def durable(servers, cli_on):
    redis = servers.redis(*DURABLE)
    cli = cli_on(redis.url())
    cli.redis = redis
    return cli


def begin(cli, key, *options):
    """Somebody who runs it until a line comes."""
    process = cli.start("once", key, *options, "--", "sh", "-c", JOB)
    word, token = process.line().split()
    assert word == "run"
    return process, int(token)


def test_a_result_survives_a_crash(durable):
    first = durable("once", "charge", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exit 3")
    assert first.status == 3
    for _ in range(CRASHES):
        durable.redis.kill()
        durable.redis.restart(empty=False)
        again = durable("once", "charge", "--", "echo", "a second run")
        assert (again.status, again.stdout) == (3, first.stdout)


def test_a_run_goes_on_while_the_server_crashes(durable):
    runner, token = begin(durable, "long")
    waiters = [durable.start("once", "long", "--", "echo", "a second run") for _ in range(CALLERS)]
    for waiter in waiters:
        assert "waiting for 'long'" in waiter.line("err")
    durable.redis.kill()
    durable.redis.restart(empty=False)
    runner.say("done")
    assert runner.wait() == 0
    for waiter in waiters:
        assert waiter.wait() == 0
        assert waiter.rest() == [f"run {token}", "done"]


def test_crashes_under_load_leave_one_result_per_key(durable):
    """A run whose end nobody could be told of may be repeated; but whoever is told a result is told the same."""
    results, statuses, stop = {}, set(), threading.Event()
    lock = threading.Lock()

    def call(who):
        number = 0
        while not stop.is_set():
            number += 1
            key = f"key {number // 3}"
            done = durable("once", "--ttl", "1s", "--wait", "5s", key, "--", "sh", "-c", f"echo {who} $HOLDFAST_TOKEN")
            with lock:
                statuses.add(done.status)
                if done.status == 0:
                    results.setdefault(key, set()).add(done.stdout)

    threads = [threading.Thread(target=call, args=(who,)) for who in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(CRASHES):
            goal = len(results) + 8
            eventually(lambda: len(results) >= goal, "results come")
            durable.redis.kill()
            time.sleep(0.1)
            durable.redis.restart(empty=False)
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "it hangs"
    assert statuses <= {0, 69, 75, 76}, statuses
    assert all(len(told) == 1 for told in results.values()), results


def test_whoever_ran_it_before_the_data_was_lost_is_refused(servers, cli_on):
    redis = servers.redis()
    cli = cli_on(redis.url())
    runner, token = begin(cli, "lost")
    redis.cmd("FLUSHALL")
    other, higher = begin(cli, "lost")
    assert higher > token
    runner.say("late")
    assert runner.wait() == 76
    other.say("in time")
    assert other.wait() == 0
    assert cli("once", "lost", "--", "echo", "a third run").stdout == f"run {higher}\nin time\n"
