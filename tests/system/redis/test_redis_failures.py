"""Section B of the scenarios on one Redis, and on a primary with its replica.

Each test shows first that the failure really happens at the store, then that the client tells the truth about it, then
what becomes of a resource that believes everybody, and of one that compares tokens. TTLs of 10 s are scaled down, and
pauses, cuts and jumps with them.
"""
import json
import os
import signal
import time

import pytest
from conftest import await_gone, eventually, is_running, script_text
from holder import hold, start_holder  # noqa: F401
from resource import Resource

KEY, INFO, WAIT, TOKEN = "holdfast:x", "holdfast.info:holdfast:x", "holdfast.wait:holdfast:x", "holdfast.token:holdfast:"
WRITER = 'echo in $HOLDFAST_TOKEN $$; while read line; do echo write $HOLDFAST_TOKEN; done'


class Resources:
    """One that believes everybody, and one that compares tokens."""

    def __init__(self):
        self.open, self.guarded = Resource(guarded=False), Resource(guarded=True)

    def write(self, token, value):
        return self.open.write(token, value), self.guarded.write(token, value)


@pytest.fixture
def resources():
    return Resources()


def keys(redis):
    return set(redis.cmd("KEYS", "*"))


def scripts_run(redis):
    stats = redis.info("commandstats")
    return sum(int(stats[name].split(",")[0].removeprefix("calls=")) for name in ("cmdstat_evalsha", "cmdstat_eval")
               if name in stats)


def token_at(redis, lease):
    """As Redis has it."""
    return int(redis.cmd("HGET", INFO, lease).split()[0])


def late_write_harms_only_the_unguarded(resources, old, new):
    """The next holder writes, and then the one whose lock is gone."""
    assert resources.write(new, "new") == (True, True)
    assert resources.write(old, "late") == (True, False)
    assert resources.open.value == "late", "the harm"
    assert resources.guarded.value == "new"
    assert resources.guarded.refused == [(old, "late")]


def is_untouched(redis, holder, lease):
    """After whatever came late, holder has what it had."""
    assert redis.cmd("GET", KEY) == lease
    assert token_at(redis, lease) == holder.token
    assert holder.left() > 0 and not holder.lost
    assert holder.release() == "HF_OK"
    assert redis.cmd("EXISTS", KEY) == 0


# ---- B1: a pause


@pytest.mark.parametrize("part", [1.5, 2.0])
def test_paused_holder_knows_at_once_that_it_lost(redis, hold, start_holder, resources, part):
    """B1: a holder with TTL 10 s stops for 15 and 20 s, wakes, and writes with its old token."""
    first = hold(redis.url(), "x", "ttl=1000")
    lease = redis.cmd("GET", KEY)
    assert resources.write(first.token, "first") == (True, True)
    first.pause()
    until = time.monotonic() + part
    second = start_holder(redis.url(), "x")
    assert second.token > first.token
    fresh = redis.cmd("GET", KEY)
    assert fresh not in (None, lease), "Redis has given it to another"
    time.sleep(max(0, until - time.monotonic()))

    first.ask_left()
    first.resume()
    assert first.hear_left() == 0, "with the first word it says"
    first.await_lost()
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    assert first.release() == "HF_ELOST"
    is_untouched(redis, second, fresh)


def test_paused_command_whose_job_runs_on_writes_late(redis, cli_on, hold, resources):
    """B1 with `run --on-lost ignore`."""
    cli = cli_on(redis.url())
    first = cli.hold("x", "--ttl", "1s", "--on-lost", "ignore", script=WRITER)
    os.kill(first.pid, signal.SIGSTOP)
    second = hold(redis.url(), "x")
    fresh = redis.cmd("GET", KEY)
    time.sleep(0.5)
    os.kill(first.pid, signal.SIGCONT)
    said = first.line("err")
    assert "lost 'x'" in said and "runs on" in said
    assert is_running(first.job)
    first.say("go")
    assert first.line() == f"write {first.token}"
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    first.popen.stdin.close()
    assert first.wait() == 76, "whatever the job returned"
    is_untouched(redis, second, fresh)


def test_paused_command_ends_its_job_when_it_wakes(redis, cli_on, hold, resources):
    """B1 with `run`. As long as holdfast itself is stopped, nothing can stop the job: that is what guards are for."""
    cli = cli_on(redis.url())
    first = cli.hold("x", "--ttl", "1s", script=WRITER)
    os.kill(first.pid, signal.SIGSTOP)
    second = hold(redis.url(), "x")
    fresh = redis.cmd("GET", KEY)
    first.say("go")
    assert first.line() == f"write {first.token}", "the job still writes"
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    time.sleep(0.5)
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait() == 76
    await_gone(first.job)
    assert first.rest() == [], "and no more"
    is_untouched(redis, second, fresh)


