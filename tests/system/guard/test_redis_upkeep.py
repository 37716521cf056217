"""The Redis guard: the library, where marks are kept and what becomes of them, resets, and the command itself."""
import re
import subprocess

import pytest
from redis_server import (BIN, FORMS, MARK, PATIENCE, ROOT, TOKEN_MAX, Guard, Redis, RedisError, Stale, at_home,  # noqa: F401
                          complaint, ended, eventually, guard, keys, one_error, pairs, printed, redis, shared_redis,
                          start_redis)

KEY = "x"
RESETS_MAX = 1000


def resets(redis, log="holdfast.resets"):
    return [pairs(fields) for _, fields in redis.cmd("XRANGE", log, "-", "+")]


# ---- the library


def functions(redis):
    return {library[1]: {function[1] for function in library[5]} for library in redis.cmd("FUNCTION", "LIST")}


OURS = {f"holdfast_{name}" for name in ("enter", "set", "del", "hset", "reset")}


def test_loading_twice_is_harmless_and_removes_no_wrapped_script(redis):
    guard = Guard(redis, "function")
    guard.wrap("mine", "return 1")
    guard("set", [MARK, KEY], 34, "not-older", "v")
    for _ in range(2):
        assert redis.cmd("FUNCTION", "LOAD", "REPLACE", printed()) == "holdfast"
        assert redis.cmd("FUNCTION", "LOAD", "REPLACE", printed("--wrap", "mine", script="return 2")) == "holdfast_mine"
    assert functions(redis) == {"holdfast": OURS, "holdfast_mine": {"mine"}}
    assert guard("mine", [MARK], 34, "not-older") == 2
    with pytest.raises(Stale):
        guard("set", [MARK, KEY], 33, "not-older", "late")


def test_undo(redis):
    guard = Guard(redis, "function")
    guard.wrap("mine", "return 1")
    guard("enter", [MARK], 34, "not-older")
    assert redis.cmd("FUNCTION", "DELETE", "holdfast") == "OK"
    assert functions(redis) == {"holdfast_mine": {"mine"}}
    assert guard("mine", [MARK], 34, "not-older") == 1, "it leans on nothing"
    assert redis.cmd("FUNCTION", "DELETE", "holdfast_mine") == "OK"
    assert functions(redis) == {} and redis.cmd("GET", MARK) == "34", "marks stay, for when it comes back"


def test_both_forms_share_their_marks(redis):
    first, second = (Guard(redis, form) for form in FORMS)
    for one, other, token in ((first, second, 34), (second, first, 36)):
        one("enter", [MARK], token, "not-older")
        with pytest.raises(Stale):
            other("enter", [MARK], token - 1, "not-older")


# ---- resets


def test_reset_lowers_a_mark_and_logs_it(guard, redis):
    guard("set", [MARK, KEY], 34, "not-older", "v")
    assert guard("reset", [MARK, "holdfast.resets"], 20, "the store lost its data") == ["34", "20"]
    with pytest.raises(Stale):
        guard("set", [MARK, KEY], 19, "not-older", "late")
    assert guard("set", [MARK, KEY], 20, "not-older", "again") == "OK"
    assert guard("reset", [MARK, "holdfast.resets"], 0) == ["20", "0"]
    assert keys(redis) == {KEY, "holdfast.resets"}, "0 forgets it"
    assert guard("enter", [MARK], 1, "not-older") == 1
    assert resets(redis) == [{"mark": MARK, "old": "34", "new": "20", "why": "the store lost its data"},
                             {"mark": MARK, "old": "20", "new": "0", "why": ""}]


def test_reset_says_when(guard, redis):
    seconds = int(redis.cmd("TIME")[0])
    guard("reset", [MARK, "holdfast.resets"], 5)
    ((when, _),) = redis.cmd("XRANGE", "holdfast.resets", "-", "+")
    assert seconds - 1 <= int(when.split("-")[0]) // 1000 <= int(redis.cmd("TIME")[0]) + 1


