"""Bugs that other systems had, where they would show on Redis and on Redlock: section C of the scenarios. Each is named
for the report it comes from."""
import shlex
import signal
import time

import pytest
from conftest import BIN, PATIENCE, Process, RedisError, die_with_parent, eventually, redlock_url, script_text
from holder import hold, start_holder  # noqa: F401

NAME = "job"
KEY = "holdfast:" + NAME
PATIENT = "3s"  # a ?timeout= of a Redlock, for tests that are not about it


def key(label):
    return f"holdfast.{label}:{KEY}"


def script_keys(lease):
    """KEYS of every script, in the order of keys.lua."""
    return [KEY, *(key(label) for label in ("info", "wait", "due", "members", "turn")), "holdfast.token:holdfast:",
            "holdfast.ended:holdfast:" + lease]


def leftovers(redis):
    """What a hold or a wait leaves, if it leaves something. The counter stays, and an ended lease is remembered a while."""
    return [name for name in redis.cmd("KEYS", "*")
            if not name.startswith(("holdfast.token:", "holdfast.ended:", "holdfast.id:"))]


def await_clean(redis):
    """Long before a TTL would have seen to it."""
    eventually(lambda: not leftovers(redis), "nothing is left", patience=5)


def environment(done):
    """What `holdfast lock` printed, for the others."""
    assert done.status == 0, done.stderr
    return dict(word.split("=") for word in done.stdout.replace(";", " ").split() if "=" in word)


def start(servers):
    """It keeps nothing, so it is not asked to end, which would take it longer."""
    redis = servers.redis()
    servers.stack.callback(redis.kill)
    return redis


@pytest.fixture
def redis(servers):
    return start(servers)


@pytest.fixture
def five_redis(servers):
    return [start(servers) for _ in range(5)]


def acquaint(redis, cli_on):
    """It learns to acquire and to release."""
    assert cli_on(redis.url())("run", "acquaintance", "--", "true").status == 0


class Monitor:
    """What the server is asked, from now on."""

    def __init__(self, redis):
        self.redis = redis
        self.marks = 0
        self.connection = redis.connect()
        assert self.connection.cmd("MONITOR") == "OK"

    def lines(self):
        """All since the last call, or since the beginning."""
        self.marks += 1
        mark = f"mark {self.marks} of {id(self)}"
        self.redis.cmd("ECHO", mark)
        lines = []
        while mark not in (line := self.connection.read()):
            lines.append(line)
        return lines


@pytest.fixture
def monitor(servers):
    def start(redis):
        monitor = Monitor(redis)
        servers.stack.callback(monitor.connection.close)
        return monitor

    return start


def about(lines, name=KEY):
    return [line for line in lines if name in line]


# ---- the watchdog ------------------------------------------------------------------------------------------------------

def test_redisson_3194_and_5698_renewal_goes_on_after_errors_and_reconnects(redis, relay, hold, cli_on):
    holder = hold(relay.url(), NAME, "ttl=600")
    lease = redis.cmd("GET", KEY)
    redis.cmd("ACL", "SETUSER", "default", "-eval", "-evalsha")
    eventually(lambda: "errorstat_NOPERM" in redis.info("errorstats"), "a renewal is refused")
    redis.cmd("ACL", "SETUSER", "default", "+eval", "+evalsha")
    for _ in range(3):
        before = relay.count().connections
        relay.reset()
        eventually(lambda: relay.count().connections > before, "it comes back")
    time.sleep(1.8)  # three TTLs
    assert redis.cmd("GET", KEY) == lease
    assert holder.left() > 0 and not holder.told_lost()
    assert cli_on(redis.url())("run", "-n", NAME, "--", "true").status == 75
    assert holder.release() == "HF_OK"
    assert leftovers(redis) == []


@pytest.mark.parametrize("end", ["release", "loss", "close"])
def test_redisson_7272_and_2714_renewal_stops_with_the_hold(redis, hold, monitor, end):
    holder = hold(redis.url(), NAME, "ttl=300")
    watch = monitor(redis)
    eventually(lambda: about(watch.lines()), "a renewal")
    if end == "release":
        assert holder.release() == "HF_OK"
    elif end == "loss":
        redis.cmd("DEL", KEY)
        holder.await_lost()
    else:
        holder.process.say("close")
        assert holder.hear("closed") == ""
    watch.lines()
    time.sleep(0.9)  # three TTLs
    assert about(watch.lines()) == []
    assert holder.process.popen.poll() is None
    await_clean(redis)


