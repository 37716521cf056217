"""Redlock over five independent Redis servers, and what can go wrong with them: section B of the scenarios.

Each test first shows at the servers that the failure has happened, then that the client says what is true, and where two
have been granted the lock, that a guard keeps the resource right. Times are those of the scenarios, divided by about ten.
"""
import collections
import contextlib
import time

import pytest
from conftest import BIN, PATIENCE, SOAK, Process, Redis, die_with_parent, eventually, redlock_url, script_text
from holder import hold, start_holder  # noqa: F401
from resource import Resource

NAME = "job"
KEY = "holdfast:" + NAME
INFO = "holdfast.info:" + KEY
COUNTER = "holdfast.token:holdfast:"
QUORUM = 3
PATIENT = "3s"  # a ?timeout= for tests that are not about it


# ---- what the servers say ----------------------------------------------------------------------------------------------

def lease_on(node):
    return node.cmd("GET", KEY)


def token_on(node):
    """Of whoever holds the name there: 0 where it was voted for and not sealed, None where nobody holds it."""
    entry = node.cmd("EVAL", "local l = redis.call('GET', KEYS[1]) return l and redis.call('HGET', KEYS[2], l)", 2, KEY, INFO)
    return int(entry.split()[0]) if entry else None


def tokens_on(nodes):
    return [token_on(node) for node in nodes]


def has_majority(nodes, token):
    return tokens_on(nodes).count(token) >= QUORUM


def is_free(nodes):
    """No node has anything of anybody's hold."""
    return all(node.cmd("EXISTS", KEY, INFO) == 0 for node in nodes)


def scripts_run(node):
    """How many of our scripts, those it did not know included."""
    stats = node.info("commandstats")
    return sum(int(stats[name].split("calls=")[1].split(",")[0]) for name in ("cmdstat_eval", "cmdstat_evalsha")
               if name in stats)


def await_clients_gone(node):
    """Until it has done all that clients which have ended left for it to do."""
    eventually(lambda: "name=holdfast" not in node.cmd("CLIENT", "LIST"), "the end of all clients")


# ---- what the tests do -------------------------------------------------------------------------------------------------

def check_guard(old, new):
    """Whoever was overtaken writes late, with its own token. Unguarded that is the end of the new holder's work."""
    for guarded, value in ((False, "old"), (True, "new")):
        resource = Resource(guarded=guarded)
        assert resource.write(old.token, "old, in time")
        assert resource.write(new.token, "new")
        assert resource.write(old.token, "old") != guarded
        assert resource.value == value


def one_server_url(node):
    """Three names of one server: whoever uses this has certainly asked it."""
    return f"redlock://127.0.0.1:{node.port},127.0.1:{node.port},127.1:{node.port}?timeout={PATIENT}"


def acquaint(nodes, cli_on):
    """Each of them learns the scripts, so that the next client's vote is its first command."""
    for node in nodes:
        done = cli_on(one_server_url(node))("run", "acquaintance", "--ttl", "5s", "--", "true")
        assert done.status in (0, 76), done.stderr  # the second and third release find it released


def poise(relays, start):
    """Starts a client, and returns it when each server has answered its greeting and none of that has reached it: what
    comes after relay.heal() is its vote."""
    before = [relay.count().down_bytes for relay in relays]
    for relay in relays:
        relay.cut("down")
    client = start()
    for relay, count in zip(relays, before):
        eventually(lambda: relay.count().down_bytes > count + 1000, "an answer to the greeting")
    return client


def start_five(servers, faketime=()):
    """faketime: whose clocks can be moved. They keep nothing, so they are not asked to end, which would take them longer."""
    nodes = [servers.redis(faketime=i in faketime) for i in range(5)]
    for node in nodes:
        servers.stack.callback(node.kill)
    return nodes


@pytest.fixture
def five_redis(servers):
    return start_five(servers)


@pytest.fixture
def five_relays(servers, five_redis):
    return [servers.relay(node) for node in five_redis]


@pytest.fixture
def url(five_redis):
    """Of the servers themselves."""
    return redlock_url(five_redis, timeout=PATIENT)


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
    for node in five_redis[:3]:
        eventually(lambda: node.info("clients")["connected_clients"] == "2", "all of the old holder has arrived")
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
        assert done.status == 1 and "over" in done.stderr, done.stderr
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


# ---- B8: arithmetic ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("count, end", [(1, Redis.kill), (2, Redis.kill), (2, Redis.pause)],
                         ids=["one dead", "two dead", "two hanging"])
