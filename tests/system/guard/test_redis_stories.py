"""The Redis guard in the stories for which there are guards: holders that are stopped past their lease and go on.

The holders are real: `holdfast run` on a Redis store, with a shell as the job, which does what the test says on its
input, and prints the answers. A holder is stopped together with its job, as a machine would be, after it was told to
write; so the write is what it does first when it wakes. Each story is told without the guard, too, and ends badly.
"""
import contextlib
import os
import pathlib
import random
import shlex
import signal
import threading

import pytest
from redis_server import (FORMS, PATIENCE, REDIS_CLI, ROOT, SOAK, Cli, Connection, Guard, Stale, Wrong, at_home,  # noqa: F401
                          ended, eventually, guard, redis, shared_redis, start_redis)
from redis_storm import FRESH_MIN, FRESH_PROCESSES, storm

MARK, KEY = "holdfast.mark:{account}", "account"
PUPPET = 'echo in $HOLDFAST_TOKEN $$; while read -r line; do eval "$line"; done'
STALE_WRITES = 1_000_000 if SOAK else 20_000
KILLS = 50 if SOAK else 5
EXAMPLES = ROOT / "examples/redis"


class Holder:
    """Holds the lock 'account', and does as it is told."""

    def __init__(self, cli, redis, ttl):
        self.redis = redis
        self.process = cli.hold("account", "--ttl", ttl, script=PUPPET)
        self.token = self.process.token

    def begin(self, *words):
        """A command of Redis, as the job's next step. A stopped one does it when it wakes."""
        cli = [REDIS_CLI, "-p", str(self.redis.port), "--raw", *map(str, words)]
        self.process.say(f"echo said $({shlex.join(cli)} 2>&1)")

    def answer(self):
        word, _, answer = self.process.line().partition(" ")
        assert word == "said"
        return answer

    def do(self, *words):
        self.begin(*words)
        return self.answer()

    def fenced(self, guard, operation, keys, *args):
        """The words of a fenced command, with this holder's token. On one line: a script by its digest."""
        words = guard.words(operation, keys, self.token, "not-older", *args)
        return words if words[0] == "FCALL" else ["EVALSHA", self.redis.cmd("SCRIPT", "LOAD", words[1]), *words[2:]]

    def stop(self):
        for pid in (self.process.pid, self.process.job):
            os.kill(pid, signal.SIGSTOP)
        eventually(lambda: all(state(pid) == "T" for pid in (self.process.pid, self.process.job)), "both stopped")

    def wake(self):
        """The job first: whoever wakes late may be ended by `holdfast`, but need not be in time."""
        os.kill(self.process.job, signal.SIGCONT)
        answer = self.answer()
        os.kill(self.process.pid, signal.SIGCONT)
        assert self.process.wait() == 76, "it lost its lock"
        return answer

    def leave(self):
        self.process.popen.stdin.close()
        assert self.process.wait() == 0


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@pytest.fixture
def hold(redis):
    """Starts a Holder that is inside."""
    cli = Cli(redis.url())

    def start(ttl="10s"):
        return Holder(cli, redis, ttl)

    yield start
    for process in cli.started:
        for pid in (process.pid, getattr(process, "job", None)):
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(pid, signal.SIGKILL)
    cli.clean()


def is_stale(answer, first, second):
    return answer.startswith(f"STALE {first.token} {second.token} stale fencing token: ")


# ---- a holder that writes late


def test_a_late_write_without_the_guard_is_taken(redis, hold):
    first = hold("1s")
    first.stop()
    second = hold()
    assert second.token > first.token
    assert second.do("SET", KEY, "second") == "OK"
    first.begin("SET", KEY, "late")
    assert first.wake() == "OK", "and it believes that all is well"
    assert redis.cmd("GET", KEY) == "late", "what the second wrote is gone"
    second.leave()