def test_redisson_7272_on_redlock(five_redis, hold, monitor):
    holder = hold(redlock_url(five_redis, timeout=PATIENT), NAME, "ttl=300")
    watches = [monitor(redis) for redis in five_redis]
    eventually(lambda: about(watches[0].lines()), "a renewal")
    assert holder.release() == "HF_OK"
    time.sleep(0.1)  # those that were not waited for
    for watch in watches:
        watch.lines()
    time.sleep(0.9)
    assert [about(watch.lines()) for watch in watches] == 5 * [[]]


@pytest.mark.parametrize("failure", ["deleted", "taken", "refused", "hanging", "dead"])
def test_redisson_4698_a_renewal_that_fails_is_told_and_not_only_logged(redis, cli_on, failure):
    job = cli_on(redis.url()).hold(
        NAME, "--ttl", "1s", "--grace", "300ms",
        script="trap 'echo told; exit 3' TERM; echo in $HOLDFAST_TOKEN $$; while :; do sleep 0.01; done")
    assert redis.cmd("EXISTS", KEY) == 1
    if failure in ("deleted", "taken"):
        redis.cmd("DEL", KEY)
    if failure == "taken":
        redis.cmd("SET", KEY, "another", "PX", 20000)
    if failure == "refused":
        redis.cmd("ACL", "SETUSER", "default", "-eval", "-evalsha")
    if failure == "hanging":
        redis.pause()
    if failure == "dead":
        redis.kill()
    assert job.line() == "told"
    if failure == "hanging":
        redis.resume()  # else it tries for a while to give up what it has left
    assert job.wait() == 76
    assert any("lost 'job'" in line for line in job.rest("err"))
    if failure == "taken":
        assert redis.cmd("GET", KEY) == "another"


# ---- cancelled waits ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("server", ["well", "hanging", "full"])
def test_redsync_a_cancelled_wait_leaves_no_place_in_the_queue(redis, cli_on, server):
    cli = cli_on(redis.url())
    job = cli.hold(NAME, "--ttl", "20s")
    waiter = cli.start("run", "-q", NAME, "--ttl", "20s", "--", "echo", "inside")
    cli.await_waiters(NAME)
    if server == "hanging":
        redis.pause()
    if server == "full":
        redis.cmd("CONFIG", "SET", "maxmemory", "1")
    waiter.kill(signal.SIGTERM)
    if server == "hanging":
        time.sleep(0.3)
        redis.resume()
    assert waiter.wait() == 128 + signal.SIGTERM
    assert waiter.rest() == []
    redis.cmd("CONFIG", "SET", "maxmemory", "0")
    assert redis.cmd("EXISTS", key("wait"), key("due"), key("turn")) == 0
    assert cli.show(NAME)["waiters"] == []
    assert job.end() == 0
    await_clean(redis)


def test_redsync_what_is_cancelled_while_the_server_hangs_leaves_nothing_when_it_wakes(redis, relay, cli_on):
    """One waits in a queue. The other's acquisition lies in the server's socket, and what takes it back behind it. Nobody
    of them is there any more when it wakes."""
    acquaint(redis, cli_on)
    cli = cli_on(redis.url())
    job = cli.hold("another", "--ttl", "20s")
    waiter = cli.start("run", "-q", "--ttl", "20s", "another", "--", "echo", "inside")
    cli.await_waiters("another")
    relay.cut("down")
    asker = cli_on(relay.url()).start("run", "-q", "--ttl", "20s", NAME, "--", "echo", "inside")
    eventually(lambda: relay.count().down_bytes > 1000, "an answer to the greeting")
    redis.pause()
    before = relay.count().up_chunks
    relay.heal()
    eventually(lambda: relay.count().up_chunks > before, "it asks for the lock")
    for process in (asker, waiter):
        process.kill(signal.SIGTERM)
    for process in (asker, waiter):
        assert process.wait() in (69, 128 + signal.SIGTERM)
        assert process.rest() == []
    redis.resume()
    assert job.end() == 0
    eventually(lambda: "name=holdfast" not in redis.cmd("CLIENT", "LIST"), "the end of all clients")
    assert leftovers(redis) == []
    assert cli_on(redis.url())("run", "-n", NAME, "--", "true").status == 0


