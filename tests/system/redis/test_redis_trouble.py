"""What goes wrong with a Redis server, and what is said about it."""
import base64
import json
import os
import threading
import time

import pytest
from conftest import (PATIENCE, SOAK, Connection, Process, RedisError, await_gone, die_with_parent,
                      eventually, free_port, refused)
from holder import hold, start_holder  # noqa: F401

KEY = "holdfast:x"
INFO = "holdfast.info:" + KEY
WAIT = "holdfast.wait:" + KEY
TOKEN = "holdfast.token:holdfast:"
ID = "holdfast.id:holdfast:"


def keys(redis):
    return set(redis.cmd("KEYS", "*"))


# ---- restarts under load


class Load:
    """Some who take and give up the lock as fast as they can, and see whether they are alone inside."""

    def __init__(self, cli, directory, count=4):
        self.cli = cli
        self.log, self.two = directory / "log", directory / "two"
        self.log.touch()
        self.script = (f"flock -n {directory / 'inside'} sh -c 'echo in >>{self.log}; sleep 0.01' "
                       f"|| echo two >>{self.two}")
        self.statuses, self.words = set(), set()
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.stop.is_set():
            done = self.cli("run", "-w", "2s", "--ttl", "1500ms", "x", "--", "sh", "-c", self.script)
            self.statuses.add(done.status)
            self.words.add(done.stderr)

    def inside(self):
        return self.log.stat().st_size

    def goes_on(self):
        goal = self.inside() + 30
        eventually(lambda: self.inside() >= goal, "some get in")

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "it hangs"


@pytest.mark.parametrize("empty", [False, True])
def test_crashes_and_restarts_under_load(servers, cli_on, directory, empty):
    """Held, busy or unknown, and nothing else; as long as the data survives, never two inside."""
    redis = servers.redis("--appendonly", "yes", "--appendfsync", "always")
    cli = cli_on(redis.url())
    load = Load(cli, directory)
    try:
        for _ in range(50 if SOAK else 3):
            load.goes_on()
            redis.kill()
            assert cli("run", "-n", "x", "--", "true").status == 69, "who comes meanwhile is told"
            redis.restart(empty=empty)
        load.goes_on()
    finally:
        load.end()
    assert load.statuses <= {0, 75, 69, 76} and 0 in load.statuses, load.words
    if not empty:
        assert not load.two.exists()
    # Whoever heard nothing more may have left a hold, for its TTL; nobody else has.
    unknown = any("may or may not" in words for words in load.words)
    assert cli("run", *(("-w", "2s") if unknown else ("-n",)), "x", "true").status == 0
    cli.await_free("x")


def test_waiter_takes_its_place_at_once(redis, hold, start_holder):
    """Its listener may be connected, and greeted, before it is first polled: on TCP and on a unix socket."""
    first = hold(redis.url(), "x")
    for count, url in enumerate([redis.url(), f"redis+unix://{redis.socket}"] * 6, 1):
        start_holder(url, "x")
        eventually(lambda: redis.cmd("ZCARD", WAIT) == count, "a place in the queue", 3)
    assert first.left() > 0


def test_waiter_sits_out_a_restart(redis, hold, start_holder):
    """It takes its place again over a new connection, and is told again."""
    first = hold(redis.url(), "x")
    second = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "a place")
    redis.restart(empty=False)
    eventually(lambda: len(redis.cmd("PUBSUB", "CHANNELS", "holdfast.wake:*")) == 1, "it listens again")
    assert first.release() == "HF_OK"
    assert second.token > first.token


def test_script_flush_during_calls(redis, cli_on, hold):
    """A server that does not know the scripts any more is told them again, within the same call."""
    holder = hold(redis.url(), "y", "ttl=300")
    cli = cli_on(redis.url())
    stop = threading.Event()

    def flush():
        with redis.connect() as connection:
            while not stop.is_set():
                connection.cmd("SCRIPT", "FLUSH", "SYNC")

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for _ in range(20):
            done = cli("run", "-n", "x", "true")
            assert (done.status, done.stderr) == (0, "")
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            assert holder.left() > 0
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert holder.release() == "HF_OK"
    assert keys(redis) == {TOKEN, ID}


