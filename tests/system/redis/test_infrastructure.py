"""The servers and relays that the other tests lean on."""
import os
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import PATIENCE, Redis, RedisError, await_gone, eventually, is_running, redlock_url


def seconds(connection):
    started = time.monotonic()
    assert connection.cmd("PING") == "PONG"
    return time.monotonic() - started


def test_values(redis):
    assert redis.cmd("SET", "k", "v") == "OK"
    assert redis.cmd("GET", "k") == "v"
    assert redis.cmd("GET", "nothing") is None
    assert redis.cmd("DBSIZE") == 1
    assert redis.cmd("SET", b"\xff\x00\r\n", "") == "OK"
    assert redis.cmd("GET", b"\xff\x00\r\n") == ""
    assert redis.cmd("EVAL", "return {1, 'two', false, {3, {}}}", 0) == [1, "two", None, [3, []]]
    with pytest.raises(RedisError, match="wrong number"):
        redis.cmd("GET")


def test_urls(redis, relay):
    assert redis.url() == f"redis://127.0.0.1:{redis.port}"
    assert redis.url(prefix="a b/") == f"redis://127.0.0.1:{redis.port}?prefix=a%20b/"
    assert redlock_url([redis, relay], timeout="50ms") == \
        f"redlock://127.0.0.1:{redis.port},127.0.0.1:{relay.port}?timeout=50ms"


def test_arguments(servers):
    redis = servers.redis("--requirepass", "secret")
    with pytest.raises(RedisError, match="NOAUTH"):
        redis.cmd("DBSIZE")
    with pytest.raises(AssertionError, match="no-such-option"):
        servers.redis("--no-such-option", "1")


def test_pause(redis):
    redis.pause()
    with redis.connect() as connection:
        connection.send("PING")
        connection.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.read()
    redis.resume()
    assert redis.cmd("PING") == "PONG"


def test_stop_leaves_nothing():
    redis = Redis()
    pid, directory = redis.pid, redis.directory
    redis.pause()
    redis.stop()
    assert not is_running(pid)
    assert not directory.exists()
    redis.stop()


def test_restart_empty_is_empty(redis):
    port = redis.port
    redis.cmd("SET", "k", "v")
    redis.restart(empty=False)
    assert redis.cmd("GET", "k") == "v"
    redis.kill()
    with pytest.raises(OSError):
        redis.cmd("PING")
    redis.restart()
    assert redis.cmd("DBSIZE") == 0
    assert redis.port == port


def test_crash_with_an_append_only_file(servers):
    redis = servers.redis("--appendonly", "yes")
    redis.cmd("SET", "k", "v")
    redis.kill()
    redis.restart(empty=False)
    assert redis.cmd("GET", "k") == "v"
    redis.restart()
    assert redis.cmd("DBSIZE") == 0


@pytest.mark.parametrize("up, down", [(60, 60), (100, 0), (0, 100), (0.5, 0.25)])
def test_delay(relay, up, down):
    with relay.connect() as connection:
        seconds(connection)
        relay.delay(up, down)
        assert seconds(connection) >= (up + down) / 1000


def test_cut_and_heal(redis, relay):
    with relay.connect() as connection:
        seconds(connection)
        relay.cut("down")
        connection.send("SET", "k", "v")
        eventually(lambda: relay.count().down_chunks == 2, "reply held back")
        assert redis.cmd("GET", "k") == "v", "the request has arrived"
        connection.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)
        relay.heal()
        connection.socket.settimeout(PATIENCE)
        assert connection.socket.recv(100) == b"+OK\r\n"

        relay.cut()
        connection.send("DEL", "k")
        with relay.connect() as another:
            another.send("PING")
            another.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                another.socket.recv(1)
            assert redis.cmd("EXISTS", "k") == 1, "the request has not arrived"
            relay.heal()
            another.socket.settimeout(PATIENCE)
            assert another.socket.recv(100) == b"+PONG\r\n"
        assert connection.socket.recv(100) == b":1\r\n"