def test_redsync_on_redlock(servers, five_redis, hold, cli_on, monitor):
    """The holder cannot reach two of five, so that these vote for whoever waits, and are given back each time."""
    relays = [servers.relay(redis) for redis in five_redis[3:]]
    for relay in relays:
        relay.cut()
    holder = hold(redlock_url([*five_redis[:3], *relays], timeout="300ms"), NAME, "ttl=20000")
    watch = monitor(five_redis[4])
    waiter = cli_on(redlock_url(five_redis, timeout=PATIENT)).start("run", "-q", NAME, "--ttl", "20s", "--", "echo", "inside")
    eventually(lambda: [line for line in about(watch.lines()) if '"SET"' in line], "a vote")
    waiter.kill(signal.SIGTERM)
    assert waiter.wait() == 128 + signal.SIGTERM
    assert waiter.rest() == []
    for redis in five_redis[3:]:
        await_clean(redis)
    assert holder.release() == "HF_OK"
    for redis in five_redis:
        await_clean(redis)


def test_etcd_11456_a_waiter_whose_lease_ran_out_in_the_queue_is_not_the_holder(redis, hold, start_holder, cli_on):
    first = hold(redis.url(), NAME, "ttl=20000")
    waiter = start_holder(redis.url(), NAME, "ttl=500")
    cli_on(redis.url()).await_waiters(NAME)
    waiter.pause()
    eventually(lambda: cli_on(redis.url()).show(NAME)["waiters"] == [], "its place has run out")
    assert first.release() == "HF_OK"
    second = hold(redis.url(), NAME, "ttl=20000")
    waiter.resume()
    cli_on(redis.url()).await_waiters(NAME)
    assert waiter.waits(), "it asks again, and waits again"
    assert second.release() == "HF_OK"
    assert waiter.token > second.token > first.token


# ---- Redlock -----------------------------------------------------------------------------------------------------------

def acquaint_voters(redis, cli_on):
    """It learns the scripts of a Redlock. Three names of one server are as good as three servers for that."""
    url = f"redlock://127.0.0.1:{redis.port},localhost:{redis.port},[::ffff:127.0.0.1]:{redis.port}?timeout={PATIENT}"
    done = cli_on(url)("run", "acquaintance", "--", "true")
    assert done.status in (0, 76), done.stderr  # the second and third release find it released


def spoil(redis, how):
    """From now on it answers our scripts with an error."""
    if how == "wrong type":
        redis.cmd("LPUSH", KEY, "not a lock")
    elif how == "out of memory":
        redis.cmd("CONFIG", "SET", "maxmemory", "1")
    else:
        redis.cmd("ACL", "SETUSER", "default", "-eval", "-evalsha")


@pytest.mark.parametrize("hows", [["wrong type"], ["out of memory"], ["no permission"], ["wrong type", "out of memory"]],
                         ids=" and ".join)
def test_redlock_py_errors_of_a_minority_are_of_no_account(five_redis, hold, hows):
    for redis, how in zip(five_redis, hows):
        spoil(redis, how)
    good = five_redis[len(hows):]
    holder = hold(redlock_url(five_redis, timeout=PATIENT), NAME, "ttl=800")
    lease = good[0].cmd("GET", KEY)
    time.sleep(1)
    assert [redis.cmd("GET", KEY) for redis in good].count(lease) >= 3, "extended"
    assert holder.left() > 0 and not holder.told_lost()
    assert holder.release() == "HF_OK"
    for redis in good:
        await_clean(redis)


def test_redlock_py_without_a_majority_everything_is_released(servers, five_redis, cli_on):
    """The errors of three are there before the votes of the two others are heard of."""
    for redis in five_redis:
        acquaint_voters(redis, cli_on)
    for redis, how in zip(five_redis, ("wrong type", "out of memory", "no permission")):
        spoil(redis, how)
    relays = [servers.relay(redis) for redis in five_redis]
    for relay in relays:
        relay.cut("down")
    process = cli_on(redlock_url(relays, timeout=PATIENT)).start("run", "--ttl", "20s", NAME, "--", "echo", "inside")
    for relay in relays:
        eventually(lambda: relay.count().down_bytes > 1000, "an answer to the greeting")
    for relay in relays[3:]:
        relay.delay(0, 200)
        relay.heal()
    for redis in five_redis[3:]:
        eventually(lambda: redis.cmd("GET", KEY), "a vote")
    for relay in relays[:3]:
        relay.heal()
    assert process.wait() == 77
    assert process.rest() == []
    said = process.rest("err")[-1]
    assert any(relay.address in said for relay in relays[:3]), said
    assert five_redis[0].cmd("LRANGE", KEY, 0, -1) == ["not a lock"]
    for redis in five_redis[1:]:
        await_clean(redis)