# ---- B2: a partition


@pytest.mark.parametrize("which", ["both", "up", "down"])
def test_cut_off_holder_knows_before_redis_gives_the_lock_away(redis, relay, hold, start_holder, resources, which):
    """B2: cut off for 15 s with TTL 10 s, both ways or one; then what was held back arrives. The client counts from
    before it asked: with a slow way, that is well before Redis begins to count."""
    relay.delay(50, 100)
    first = hold(relay.url(), "x", "ttl=1400")
    relay.cut(which)
    until, ran = time.monotonic() + 2.1, scripts_run(redis)
    lease = redis.cmd("GET", KEY)
    second = start_holder(redis.url(), "x")
    first.await_lost()
    assert redis.cmd("GET", KEY) == lease and redis.cmd("PTTL", KEY) > 0, "it says so while the key is still its own"
    assert second.waits()
    if which == "down":
        assert scripts_run(redis) > ran + 1, "its renewals have arrived, and it could not know"
    assert second.token > first.token
    fresh = redis.cmd("GET", KEY)
    assert fresh not in (None, lease)
    time.sleep(max(0, until - time.monotonic()))

    ran = scripts_run(redis)
    relay.heal()
    if which != "down":
        eventually(lambda: scripts_run(redis) > ran, "the renewals that were held back arrive")
    assert first.left() == 0
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    assert first.release() == "HF_ELOST"
    is_untouched(redis, second, fresh)


# ---- B3: a failover


def test_failover_before_replication_gives_two_holders(servers, hold, resources):
    """B3: Redis primary dies before its replica has the key. The double grant is what Redis can do to us, and `stores`
    says so; the token is the greater one although the replica never saw the counter."""
    primary, replica = servers.redis(), servers.redis()
    link = servers.relay(primary)
    replica.replicate(link)
    link.cut("down")
    first = hold(primary.url(), "x", "ttl=3000")
    assert primary.cmd("EXISTS", KEY, TOKEN) == 2
    primary.kill()
    replica.promote()
    assert replica.cmd("EXISTS", KEY, TOKEN) == 0, "it has neither the lock nor the counter"

    second = hold(replica.url(), "x")
    assert first.left() > 0 and second.left() > 0, "two holders"
    assert second.token > first.token
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    first.await_lost()
    assert first.left() == 0
    is_untouched(replica, second, replica.cmd("GET", KEY))


def test_failover_after_replication_keeps_the_lock(primary_and_replica, hold, cli_on):
    """B3, the other half: what the replica has seen, it keeps, with the token."""
    primary, replica = primary_and_replica
    first = hold(primary.url(), "x")
    replica.catch_up(primary)
    primary.kill()
    replica.promote()
    cli = cli_on(replica.url())
    assert cli("run", "-n", "x", "true").status == 75
    assert cli("check", "x", str(first.token)).status == 0
    assert cli("break", "--now", "x").status == 0
    assert hold(replica.url(), "x").token > first.token


# ---- B4: the clock of Redis jumps


def test_clock_set_forward_gives_two_holders(servers, hold, resources):
    """B4: +15 s with TTL 10 s. Redis ends the hold early, while its holder, cut off, believes in it rightly."""
    redis = servers.redis(faketime=True)
    relay = servers.relay(redis)
    first = hold(relay.url(), "x", "ttl=3000")
    relay.cut()
    redis.set_clock("+4.5s")
    assert redis.cmd("EXISTS", KEY) == 0, "gone early"
    second = hold(redis.url(), "x")
    fresh = redis.cmd("GET", KEY)
    assert first.left() > 0 and not first.lost, "two holders"
    assert second.token > first.token
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    relay.heal()
    first.await_lost()
    assert first.left() == 0
    is_untouched(redis, second, fresh)