def test_one_or_two_of_five_may_be_missing(five_redis, start_holder, cli_on, count, end):
    """B8: acquired, extended beyond its TTL and released by the others."""
    acquaint(five_redis, cli_on)
    for node in five_redis[:count]:
        end(node)
    rest = five_redis[count:]
    holder = start_holder(redlock_url(five_redis, timeout="200ms"), NAME, "ttl=800")
    assert has_majority(rest, holder.token)
    time.sleep(1)
    assert has_majority(rest, holder.token)
    assert holder.left() > 0 and not holder.told_lost()
    assert holder.release() == "HF_OK"
    assert is_free(rest)


def test_a_node_that_hangs_from_the_middle_of_an_acquisition_on_costs_nothing(five_redis, five_relays, start_holder, cli_on):
    """B8: the vote lies in its socket. When it wakes it finds the release behind it."""
    acquaint(five_redis, cli_on)
    holder = poise(five_relays, lambda: start_holder(redlock_url(five_relays, timeout="500ms"), NAME, "ttl=20000"))
    for node in five_redis[:2]:
        node.pause()
    for relay in five_relays:
        relay.heal()
    assert has_majority(five_redis[2:], holder.token)
    assert holder.release() == "HF_OK"
    holder.kill()
    for node in five_redis[:2]:
        node.resume()
        await_clients_gone(node)
    assert is_free(five_redis)


def test_with_three_of_five_dead_it_refuses_and_says_which(five_redis, five_relays, cli_on):
    """B8: the three are known to be dead before the two can answer."""
    for relay in five_relays[3:]:
        relay.delay(0, 100)
    for node in five_redis[:3]:
        node.kill()
    cli = cli_on(redlock_url(five_redis[:3] + five_relays[3:], timeout=PATIENT))
    for options in (["-n"], ["-w", "10s"]):
        done = cli("run", *options, NAME, "--", "echo", "inside")
        assert done.status == 69 and done.stdout == ""
        said = done.stderr.splitlines()[-1]
        assert "3 are needed" in said
        assert any(node.address in said for node in five_redis[:3]), f"blames one that is alive: {said}"
    for node in five_redis[3:]:
        await_clients_gone(node)
    assert is_free(five_redis[3:])


def test_with_three_of_five_out_of_reach_it_refuses_and_takes_back_the_votes_of_the_living(five_redis, cli_on):
    """B8: nobody says that the three are dead, so the two are asked."""
    acquaint(five_redis, cli_on)
    for node in five_redis[:3]:
        node.pause()
    before = [scripts_run(node) for node in five_redis[3:]]
    done = cli_on(redlock_url(five_redis, timeout="500ms"))("run", "-n", NAME, "--", "echo", "inside")
    assert done.status == 69 and done.stdout == ""
    assert "only 2 of 5 servers answered, 3 are needed" in done.stderr
    for node, count in zip(five_redis[3:], before):
        await_clients_gone(node)
        assert scripts_run(node) >= count + 2, "it has voted, and that was taken back"
    assert is_free(five_redis[3:])
    for node in five_redis[:3]:
        node.resume()
        await_clients_gone(node)
    assert is_free(five_redis)


def test_three_of_five_that_hang_and_wake_hold_nothing_of_a_refused_client(five_redis, five_relays, cli_on, url):
    """B8: the votes lie in their sockets, and behind each the release."""
    acquaint(five_redis, cli_on)
    cli = cli_on(redlock_url(five_relays, timeout="200ms"))
    process = poise(five_relays, lambda: cli.start("run", "-n", "--ttl", "20s", NAME, "--", "echo", "inside"))
    before = [scripts_run(node) for node in five_redis[:3]]
    for node in five_redis[:3]:
        node.pause()
    for relay in five_relays:
        relay.heal()
    assert process.wait() == 69
    assert process.rest() == []
    assert process.rest("err")
    assert is_free(five_redis[3:])
    for node, count in zip(five_redis[:3], before):
        node.resume()
        await_clients_gone(node)
        assert scripts_run(node) >= count + 2, "the vote has arrived, and the release"
    assert is_free(five_redis)
    assert cli_on(url)("run", "-n", NAME, "--", "true").status == 0


@pytest.fixture
def five_old_but_the_third(servers):
    """Servers that have been up for an hour, as far as they know; the third is younger."""
    nodes = start_five(servers, faketime=(0, 1, 3, 4))
    for node in nodes[:2] + nodes[3:]:
        node.set_clock("+1h")
        eventually(lambda: int(node.info("server")["uptime_in_seconds"]) >= 3600, "an hour of uptime")
    return nodes


@contextlib.contextmanager
def out_of_reach(servers, nodes):
    """Addresses of nodes that somebody cannot reach."""
    relays = [servers.relay(node) for node in nodes]
    for relay in relays:
        relay.cut()
    yield relays