@pytest.mark.parametrize("ttl_ms, delay_ms", [(300, 400), (500, 300)], ids=["votes too late", "seals too late"])
def test_node_redlock_369_an_expired_redlock_is_never_returned(servers, five_redis, cli_on, ttl_ms, delay_ms):
    relays = [servers.relay(redis) for redis in five_redis]
    for relay in relays:
        relay.delay(0, delay_ms)
    cli = cli_on(redlock_url(relays, timeout=PATIENT))
    done = cli("run", "-q", "--ttl", f"{ttl_ms}ms", "-w", "1s", NAME, "--", "echo", "inside")
    assert done.status in (69, 75) and done.stdout == "", done.stderr
    for redis in five_redis:
        assert "cmdstat_eval" in redis.info("commandstats"), "it was asked"
        await_clean(redis)
    for relay in relays:
        relay.delay(0, 0)
    assert cli("run", "--ttl", f"{ttl_ms}ms", NAME, "--", "echo", "inside").stdout == "inside\n"


def test_node_redlock_369_what_a_first_try_left_on_a_minority_does_not_block_the_second(servers, five_redis,
                                                                                     start_holder, cli_on):
    """The two others are dead, so that those whose votes were lost are needed."""
    for redis in five_redis:
        acquaint_voters(redis, cli_on)
    relays = [servers.relay(redis) for redis in five_redis[:3]]
    for redis in five_redis[3:]:
        redis.kill()
    for relay in relays:
        relay.cut("down")
    holder = start_holder(redlock_url(relays + five_redis[3:], timeout="500ms"), NAME, "ttl=20000")
    for relay in relays:
        eventually(lambda: relay.count().down_bytes > 1000, "an answer to the greeting")
    for relay in relays[:2]:
        relay.drop("down")
        relay.heal()
    for redis in five_redis[:2]:
        eventually(lambda: redis.cmd("GET", KEY), "a vote whose answer is lost")
    lease = five_redis[0].cmd("GET", KEY)
    relays[2].heal()
    assert holder.token > 0
    assert [redis.cmd("GET", KEY) for redis in five_redis[:3]] == 3 * [lease]
    assert five_redis[0].cmd("PTTL", KEY) > 0
    assert holder.release() == "HF_OK"


# ---- extending ---------------------------------------------------------------------------------------------------------

def test_redis_py_4279_extending_by_nothing_is_refused_and_the_lock_untouched(redis, cli_on, start_holder):
    cli = cli_on(redis.url())
    env = environment(cli("lock", NAME, "--ttl", "60s"))
    lease, token = env["HOLDFAST_LEASE"], env["HOLDFAST_TOKEN"]

    def untouched():
        return redis.cmd("GET", KEY) == lease and redis.cmd("PTTL", KEY) > 40000 and cli("check", NAME, token).status == 0

    assert untouched()
    for ttl in ("0", "0ms", "-1", "-5s", "99ms", ""):
        done = cli("renew", NAME, "--ttl", ttl, env=env)
        assert done.status == 64 and done.stdout == "", ttl
        assert untouched()
        assert cli("lock", "another", "--ttl", ttl).status == 64
    text = script_text("renew")
    for ttl in (0, -5):
        with pytest.raises(RedisError, match="TTL"):
            redis.cmd("EVAL", text, 8, *script_keys(lease), lease, token, ttl, 0, "", "")
        assert untouched()
    assert cli("renew", NAME, "--ttl", "1s", env=env).status == 0
    assert untouched(), "a shorter TTL does not shorten what was promised"
    for ttl in (-1, 1, 99):
        assert start_holder(redis.url(), "another", f"ttl={ttl}").process.line().startswith("error HF_EINVAL")
    assert cli("unlock", NAME, env=env).status == 0
    assert leftovers(redis) == []


# ---- queues ------------------------------------------------------------------------------------------------------------

def place_of(redis, index):
    """The client's id in the so-manieth place of the queue."""
    return redis.cmd("ZRANGE", key("wait"), index, index)[0].split(":")[1]


def queue_up(redis, cli, start_holder, *words, count=2):
    waiters = []
    for i in range(count):
        waiters.append(start_holder(redis.url(), NAME, *words))
        eventually(lambda: redis.cmd("ZCARD", key("wait")) == i + 1, "a place in the queue")
    return waiters


