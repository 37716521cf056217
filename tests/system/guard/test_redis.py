"""The Redis guard: its operations, as functions and as scripts, on a real server."""
import os
import re

import pytest
from redis_server import (MARK, TOKEN_MAX, Guard, Stale, Wrong, complaint, eventually, guard, keys, one_error,  # noqa: F401
                          pairs, printed, redis, shared_redis)

KEY = "x"
WORDS_MAX = 7000


# ---- enter


def test_enter_raises_the_mark_and_answers_it(guard, redis):
    assert guard("enter", [MARK], 33, "not-older") == 33
    assert redis.cmd("GET", MARK) == "33"
    assert guard("enter", [MARK], 33, "not-older") == 33, "a holder may enter as often as it likes"
    assert guard("enter", [MARK], 34, "not-older") == 34
    assert redis.cmd("GET", MARK) == "34"


def test_a_stale_token_is_refused_with_both_tokens(guard, redis):
    guard("enter", [MARK], 34, "not-older")
    with pytest.raises(Stale) as caught:
        guard("enter", [MARK], 33, "not-older")
    assert (caught.value.token, caught.value.seen) == (33, 34)
    assert str(caught.value) == f"stale fencing token: 33 is older than 34, which '{MARK}' has seen"
    assert redis.cmd("GET", MARK) == "34"


def test_newer_takes_each_token_once(guard, redis):
    assert guard("enter", [MARK], 33, "newer") == 33
    with pytest.raises(Stale) as caught:
        guard("enter", [MARK], 33, "newer")
    assert (caught.value.token, caught.value.seen) == (33, 33)
    assert "33 is not newer than 33" in str(caught.value)
    with pytest.raises(Stale):
        guard("enter", [MARK], 32, "newer")
    assert guard("enter", [MARK], 34, "newer") == 34
    assert guard("enter", [MARK], 34, "not-older") == 34


def test_the_greatest_tokens_are_told_apart(guard):
    """Doubles hold them exactly, and one more not."""
    assert guard("enter", [MARK], TOKEN_MAX - 1, "newer") == TOKEN_MAX - 1
    assert guard("enter", [MARK], TOKEN_MAX, "newer") == TOKEN_MAX
    with pytest.raises(Stale) as caught:
        guard("enter", [MARK], TOKEN_MAX - 1, "not-older")
    assert (caught.value.token, caught.value.seen) == (TOKEN_MAX - 1, TOKEN_MAX)


def test_marks_are_compared_as_numbers(guard):
    guard("enter", [MARK], 9, "not-older")
    assert guard("enter", [MARK], 10, "not-older") == 10
    with pytest.raises(Stale):
        guard("enter", [MARK], 9, "not-older")


def test_marks_do_not_touch_each_other(guard):
    guard("enter", [MARK], 34, "not-older")
    assert guard("enter", ["holdfast.mark:{y}"], 1, "not-older") == 1


# ---- what writes


def test_set(guard, redis):
    assert guard("set", [MARK, KEY], 34, "not-older", "new") == "OK"
    assert guard("set", [MARK, KEY], 34, "not-older", "newer") == "OK"
    with pytest.raises(Stale):
        guard("set", [MARK, KEY], 33, "not-older", "late")
    assert redis.cmd("GET", KEY) == "newer" and redis.cmd("GET", MARK) == "34"


def test_set_takes_the_options_of_set(guard, redis):
    def fenced(*words):
        return guard("set", [MARK, KEY], 34, "not-older", *words)

    assert fenced("a", "EX", 1000) == "OK" and 900 < redis.cmd("TTL", KEY) <= 1000
    assert fenced("b", "KEEPTTL") == "OK" and 900 < redis.cmd("TTL", KEY) <= 1000
    assert fenced("c", "PX", 50_000_000) == "OK" and 40_000_000 < redis.cmd("PTTL", KEY) <= 50_000_000
    assert fenced("d", "NX") is None and redis.cmd("GET", KEY) == "c"
    assert fenced("d", "XX", "GET") == "c" and redis.cmd("GET", KEY) == "d"
    redis.cmd("DEL", KEY)
    assert fenced("e", "XX") is None and fenced("e", "NX") == "OK"
    assert redis.cmd("TTL", KEY) == -1