# ---- memory


def test_full_memory_refuses_and_still_lets_go(redis, cli_on, hold):
    """maxmemory with noeviction: nothing new, and what is held can be renewed and given up."""
    holder = hold(redis.url(), "y", "ttl=600")
    cli = cli_on(redis.url())
    before = keys(redis)
    redis.cmd("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(RedisError, match="OOM"):
        redis.cmd("SET", "k", "v")
    refused(cli, "maxmemory", "room")
    refused(cli, "maxmemory", args=("run", "-n", "--shared", "x", "true"))
    refused(cli, "maxmemory", args=("run", "-n", "--permits", "3", "x", "true"))
    assert keys(redis) == before, "nothing left behind"
    time.sleep(1)
    assert holder.left() > 0, "renewed since"
    assert cli.show("y")["holders"][0]["token"] == holder.token
    assert holder.release() == "HF_OK"
    assert keys(redis) == {TOKEN}
    redis.cmd("CONFIG", "SET", "maxmemory", 0)
    assert cli("run", "-n", "y", "true").status == 0


def test_full_memory_refuses_a_waiter_who_leaves_nothing(redis, cli_on, hold):
    holder = hold(redis.url(), "x")
    waiter = cli_on(redis.url()).start("run", "x", "true")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "a place")
    redis.cmd("CONFIG", "SET", "maxmemory", 1)
    assert holder.release() == "HF_OK"
    assert waiter.wait() == 77
    assert keys(redis) <= {TOKEN} | {key for key in keys(redis) if key.startswith("holdfast.ended:")}