def test_clock_set_back_keeps_tokens_growing_and_a_dead_holders_lock(servers, hold, cli_on):
    """B4: back by an hour. A key runs out at a moment of Redis's clock, so what was held before the jump stays an hour
    longer if its holder dies; `break` ends it. Its holder goes on believing in no more than its TTL, and what is taken
    after the jump lasts as long as it should. Tokens grow, because the counter does."""
    redis = servers.redis(faketime=True)
    cli = cli_on(redis.url())
    first = hold(redis.url(), "x", "ttl=1000")
    redis.set_clock("-3600s")
    ran = scripts_run(redis)
    assert 3_500_000 < redis.cmd("PTTL", KEY) <= 3_601_000
    eventually(lambda: scripts_run(redis) > ran, "a renewal")
    assert 0 < first.left() <= 1000, "no more than it asked for"

    later = hold(redis.url(), "y", "ttl=1000")
    assert later.token > first.token, "although the clock shows an hour less"
    assert later.token > int(redis.cmd("TIME")[0]) * 1_000_000
    assert redis.cmd("PTTL", "holdfast:y") <= 1000
    later.kill()
    eventually(lambda: redis.cmd("EXISTS", "holdfast:y") == 0, "the end of the TTL")

    first.kill()
    assert redis.cmd("PTTL", KEY) > 3_500_000
    assert cli("run", "-n", "x", "true").status == 75
    assert cli("break", "--now", "x").status == 0
    assert hold(redis.url(), "x").token > later.token


def test_clock_set_back_does_not_disturb_a_release(servers, hold, start_holder):
    """B4: the living give up what they hold, and the next one is told, whatever the clock shows."""
    redis = servers.redis(faketime=True)
    first = hold(redis.url(), "x")
    second = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "a place in the queue")
    redis.set_clock("-3600s")
    assert first.release() == "HF_OK"
    assert second.token > first.token


# ---- B5: death


def test_dead_holders_lock_runs_out(redis, hold, start_holder):
    """B5: death while holding."""
    first = hold(redis.url(), "x", "ttl=1000")
    lease = redis.cmd("GET", KEY)
    second = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "a place in the queue")
    first.kill()
    assert redis.cmd("GET", KEY) == lease and second.waits(), "Redis does not know that it is dead"
    assert second.token > first.token


def test_kill_9_ends_the_child_and_leaves_grandchildren_unlocked(redis, cli_on):
    """What docs/safety.md says of kill -9 on a store with a TTL [S13]: the child goes at once, the lock with its TTL, and
    what the child has started goes on beside the next holder."""
    cli = cli_on(redis.url())
    holder = cli.hold("x", "--ttl", "2s", script='sleep 100 & echo in $HOLDFAST_TOKEN $$; echo $!; wait')
    grandchild = int(holder.line())
    try:
        holder.kill(signal.SIGKILL)
        await_gone(holder.job)
        assert cli("run", "-n", "x", "true").status == 75, "held until its TTL is over"
        done = cli("run", "-w", "20s", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
        assert done.status == 0 and int(done.stdout) > holder.token
        assert is_running(grandchild)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_dead_waiter_neither_blocks_nor_takes_the_wake_up(redis, hold, start_holder):
    """B5: death while waiting; Redisson 3004: a dead waiter stalls a fair queue."""
    first = hold(redis.url(), "x")
    dead = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "the first place")
    (place,) = redis.cmd("ZRANGE", WAIT, 0, -1)
    second = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 2, "the second place")
    dead.kill()
    channel = f"holdfast.wake:{place.split(':')[1]}"
    eventually(lambda: redis.cmd("PUBSUB", "NUMSUB", channel)[1] == 0, "Redis sees that the connection has ended")
    assert redis.cmd("ZRANGE", WAIT, 0, 0) == [place], "its place is still the first"

    with redis.connect() as listening:
        listening.cmd("PSUBSCRIBE", "holdfast.wake:*")
        assert first.release() == "HF_OK"
        told = listening.read()
        assert told[2] != channel, "somebody who lives is told"
    assert second.token > first.token
    assert second.release() == "HF_OK"
    assert keys(redis) == {TOKEN}


def test_unreachable_waiter_holds_up_the_next_one_by_seconds_only(redis, relay, hold, start_holder):
    """B5, a host that loses its power: Redis still takes the first waiter for alive and wakes it, and nobody else."""
    first = hold(redis.url(), "x")
    dead = start_holder(relay.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "the first place")
    (place,) = redis.cmd("ZRANGE", WAIT, 0, -1)
    second = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 2, "the second place")
    relay.cut()
    dead.kill()
    with redis.connect() as listening:
        listening.cmd("PSUBSCRIBE", "holdfast.wake:*")
        assert first.release() == "HF_OK"
        assert listening.read()[2] == f"holdfast.wake:{place.split(':')[1]}", "the one that hears nothing"
    started = time.monotonic()
    assert second.token > first.token
    assert time.monotonic() - started < 15, "long before the 20 s for which its place lasts"