def test_a_node_that_restarts_empty_gives_a_second_majority_unless_min_uptime_says_no(servers, five_old_but_the_third, hold,
                                                                                     cli_on):
    """B8: the keys are on three of five, and one of these forgets. ?min-uptime= takes its vote away until a TTL is over."""
    nodes = five_old_but_the_third
    with out_of_reach(servers, nodes[3:]) as relays:
        old = hold(redlock_url([*nodes[:3], *relays], timeout="300ms"), NAME, "ttl=30000")
    assert tokens_on(nodes) == 3 * [old.token] + 2 * [None]
    nodes[2].restart()
    assert tokens_on(nodes) == 2 * [old.token] + 3 * [None]

    done = cli_on(redlock_url(nodes, timeout=PATIENT, **{"min-uptime": "30s"}))("run", "-n", NAME, "--", "echo", "inside")
    assert done.status == 75 and done.stdout == "", done.stderr
    assert tokens_on(nodes) == 2 * [old.token] + 3 * [None], "and nothing is left of that"

    new = hold(redlock_url(nodes, timeout=PATIENT), NAME, "ttl=30000")
    assert has_majority(nodes, new.token) and old.left() > 0 and not old.told_lost(), "two who hold it"
    assert new.token > old.token
    check_guard(old, new)


def test_with_too_many_young_nodes_min_uptime_says_so(five_redis, cli_on):
    """B8: five that have just been started, and nobody is to trust them."""
    done = cli_on(redlock_url(five_redis, timeout=PATIENT, **{"min-uptime": "1h"}))("run", "-n", NAME, "--", "echo", "inside")
    assert done.status == 69 and done.stdout == ""
    assert "min-uptime" in done.stderr.splitlines()[-1]
    assert is_free(five_redis)


def test_the_next_extension_refills_a_node_that_restarted_empty(servers, five_redis, hold, cli_on, url):
    """B8: the keys are on four of five, and one of these forgets. Once it has its key again, the next that forgets gives
    nobody a second majority."""
    with out_of_reach(servers, five_redis[4:]) as relays:
        holder = hold(redlock_url([*five_redis[:4], *relays], timeout="100ms"), NAME, "ttl=2000")
    eventually(lambda: tokens_on(five_redis) == 4 * [holder.token] + [None], "a key on each that it reaches")
    five_redis[3].restart()
    assert token_on(five_redis[3]) is None
    eventually(lambda: token_on(five_redis[3]) == holder.token, "its key is back")
    assert lease_on(five_redis[3]) == lease_on(five_redis[0])
    assert int(five_redis[3].cmd("GET", COUNTER)) == holder.token
    assert 0 < five_redis[3].cmd("PTTL", KEY) <= 2000
    five_redis[2].restart()
    assert cli_on(url)("run", "-n", NAME, "--", "true").status == 75
    assert holder.left() > 0 and not holder.told_lost()


def test_a_node_slower_than_the_others_gets_its_key_too(five_redis, five_relays, hold):
    """B8: a majority is enough to hold the lock; it is not enough to survive the next failure. A node that came back
    without the scripts must learn them although the others are quicker."""
    five_relays[4].delay(0, 30)
    holder = hold(redlock_url(five_relays, timeout="300ms"), NAME, "ttl=1500")
    eventually(lambda: token_on(five_redis[4]) == holder.token, "a key on the slow one", patience=5)
    five_redis[4].restart()
    eventually(lambda: token_on(five_redis[4]) == holder.token, "a key on the slow one that forgot", patience=5)
    assert holder.left() > 0 and not holder.told_lost()


def test_a_node_younger_than_the_ttl_is_warned_of_once(five_redis, hold, cli_on, url):
    """B8"""
    young = "less than a TTL"
    for ttl in ("1m", "2h"):
        done = cli_on(url)("run", "--ttl", ttl, NAME, "--", "true")
        assert done.status == 0
        assert done.stderr.count(young) == 1 and done.stderr.count("\n") == 1, done.stderr
    for node in five_redis:
        eventually(lambda: int(node.info("server")["uptime_in_seconds"]) >= 1, "a second of uptime")
    done = cli_on(url)("run", "--ttl", "900ms", NAME, "--", "true")
    assert (done.status, done.stderr) == (0, "")


# ---- more --------------------------------------------------------------------------------------------------------------

def test_tokens_grow_although_all_five_forget_everything(five_redis, hold, url):
    """Redis keeps no promise of durability: the wall clock carries the tokens over that, and only upwards."""
    tokens = []
    for _ in range(3):
        holder = hold(url, NAME)
        tokens.append(holder.token)
        assert has_majority(five_redis, holder.token)
        for node in five_redis:
            assert node.cmd("FLUSHALL") == "OK"
            assert node.cmd("DBSIZE") == 0
        holder.kill()
    assert tokens == sorted(set(tokens))


