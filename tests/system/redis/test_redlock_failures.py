"""Redlock over five independent Redis servers, and what can go wrong with them: section B of the scenarios.

Each test first shows at the servers that the failure has happened, then that the client says what is true, and where two
have been granted the lock, that a guard keeps the resource right. Times are those of the scenarios, divided by about ten.
"""
import time

import pytest
from conftest import eventually, redlock_url, script_text
from five import (COUNTER, KEY, NAME, PATIENT, QUORUM, acquaint, check_guard, five_redis,  # noqa: F401
                  five_relays, has_majority, is_free, lease_on, poise, scripts_run, start_five, token_on,
                  tokens_on, url)
from holder import hold, start_holder  # noqa: F401


# ---- B1: pause ---------------------------------------------------------------------------------------------------------

def test_a_holder_paused_beyond_its_ttl_is_overtaken_and_knows_it_when_it_wakes(five_redis, url, hold):
    """B1, TTL 10 s and a pause of 15 s."""
    old = hold(url, NAME, "ttl=1000")
    old.pause()
    began = time.monotonic()
    new = hold(url, NAME, "ttl=10000")
    time.sleep(max(0, began + 1.5 - time.monotonic()))
    assert has_majority(five_redis, new.token)
    assert not old.told_lost(), "it sleeps, and so believes that it holds the lock"
    assert new.token > old.token
    check_guard(old, new)
    old.resume()
    old.await_lost()
    assert old.left() == 0
    assert old.release() == "HF_ELOST"
    assert has_majority(five_redis, new.token)
    assert new.left() > 0