def test_redisson_3004_a_dead_waiter_does_not_stall_the_queue(redis, cli_on, hold, start_holder, monitor):
    holder = hold(redis.url(), NAME, "ttl=20000")
    dead, alive = queue_up(redis, cli_on(redis.url()), start_holder, "ttl=20000")
    dead_client, alive_client = place_of(redis, 0), place_of(redis, 1)
    dead.kill()
    eventually(lambda: redis.cmd("PUBSUB", "NUMSUB", "holdfast.wake:" + dead_client)[1] == 0, "its connection ends")
    watch = monitor(redis)
    assert holder.release() == "HF_OK"
    assert alive.token > holder.token
    wakes = about(watch.lines(), "holdfast.wake:")
    assert [alive_client in line for line in wakes if '"PUBLISH"' in line] == [True], "the living is told, and at once"
    assert alive.release() == "HF_OK"
    await_clean(redis)


def test_redisson_1104_a_stopped_waiter_does_not_stall_the_queue(redis, cli_on, hold, start_holder):
    holder = hold(redis.url(), NAME, "ttl=20000")
    stopped, next_one = queue_up(redis, cli_on(redis.url()), start_holder, "ttl=20000")
    stopped.pause()
    assert holder.release() == "HF_OK"
    assert next_one.token > holder.token
    stopped.resume()
    eventually(lambda: redis.cmd("ZCARD", key("wait")) == 1, "it waits again")
    assert stopped.waits()
    assert next_one.release() == "HF_OK"
    assert stopped.token > next_one.token
    assert stopped.release() == "HF_OK"
    await_clean(redis)


def test_redisson_4462_a_permit_of_a_holder_that_crashed_comes_back(redis, cli_on, hold, start_holder):
    words = ("permits=2", "ttl=700")
    crashed, other = hold(redis.url(), NAME, *words), hold(redis.url(), NAME, *words)
    third = start_holder(redis.url(), NAME, *words)
    cli = cli_on(redis.url())
    cli.await_waiters(NAME)
    assert redis.cmd("ZCARD", key("members")) == 2
    crashed.kill()
    assert third.token > max(crashed.token, other.token)
    assert other.left() > 0 and not other.told_lost()
    assert redis.cmd("ZCARD", key("members")) == 2, "neither one less nor one more"
    assert cli("run", "-n", "--permits", "2", NAME, "--", "true").status == 75
    assert (other.release(), third.release()) == ("HF_OK", "HF_OK")
    await_clean(redis)


def test_redisson_2045_a_permit_released_twice_is_one_permit(redis, cli_on):
    cli = cli_on(redis.url())
    lock = ("lock", "-n", "--permits", "2", "--ttl", "20s", NAME)
    first, second = environment(cli(*lock)), environment(cli(*lock))
    assert cli(*lock).status == 75
    assert cli("unlock", NAME, env=first).status == 0
    assert cli("unlock", NAME, env=first).status == 1
    text = script_text("release")
    lease = first["HOLDFAST_LEASE"]
    assert redis.cmd("EVAL", text, 8, *script_keys(lease), lease, first["HOLDFAST_TOKEN"], 0) == 0, "a late duplicate"
    assert redis.cmd("ZRANGE", key("members"), 0, -1) == [second["HOLDFAST_LEASE"]]
    third = environment(cli(*lock))
    assert cli(*lock).status == 75, "one came back, not two"
    for env in (second, third):
        assert cli("unlock", NAME, env=env).status == 0
    assert leftovers(redis) == []


def test_kazoo_649_a_reader_behind_a_writer_behind_a_reader(redis, cli_on, hold, start_holder):
    reader = hold(redis.url(), NAME, "mode=shared", "ttl=20000")
    cli = cli_on(redis.url())
    writer = start_holder(redis.url(), NAME, "ttl=20000")
    cli.await_waiters(NAME, 1)
    behind = start_holder(redis.url(), NAME, "mode=shared", "ttl=20000")
    cli.await_waiters(NAME, 2)
    assert reader.release() == "HF_OK"
    assert writer.token > reader.token
    assert behind.waits()
    assert writer.release() == "HF_OK"
    assert behind.token > writer.token
    assert behind.release() == "HF_OK"
    await_clean(redis)


def test_kazoo_649_a_writer_that_dies_in_the_queue_does_not_keep_readers_out(redis, cli_on, hold, start_holder):
    reader = hold(redis.url(), NAME, "mode=shared", "ttl=20000")
    cli = cli_on(redis.url())
    writer = start_holder(redis.url(), NAME, "ttl=20000")
    cli.await_waiters(NAME, 1)
    behind = start_holder(redis.url(), NAME, "mode=shared", "ttl=20000")
    cli.await_waiters(NAME, 2)
    writer.kill()
    assert behind.token > reader.token
    assert reader.left() > 0
    assert (behind.release(), reader.release()) == ("HF_OK", "HF_OK")
    await_clean(redis)


