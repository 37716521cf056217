"""The lock that everybody has written once, SET key value NX PX, on the same keys: each keeps the other out."""
import json
import threading
import time

import pytest
from conftest import PATIENCE, Cli, eventually
from holder import hold, start_holder  # noqa: F401

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"


class Plain:
    """A client that knows nothing of Holdfast: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/"""

    def __init__(self, redis, value="plain-1"):
        self.redis, self.value = redis, value

    def acquire(self, key="x", ms=30000):
        """ms None: without PX."""
        return self.redis.cmd("SET", key, self.value, "NX", *(("PX", ms) if ms else ())) == "OK"

    def release(self, key="x"):
        return self.redis.cmd("EVAL", RELEASE, 1, key, self.value) == 1

    def holds(self, key="x"):
        return self.redis.cmd("GET", key) == self.value


@pytest.fixture
def url(redis):
    """The name is the key."""
    return redis.url(prefix="")


@pytest.fixture
def cli(cli_on, url):
    return cli_on(url)


@pytest.fixture
def plain(redis):
    return Plain(redis)


ENDLESS = pytest.mark.parametrize("ms", [30000, None], ids=["PX", "no PX"])


@ENDLESS
def test_plain_lock_keeps_holdfast_out(redis, cli, plain, ms):
    assert plain.acquire(ms=ms)
    left = redis.cmd("PTTL", "x")
    for options in ((), ("--shared",), ("-w", "100ms")):
        done = cli("run", "-n" if "-w" not in options else "-q", *options, "x", "--", "echo", "inside")
        assert (done.status, done.stdout) == (75, ""), options
    assert plain.holds() and redis.cmd("PTTL", "x") <= left, "and is not touched"
    assert plain.release()
    assert cli("run", "-n", "x", "true").status == 0


def test_plain_lock_is_no_pool_of_permits(cli, plain):
    assert plain.acquire()
    done = cli("run", "-n", "--permits", "2", "x", "true")
    assert done.status == 77 and "not a pool of permits" in done.stderr
    assert plain.holds()


@pytest.mark.parametrize("words", [(), ("mode=shared",), ("permits=3",)], ids=["exclusive", "shared", "permit"])
def test_hold_keeps_the_plain_client_out(redis, url, hold, plain, words):
    """Also when several hold, until the last of them has gone; and what it gives up without having it stays."""
    holders = [hold(url, "x", *words) for _ in range(2 if words else 1)]
    held = redis.cmd("GET", "x")
    assert held is not None and redis.cmd("PTTL", "x") > 0
    for holder in holders:
        assert not plain.acquire() and not plain.acquire(ms=None)
        assert not plain.release() and redis.cmd("GET", "x") == held
        assert holder.left() > 0 and holder.release() == "HF_OK"
    assert plain.acquire()


@pytest.mark.parametrize("words", [("ttl=1000",), ("ttl=1000", "mode=shared"), ("ttl=1000", "permits=3")],
                         ids=["exclusive", "shared", "permit"])
def test_plain_client_gets_in_when_a_dead_holders_ttl_is_over(redis, url, hold, plain, words):
    holder = hold(url, "x", *words)
    time.sleep(1.2)
    assert not plain.acquire(), "it is renewed as long as it lives"
    holder.kill()
    assert not plain.acquire(), "nobody can know yet"
    eventually(plain.acquire, "the end of the TTL")


def test_paused_holder_touches_nothing_of_the_plain_client(redis, url, hold, plain):
    """B1 and B6 with a plain client as the next holder."""
    holder = hold(url, "x", "ttl=600")
    holder.pause()
    eventually(plain.acquire, "the end of the TTL")
    holder.ask_left()
    holder.resume()
    assert holder.hear_left() == 0
    holder.await_lost()
    assert holder.release() == "HF_ELOST"
    assert plain.holds() and plain.release()


def test_plain_client_whose_lock_ran_out_touches_nothing_of_ours(redis, url, hold, plain):
    assert plain.acquire(ms=300)
    holder = hold(url, "x")
    assert not plain.release(), "compare, then delete"
    assert holder.left() > 0 and holder.release() == "HF_OK"


@ENDLESS
def test_waiter_gets_in_soon_after_the_plain_client_leaves(redis, url, start_holder, plain, ms):
    """Nobody announces a DEL: it looks by itself, every second or so."""
    assert plain.acquire(ms=ms)
    waiter = start_holder(url, "x")
    eventually(lambda: redis.cmd("ZCARD", "holdfast.wait:x") == 1, "a place in the queue")
    time.sleep(1)
    assert waiter.waits()
    assert plain.release()
    started = time.monotonic()
    assert waiter.token > 0
    assert time.monotonic() - started < 10, "not only when the 30 s are over"