def test_eight_processes_exclude_each_other_and_come_to_an_end(five_redis, cli_on, url, directory):
    """Each ten times (in full: a hundred), with a file lock of the kernel's and a counter as witnesses."""
    turns = 100 if SOAK else 10
    counter, inside, journal = (directory / name for name in ("counter", "inside", "journal"))
    counter.write_text("0\n")
    journal.touch()
    job = (f"exec 9>>{inside}; flock -n 9 || echo overlap >> {journal}; read n < {counter}; echo $((n + 1)) > {counter}; "
           f"echo $HOLDFAST_TOKEN >> {journal}")
    cli = cli_on(url)
    loop = f"for i in $(seq {turns}); do {BIN} run -q --ttl 10s {NAME} -- sh -c '{job}' || exit; done"
    for _ in range(8):
        cli.started.append(Process(["sh", "-c", loop], cli.env, preexec_fn=die_with_parent))
    for process in cli.started:
        assert process.wait(2 * PATIENCE * turns / 10) == 0, process.rest("err")
    tokens = journal.read_text().split()
    assert "overlap" not in tokens
    assert counter.read_text() == f"{8 * turns}\n"
    assert [int(token) for token in tokens] == sorted(int(token) for token in set(tokens))
    assert is_free(five_redis)


def test_split_votes_resolve(five_redis, five_relays, start_holder, cli_on):
    """Three ask at once, and get 2, 2 and 1 of five: none has a majority, each gives back what it has, and each gets the
    lock after all. Nobody is kept out by his own votes."""
    acquaint(five_redis, cli_on)
    for relay in five_relays:
        relay.delay(700, 0)
    holders = []
    for near in ({0, 1}, {2, 3}, {4}):
        nodes = [five_redis[i] if i in near else five_relays[i] for i in range(5)]
        holders.append(start_holder(redlock_url(nodes, timeout="10s"), NAME, "ttl=20000"))
    eventually(lambda: sorted(collections.Counter(map(lease_on, five_redis)).values()) == [1, 2, 2]
               and None not in map(lease_on, five_redis), "split votes")
    for relay in five_relays:
        relay.delay(0, 0)
    tokens = []
    while holders:
        holder = eventually(lambda: next((holder for holder in holders if not holder.waits()), None), "one of them has it")
        holders.remove(holder)
        assert all(other.waits() for other in holders)
        assert has_majority(five_redis, holder.token)
        tokens.append(holder.token)
        assert holder.release() == "HF_OK"
    assert tokens == sorted(tokens)


def test_two_names_are_not_busy_because_of_each_other(five_redis, five_relays, cli_on, url):
    """The counter of tokens is one for all names of a prefix: whoever comes to it second with a lower token has to take
    another one, and may not say that his name is held."""
    acquaint(five_redis, cli_on)
    for relay, delay in zip(five_relays, (150, 150, 150, 250, 250)):
        relay.delay(0, delay)
    for _ in range(5):  # the other has a moment to be quicker in, and may miss it
        slow = cli_on(redlock_url(five_relays, timeout="10s")).start("run", "-n", "--ttl", "20s", NAME, "--", "true")
        eventually(lambda: tokens_on(five_redis).count(0) >= QUORUM, "votes whose answers are on their way")
        assert cli_on(url)("run", "-n", "another", "--", "true").status == 0
        quicker = set(tokens_on(five_redis)) <= {0, None}
        assert slow.wait() == 0, slow.rest("err")
        if quicker:
            return
    pytest.fail("the other was never quicker")


def test_a_client_that_is_refused_leaves_nothing_on_nodes_that_were_free(servers, five_redis, five_relays, hold, cli_on):
    """A majority says no before the rest can answer; these have voted for it all the same, and have not heard of our
    releases yet. The votes are taken back there too."""
    for node in five_redis:
        hold(one_server_url(node), "acquaintance", "ttl=1000").kill()
    with out_of_reach(servers, five_redis[3:]) as relays:
        holder = hold(redlock_url([*five_redis[:3], *relays], timeout="300ms"), NAME, "ttl=20000")
    cli = cli_on(redlock_url(five_relays, timeout=PATIENT))
    process = poise(five_relays, lambda: cli.start("run", "-n", "--ttl", "20s", NAME, "--", "true"))
    for relay in five_relays[3:]:
        relay.delay(0, 200)
        relay.heal()
    eventually(lambda: tokens_on(five_redis) == 3 * [holder.token] + 2 * [0], "votes on the minority")
    for relay in five_relays[:3]:
        relay.heal()
    assert process.wait() == 75
    for node in five_redis[3:]:
        eventually(lambda: node.info("clients")["connected_clients"] == "1", "the end of all clients")
    assert tokens_on(five_redis) == 3 * [holder.token] + 2 * [None]