def test_reset_repairs_a_mark_that_is_none(guard, redis):
    redis.cmd("SET", MARK, "rubbish\r\n")
    assert guard("reset", [MARK, "holdfast.resets"], 7) == ["rubbish??", "7"]
    assert redis.cmd("GET", MARK) == "7"


def test_the_log_of_resets_is_capped(guard, redis):
    with redis.connect() as connection:
        for i in range(1, RESETS_MAX + 6):
            connection.send(*guard.words("reset", [MARK, "holdfast.resets"], i))
        for _ in range(RESETS_MAX + 5):
            connection.read()
    logged = resets(redis)
    assert len(logged) == RESETS_MAX and logged[-1]["new"] == str(RESETS_MAX + 5) and logged[0]["new"] == "6"


@pytest.mark.parametrize("wanted, args, why", [
    ([MARK, "log"], [0], "the second key must be the log's, 'holdfast.resets', and is 'log'"),
    ([KEY, "holdfast.resets"], [0], "the first key must be a mark's"),
    ([MARK, "holdfast.resets"], ["-1"], f"a mark is 0 or a number up to {TOKEN_MAX}"),
    ([MARK, "holdfast.resets"], ["00"], "a mark is 0 or a number up to"),
    ([MARK, "holdfast.resets"], [TOKEN_MAX + 1], "a mark is 0 or a number up to"),
    ([MARK, "holdfast.resets"], [0, "y" * 501], "the reason is too long: at most 500 bytes"),
])
def test_a_reset_that_cannot_be(guard, redis, wanted, args, why):
    guard("enter", [MARK], 34, "not-older")
    assert why in one_error(guard, "reset", wanted, *args)
    assert keys(redis) == {MARK} and redis.cmd("GET", MARK) == "34"


def test_a_reset_that_cannot_be_logged_does_not_happen(guard, redis):
    guard("enter", [MARK], 34, "not-older")
    redis.cmd("SET", "holdfast.resets", "no stream")
    assert "WRONGTYPE" in one_error(guard, "reset", [MARK, "holdfast.resets"], 0)
    assert redis.cmd("GET", MARK) == "34"


def test_whoever_may_not_touch_the_log_cannot_reset(redis):
    Guard(redis, "function")("enter", [MARK], 34, "not-older")
    redis.cmd("ACL", "SETUSER", "worker", "on", "nopass", "+@all", "~holdfast.mark:*", "~x")
    try:
        with redis.connect() as connection:
            connection.cmd("AUTH", "worker", "any")
            assert connection.cmd("FCALL", "holdfast_set", 2, MARK, KEY, 34, "not-older", "v") == "OK"
            with pytest.raises(RedisError, match="NOPERM"):
                connection.cmd("FCALL", "holdfast_reset", 2, MARK, "holdfast.resets", 0)
    finally:
        redis.cmd("ACL", "DELUSER", "worker")
    assert redis.cmd("GET", MARK) == "34"


# ---- where the mark is

TAGGED = ["{x}", "a{b}c", "{a}{b}", "}{a}", "{{a}", "{a}}", "x}{y}z"]
PLAIN = ["x", "batch:4472", "a b", "{", "{a", "a{{b", "é", "holdfast.mark:x"]


def mark_of(key):
    return printed("--mark", key).removesuffix("\n")