def test_set_that_its_condition_forbids_has_still_passed(guard, redis):
    redis.cmd("SET", KEY, "there")
    assert guard("set", [MARK, KEY], 34, "newer", "new", "NX") is None
    assert redis.cmd("GET", MARK) == "34" and redis.cmd("GET", KEY) == "there"


def test_del(guard, redis):
    redis.cmd("MSET", KEY, 1, "{x}y", 2, "{x}z", 3)
    assert guard("del", [MARK, KEY, "{x}y", "nothing"], 34, "not-older") == 2
    with pytest.raises(Stale):
        guard("del", [MARK, "{x}z"], 33, "not-older")
    assert keys(redis) == {MARK, "{x}z"}, "the mark outlives what it protects"


def test_deleting_and_writing_again_forgets_nothing(guard, redis):
    guard("set", [MARK, KEY], 34, "not-older", "new")
    guard("del", [MARK, KEY], 34, "not-older")
    with pytest.raises(Stale):
        guard("set", [MARK, KEY], 33, "not-older", "late")
    assert redis.cmd("EXISTS", KEY) == 0


def test_hset(guard, redis):
    assert guard("hset", [MARK, KEY], 34, "not-older", "a", 1, "b", 2) == 2
    assert guard("hset", [MARK, KEY], 35, "newer", "b", 3, "c", 4) == 1
    with pytest.raises(Stale):
        guard("hset", [MARK, KEY], 34, "not-older", "a", "late", "d", "late")
    assert pairs(redis.cmd("HGETALL", KEY)) == {"a": "1", "b": "3", "c": "4"}


def test_values_are_any_bytes(guard, redis):
    value = os.fsdecode(bytes(range(256)))
    assert guard("set", [MARK, KEY], 34, "not-older", value) == "OK"
    assert guard("hset", [MARK, "h"], 34, "not-older", value, value) == 1
    assert redis.cmd("GET", KEY) == value and redis.cmd("HGET", "h", value) == value


def test_one_mark_protects_many_keys(guard, redis):
    guard("set", [MARK, "one"], 34, "not-older", "new")
    for operation, key, args in (("set", "two", ["late"]), ("hset", "three", ["f", "late"]), ("del", "one", [])):
        with pytest.raises(Stale):
            guard(operation, [MARK, key], 33, "not-older", *args)
    assert keys(redis) == {MARK, "one"}


def test_a_mark_never_expires(guard, redis):
    guard("set", [MARK, KEY], 34, "not-older", "short", "PX", 1)
    eventually(lambda: redis.cmd("EXISTS", KEY) == 0, "its end")
    assert redis.cmd("TTL", MARK) == -1
    with pytest.raises(Stale):
        guard("set", [MARK, KEY], 33, "not-older", "late")


def test_a_repeated_token_does_not_write_the_mark(guard, redis):
    guard("enter", [MARK], 34, "not-older")
    before = redis.info("persistence")["rdb_changes_since_last_save"]
    guard("enter", [MARK], 34, "not-older")
    assert redis.info("persistence")["rdb_changes_since_last_save"] == before
    guard("enter", [MARK], 35, "not-older")
    assert redis.info("persistence")["rdb_changes_since_last_save"] != before


# ---- what is wrong changes nothing

NO_TOKENS = ["", "0", "-1", "+5", "05", " 5", "5 ", "5\n", "1e3", "0x10", "1.0", "5.", "inf", "nan", "five", "5\0", "\uff15",
             str(TOKEN_MAX + 1), str(TOKEN_MAX + 2), "9999999999999999", "10000000000000000", "9" * 400]


@pytest.mark.parametrize("token", NO_TOKENS)
def test_what_is_no_token_is_refused(guard, redis, token):
    said = one_error(guard, "set", [MARK, KEY], token, "not-older", "late")
    assert said.startswith(f"ERR holdfast: a token is a number from 1 to {TOKEN_MAX}, in digits, and not '"), said
    assert keys(redis) == set()


