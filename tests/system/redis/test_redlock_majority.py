"""Redlock: how many of five servers must be there, and remember; many clients at once."""
import collections
import contextlib
import time

import pytest
from conftest import BIN, PATIENCE, SOAK, Process, Redis, die_with_parent, eventually, redlock_url
from five import (COUNTER, KEY, NAME, PATIENT, QUORUM, acquaint, await_clients_gone, check_guard,  # noqa: F401
                  five_redis, five_relays, has_majority, is_free, lease_on, one_server_url, poise, scripts_run,
                  start_five, token_on, tokens_on, url)
from holder import hold, start_holder  # noqa: F401


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


def test_with_another_type_on_three_of_five_it_refuses_and_touches_nothing(five_redis, cli_on, url):
    """Who refuses has given no vote: that is a refusal, not something unknown."""
    for node in five_redis[:3]:
        node.cmd("LPUSH", KEY, "not a lock")
    done = cli_on(url)("run", "-n", NAME, "--", "true")
    assert done.status == 77 and "not a lock" in done.stderr, done.stderr
    assert [node.cmd("LRANGE", KEY, 0, -1) for node in five_redis[:3]] == 3 * [["not a lock"]]
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


def test_a_holder_hears_that_an_operator_broke_it(five_redis, cli_on):
    cli = cli_on(redlock_url(five_redis, timeout=PATIENT))
    holder = cli.hold(NAME, "--ttl", "6s", script="echo in $HOLDFAST_TOKEN $$; exec sleep 100")
    assert cli("break", NAME).stdout.startswith("broke 1 hold")
    assert holder.wait() == 76
    assert any(": broken by an operator;" in line for line in holder.rest("err"))