# ---- B6: what comes late


def test_late_release_does_not_touch_the_next_holder(redis, relay, hold, resources):
    """B6: a slow release. It was sent in time and arrives when somebody else holds."""
    first = hold(relay.url(), "x", "ttl=1000")
    lease = redis.cmd("GET", KEY)
    relay.cut("up")
    first.ask_release()
    second = hold(redis.url(), "x")
    fresh = redis.cmd("GET", KEY)
    assert fresh not in (None, lease)
    ran = scripts_run(redis)
    relay.heal()
    assert first.hear_released() == "HF_ELOST"
    assert scripts_run(redis) > ran, "it has arrived"
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    is_untouched(redis, second, fresh)


def test_retried_release_does_not_touch_the_next_holder(redis, relay, hold):
    """B6; etcd 22082: the release was done, its answer was lost, and the retry comes when somebody else holds."""
    hold(redis.url(), "x").release()  # Redis knows the script from now on
    first = hold(relay.url(), "x")
    relay.cut("down")
    first.ask_release()
    eventually(lambda: redis.cmd("EXISTS", KEY) == 0, "the release")
    second = hold(redis.url(), "x")
    fresh = redis.cmd("GET", KEY)
    ran = scripts_run(redis)
    relay.reset()
    relay.heal()
    assert first.hear_released() == "HF_OK", "the first try did it"
    assert scripts_run(redis) > ran, "and the second has arrived"
    is_untouched(redis, second, fresh)


@pytest.mark.parametrize("shared", [(), ("--shared",)])
@pytest.mark.parametrize("now", [(), ("--now",)])
def test_retried_release_of_a_broken_hold_is_not_told_as_released(redis, relay, cli_on, now, shared):
    """It did not hear of the break, and the answer to the first release was lost."""
    runner = cli_on(relay.url()).start("run", *shared, "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    relay.cut("down")
    assert cli_on(redis.url())("break", *now, "x").status == 0
    runner.say("go")
    assert "releasing 'x': no answer" in runner.line("err")
    relay.reset()
    relay.heal()
    assert runner.wait() == 76, runner.rest("err")


def test_token_of_an_older_hold_gives_up_and_renews_nothing(redis, cli_on):
    """B6: a duplicate that names the lease but an older token touches nothing newer."""
    cli = cli_on(redis.url())
    held = json.loads(cli("lock", "x", "--json").stdout)
    old = ("x", "--lease", held["lease"], "--token", str(held["token"] - 1))
    left = redis.cmd("PTTL", KEY)
    assert cli("unlock", *old).status == 1
    assert cli("renew", *old, "--ttl", "10m").status == 1
    assert redis.cmd("GET", KEY) == held["lease"] and redis.cmd("PTTL", KEY) <= left
    assert cli("unlock", "x", "--lease", held["lease"], "--token", str(held["token"])).status == 0
    assert redis.cmd("EXISTS", KEY) == 0


def test_release_with_the_token_of_an_older_hold_does_nothing(redis, cli_on):
    """B6: the same at Redis itself, where a duplicate arrives that no client would send any more."""
    held = json.loads(cli_on(redis.url())("lock", "x", "--json").stdout)
    text = script_text("release")
    numbered = [KEY, INFO, WAIT, *(f"holdfast.{what}:holdfast:x" for what in ("due", "members", "turn")), TOKEN,
                f"holdfast.ended:holdfast:{held['lease']}"]
    assert redis.cmd("EVAL", text, len(numbered), *numbered, held["lease"], held["token"] - 1, 0) == 0
    assert redis.cmd("GET", KEY) == held["lease"]
    assert redis.cmd("EVAL", text, len(numbered), *numbered, held["lease"], held["token"], 0) == 1
    assert redis.cmd("EXISTS", KEY) == 0


# ---- B7: a lost reply


def test_lost_grant_is_found_again(redis, relay, hold, start_holder, cli_on):
    """B7: the grant happened, the answer did not arrive: same lease, same token, one hold."""
    relay.delay(0, 600)
    holder = start_holder(relay.url(), "x", "ttl=3000")
    eventually(lambda: redis.cmd("EXISTS", KEY) == 1, "the grant")
    relay.delay(0, 0)
    relay.reset()  # the reply was still on its way
    lease, counter = redis.cmd("GET", KEY), redis.cmd("GET", TOKEN)
    assert holder.token == int(counter) == token_at(redis, lease)
    assert relay.count().connections > 1, "asked again"
    assert redis.cmd("GET", KEY) == lease and redis.cmd("GET", TOKEN) == counter, "granted once"
    assert redis.cmd("HLEN", INFO) == 1
    assert keys(redis) == {KEY, INFO, TOKEN}
    assert len(cli_on(redis.url()).show("x")["holders"]) == 1
    assert holder.release() == "HF_OK"
    ended = f"holdfast.ended:holdfast:{lease}"
    assert keys(redis) == {TOKEN, ended}, "so that an acquisition which is still on its way cannot revive it"
    assert 0 < redis.cmd("PTTL", ended) <= 3000
    assert hold(redis.url(), "x").token > int(counter)


def test_lost_place_is_found_again(redis, relay, hold, start_holder):
    """B7: no ghost in the queue, and no place behind those who came later."""
    first = hold(redis.url(), "x")
    relay.delay(0, 300)
    second = start_holder(relay.url(), "x", "ttl=3000")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 1, "a place")
    relay.cut("down")
    (place,) = redis.cmd("ZRANGE", WAIT, 0, -1)
    third = start_holder(redis.url(), "x")
    eventually(lambda: redis.cmd("ZCARD", WAIT) == 2, "the next place")
    ran = scripts_run(redis)
    relay.delay(0, 0)
    relay.reset()
    relay.heal()
    eventually(lambda: scripts_run(redis) > ran, "it asks again")
    eventually(lambda: redis.cmd("PUBSUB", "NUMSUB", f"holdfast.wake:{place.split(':')[1]}")[1] == 1, "and listens again")
    assert redis.cmd("ZCARD", WAIT) == 2 and redis.cmd("ZRANGE", WAIT, 0, 0) == [place]
    assert first.release() == "HF_OK"
    assert second.token > first.token
    assert third.waits()
    assert redis.cmd("ZCARD", WAIT) == 1
    assert second.release() == "HF_OK"
    assert third.token > second.token
    assert third.release() == "HF_OK"
    assert {key for key in keys(redis) if not key.startswith("holdfast.ended:")} == {TOKEN}