WRITES = {
    "set": (["set", [MARK, KEY], "late"], lambda redis: redis.cmd("GET", KEY) == "second"),
    "del": (["del", [MARK, KEY]], lambda redis: redis.cmd("GET", KEY) == "second"),
    "hset": (["hset", [MARK, "{account}:log"], "last", "late"], lambda redis: redis.cmd("EXISTS", "{account}:log") == 0),
    "script": (["put", [MARK, KEY], "late"], lambda redis: redis.cmd("GET", KEY) == "second"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_late_write_is_refused(redis, guard, hold, write):
    """Also when the holder had passed before."""
    guard.wrap("put", "return redis.call('SET', KEYS[1], ARGV[1])")
    words, is_right = WRITES[write]
    first = hold("1s")
    assert first.do(*first.fenced(guard, "set", [MARK, KEY], "first")) == "OK"
    first.stop()
    second = hold()
    assert second.do(*second.fenced(guard, "set", [MARK, KEY], "second")) == "OK"
    first.begin(*first.fenced(guard, *words))
    assert is_stale(first.wake(), first, second)
    assert is_right(redis)
    assert second.do(*second.fenced(guard, "set", [MARK, KEY], "second again")) == "OK"
    second.leave()
    assert redis.cmd("GET", KEY) == "second again"


# ---- read, pause, write: balance 100, one takes 30, one takes 50


def two_withdrawals(redis, hold, enter, write):
    """A reads, pauses; B reads; A writes; B writes. Answers what each was told, and the two."""
    redis.cmd("SET", KEY, 100)
    first = hold("1s")
    enter(first)
    assert first.do("GET", KEY) == "100"
    first.stop()
    second = hold()
    enter(second)
    assert second.do("GET", KEY) == "100"
    first.begin(*write(first, 70))
    told = first.wake()
    answer = second.do(*write(second, 50))
    second.leave()
    return told, answer, first, second


def plain_set(holder, value):
    return ["SET", KEY, value]


def fenced_set(guard):
    return lambda holder, value: holder.fenced(guard, "set", [MARK, KEY], value)


def test_read_modify_write_without_the_guard(redis, hold):
    told, answer, _, _ = two_withdrawals(redis, hold, lambda holder: None, plain_set)
    assert (told, answer) == ("OK", "OK"), "80 were paid out"
    assert redis.cmd("GET", KEY) == "50", "and 50 are missing"


def test_read_modify_write_with_a_mark_raised_too_late(redis, guard, hold):
    """Why one enters before one reads: fenced writes alone do not help."""
    told, answer, _, _ = two_withdrawals(redis, hold, lambda holder: None, fenced_set(guard))
    assert (told, answer) == ("OK", "OK"), "80 were paid out"
    assert redis.cmd("GET", KEY) == "50", "and 50 are missing"


def test_read_modify_write_entered_before_the_read(redis, guard, hold):
    def enter(holder):
        assert holder.do(*holder.fenced(guard, "enter", [MARK])) == str(holder.token)

    told, answer, first, second = two_withdrawals(redis, hold, enter, fenced_set(guard))
    assert is_stale(told, first, second), "nothing was paid out"
    assert answer == "OK" and redis.cmd("GET", KEY) == "50", "50 were paid out, and 50 are missing"
    third = hold()
    enter(third)
    assert third.do("GET", KEY) == "50" and third.do(*fenced_set(guard)(third, 20)) == "OK"
    third.leave()
    assert redis.cmd("GET", KEY) == "20", "with the lock again, the first gets its 30"


# ---- many


def test_of_many_stale_writes_none_is_taken_and_no_fresh_one_refused(redis):
    seed = os.environ.get("HF_SEED") or str(random.randrange(10**6))
    refused, taken, wrong = storm(redis, STALE_WRITES, seed)
    assert wrong == [], f"HF_SEED={seed}"
    assert refused == STALE_WRITES and taken >= FRESH_MIN * FRESH_PROCESSES
    print(f"{refused} stale writes refused, {taken} fresh ones taken")


# ---- kill -9 of the server


def raise_until_it_dies(address, form, start, acked):
    """Rising tokens, as fast as they are acknowledged."""
    token = start
    with contextlib.suppress(OSError, ConnectionError):
        with Connection(address) as connection:
            guard = Guard(None, form, loaded=True)
            while True:
                assert connection.cmd(*guard.words("set", [MARK, KEY], token, "newer", token)) == "OK"
                acked.append(token)
                token += 1


@pytest.mark.parametrize("form", FORMS)
def test_no_acknowledged_mark_is_lost_when_redis_is_killed(start_redis, form):
    """With appendfsync always. What was not acknowledged may be there or not, but mark and data agree."""
    redis = start_redis("--appendonly", "yes", "--appendfsync", "always")
    guard = Guard(redis, form)
    seed = os.environ.get("HF_SEED") or str(random.randrange(10**6))
    draw, last = random.Random(seed), 1
    for _ in range(KILLS):
        acked = []
        writer = threading.Thread(target=raise_until_it_dies, args=(redis.socket, form, last, acked), daemon=True)
        writer.start()
        goal = draw.randrange(1, 300)
        eventually(lambda: len(acked) >= goal or not writer.is_alive(), "some writes")
        redis.kill()
        writer.join(PATIENCE)
        assert not writer.is_alive() and len(acked) >= goal, f"HF_SEED={seed}"
        redis.restart(empty=False)
        mark = int(redis.cmd("GET", MARK))
        assert acked[-1] <= mark <= acked[-1] + 1, f"HF_SEED={seed}"
        assert redis.cmd("GET", KEY) == str(mark)
        with pytest.raises(Stale):
            guard("set", [MARK, KEY], mark - 1 or 1, "newer", "late")
        last = mark + 1


# ---- the examples


def python_withdraw(port):
    pytest.importorskip("redis", reason="redis-py is not installed")
    return f"/usr/bin/python3 withdraw.py 50 {port}"


LOAD = "holdfast guard redis | redis-cli -x FUNCTION LOAD REPLACE"
LOAD_SCRIPT = "holdfast guard redis --wrap withdraw <withdraw.lua | redis-cli -x FUNCTION LOAD REPLACE"
BY_SCRIPT = "sh -c 'redis-cli -e FCALL withdraw 2 holdfast.mark:{balance} balance $HOLDFAST_TOKEN not-older 50'"


@pytest.mark.parametrize("fifty", ["sh", "python", "script"])
def test_one_takes_30_and_one_takes_50(redis, at_home, fifty):
    """Scenario A: balance 100, and 20 in the end."""
    job = {"sh": "./withdraw.sh 50", "python": python_withdraw(redis.port), "script": BY_SCRIPT}[fifty]
    redis.cmd("SET", "balance", 100)
    ended(at_home(f"{LOAD}; {LOAD_SCRIPT}", EXAMPLES))
    both = [at_home(f"holdfast run balance -- {one}", EXAMPLES) for one in ("./withdraw.sh 30", job)]
    for started in both:
        ended(started)
    assert redis.cmd("GET", "balance") == "20"


@pytest.mark.parametrize("job", ["./withdraw.sh 50", "python", BY_SCRIPT])
def test_the_examples_fail_with_a_stale_token(redis, at_home, job):
    job = python_withdraw(redis.port) if job == "python" else job
    redis.cmd("SET", "balance", 100)
    ended(at_home(f"{LOAD}; {LOAD_SCRIPT}", EXAMPLES))
    redis.cmd("FCALL", "holdfast_enter", 1, "holdfast.mark:{balance}", 34, "not-older")
    started = at_home(job, EXAMPLES, HOLDFAST_TOKEN="33")
    _, err = started.communicate(timeout=PATIENCE)
    assert started.returncode == 1 and "STALE 33 34 " in err
    assert redis.cmd("GET", "balance") == "100"


def test_the_script_of_the_examples_takes_no_more_than_there_is(redis):
    guard = Guard(redis, "eval")
    guard.wrap("withdraw", (EXAMPLES / "withdraw.lua").read_text())
    redis.cmd("SET", KEY, 40)
    with pytest.raises(Wrong, match="ERR there is not enough"):
        guard("withdraw", [MARK, KEY], 34, "not-older", 50)
    assert redis.cmd("GET", KEY) == "40"
    assert guard("withdraw", [MARK, KEY], 34, "not-older", 30) == 10