def test_eviction_policy_is_warned_of_once(redis, cli_on):
    """Once per process, not once per connection."""
    cli = cli_on(redis.url())
    assert cli("run", "-n", "x", "true").stderr == "", "none with noeviction"
    redis.cmd("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    holder = cli.hold("x", "--ttl", "1s")
    redis.cmd("CLIENT", "KILL", "TYPE", "normal")
    eventually(lambda: "name=holdfast" in redis.cmd("CLIENT", "LIST"), "another connection")
    assert holder.end() == 0
    said = [line for line in holder.rest("err") if "maxmemory-policy is allkeys-lru" in line]
    assert len(said) == 1 and "noeviction" in said[0]


# ---- what is not a store


def test_read_only_replica(primary_and_replica, cli_on, hold):
    """Refused; who holds what, as far as it has heard, it may say."""
    primary, replica = primary_and_replica
    refused(cli_on(replica.url()), "read-only replica", "primary")
    holder = hold(primary.url(), "x")
    replica.catch_up(primary)
    assert cli_on(replica.url()).show("x")["holders"][0]["token"] == holder.token
    refused(cli_on(replica.url()), "read-only replica", args=("break", "--now", "x"))
    assert holder.left() > 0


def test_cluster(servers, cli_on):
    redis = servers.redis("--cluster-enabled", "yes")
    for args in (("run", "-n", "x", "true"), ("show", "x"), ("ls",)):
        refused(cli_on(redis.url()), "Redis Cluster", "single server", "redlock://", args=args)


@pytest.fixture
def sentinel(servers, directory):
    """The port of one that watches nothing."""
    port = free_port()
    config = directory / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\ndir {directory}\n")
    process = Process(["redis-server", str(config), "--sentinel"], dict(os.environ), preexec_fn=die_with_parent)
    servers.stack.callback(lambda: (process.popen.kill(), process.popen.wait()))

    def answers():
        try:
            with Connection(("127.0.0.1", port)) as connection:
                return connection.cmd("PING") == "PONG"
        except OSError:
            return False
    eventually(answers, "Sentinel answers")
    return port


def test_sentinel(sentinel, cli_on):
    refused(cli_on(f"redis://127.0.0.1:{sentinel}"), "Sentinel", "address of the primary")


@pytest.mark.parametrize("scheme", ["redis+sentinel", "redis-sentinel", "rediss+sentinel", "redis+cluster", "redis-cluster"])
def test_urls_of_sentinel_and_cluster(cli_on, scheme):
    said = refused(cli_on(f"{scheme}://app:hunter2hunter@h1:26379,h2:26379/mymaster"), "Cluster and Sentinel", "redis://",
                   "redlock://", status=64)
    assert "hunter2hunter" not in said


def test_key_of_another_type_is_left_alone(redis, cli_on):
    cli = cli_on(redis.url())
    redis.cmd("RPUSH", KEY, "a", "b")
    for args in (("run", "-n", "x", "true"), ("run", "-w", "5s", "x", "true"), ("run", "-n", "--shared", "x", "true"),
                 ("show", "x"), ("check", "x", "1"), ("break", "x"), ("break", "--now", "x")):
        refused(cli, "not a lock", "prefix", args=args)
    assert cli("ls").stdout == ""
    assert redis.cmd("LRANGE", KEY, 0, -1) == ["a", "b"]
    assert keys(redis) == {KEY}


def test_counter_that_is_none_is_left_alone(redis, cli_on):
    redis.cmd("SET", TOKEN, "abc")
    refused(cli_on(redis.url()), "token counter")
    redis.cmd("SET", TOKEN, 2**53 - 1)
    refused(cli_on(redis.url()), "no tokens left")
    assert keys(redis) == {TOKEN}


# ---- a server that does not answer


def test_dead_server(redis, cli_on):
    """69, soon, and with or without waiting: whoever mistyped a host must not think that the lock is held."""
    redis.kill()
    cli = cli_on(redis.url())
    for args in (("run", "-n", "x", "true"), ("run", "x", "true"), ("run", "-w", "1m", "x", "true"), ("show", "x"), ("ls",),
                 ("lock", "x"), ("break", "x")):
        started = time.monotonic()
        refused(cli, redis.address, "refused", "is the server running", status=69, args=args)
        assert time.monotonic() - started < 5, args


def test_hanging_server(redis, cli_on):
    """The kernel takes the connection, and nobody answers. Who holds something is told in time, by the clock here."""
    cli = cli_on(redis.url())
    holder = cli.hold("y", "--ttl", "1s", script="echo in $HOLDFAST_TOKEN $$; exec sleep 100")
    redis.pause()
    started = time.monotonic()
    asked = [cli.start("run", "-n", "x", "true"), cli.start("run", "x", "true"), cli.start("show", "x")]
    await_gone(holder.job)
    for process in asked:
        assert process.wait() == 69
        (said,) = process.rest("err")
        assert redis.address in said and "did not answer" in said
    assert holder.wait() == 76
    assert time.monotonic() - started < 20
    redis.resume()
    assert cli("run", "-n", "x", "true").status == 0, "at once"
    cli.await_free("y")


def test_hanging_server_ends_a_call_that_does_not_wait_when_it_has_said_so(redis, cli_on):
    redis.pause()
    process = cli_on(redis.url()).start("run", "-n", "x", "true")
    process.line("err")
    assert process.wait(patience=2) == 69


def test_given_up_without_an_answer_leaves_no_hold(redis, relay, cli_on):
    """B7: the grant happened and no answer ever comes: 69, said as unknown, nothing run; and what was granted is given
    up, on the way that is still open, long before its TTL of 30 s."""
    relay.delay(0, 600)
    lost = cli_on(relay.url()).start("run", "-n", "x", "--", "echo", "inside")
    eventually(lambda: redis.cmd("EXISTS", KEY) == 1, "the grant")
    relay.cut("down")
    assert lost.wait() == 69
    assert lost.rest() == []
    assert any("may or may not" in line for line in lost.rest("err"))
    eventually(lambda: redis.cmd("EXISTS", KEY, INFO, WAIT) == 0, "nothing left behind", 5)


def test_short_hang_does_no_harm(redis, hold):
    """A renewal that was not answered in time is made up for (Redisson 3194: it stops after one error)."""
    holder = hold(redis.url(), "x", "ttl=3000")
    until = time.monotonic() + 3.3
    redis.pause()
    time.sleep(1.8)  # past the first renewal, and the time for its answer
    redis.resume()
    while time.monotonic() < until:
        assert holder.left() > 0
        time.sleep(0.05)
    assert not holder.lost and holder.release() == "HF_OK"


# ---- what is asked for


def test_need_strict_is_refused(redis, cli_on):
    """With why, and what to use instead."""
    refused(cli_on(redis.url()), "best effort", "failover", "stores", "strict", status=78,
            args=("run", "--need", "strict", "x", "true"))
    assert keys(redis) == set(), "before anything was asked"


def test_unix_socket(redis, cli_on):
    cli = cli_on(f"redis+unix://{redis.socket}?prefix=p/")
    done = cli("run", "-v", "-n", "x", "--", "sh", "-c", "echo $HOLDFAST_URL")
    assert done.status == 0 and done.stdout.strip() == cli.url and redis.socket in done.stderr
    assert keys(redis) == {"holdfast.token:p/", "holdfast.id:p/"}
    holder = cli.hold("x")
    assert cli_on(redis.url(prefix="p/")).show("x")["holders"][0]["token"] == holder.token, "the same store"
    assert holder.end() == 0


def test_waiter_on_a_unix_socket_is_told(redis, hold, start_holder):
    """As on any other: by a message, not only because it looks now and then."""
    url = f"redis+unix://{redis.socket}"
    first = hold(url, "x")
    second = start_holder(url, "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "a place in the queue", 2)
    assert first.release() == "HF_OK"
    assert second.token > first.token


def test_database_is_used(redis, cli_on):
    for url in (f"redis://{redis.address}/3", f"redis://{redis.address}?db=3", f"redis+unix://{redis.socket}?db=3"):
        holder = cli_on(url).hold("x")
        with redis.connect() as connection:
            assert connection.cmd("DBSIZE") == 0
            connection.cmd("SELECT", 3)
            assert connection.cmd("EXISTS", KEY, INFO, TOKEN) == 3
        assert cli_on(f"redis://{redis.address}/2")("run", "-n", "x", "true").status == 0, "another store"
        assert cli_on(f"redis://{redis.address}/3")("run", "-n", "x", "true").status == 75, "the same"
        assert holder.end() == 0
    refused(cli_on(f"redis://{redis.address}/9999"), "out of range")


def test_waiters_of_two_databases_do_not_wake_each_other(redis, hold, start_holder):
    """Messages know no databases: whoever is told by one is the one whose turn it is."""
    url, other = f"redis://{redis.address}/3", f"redis://{redis.address}/4"
    first, beside = hold(url, "x"), hold(other, "x")
    waiters = start_holder(url, "x"), start_holder(other, "x")

    def places(database):
        with redis.connect() as connection:
            connection.cmd("SELECT", database)
            return connection.cmd("ZCARD", WAIT)

    eventually(lambda: places(3) == places(4) == 1, "both wait")
    assert first.release() == "HF_OK"
    assert waiters[0].token > first.token
    assert waiters[1].waits() and places(4) == 1
    assert beside.release() == "HF_OK"
    assert waiters[1].token > beside.token


def test_prefix_is_used(redis, cli_on):
    one, other = cli_on(redis.url(prefix="one[*]/")), cli_on(redis.url(prefix="other/"))
    holder = one.hold("x")
    assert keys(redis) == {"one[*]/x", "holdfast.info:one[*]/x", "holdfast.token:one[*]/", "holdfast.id:one[*]/"}
    assert other("run", "-n", "x", "true").status == 0
    redis.cmd("SET", "one1/y", "nobody's")
    assert [json.loads(line)["name"] for line in one("ls", "--json").stdout.splitlines()] == ["x"], "not as a pattern"
    assert other("ls").stdout == ""
    assert holder.end() == 0


def test_empty_prefix(redis, cli_on):
    cli = cli_on(redis.url(prefix=""))
    holder = cli.hold("x")
    assert redis.cmd("EXISTS", "x", "holdfast.info:x", "holdfast.token:") == 3
    assert [json.loads(line)["name"] for line in cli("ls", "--json").stdout.splitlines()] == ["x"], "and none of ours"
    assert holder.end() == 0
    refused(cli, "holdfast.", "are reserved", status=64, args=("run", "-n", "holdfast.token:", "true"))


ODD_NAMES = [bytes(range(1, 256)), b"\xff" * 512, b"*", b"a:b/{c} d", b"\r\n", b"'\"\\$(x)", b"*shared", b"holdfast.token:",
             b"-n", "Schlüssel 🔒".encode()]


def test_names_of_odd_bytes(redis, cli_on):
    cli = cli_on(redis.url())
    for name in ODD_NAMES:
        text = os.fsdecode(name)
        done = cli("lock", "--json", "--", text) if text.startswith("-") else cli("lock", text, "--json")
        assert done.status == 0, done.stderr
        held = json.loads(done.stdout)
        assert redis.cmd("GET", b"holdfast:" + name) == held["lease"], name
        assert redis.cmd("EXISTS", b"holdfast.info:holdfast:" + name) == 1
    found = [json.loads(line) for line in cli("ls", "--json").stdout.splitlines()]
    assert {base64.b64decode(row["name_b64"]) if "name_b64" in row else row["name"].encode() for row in found} == \
        set(ODD_NAMES)
    for name in ODD_NAMES:
        text = os.fsdecode(name)
        assert cli("run", "-n", "--", text, "--", "true").status == 75
        assert cli("break", "--now", "--", text).status == 0
    marks = {key for key in keys(redis) if key.startswith("holdfast.ended:")}
    assert len(marks) == len(ODD_NAMES) and all(redis.cmd("PTTL", mark) > 0 for mark in marks), "who held them is told so, for a while"
    assert keys(redis) - marks in ({TOKEN, ID}, {TOKEN})


def test_owners_of_odd_bytes(redis, cli_on):
    """An owner is the rest of a line: whatever is in it, it is shown as it is, of holders and of waiters."""
    cli = cli_on(redis.url())
    owner = "1 2 3: a:b\n[x] ü"
    holder = cli.hold("x", "--owner", owner)
    waiter = cli.start("run", "--owner", owner, "x", "true")
    (row,) = cli.await_waiters("x") and cli.show("x")["waiters"]
    assert row["owner"] == owner
    assert cli.show("x")["holders"][0]["owner"] == owner
    assert holder.end() == 0
    assert waiter.wait() == 0


@pytest.mark.parametrize("options", [(), ("--shared",), ("--permits", "2"), ("--delay", "10s"), ("--ttl", "2s")])
def test_nothing_left_behind(redis, cli_on, options):
    """After a run, and after a wait that was not needed, or was in vain."""
    cli = cli_on(redis.url())
    holder = cli.hold("x", *options)
    if not {"--shared", "--permits"} & set(options):
        assert cli("run", "-w", "100ms", "x", "true").status == 75
        assert cli("run", "-n", "x", "true").status == 75
    assert cli("run", "-n", "y", *options, "false").status == 1
    waiter = cli.start("run", *options, "x", "true")
    assert holder.end() == 0
    assert waiter.wait() == 0
    left = {key for key in keys(redis) if not key.startswith("holdfast.ended:")}
    assert left == {TOKEN, ID}
    assert all(redis.cmd("PTTL", key) > 0 for key in keys(redis) - left), "what a wait in vain leaves, ends by itself"