def test_kazoo_649_a_crowd_of_readers_and_writers_comes_to_an_end(redis, cli_on, directory):
    """With a file lock of the kernel's as witness."""
    inside, journal = directory / "inside", directory / "journal"
    journal.touch()
    cli = cli_on(redis.url())
    for i in range(6):
        ours, kernels = (("-s", "-s") if i % 2 else ("-x", "-x"))
        job = f"exec 9>>{inside}; flock -n {kernels} 9 || echo overlap >> {journal}; echo done >> {journal}"
        loop = f"for i in 1 2 3 4 5 6; do {BIN} run -q {ours} --ttl 10s {NAME} -- sh -c '{job}' || exit; done"
        cli.started.append(Process(["sh", "-c", loop], cli.env, preexec_fn=die_with_parent))
    for process in cli.started:
        assert process.wait(2 * PATIENCE) == 0, process.rest("err")
    assert journal.read_text().split() == 36 * ["done"]
    await_clean(redis)


# ---- late releases -----------------------------------------------------------------------------------------------------

def test_etcd_22082_a_release_that_was_under_way_for_too_long_touches_nothing_newer(redis, relay, hold):
    old = hold(relay.url(), NAME, "ttl=700")
    relay.cut("up")
    old.ask_release()
    new = hold(redis.url(), NAME, "ttl=20000")
    lease = redis.cmd("GET", KEY)
    relay.heal()
    assert old.hear_released() == "HF_ELOST"
    assert redis.cmd("GET", KEY) == lease
    assert new.left() > 0 and new.release() == "HF_OK"


def test_etcd_22082_a_release_tried_again_touches_nothing_newer(redis, relay, hold, cli_on):
    """The first one has done it, and its answer was lost."""
    acquaint(redis, cli_on)
    old = hold(relay.url(), NAME, "ttl=20000")
    relay.cut("down")
    old.ask_release()
    eventually(lambda: redis.cmd("EXISTS", KEY) == 0, "the release has arrived")
    new = hold(redis.url(), NAME, "ttl=20000")
    lease = redis.cmd("GET", KEY)
    relay.reset()
    relay.heal()
    assert old.hear_released() == "HF_OK"
    assert redis.cmd("GET", KEY) == lease
    assert new.left() > 0 and new.release() == "HF_OK"


def test_a_release_names_a_token_and_not_only_a_lease(redis, hold):
    """As if the same lease had the name once more, since a release that is late now was sent."""
    old = hold(redis.url(), NAME, "ttl=20000")
    lease = redis.cmd("GET", KEY)
    token, rest = redis.cmd("HGET", key("info"), lease).split(" ", 1)
    assert int(token) == old.token
    redis.cmd("HSET", key("info"), lease, "%d %s" % (old.token + 1, rest))
    assert old.release() == "HF_ELOST"
    assert redis.cmd("GET", KEY) == lease


# ---- wake-ups ----------------------------------------------------------------------------------------------------------

def test_consul_1006_each_release_wakes_exactly_one_of_twenty(redis, cli_on, monitor):
    """No herd, and no polling: nobody else so much as asks."""
    cli = cli_on(redis.url())
    job = cli.hold(NAME, "--ttl", "30s")
    waiters = [cli.start("run", "-q", "--ttl", "30s", NAME, "--", "true") for _ in range(20)]
    # A listener that missed the answer to its greeting would be 5 s late.
    eventually(lambda: redis.cmd("ZCARD", key("wait")) == 20, "twenty in the queue at once", patience=4.5)
    watch = monitor(redis)
    assert job.end() == 0
    for waiter in waiters:
        assert waiter.wait() == 0
    lines = watch.lines()
    wakes = [line for line in lines if '"PUBLISH" "holdfast.wake:' in line]
    assert len(wakes) == 20, wakes
    # acquire.lua is the one with seven arguments, the third of which is the mode.
    asked = [shlex.split(line.split("] ", 1)[1]) for line in about(lines) if '"EVALSHA"' in line or '"EVAL"' in line]
    attempts = [words for words in asked if len(words) == 3 + 8 + 7 and words[-5] == "x"]
    assert 20 <= len(attempts) <= 30, len(attempts)
    await_clean(redis)