@pytest.mark.parametrize("mode", ["", "older", "NEWER", "not-older "])
def test_an_unknown_mode_is_refused(guard, redis, mode):
    said = one_error(guard, "enter", [MARK], 34, mode)
    assert said == f"ERR holdfast: the mode is 'not-older' or 'newer', and not '{mode}'"
    assert keys(redis) == set()


@pytest.mark.parametrize("operation, wanted, args", [
    ("enter", [], [34, "newer"]), ("enter", [MARK], [34]), ("enter", [MARK], [34, "newer", 1]),
    ("enter", [MARK, KEY], [34, "newer"]),
    ("set", [MARK], [34, "newer", "v"]), ("set", [MARK, KEY], [34, "newer"]), ("set", [MARK, KEY, "y"], [34, "newer", "v"]),
    ("del", [MARK], [34, "newer"]), ("del", [MARK, KEY], [34]), ("del", [MARK, KEY], [34, "newer", "y"]),
    ("hset", [MARK, KEY], [34, "newer"]), ("hset", [MARK, KEY], [34, "newer", "f"]), ("hset", [MARK], [34, "newer", "f", "v"]),
    ("hset", [MARK, KEY], [34, "newer", "f", "v", "g"]), ("hset", [MARK, KEY, "y"], [34, "newer", "f", "v"]),
    ("reset", [MARK], [0]), ("reset", [MARK, "holdfast.resets"], []), ("reset", [MARK, "holdfast.resets"], [0, "why", "more"]),
    ("reset", [MARK, "holdfast.resets", "x"], [0]),
])
def test_too_few_and_too_many_words_are_a_usage_error(guard, redis, operation, wanted, args):
    said = one_error(guard, operation, wanted, *args)
    assert said.startswith(f"ERR holdfast: usage: {operation} "), said
    assert keys(redis) == set()


@pytest.mark.parametrize("wanted", [[KEY, MARK], [KEY, "y"], ["holdfast.mark:", KEY], ["holdfast.mark", KEY], ["", KEY]])
def test_the_first_key_must_be_a_mark(guard, redis, wanted):
    """Who mixes up the two would write a token over the data, and the data into a mark."""
    said = one_error(guard, "set", wanted, 34, "not-older", "v")
    assert said == f"ERR holdfast: the first key must be a mark's, 'holdfast.mark:...', and is '{wanted[0]}'"
    assert keys(redis) == set()


def test_a_mark_is_nobodys_data(guard, redis):
    for wanted in ([MARK, MARK], [MARK, KEY, "holdfast.mark:{y}"]):
        said = one_error(guard, "del", wanted, 34, "not-older")
        assert said == f"ERR holdfast: only the first key can be a mark's, and '{wanted[-1]}' is one"
    assert keys(redis) == set()


@pytest.mark.parametrize("rubbish", ["", "0", "abc", "-5", "34 ", "1e3", str(TOKEN_MAX + 1), "9" * 400])
def test_a_mark_that_is_no_token_lets_nobody_in(guard, redis, rubbish):
    redis.cmd("SET", MARK, rubbish)
    said = one_error(guard, "set", [MARK, KEY], TOKEN_MAX, "not-older", "v")
    assert said == f"ERR holdfast: '{MARK}' is no mark: it holds something else than a token (only a reset helps)"
    assert keys(redis) == {MARK} and redis.cmd("GET", MARK) == rubbish


def test_a_mark_of_another_type_lets_nobody_in(guard, redis):
    redis.cmd("RPUSH", MARK, "33")
    for operation, wanted, args in (("enter", [MARK], []), ("set", [MARK, KEY], ["v"]), ("del", [MARK, KEY], [])):
        assert "is no mark: it holds something else" in one_error(guard, operation, wanted, 34, "not-older", *args)
    assert keys(redis) == {MARK} and redis.cmd("LRANGE", MARK, 0, -1) == ["33"]
    assert guard("reset", [MARK, "holdfast.resets"], 34, "it was a list") == ["a list", "34"]
    assert guard("set", [MARK, KEY], 34, "not-older", "v") == "OK"


