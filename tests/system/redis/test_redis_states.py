"""What a Redis says while it is not itself, to those who hold: that it is a replica, that its memory is full, that it loads
its data, that a script keeps it busy. Whoever holds keeps the lock as long as there is time, is told in time when there is
none, and hears the truth about a release."""
import os
import subprocess
import time

import pytest
from conftest import Clock, RedisError, eventually, redlock_url
from holder import hold, start_holder  # noqa: F401

KEY = "holdfast:x"
TTL_MS = 3000


def answers(redis, code):
    """Does it refuse a command with this code?"""
    try:
        redis.cmd("GET", "anything")
    except RedisError as error:
        return str(error).startswith(code)
    return False


def stays_held(holder, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert holder.left() > 0
        time.sleep(0.05)
    assert not holder.told_lost()


# ---- OOM


@pytest.mark.parametrize("words", [(), ("mode=shared",), ("permits=3",), ("delay=1000",), ("mode=shared", "delay=1000")],
                         ids=" ".join)
def test_full_memory_costs_nobody_a_hold(redis, hold, words):
    """maxmemory with noeviction: renewals go on, of all modes; and what is given up is free."""
    holder = hold(redis.url(), "x", f"ttl={TTL_MS}", *words)
    redis.cmd("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(RedisError, match="OOM"):
        redis.cmd("SET", "k", "v")
    stays_held(holder, 2 * TTL_MS / 1000)
    assert holder.release() == "HF_OK"
    assert redis.cmd("EXISTS", KEY) == 0


# ---- READONLY


@pytest.fixture
def demote(servers, redis):
    """Makes the fixture redis a replica of another one that has the same data, as a failover does."""
    other = servers.redis()

    def run():
        other.replicate(redis)
        other.catch_up(redis)
        other.promote()
        redis.replicate(other)
        return other

    return run


def test_a_primary_that_became_a_replica_is_left(redis, demote, hold):
    """It refuses for ever, on the connections that it has; where its name leads by now only a new one can tell."""
    holder = hold(redis.url(), "x", f"ttl={2 * TTL_MS}")
    other = demote()
    before = int(redis.info("stats")["total_connections_received"])
    own = 0

    def connections():
        nonlocal own
        own += 1  # by this question
        return int(redis.info("stats")["total_connections_received"]) - before - own

    eventually(lambda: connections() >= 2, "it connects again, and again", 2 * TTL_MS / 1000)
    redis.promote()  # there is time left, and the lock is there
    stays_held(holder, 3 * TTL_MS / 1000)
    assert holder.release() == "HF_OK"
    assert other.running()


def test_a_replica_refuses_a_release_and_a_holder_is_told_in_time(redis, demote, hold, cli_on):
    """Refused is not unknown, and not done: the lock is still there, as far as it knows."""
    told, gives_up = hold(redis.url(), "x", f"ttl={TTL_MS}"), hold(redis.url(), "y", "ttl=60000")
    other = demote()
    assert gives_up.release() == "HF_EREFUSED"
    assert redis.cmd("EXISTS", "holdfast:y") == 1 and other.cmd("EXISTS", "holdfast:y") == 1
    told.await_lost()
    assert cli_on(other.url()).show("y")["holders"][0]["token"] == gives_up.token
    assert told.release() == "HF_ELOST"


# ---- LOADING


def is_loading(redis):
    try:
        return answers(redis, "LOADING")
    except OSError:
        return False


def test_loading_costs_nobody_a_hold(servers, hold, start_holder, cli_on, monkeypatch):
    """A restart with its data that takes its time. Nothing is granted or given up meanwhile."""
    redis = servers.redis("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    holder, gives_up = hold(redis.url(), "x", f"ttl={8 * TTL_MS}"), hold(redis.url(), "y", "ttl=60000")
    waiter = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", "holdfast.wait:holdfast:x") == 1, "a place")
    redis.cmd("EVAL", "for i = 1, 350 do redis.call('SET', 'k' .. i, redis.sha1hex(i) .. redis.sha1hex(-i)) end", 0)
    monkeypatch.setattr(redis, "_answers", lambda: is_loading(redis))
    redis.restart(empty=False)
    assert gives_up.release() == "HF_EUNKNOWN"
    done = cli_on(redis.url())("run", "-n", "z", "true")
    assert done.status == 69 and "loading" in done.stderr
    assert is_loading(redis), "all that while"
    eventually(lambda: not is_loading(redis), "it has loaded")
    assert redis.cmd("EXISTS", "holdfast:y") == 1, "it was not given up"
    stays_held(holder, TTL_MS / 1000)
    assert waiter.waits()
    assert holder.release() == "HF_OK"
    assert waiter.token > holder.token, "it sat it out"


# ---- BUSY


@pytest.fixture
def endless_script(redis):
    """Begins one, and ends it at the latest after the test."""
    redis.cmd("CONFIG", "SET", "busy-reply-threshold", 50)
    connections = []

    def end():
        while connections:
            redis.cmd("SCRIPT", "KILL")
            connections.pop().close()
        eventually(lambda: not answers(redis, "BUSY"), "the end of it")

    def begin():
        connection = redis.connect()
        connections.append(connection)
        connection.send("EVAL", "while true do end", 0)
        eventually(lambda: answers(redis, "BUSY"), "BUSY")
        return end

    yield begin
    end()


def test_a_busy_server_costs_nobody_a_hold(redis, hold, endless_script):
    holder = hold(redis.url(), "x", f"ttl={TTL_MS}")
    end = endless_script()
    time.sleep(TTL_MS / 2000)  # past its renewal
    end()
    stays_held(holder, 1.5 * TTL_MS / 1000)
    assert holder.release() == "HF_OK"


def test_a_server_busy_for_too_long_is_told_in_time(redis, hold, cli_on, endless_script):
    """Before anybody else can have it. A release that it did not hear is unknown, and was not done."""
    holder, gives_up = hold(redis.url(), "x", f"ttl={TTL_MS}"), hold(redis.url(), "y", "ttl=60000")
    end = endless_script()
    holder.await_lost()
    assert gives_up.release() == "HF_EUNKNOWN"
    done = cli_on(redis.url())("run", "-n", "z", "true")
    assert done.status == 69 and "busy" in done.stderr
    end()
    assert redis.cmd("EXISTS", "holdfast:y") == 1
    assert holder.release() == "HF_ELOST"


# ---- the client's own clock


def date_to(clock):
    """What the time is to a process with this environment."""
    return float(subprocess.run(["date", "+%s"], env={**os.environ, **clock.env}, capture_output=True, text=True,
                                check=True).stdout)


@pytest.mark.parametrize("scheme", ["redis", "redlock"])
def test_a_jump_of_the_clients_wall_clock_changes_nothing(servers, directory, hold, start_holder, scheme):
    """Neither of the holder's nor of the waiter's: both count on a clock that only ticks."""
    nodes = [servers.redis() for _ in range(1 if scheme == "redis" else 3)]
    url = nodes[0].url() if scheme == "redis" else redlock_url(nodes, timeout="1s")
    clock = Clock(directory)
    holder = hold(url, "x", f"ttl={TTL_MS}", env=clock.env)
    waiter = start_holder(url, "x", f"ttl={TTL_MS}", env=clock.env)
    for offset in ("+400d", "-400d"):
        clock.set(offset)
        assert abs(abs(date_to(clock) - time.time()) - 400 * 86400) < 60, "it did jump"
        stays_held(holder, 1.5 * TTL_MS / 1000)
        assert waiter.waits()
    assert holder.release() == "HF_OK"
    assert waiter.token > holder.token
    assert waiter.left() > 0
    assert waiter.release() == "HF_OK"