# ---- a store that forgets


def forgotten_while_held(redis, cli_on, hold, resources, forget):
    """Redis loses its data; the next one gets in; the first is told at its next renewal, not only at its end."""
    first = cli_on(redis.url()).hold("x", "--ttl", "6s", script=WRITER)
    forget()
    assert redis.cmd("EXISTS", KEY, TOKEN) == 0
    second = hold(redis.url(), "x")
    fresh = redis.cmd("GET", KEY)
    assert is_running(first.job), "two holders, until the next renewal"
    assert second.token > first.token, "although the counter is gone"
    first.say("go")
    assert first.line() == f"write {first.token}"
    late_write_harms_only_the_unguarded(resources, first.token, second.token)
    assert first.wait() == 76
    assert any("the store says that it has ended" in line for line in first.rest("err")), "before its TTL has expired"
    await_gone(first.job)
    is_untouched(redis, second, fresh)


def test_flushall_is_told_at_the_next_renewal(redis, cli_on, hold, resources):
    forgotten_while_held(redis, cli_on, hold, resources, lambda: redis.cmd("FLUSHALL"))


def test_empty_restart_is_told_at_the_next_renewal(redis, cli_on, hold, resources):
    forgotten_while_held(redis, cli_on, hold, resources, redis.restart)


def test_forgotten_hold_is_not_revived(redis, hold):
    """Somebody may have come and gone since, with a greater token: it is lost, although nobody holds the name."""
    holder = hold(redis.url(), "x", "ttl=3000")
    redis.cmd("FLUSHALL")
    holder.await_lost()
    assert holder.left() == 0
    assert keys(redis) == set()


def test_restart_with_its_data_keeps_the_lock(redis, hold):
    """The holder renews over a new connection, and nobody else gets in (Redisson 5698: it stops after a reconnect)."""
    first = hold(redis.url(), "x", "ttl=3000")
    lease = redis.cmd("GET", KEY)
    redis.restart(empty=False)
    redis.cmd("CONFIG", "RESETSTAT")
    eventually(lambda: scripts_run(redis) >= 3, "renewals")
    assert first.left() > 0 and not first.lost
    is_untouched(redis, first, lease)