def test_waiter_does_not_get_in_while_the_plain_client_prolongs(redis, url, start_holder, plain):
    assert plain.acquire(ms=1000)
    waiter = start_holder(url, "x")
    for _ in range(15):
        time.sleep(0.1)
        assert redis.cmd("PEXPIRE", "x", 1000) == 1 and plain.holds()
    assert waiter.waits()
    assert waiter.token > 0, "when it has run out"
    assert not plain.release()


@ENDLESS
def test_show_and_ls_tell_of_the_plain_client(cli, plain, ms):
    """As somebody, without token; its value, which is its secret, as a digest only."""
    assert plain.acquire(ms=ms)
    (row,) = cli.show("x")["holders"]
    assert row["mode"] == "exclusive" and row["token"] == 0 and row["owner"] == "" and row["age_ms"] is None
    assert 0 < row["left_ms"] <= 30000 if ms else row["left_ms"] is None
    (listed,) = [json.loads(line) for line in cli("ls", "--json").stdout.splitlines()]
    assert listed["name"] == "x" and listed["held"] and listed["token"] == 0
    said = cli("show", "x").stdout + cli("ls").stdout + json.dumps([row, listed])
    assert "x: held (exclusive) by somebody" in said
    assert plain.value not in said
    waiting = cli.start("run", "x", "--", "echo", "inside")
    assert "held by somebody" in waiting.line("err")
    assert len(cli.show("x")["waiters"]) == 1
    assert plain.release()
    assert waiting.line() == "inside"
    assert waiting.wait() == 0


def test_break_ends_a_plain_lock_after_its_ttl(redis, cli, url, hold, plain):
    """It cannot be told, so it has until then; and nobody else, plain or not, gets in before."""
    assert plain.acquire(ms=2000)
    done = cli("break", "x")
    assert done.status == 0 and "broke 1 hold" in done.stdout
    assert not plain.holds() and not plain.release() and not Plain(redis, "plain-2").acquire()
    assert cli("run", "-n", "x", "true").status == 75
    assert not cli.show("x")["holders"]
    assert hold(url, "x").token > 0


def test_break_gives_a_plain_lock_without_end_its_grace(redis, cli, url, hold, plain):
    assert plain.acquire(ms=None)
    assert cli("break", "x", "--grace", "1500ms").status == 0
    assert 0 < redis.cmd("PTTL", "x") <= 1500
    assert cli("run", "-n", "x", "true").status == 75
    holder = hold(url, "x")
    assert not plain.release() and holder.left() > 0


@ENDLESS
def test_break_now_frees_a_plain_lock(cli, url, hold, start_holder, plain, ms):
    """And whoever waits is told at once."""
    assert plain.acquire(ms=ms)
    waiter = start_holder(url, "x")
    cli.await_waiters("x")
    assert cli("break", "--now", "x").status == 0
    assert waiter.token > 0
    assert not plain.release() and waiter.left() > 0


def test_tokens_grow_over_plain_holds(redis, cli, url, hold, plain):
    first = hold(url, "x")
    assert first.release() == "HF_OK"
    assert plain.acquire() and plain.release()
    assert hold(url, "x").token > first.token


def test_never_two_inside(redis, url):
    """Both kinds, as fast as they can, on one key."""
    inside, worst, entries, failures = [0], [0], {"plain": 0, "holdfast": 0}, []
    mutex, until = threading.Lock(), time.monotonic() + 1.5

    def visit(kind):
        with mutex:
            inside[0] += 1
            worst[0] = max(worst[0], inside[0])
            entries[kind] += 1
        time.sleep(0.002)
        with mutex:
            inside[0] -= 1

    def plainly(number):
        plain = Plain(redis, f"plain-{number}")
        while time.monotonic() < until:
            if plain.acquire(ms=10000):
                visit("plain")
                if not plain.release():
                    failures.append("a plain lock was gone")
            time.sleep(0.002)

    def with_holdfast():
        cli = Cli(url)
        while time.monotonic() < until:
            done = cli("lock", "x", "-w", "2s", "--ttl", "10s", "--json")
            if done.status == 75:
                continue
            held = json.loads(done.stdout)
            visit("holdfast")
            if cli("unlock", "x", "--lease", held["lease"], "--token", str(held["token"])).status != 0:
                failures.append("a hold was gone")

    threads = [threading.Thread(target=plainly, args=(number,)) for number in range(2)] + \
              [threading.Thread(target=with_holdfast) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert worst[0] == 1 and not failures
    assert all(entries.values()), entries
    assert redis.cmd("EXISTS", "x") == 0