@pytest.mark.parametrize("now", [(), ("--now",)], ids=["break", "now"])
def test_a_retried_release_of_a_broken_hold_is_not_told_as_released(five_redis, five_relays, url, cli_on, now):
    """It did not hear of the break, and the answers to the first release were lost."""
    runner = cli_on(redlock_url(five_relays)).start("run", "--ttl", "60s", NAME, "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    for relay in five_relays:
        relay.cut("down")
    assert cli_on(url)("break", *now, NAME).status == 0
    runner.say("go")
    while f"releasing '{NAME}': no answer" not in runner.line("err"):
        pass
    for relay in five_relays:
        relay.reset()
        relay.heal()
    assert runner.wait() == 76, runner.rest("err")


@pytest.mark.parametrize("rival", [True, False], ids=["rival", "alone"])
@pytest.mark.parametrize("stage", ["votes", "seals"])
def test_a_majority_won_before_a_pause_is_not_a_hold_after_it(five_redis, five_relays, cli_on, url, hold, start_holder, stage,
                                                             rival):
    """B1, the pause falls after the majority was won and before the elapsed time is looked at: the answers are on their
    way to the client when it is stopped, and wait for it when it wakes."""
    acquaint(five_redis, cli_on)
    for relay in five_relays:
        relay.delay(0, 300)
    late = start_holder(redlock_url(five_relays, timeout="10s"), NAME, "ttl=1000")
    if stage == "votes":
        eventually(lambda: sum(token is not None for token in tokens_on(five_redis)) >= QUORUM, "a majority of votes")
    else:
        eventually(lambda: sum(bool(token) for token in tokens_on(five_redis)) >= QUORUM, "a majority of seals")
    late.pause()
    assert late.waits()
    won = max(token or 0 for token in tokens_on(five_redis))
    assert (won > 0) == (stage == "seals"), "stopped where it was meant to be"
    eventually(lambda: is_free(five_redis), "its keys run out")
    for relay in five_relays:
        relay.delay(0, 0)
    if rival:
        new = hold(url, NAME, "ttl=10000")
        before = five_relays[0].count().up_chunks
        late.resume()
        eventually(lambda: five_relays[0].count().up_chunks >= before + 3, "it asks again")
        assert late.waits(), "it does not believe the answers of then"
        assert has_majority(five_redis, new.token)
        assert new.left() > 0 and not new.told_lost()
        assert new.release() == "HF_OK"
        assert late.token > new.token
    else:
        late.resume()
    assert late.token > won
    assert has_majority(five_redis, late.token), "what it says is true at the servers"
    assert late.release() == "HF_OK"
    eventually(lambda: is_free(five_redis), "nothing is left", patience=0.5)


def test_votes_that_are_forgotten_before_they_are_sealed_are_no_hold(five_redis, five_relays, cli_on, url, hold, start_holder):
    """B1, and B8: the majority was won, and restarts empty before the token is written. There is time enough left."""
    acquaint(five_redis, cli_on)
    for relay in five_relays:
        relay.delay(0, 400)
    late = start_holder(redlock_url(five_relays, timeout="10s"), NAME, "ttl=20000")
    eventually(lambda: tokens_on(five_redis).count(0) >= QUORUM, "a majority of votes")
    for node in five_redis:
        node.cmd("FLUSHALL")
    new = hold(url, NAME, "ttl=20000")
    assert late.waits()
    before = five_relays[0].count().up_chunks
    for relay in five_relays:
        relay.delay(0, 0)
    eventually(lambda: five_relays[0].count().up_chunks >= before + 3, "it asks again")
    assert late.waits()
    assert has_majority(five_redis, new.token) and new.left() > 0
    assert new.release() == "HF_OK"
    assert late.token > new.token
    assert has_majority(five_redis, late.token)


# ---- B2: partition -----------------------------------------------------------------------------------------------------

def test_cut_off_from_two_of_five_it_is_extended_by_the_rest_and_refilled_when_healed(five_redis, five_relays, hold, cli_on,
                                                                                   url):
    """B2"""
    holder = hold(redlock_url(five_relays, timeout="300ms"), NAME, "ttl=1000")
    eventually(lambda: tokens_on(five_redis) == 5 * [holder.token], "a key on each")
    for relay in five_relays[:2]:
        relay.cut()
    eventually(lambda: is_free(five_redis[:2]), "their keys run out")
    assert tokens_on(five_redis[2:]) == 3 * [holder.token], "a TTL later it has been extended"
    assert cli_on(url)("run", "-n", NAME, "--", "true").status == 75
    assert holder.left() > 0 and not holder.told_lost()
    for relay in five_relays[:2]:
        relay.heal()
    eventually(lambda: tokens_on(five_redis) == 5 * [holder.token], "a key on each again")
    assert holder.left() > 0 and not holder.told_lost()
    assert holder.release() == "HF_OK"
    eventually(lambda: is_free(five_redis), "nothing is left", patience=0.5)


@pytest.mark.parametrize("way", ["both", "down"])
def test_cut_off_from_three_of_five_the_job_is_stopped_before_another_gets_the_lock(five_redis, five_relays, cli_on, url,
                                                                                    directory, way):
    """B2, also one way only: what the holder says arrives, and extends its keys, but it cannot know that."""
    journal = directory / "journal"
    old = cli_on(redlock_url(five_relays, timeout="200ms")).hold(
        NAME, "--ttl", "1500ms", "--grace", "400ms",
        script=f"trap 'echo lost >> {journal}; exit' TERM; echo in $HOLDFAST_TOKEN $$; while :; do sleep 0.01; done")
    assert has_majority(five_redis, old.token)
    for relay in five_relays[:3]:
        relay.cut(way)
    new = cli_on(url).hold(NAME, script=f"echo held >> {journal}; echo in $HOLDFAST_TOKEN $$; read line")
    assert has_majority(five_redis, new.token)
    assert old.wait() == 76
    assert journal.read_text().split() == ["lost", "held"]
    check_guard(old, new)
    for relay in five_relays[:3]:
        relay.heal()
    for relay in five_relays[:3]:
        eventually(lambda: relay.open() == 0, "all of the old holder has arrived")
    assert has_majority(five_redis, new.token)
    assert new.end() == 0


# ---- B4: clocks --------------------------------------------------------------------------------------------------------

@pytest.fixture
def five_with_two_clocks(servers):
    """The clocks of the first two can be moved."""
    return start_five(servers, faketime=(0, 1))


def test_two_clocks_of_three_that_jump_give_a_second_majority_with_a_higher_token(servers, five_with_two_clocks, hold):
    """B4, TTL 10 s, +15 s at T = 2 s. The first holder's keys are on the three that it could reach: two of those let go of
    them, and with the other two that is a majority."""
    nodes = five_with_two_clocks
    relays = [servers.relay(node) for node in nodes[3:]]
    for relay in relays:
        relay.cut()
    old = hold(redlock_url([*nodes[:3], *relays], timeout="300ms"), NAME, "ttl=4000")
    assert tokens_on(nodes) == 3 * [old.token] + 2 * [None]
    for node in nodes[:2]:
        node.set_clock("+6s")
    assert tokens_on(nodes) == [None, None, old.token, None, None]
    new = hold(redlock_url(nodes, timeout=PATIENT), NAME, "ttl=10000")
    believes = old.left()
    assert has_majority(nodes, new.token) and believes > 0 and not old.told_lost(), "two who hold it: this store cannot know"
    assert new.token > old.token
    check_guard(old, new)
    for relay in relays:
        relay.heal()
    old.await_lost()
    assert has_majority(nodes, new.token)
    assert new.left() > 0


def test_two_clocks_of_five_that_jump_give_nobody_a_majority(five_with_two_clocks, hold, cli_on):
    """B4, with all five up: what is left is a majority still, and fills the two up again."""
    nodes = five_with_two_clocks
    url = redlock_url(nodes, timeout=PATIENT)
    acquaint(nodes, cli_on)
    holder = hold(url, NAME, "ttl=2000")
    eventually(lambda: tokens_on(nodes) == 5 * [holder.token], "a key on each")
    nodes[0].set_clock("+3s")
    nodes[1].set_clock("-10d")
    assert token_on(nodes[0]) is None
    assert cli_on(url)("run", "-n", NAME, "--", "true").status == 75
    eventually(lambda: tokens_on(nodes) == 5 * [holder.token], "a key on each again")
    assert holder.left() > 0 and not holder.told_lost()
    assert holder.release() == "HF_OK"
    later = hold(url, NAME)
    assert later.token > holder.token


# ---- B6: late release --------------------------------------------------------------------------------------------------

def test_a_release_that_arrives_late_touches_nothing_newer(five_redis, five_relays, hold, url):
    """B6: the release is on its way while the lease runs out and somebody else gets the lock."""
    old = hold(redlock_url(five_relays, timeout="100ms"), NAME, "ttl=700")
    for relay in five_relays:
        relay.cut("up")
    old.ask_release()
    assert old.hear_released() == "HF_EUNKNOWN"
    new = hold(url, NAME, "ttl=20000")
    placed = tokens_on(five_redis)
    before = [scripts_run(node) for node in five_redis]
    for relay in five_relays:
        relay.heal()
    for node, count in zip(five_redis, before):
        eventually(lambda: scripts_run(node) > count, "the late release arrives")
    time.sleep(0.1)  # the rest of it
    assert tokens_on(five_redis) == placed
    assert has_majority(five_redis, new.token)
    assert new.release() == "HF_OK"


def test_a_renewal_or_release_with_an_old_lease_is_told_so_and_touches_nothing_newer(five_redis, cli_on, url):
    """B6, in pieces, from a script."""
    cli = cli_on(url)
    old, new = {}, {}
    for env, ttl in ((old, "300ms"), (new, "30s")):
        done = cli("lock", NAME, "--ttl", ttl)
        assert done.status == 0, done.stderr
        env.update(word.split("=") for word in done.stdout.replace(";", " ").split() if "=" in word)
    placed = tokens_on(five_redis)
    assert has_majority(five_redis, int(new["HOLDFAST_TOKEN"]))
    assert int(new["HOLDFAST_TOKEN"]) > int(old["HOLDFAST_TOKEN"])
    for command in ("renew", "unlock"):
        done = cli(command, NAME, env=old)
        assert done.status == 1 and "this lease and token do not hold" in done.stderr, done.stderr
        # The new lease and the old token: a copy of the environment from before.
        done = cli(command, NAME, env={**new, "HOLDFAST_TOKEN": old["HOLDFAST_TOKEN"]})
        assert done.status == 1, done.stderr
    assert tokens_on(five_redis) == placed
    assert cli("unlock", NAME, env=new).status == 0
    assert is_free(five_redis)


# ---- B7: lost replies --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("count", [1, 2, 3])
def test_votes_whose_answers_are_lost_end_in_one_hold_with_one_token(five_redis, five_relays, start_holder, cli_on, url, count):
    """B7: the vote was given on 1, 2 or 3 of five, the answer did not arrive."""
    acquaint(five_redis, cli_on)
    holder = poise(five_relays, lambda: start_holder(redlock_url(five_relays, timeout=PATIENT), NAME, "ttl=20000"))
    for relay in five_relays[:count]:
        relay.drop("down")
        relay.heal()
    for node in five_redis[:count]:
        eventually(lambda: lease_on(node), "a vote whose answer is lost")
    lease = lease_on(five_redis[0])
    assert holder.waits()
    for relay in five_relays[count:]:
        relay.heal()
    assert holder.token > 0
    assert has_majority(five_redis, holder.token)
    assert {lease_on(node) for node in five_redis} - {None} == {lease}, "one lease, no ghost of another"
    assert {token_on(node) for node in five_redis} - {None, 0} == {holder.token}
    assert cli_on(url)("run", "-n", NAME, "--", "true").status == 75
    for relay in five_relays[:count]:
        relay.delay(0, 30)  # a majority has released it before these are so much as connected again
    assert holder.release() == "HF_OK"
    eventually(lambda: is_free(five_redis), "nothing is left, on those whose answer was lost neither", patience=2)


def test_answers_that_never_come_end_in_unknown_and_nothing_outlives_the_ttl(five_redis, five_relays, cli_on, url):
    """B7: three of five do what they are told, and nothing is ever heard of them again."""
    acquaint(five_redis, cli_on)
    cli = cli_on(redlock_url(five_relays, timeout="200ms"))
    process = poise(five_relays, lambda: cli.start("run", "-n", "--ttl", "2s", NAME, "--", "echo", "inside"))
    for relay in five_relays[:3]:
        relay.drop("down", 1000)
        relay.heal()
    for node in five_redis[:3]:
        eventually(lambda: lease_on(node), "a vote whose answer is lost")
    for relay in five_relays[3:]:
        relay.heal()
    assert process.wait() == 69
    assert process.rest() == []
    assert "may or may not" in process.rest("err")[-1]
    assert is_free(five_redis[3:]), "given up where it could be"
    next_one = cli_on(url).hold(NAME, "-w", "20s")
    assert has_majority(five_redis, next_one.token)
    assert set(tokens_on(five_redis)) <= {next_one.token, None}
    assert next_one.end() == 0


def sealed_and_unheard(five_redis, five_relays, start_holder, timeout):
    """A holder process whose seals are on all nodes, and whose answers are on their way; and the token."""
    for relay in five_relays:
        relay.delay(0, 400)
    holder = start_holder(redlock_url(five_relays, timeout=timeout), NAME, "ttl=20000")
    eventually(lambda: all(tokens_on(five_redis)), "seals whose answers are on their way")
    assert holder.waits()
    (token,) = set(tokens_on(five_redis))
    return holder, token


def test_seals_that_are_not_heard_of_are_taken_back_before_another_try(five_redis, five_relays, start_holder, cli_on):
    """B7: written to fewer than a majority, as far as we know: released on all, then tried again, with a greater token."""
    acquaint(five_redis, cli_on)
    holder, token = sealed_and_unheard(five_redis, five_relays, start_holder, "10s")
    for relay in five_relays[:3]:
        relay.reset()
    for relay in five_relays:
        relay.delay(0, 0)
    assert holder.token > token
    assert has_majority(five_redis, holder.token)
    assert len({lease_on(node) for node in five_redis} - {None}) == 1


def test_seals_whose_answers_are_lost_end_in_one_hold_with_one_token(five_redis, five_relays, start_holder, cli_on):
    """B7: sealed on a majority that is not heard of. Either that is found again, or it was taken back before the next."""
    acquaint(five_redis, cli_on)
    for relay in five_relays:
        relay.delay(0, 300)
    holder = start_holder(redlock_url(five_relays, timeout="10s"), NAME, "ttl=20000")
    eventually(lambda: all(tokens_on(five_redis[:3])), "seals whose answers are on their way")
    sealed, lease = token_on(five_redis[0]), lease_on(five_redis[0])
    assert holder.waits()
    for relay in five_relays[:3]:
        relay.reset()
    for relay in five_relays:
        relay.delay(0, 0)
    assert holder.token >= sealed
    assert has_majority(five_redis, holder.token)
    assert {lease_on(node) for node in five_redis} - {None} == {lease}
    assert set(tokens_on(five_redis)) - {None, 0} == {holder.token}
    assert holder.release() == "HF_OK"
    eventually(lambda: is_free(five_redis), "nothing is left", patience=2)


def test_the_same_lease_asking_a_node_again_finds_its_own_vote_and_token(redis):
    """B7, the scripts themselves: what an attempt did whose answers were lost is there for its retry, and for nobody
    else's."""
    def run(script, lease, *arguments):
        text = script_text(script)
        keys = [KEY, *(f"holdfast.{label}:{KEY}" for label in ("info", "wait", "due", "members", "turn")), COUNTER,
                "holdfast.ended:holdfast:" + lease]
        return redis.cmd("EVAL", text, len(keys), *keys, lease, *arguments)

    assert run("vote", "ours", 20000, "")[::2] == [1, "0"], "a vote, and no token yet"
    assert run("vote", "ours", 20000, "")[::2] == [1, "0"], "the same again"
    assert run("vote", "theirs", 20000, "")[0] == 0
    assert run("seal", "ours", 33, "") == 1
    assert run("seal", "ours", 33, "") == 1
    assert run("vote", "ours", 20000, "")[:3] == [1, "33", "33"]
    assert run("seal", "theirs", 34, "") == 0
    assert run("seal", "ours", 32, "") == 0, "an older seal that was long under way"
    assert token_on(redis) == 33