def test_drop(redis, relay):
    relay.drop("down")
    with pytest.raises(ConnectionError):
        relay.cmd("SET", "k", "v")
    assert redis.cmd("GET", "k") == "v", "only the reply was lost"
    relay.drop("up")
    with pytest.raises(ConnectionError):
        relay.cmd("SET", "k", "w")
    assert redis.cmd("GET", "k") == "v", "the request was lost"
    assert relay.cmd("GET", "k") == "v"
    assert relay.count().connections == 3


def test_open(redis, relay):
    assert relay.open() == 0
    with relay.connect() as connection:
        seconds(connection)
        assert relay.open() == 1
        relay.cut()
        connection.send("SET", "k", "v")
        with relay.connect() as waiting:
            waiting.send("SET", "another", "v")
            assert relay.open() == 1, "nobody is taken on while it is cut"
    assert relay.open() == 1, "an end is held back"
    relay.heal()
    eventually(lambda: relay.open() == 0, "the end of both")
    assert redis.cmd("GET", "k") == redis.cmd("GET", "another") == "v"


def test_reset(relay):
    with relay.connect() as connection:
        seconds(connection)
        relay.reset()
        with pytest.raises(ConnectionResetError):
            connection.socket.recv(1)


def test_clock(servers):
    redis = servers.redis(faketime=True)

    def offset():
        return int(redis.cmd("TIME")[0]) - time.time()

    assert abs(offset()) < 5
    redis.cmd("SET", "k", "v", "PX", 10000)
    redis.cmd("SET", "long", "v", "PX", 60000)
    assert redis.cmd("PTTL", "k") > 0
    redis.set_clock("+15s")
    assert 10 < offset() < 20
    assert redis.cmd("EXISTS", "k") == 0, "10 s have passed for it"
    assert 0 < redis.cmd("PTTL", "long") <= 45000
    redis.set_clock("+10d")
    assert redis.cmd("EXISTS", "long") == 0
    redis.set_clock("-10d")
    assert offset() < -9 * 24 * 3600
    redis.restart()
    assert offset() < -9 * 24 * 3600, "also after a restart"


def test_replica_follows_and_is_promoted(primary_and_replica):
    primary, replica = primary_and_replica
    primary.cmd("SET", "k", "v")
    replica.catch_up(primary)
    assert replica.cmd("GET", "k") == "v"
    with pytest.raises(RedisError, match="READONLY"):
        replica.cmd("SET", "k", "w")
    primary.kill()
    replica.promote()
    assert replica.cmd("SET", "k", "w") == "OK"


def test_replica_behind_a_relay_misses_what_is_cut(servers):
    primary, replica = servers.redis(), servers.redis()
    relay = servers.relay(primary)
    replica.replicate(relay)
    relay.cut("down")
    primary.cmd("SET", "k", "v")
    primary.kill()
    replica.promote()
    assert replica.cmd("GET", "k") is None


def test_five(five_redis):
    assert len({redis.port for redis in five_redis}) == 5
    assert {redis.cmd("PING") for redis in five_redis} == {"PONG"}


@pytest.mark.parametrize("end", ["assert False", "os.kill(os.getpid(), 9)"])
def test_nothing_outlives_its_test(directory, end):
    """Whether the test fails or pytest itself is killed."""
    (directory / "test_it.py").write_text(f"""
import os
def test_it(five_redis, relay):
    for process in [*five_redis, relay.process]:
        print("pid", process.pid, flush=True)
    five_redis[0].pause()
    {end}
""")
    here = str(pathlib.Path(__file__).parent)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-s", "-p", "conftest", "-p", "no:cacheprovider",
                           "test_it.py"], cwd=directory, env={**os.environ, "PYTHONPATH": here, "HF_TEST_TMP": str(directory)},
                          capture_output=True, text=True, timeout=PATIENCE * 4)
    assert done.returncode != 0
    pids = [int(line.split()[-1]) for line in done.stdout.splitlines() if "pid " in line and line.split()[-1].isdigit()]
    assert len(pids) == 6, done.stdout + done.stderr
    for pid in pids:
        await_gone(pid)
    if end == "assert False":
        assert "1 failed" in done.stdout
        assert not list(directory.glob("redis-*")), "no directory either"
