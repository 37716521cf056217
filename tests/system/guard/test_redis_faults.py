"""The Redis guard when Redis cannot do what it is asked: a mark never goes back, and nothing is written that was not let in."""
import shutil

import pytest
from redis_server import (FORMS, MARK, Guard, RedisError, Stale, Wrong, eventually, guard, keys, one_error, redis,  # noqa: F401
                          shared_redis, start_redis)

KEY = "x"


def stale(guard, token, seen):
    with pytest.raises(Stale) as caught:
        guard("set", [MARK, "other"], token, "not-older", "late")
    assert (caught.value.token, caught.value.seen) == (token, seen)


# ---- a write that fails


@pytest.mark.parametrize("operation, args, why", [("set", ["v", "NONSENSE"], "ERR syntax error"), ("hset", ["f", "v"], "WRONGTYPE "),
                                                  ("set", ["v", "EX", "0"], "ERR invalid expire")])
@pytest.mark.parametrize("mode", ["not-older", "newer"])
def test_the_mark_stays_raised_if_the_write_fails(guard, redis, operation, args, why, mode):
    """The token was seen, whatever came of it."""
    redis.cmd("SET", KEY, "old")
    for token, before in ((35, None), (36, "35")):
        assert redis.cmd("GET", MARK) == before
        assert one_error(guard, operation, [MARK, KEY], token, mode, *args).startswith(why)
        assert redis.cmd("GET", MARK) == str(token) and redis.cmd("GET", KEY) == "old"
        stale(guard, token - 1, token)
    assert guard("set", [MARK, KEY], 36, "not-older", "new") == "OK", "a holder may try again"


def test_the_mark_stays_raised_if_the_user_may_not_write(redis):
    """Redis asks before a function of the library is run, and while a script runs."""
    guard = Guard(redis, "eval")
    redis.cmd("ACL", "SETUSER", "worker", "on", "nopass", "+@all", "-hset", "~holdfast.mark:*", "~x")
    try:
        with redis.connect() as connection:
            connection.cmd("AUTH", "worker", "any")
            with pytest.raises(RedisError, match="NOPERM|can't run this command"):
                connection.cmd(*guard.words("hset", [MARK, KEY], 35, "not-older", "f", "v"))
    finally:
        redis.cmd("ACL", "DELUSER", "worker")
    assert keys(redis) == {MARK}
    stale(guard, 34, 35)


def test_a_script_of_ones_own_that_fails_at_once(guard, redis):
    guard.wrap("fails", "error('before anything was written')")
    assert "before anything" in one_error(guard, "fails", [MARK, KEY], 35, "newer")
    stale(guard, 34, 35)


# ---- a Redis that takes no writes


def refused_in_full(redis, guard, why):
    """None of the operations, and with none of the tokens: also one that is the mark, for which nothing would be written."""
    for token in (34, 35):
        for operation, wanted, args in (("enter", [MARK], []), ("set", [MARK, KEY], ["late"]), ("del", [MARK, KEY], []),
                                        ("hset", [MARK, "h"], ["f", "v"])):
            assert why in one_error(guard, operation, wanted, token, "not-older", *args)
    assert redis.cmd("GET", MARK) == "34" and redis.cmd("GET", KEY) == "new" and redis.cmd("EXISTS", "h") == 0


@pytest.mark.parametrize("form", FORMS)
def test_nobody_enters_at_a_replica(start_redis, form):
    """What is read there may be old, and its mark, too."""
    primary, replica = start_redis(), start_redis()
    guard = Guard(primary, form)
    guard("set", [MARK, KEY], 34, "not-older", "new")
    replica.replicate(primary)
    replica.catch_up(primary)
    guard.redis = replica
    refused_in_full(replica, guard, "READONLY")


@pytest.mark.parametrize("form", FORMS)
def test_nobody_enters_where_too_few_replicas_would_have_it(start_redis, form):
    redis = start_redis()
    guard = Guard(redis, form)
    guard("set", [MARK, KEY], 34, "not-older", "new")
    redis.cmd("CONFIG", "SET", "min-replicas-to-write", "1")
    refused_in_full(redis, guard, "NOREPLICAS")


@pytest.mark.parametrize("form", FORMS)
def test_nobody_enters_where_the_disk_fails(start_redis, tmp_path, form):
    """The directory is removed under it, and it cannot save."""
    folder = tmp_path / "gone"
    folder.mkdir()
    redis = start_redis("--dir", str(folder))
    guard = Guard(redis, form)
    redis.cmd("CONFIG", "SET", "save", "3600 1", "stop-writes-on-bgsave-error", "yes")
    guard("set", [MARK, KEY], 34, "not-older", "new")
    shutil.rmtree(folder)
    redis.cmd("BGSAVE")
    eventually(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err", "a failed save")
    refused_in_full(redis, guard, "MISCONF")


@pytest.mark.parametrize("operation, args", [("set", ["new"]), ("hset", ["f", "v"])])
def test_a_full_redis_writes_nothing_with_a_token_that_is_the_mark(guard, redis, operation, args):
    guard("enter", [MARK], 34, "not-older")
    redis.cmd("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    try:
        assert one_error(guard, operation, [MARK, KEY], 34, "not-older", *args).startswith("OOM ")
    finally:
        redis.cmd("CONFIG", "SET", "maxmemory", "0")
    assert keys(redis) == {MARK} and redis.cmd("GET", MARK) == "34"


def test_functions_that_were_flushed_let_nobody_in(redis):
    guard = Guard(redis, "function")
    guard("set", [MARK, KEY], 34, "not-older", "new")
    redis.cmd("FUNCTION", "FLUSH")
    assert "Function not found" in one_error(guard, "set", [MARK, KEY], 33, "not-older", "late")
    script = redis.cmd("SCRIPT", "LOAD", Guard(redis, "eval").words("set", [])[1])
    redis.cmd("SCRIPT", "FLUSH")
    with pytest.raises(RedisError, match="NOSCRIPT"):
        redis.cmd("EVALSHA", script, 2, MARK, KEY, 33, "not-older", "late")
    assert redis.cmd("GET", KEY) == "new"
    stale(Guard(redis, "function"), 33, 34)


# ---- a mark that somebody gave an end


def test_a_mark_that_was_given_an_end_is_kept(guard, redis):
    """By the next one who enters, with whatever token."""
    for token in (34, 34, 35):
        guard("enter", [MARK], token, "not-older")
        assert redis.cmd("TTL", MARK) == -1
        redis.cmd("EXPIRE", MARK, 1000)
    guard("set", [MARK, KEY], 35, "not-older", "v")
    assert redis.cmd("TTL", MARK) == -1


def test_eviction_of_all_keys_takes_marks(start_redis):
    """What the manual warns of."""
    redis = start_redis("--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random")
    guard = Guard(redis, "eval")
    for i in range(200):
        guard("enter", [f"holdfast.mark:{{{i}}}"], 34, "not-older")
    with redis.connect() as connection:
        for i in range(3000):
            connection.send("SET", f"data:{i}", "v" * 2000)
        for _ in range(3000):
            connection.read()
    assert len(redis.cmd("KEYS", "holdfast.mark:*")) < 200