@pytest.fixture(scope="module")
def cluster():
    """One node that has all slots: it refuses keys of two slots in one call."""
    redis = Redis("--cluster-enabled", "yes")
    redis.cmd("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    eventually(lambda: "cluster_state:ok" in redis.cmd("CLUSTER", "INFO"), "a cluster")
    yield redis
    redis.stop()


@pytest.mark.parametrize("key", PLAIN + TAGGED)
def test_the_mark_of_a_key_is_in_its_slot(cluster, key):
    mark = mark_of(key)
    assert mark == ("holdfast.mark:tag:" + key if key in TAGGED else "holdfast.mark:{" + key + "}")
    assert cluster.cmd("CLUSTER", "KEYSLOT", mark) == cluster.cmd("CLUSTER", "KEYSLOT", key)


def test_no_two_keys_have_one_mark():
    assert len({mark_of(key) for key in PLAIN + TAGGED}) == len(PLAIN + TAGGED)


@pytest.mark.parametrize("key", ["}", "a}b", "{}", "{}a", "a{}{b}", "}{", "}a{"])
def test_keys_whose_slot_no_mark_can_share(cluster, key):
    """Redis takes all of such a key for its slot, and no tag can contain a '}'."""
    assert "choose a mark by hand, 'holdfast.mark:...'" in complaint("--mark", key)
    assert cluster.cmd("CLUSTER", "KEYSLOT", f"holdfast.mark:{{{key}}}") != cluster.cmd("CLUSTER", "KEYSLOT", key)
    assert cluster.cmd("CLUSTER", "KEYSLOT", f"holdfast.mark:{key}") != cluster.cmd("CLUSTER", "KEYSLOT", key)


def test_keys_that_a_guard_cannot_have():
    assert "1 to 400 bytes" in complaint("--mark", "") and "1 to 400 bytes" in complaint("--mark", "a" * 401)
    assert mark_of("a" * 400) == "holdfast.mark:{" + "a" * 400 + "}"
    assert mark_of("{b}" + "a" * 397) == "holdfast.mark:tag:{b}" + "a" * 397


@pytest.mark.parametrize("form", FORMS)
def test_in_a_cluster(cluster, form):
    cluster.cmd("FLUSHALL")
    guard = Guard(cluster, form)
    guard.wrap("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
    for key in ("stock", "{order}:7"):
        mark = mark_of(key)
        assert guard("enter", [mark], 34, "not-older") == 34
        assert guard("set", [mark, key], 34, "not-older", 1) == "OK"
        assert guard("add", [mark, key], 34, "not-older", 1) == 2
        assert guard("del", [mark, key], 34, "not-older") == 1
        assert guard("hset", [mark, key], 34, "not-older", "f", "v") == 1
        with pytest.raises(Stale):
            guard("del", [mark, key], 33, "not-older")
        log = mark.replace("holdfast.mark:", "holdfast.resets:")
        assert guard("reset", [mark, log], 0) == ["34", "0"]
        assert resets(cluster, log)[0]["old"] == "34"
    assert "same slot" in one_error(guard, "set", ["holdfast.mark:{other}", "stock"], 34, "not-older", 1)


# ---- what becomes of the marks


@pytest.mark.parametrize("form", FORMS)
def test_a_restart_with_its_data_keeps_the_marks(start_redis, form):
    redis = start_redis("--appendonly", "yes", "--appendfsync", "always")
    Guard(redis, form)("set", [MARK, KEY], 34, "not-older", "new")
    redis.kill()
    redis.restart(empty=False)
    guard = Guard(redis, form, loaded=True)
    with pytest.raises(Stale) as caught:
        guard("set", [MARK, KEY], 33, "not-older", "late")
    assert (caught.value.token, caught.value.seen) == (33, 34)
    assert redis.cmd("GET", KEY) == "new"


def test_a_redis_that_forgets_forgets_its_marks(redis):
    """What the manual says: marks are as durable as the data, not more."""
    guard = Guard(redis, "eval")
    guard("set", [MARK, KEY], 34, "not-older", "new")
    redis.cmd("FLUSHALL")
    assert guard("set", [MARK, KEY], 33, "not-older", "late") == "OK"


def test_replicas_have_functions_and_marks(start_redis):
    primary, replica = start_redis(), start_redis()
    guard = Guard(primary, "function")
    guard("set", [MARK, KEY], 34, "not-older", "new")
    replica.replicate(primary)
    guard("set", [MARK, KEY], 35, "not-older", "newer")
    replica.catch_up(primary)
    with pytest.raises(RedisError, match="READONLY"):
        replica.cmd(*guard.words("set", [MARK, KEY], 36, "not-older", "v"))
    primary.kill()
    replica.promote()
    guard.redis = replica
    with pytest.raises(Stale) as caught:
        guard("set", [MARK, KEY], 34, "not-older", "late")
    assert caught.value.seen == 35 and replica.cmd("GET", KEY) == "newer"


def test_a_failover_forgets_what_the_replica_did_not_have(start_redis):
    """What the manual says: mark and data go back together, and a holder of before gets in again."""
    primary, replica = start_redis(), start_redis()
    guard = Guard(primary, "function")
    guard("set", [MARK, KEY], 33, "not-older", "old")
    replica.replicate(primary)
    replica.promote()
    guard("set", [MARK, KEY], 34, "not-older", "new")
    primary.kill()
    guard.redis = replica
    assert guard("set", [MARK, KEY], 33, "not-older", "late") == "OK"


def test_volatile_eviction_takes_no_mark(start_redis):
    redis = start_redis("--maxmemory", "4mb", "--maxmemory-policy", "volatile-lru")
    guard = Guard(redis, "eval")
    for i in range(50):
        guard("enter", [f"holdfast.mark:{{{i}}}"], 34, "not-older")
    with redis.connect() as connection:
        for i in range(3000):
            connection.send("SET", f"data:{i}", "v" * 2000, "EX", 1000)
        for _ in range(3000):
            connection.read()
    assert int(redis.info("stats")["evicted_keys"]) > 0
    assert len(redis.cmd("KEYS", "holdfast.mark:*")) == 50


# ---- the command


def test_wrong_command_lines():
    assert "no operation 'get': there are enter, set, del, hset, reset and wrap" in complaint("--eval", "get")
    assert "one of --eval, --wrap and --mark at a time" in complaint("--eval", "set", "--mark", "x")
    assert "one of --eval, --wrap and --mark at a time" in complaint("--wrap", "a", "--eval", "wrap", script="return 1")
    assert "one word too many: 'set'" in complaint("set")
    assert "needs a value" in complaint("--eval")
    assert "did you mean '--eval'" in complaint("--evil", "set")
    assert "has no --json" in complaint("--json") or "unknown option" in complaint("--json")


def test_a_full_disk_is_told():
    with open("/dev/full", "w") as full:
        done = subprocess.run([BIN, "guard", "redis"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 69 and done.stderr.count("\n") == 1


def examples_of_the_help():
    text = subprocess.run([BIN, "guard", "redis", "--help"], capture_output=True, text=True, check=True).stdout
    return re.search(r"\nExamples:\n(.*)\nExit status:\n", text, re.S).group(1)


def test_the_examples_of_the_help_run_as_they_are(redis, at_home):
    assert ended(at_home(examples_of_the_help())) == ["holdfast", "35", "OK", "2", "holdfast_take", "5", "1", "36", "0", "OK",
                                                      "OK"]
    assert pairs(redis.cmd("HGETALL", "shelf")) == {"apples": "12", "pears": "5"}
    assert resets(redis) == [{"mark": "holdfast.mark:{stock}", "old": "36", "new": "0", "why": "new store"}]
    assert functions(redis) == {}




def examples_of_the_manual():
    page = (ROOT / "man/holdfast-guard-redis.1").read_text().split(".Sh EXAMPLES")[1]
    return "".join(re.findall(r"^\.Bd .*\n((?:.*\n)*?)\.Ed$", page, re.M)).replace("\\e\n", "\\\n")


def test_the_examples_of_the_manual_run_as_they_are(redis, at_home):
    library, entered, written, counted, mark = ended(at_home(examples_of_the_manual()))
    assert (library, written, counted, mark) == ("holdfast", "OK", "2", "holdfast.mark:{visits}")
    assert redis.cmd("GET", "visits") == "2" and int(redis.cmd("GET", mark)) > int(entered)