def test_errors_are_one_line_and_not_too_long(guard, redis):
    wild = "holdfast.mark:{a\r\n+OK\r\n\x1b[31m" + "b" * 5000 + "}"
    guard("enter", [wild], 34, "not-older")
    with pytest.raises(Stale) as caught:
        guard("enter", [wild], 33, "not-older")
    assert "'holdfast.mark:{a??+OK???[31mbbb" in str(caught.value) and len(str(caught.value)) < 250
    for said in (one_error(guard, "enter", [MARK], "\r\n" * 1000, "newer"), one_error(guard, "enter", [MARK], 34, "\0" * 5000),
                 one_error(guard, "enter", ["\r" * 5000], 34, "newer")):
        assert len(said) < 250 and re.fullmatch(r"[ -~]+", said), said
    assert redis.cmd("PING") == "PONG"


def test_as_many_words_as_said_and_not_one_more(guard, redis):
    fields = [word for i in range((WORDS_MAX - 4) // 2) for word in (i, "v")]
    assert guard("hset", [MARK, KEY], 34, "not-older", *fields) == len(fields) // 2
    many = [f"{{x}}{i}" for i in range(WORDS_MAX - 3)]
    assert guard("del", [MARK, *many], 34, "not-older") == 0
    said = one_error(guard, "del", [MARK, *many, KEY], 35, "not-older")
    assert said == f"ERR holdfast: at most {WORDS_MAX} keys and arguments in one call"
    assert redis.cmd("GET", MARK) == "34" and redis.cmd("EXISTS", KEY) == 1


def test_a_full_redis_refuses_and_changes_nothing(guard, redis):
    guard("set", [MARK, KEY], 34, "not-older", "old")
    redis.cmd("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    try:
        for operation, wanted, args in (("enter", [MARK], []), ("set", [MARK, KEY], ["new"]), ("del", [MARK, KEY], [])):
            assert one_error(guard, operation, wanted, 35, "newer", *args).startswith("OOM ")
    finally:
        redis.cmd("CONFIG", "SET", "maxmemory", "0")
    assert (redis.cmd("GET", KEY), redis.cmd("GET", MARK)) == ("old", "34")
    assert guard("set", [MARK, KEY], 35, "newer", "new") == "OK"


def test_refusals_are_counted_by_redis(guard, redis):
    redis.cmd("CONFIG", "RESETSTAT")
    guard("enter", [MARK], 34, "not-older")
    for _ in range(3):
        with pytest.raises(Stale):
            guard("enter", [MARK], 33, "not-older")
    assert redis.info("errorstats")["errorstat_STALE"] == "count=3"


def test_a_refusal_does_not_stop_what_comes_after_it(guard, redis):
    """What the manual warns of: in MULTI, only what carries the token is fenced."""
    guard("set", [MARK, KEY], 34, "not-older", "new")
    with redis.connect() as connection:
        connection.cmd("MULTI")
        for words in (guard.words("enter", [MARK], 33, "not-older"), ["SET", KEY, "late"]):
            assert connection.cmd(*words) == "QUEUED"
        connection.send("EXEC")
        assert connection.file.readline() == b"*2\r\n"
        assert connection.file.readline().startswith(b"-STALE 33 34 ")
        assert connection.read() == "OK"
    assert redis.cmd("GET", KEY) == "late", "the harm"


# ---- a script of one's own


def test_wrapped_script_sees_its_own_keys_and_arguments(guard):
    guard.wrap("mine", "return {#KEYS, KEYS[1] or '-', KEYS[2] or '-', #ARGV, ARGV[1] or '-', ARGV[2] or '-'}")
    assert guard("mine", [MARK], 34, "not-older") == [0, "-", "-", 0, "-", "-"]
    assert guard("mine", [MARK, "a", "b"], 34, "not-older", "c", "d") == [2, "a", "b", 2, "c", "d"]


def test_wrapped_script_runs_only_with_a_fresh_token(guard, redis):
    guard.wrap("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert guard("add", [MARK, KEY], 34, "not-older", 5) == 5
    assert guard("add", [MARK, KEY], 34, "not-older", 5) == 10
    with pytest.raises(Stale):
        guard("add", [MARK, KEY], 33, "not-older", 5)
    with pytest.raises(Stale):
        guard("add", [MARK, KEY], 34, "newer", 5)
    assert "a token is" in one_error(guard, "add", [MARK, KEY], "x", "newer", 5)
    assert "first key must be a mark's" in one_error(guard, "add", [KEY, MARK], 35, "newer", 5)
    assert one_error(guard, "add", [], 35, "newer").startswith("ERR holdfast: usage: N MARK [KEY ...] TOKEN MODE")
    assert one_error(guard, "add", [MARK, KEY], 35).startswith("ERR holdfast: usage: ")
    assert redis.cmd("GET", KEY) == "10" and redis.cmd("GET", MARK) == "34"


def test_wrapped_script_that_fails_leaves_the_mark_raised(guard, redis):
    """It may have read and written before."""
    guard.wrap("half", "redis.call('SET', KEYS[1], 'half')\nerror('in the middle')")
    assert "in the middle" in one_error(guard, "half", [MARK, KEY], 34, "not-older")
    assert redis.cmd("GET", KEY) == "half" and redis.cmd("GET", MARK) == "34"
    guard.wrap("sorry", "return redis.error_reply('MINE its own error')")
    assert one_error(guard, "sorry", [MARK, KEY], 35, "not-older") == "MINE its own error"
    assert redis.cmd("GET", MARK) == "35"


@pytest.mark.parametrize("script, answer", [
    ("return 1", 1), ("return 1 -- one", 1), ("-- one\nreturn 1\n-- end", 1), ("--[[ one ]] return 1;", 1), ("\n\n", None),
    ("local function enter() return 2 end\nreturn enter()", 2), ("local body, MARKS, KEYS = 3\nreturn body", 3),
    ("return type(rawget(_G, 'enter'))", "nil"), ("if #KEYS == 0 then return 4 end", 4),
    ("return redis.status_reply('FINE')", "FINE"),
    ("return {err = 'OOPS'}", Wrong), ("return {1, {2, '3'}}", [1, [2, "3"]]), ("return select('#', ...)", 0),
    ("return '%s%n%d'", "%s%n%d"), ("return '\\\\ \"'", '\\ "'),
])
def test_any_script_can_be_wrapped(guard, script, answer):
    guard.wrap("mine", script)
    if answer is Wrong:
        assert one_error(guard, "mine", [MARK], 34, "not-older") == "OOPS"
    else:
        assert guard("mine", [MARK], 34, "not-older") == answer


def test_wrapped_script_sees_nothing_of_ours(guard):
    """A name that it forgot to define must not happen to be one of our own."""
    guard.wrap("mine", "return pcall(function() return is_token end) and 'seen' or 'not seen'")
    assert guard("mine", [MARK], 34, "not-older") == "not seen"


def test_lines_of_a_wrapped_script_are_counted_as_its_author_does(redis):
    guard = Guard(redis, "eval")
    guard.wrap("mine", "-- one\nlocal two = 2\nerror('three')")
    assert "user_script:3: three" in one_error(guard, "mine", [MARK], 34, "not-older")


@pytest.mark.parametrize("how", [["--eval", "wrap"], ["--wrap", "mine"]])
def test_what_cannot_be_wrapped(how):
    assert "it is empty" in complaint(*how)
    assert "begins with '#!'" in complaint(*how, script="#!lua flags=no-writes\nreturn 1")
    assert "there is a NUL in it" in complaint(*how, script=b"return 1\0")
    most = 256 * 1024
    script = "return 1" + " " * (most - 8)
    assert script in printed(*how, script=script)
    assert f"too long: at most {most} bytes" in complaint(*how, script=script + " ")


@pytest.mark.parametrize("name, why", [
    ("", "1 to 64 letters"), ("a" * 65, "1 to 64 letters"), ("a-b", "letters, digits and '_' only"), ("a'b", "letters, digits"),
    ("é", "letters, digits"), ("a b", "letters, digits"), ("holdfast_set", "are ours"), ("holdfast", "are ours"),
])
def test_names_that_a_function_cannot_have(name, why):
    assert why in complaint("--wrap", name, script="return 1")


def test_the_longest_name(redis):
    name = "a" * 64
    guard = Guard(redis, "function")
    guard.wrap(name, "return 1")
    assert guard(name, [MARK], 34, "not-older") == 1
