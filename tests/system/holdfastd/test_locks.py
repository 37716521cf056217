"""What the commands about locks and once-records do, in both protocols."""
import hashlib

import pytest
from conftest import TOKEN_MAX, TTL_MAX, Refused, boot_ms, eventually, pairs_of, refused

def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- ACQUIRE, RELEASE, CHECK -------------------------------------------------------------------------------------


def test_options_in_any_order_and_case(client, name, lease):
    l1 = lease()
    token = client.cmd("Acquire", name, l1, "oWner", "Bob", "wAIT", 0, "shareD", "delay", 5, "tTl", 60000)
    (holder,) = client.show(name)["holders"]
    assert holder["token"] == token and holder["owner"] == "Bob" and holder["mode"] == "shared"
    assert holder["state"] == "holds" and 0 <= holder["age_ms"] <= 60000 - holder["left_ms"] + 1
    assert 30000 < holder["left_ms"] <= 60000
    assert client.cmd("ACQUIRE", name, l1, "DELAY", 5, "SHARED", "TTL", 60000, "OWNER", "Bob") == token, "the same again"


def test_words_of_options_are_also_names(client):
    assert client.cmd("ACQUIRE", "TTL", "WAIT", "OWNER", "SHARED") > 0
    assert client.show("TTL")["holders"][0]["owner"] == "SHARED"
    assert client.cmd("RENEW", "TTL", "WAIT") == [-1, 30000]
    assert client.cmd("RELEASE", "TTL", "WAIT") == 1


def test_ttl(client, name, lease):
    l1 = lease()
    assert client.cmd("ACQUIRE", name, l1) > 0
    assert 29000 < client.show(name)["holders"][0]["left_ms"] <= 30000, "if not said"
    client.cmd("ACQUIRE", name, l1, "TTL", 1000)
    assert client.show(name)["holders"][0]["left_ms"] > 2000, "ACQUIRE does not shorten"
    client.cmd("ACQUIRE", name, l1, "TTL", 60000)
    assert client.show(name)["holders"][0]["left_ms"] > 50000
    (left,) = client.cmd("RENEW", l1, "TTL", TTL_MAX)
    assert TTL_MAX - 60000 < left <= TTL_MAX
    assert client.cmd("RENEW", l1)[0] > TTL_MAX - 60000, "each is prolonged by its own"


def test_a_lease_runs_out_and_not_before(client, name, lease):
    before = boot_ms()
    token = client.cmd("ACQUIRE", name, lease(), "TTL", 250)
    while client.cmd("CHECK", name, token):
        assert boot_ms() - before < 20000
    assert boot_ms() - before >= 250
    assert client.show(name)["holds"] == 0


def test_release(client, name, lease):
    l1, l2 = lease(), lease()
    token = client.cmd("ACQUIRE", name, l1)
    assert client.cmd("RELEASE", name, l2) == 0
    assert client.cmd("RELEASE", name, l1, "TOKEN", token + 1) == 0
    assert client.cmd("CHECK", name, token) == 1
    assert client.cmd("RELEASE", name, l1, "token", token) == 1
    assert client.cmd("CHECK", name, token) == 0
    newer = client.cmd("ACQUIRE", name, l1)
    assert newer > token
    assert client.cmd("RELEASE", name, l1, "TOKEN", token) == 0, "a late duplicate touches nothing newer"
    assert client.cmd("CHECK", name, newer) == 1


def test_modes(client, name, lease):
    exclusive, shared, permit = name + "-x", name + "-s", name + "-p"
    l1, l2, l3 = lease(), lease(), lease()
    client.cmd("ACQUIRE", exclusive, l1)
    assert client.cmd("ACQUIRE", exclusive, l2) is None
    assert client.cmd("ACQUIRE", exclusive, l2, "SHARED") is None
    assert refused(client, "ACQUIRE", exclusive, l1, "SHARED") == "MODE this lease has the name in another mode"
    assert refused(client, "ACQUIRE", exclusive, l2, "PERMITS", 2) == "MODE the name is in use without PERMITS"
    client.cmd("ACQUIRE", shared, l1, "SHARED")
    assert client.cmd("ACQUIRE", shared, l2, "SHARED") > 0
    assert client.cmd("ACQUIRE", shared, l3) is None
    assert refused(client, "ACQUIRE", shared, l1) == "MODE this lease has the name in another mode"
    client.cmd("ACQUIRE", permit, l1, "PERMITS", 2)
    assert client.cmd("ACQUIRE", permit, l2, "PERMITS", 2) > 0
    assert client.cmd("ACQUIRE", permit, l3, "PERMITS", 2) is None
    assert refused(client, "ACQUIRE", permit, l3, "PERMITS", 3) == "MODE the name is in use with PERMITS 2"
    assert refused(client, "ACQUIRE", permit, l3) == "MODE the name is in use with PERMITS 2"
    assert refused(client, "ACQUIRE", permit, l1, "PERMITS", 3) == "MODE this lease has the name in another mode"
    assert client.show(permit)["permits"] == 2 and client.show(permit)["holds"] == 2
    assert {row["mode"] for row in client.show(permit)["holders"]} == {"permit"}
    for held in (exclusive, shared, permit):
        client.cmd("RELEASE", held, l1)
        client.cmd("RELEASE", held, l2)
        assert client.cmd("ACQUIRE", held, lease(), "PERMITS", 7) > 0, "nobody uses it, so anybody may say how"


def test_check(client, name, lease):
    store = client.info("Locks")["store_id"]
    token = client.cmd("ACQUIRE", name, lease(), "TTL", 60000)
    assert client.cmd("CHECK", name, token) == 1
    assert client.cmd("CHECK", name, token - 1) == 0
    assert client.cmd("CHECK", name + "x", token) == 0
    assert client.cmd("CHECK", f"hf1.{store}.x.{token}.{name}") == 1
    assert client.cmd("CHECK", f"hf1.{store}.x.{token + 1}.{name}") == 0
    assert refused(client, "CHECK", f"hf1.{store[:-1]}.x.{token}.{name}") == "STORE this sequencer is of another store"


# ---- RENEW, END, BREAK, FLOOR ------------------------------------------------------------------------------------


def test_renew(client, name, lease):
    leases = [lease() for _ in range(3)]
    for index, one in enumerate(leases):
        client.cmd("ACQUIRE", f"{name}-{index}", one, "TTL", 1000 * (index + 1))
    assert client.cmd("RENEW", *leases, "nobody", leases[0]) == [1000, 2000, 3000, -1, 1000]
    assert client.cmd("RENEW", leases[0], "nobody", "ttl", 50000) == [50000, -1]
    many = [f"{name}-many-{index}" for index in range(4096)]
    assert client.cmd("RENEW", *many) == [-1] * 4096
    assert client.cmd("RENEW", *many, "TTL", 1000) == [-1] * 4096
    assert refused(client, "RENEW", *many, "one more") == "LIMIT at most 4096 leases in one RENEW"


def test_end(client, name, lease):
    l1 = lease()
    for index in range(3):
        client.cmd("ACQUIRE", f"{name}-{index}", l1)
    assert client.cmd("END", l1) == 3
    assert client.cmd("END", l1) == 0
    assert client.cmd("RENEW", l1) == [-1]
    assert refused(client, "ACQUIRE", name, l1) == "ENDED this lease is over: take another"
    assert client.show(name + "-0")["holds"] == 0
    assert client.cmd("RELEASE", name, l1) == 0


def test_a_lease_that_nobody_knows_is_ended_too(client, name, lease):
    """Its ACQUIRE may be under way. It is remembered as long as was said."""
    l1 = lease()
    before = boot_ms()
    assert client.cmd("END", l1, "TTL", 200) == 0
    while True:
        client.send("ACQUIRE", name, l1)
        if not isinstance(client.read_any(), Refused):
            break
        assert boot_ms() - before < 20000
    assert boot_ms() - before >= 200


def test_break(client, name, lease):
    l1, l2, l3 = lease(), lease(), lease()
    before = boot_ms()
    token = client.cmd("ACQUIRE", name, l1, "TTL", 300, "DELAY", 100)
    client.cmd("ACQUIRE", name + "-too", l1, "TTL", 300, "DELAY", 60000)
    assert client.cmd("BREAK", name) == 1
    assert client.cmd("CHECK", name, token) == 0
    assert client.cmd("RENEW", l1) == [-1]
    assert refused(client, "ACQUIRE", name, l1) == "ENDED this lease is over: take another"
    (ghost,) = client.show(name)["holders"]
    assert ghost["state"] == "withheld" and ghost["token"] == token and ghost["lease"] == ""
    assert client.cmd("ACQUIRE", name, l2) is None
    newer = client.cmd("ACQUIRE", name, l2, "WAIT", 20000)
    assert boot_ms() - before >= 400, "its holder knows first"
    assert newer > token
    assert client.cmd("BREAK", name, "now") == 1
    assert client.cmd("ACQUIRE", name, l3) > newer, "at once"
    assert client.cmd("BREAK", name + "-too", "NOW") == 1, "what else the lease had was withheld too"


def test_a_delay_after_a_lease_ran_out_and_not_after_a_release(client, name, lease):
    l1 = lease()
    client.cmd("ACQUIRE", name, l1, "DELAY", 60000)
    client.cmd("RELEASE", name, l1)
    assert client.cmd("ACQUIRE", name, l1, "DELAY", 60000) > 0
    client.cmd("END", l1)
    before = boot_ms()
    assert client.cmd("ACQUIRE", name, lease(), "DELAY", 200, "TTL", 100) > 0
    eventually(lambda: client.show(name)["holders"][0]["state"] == "withheld", "end of the lease")
    assert client.cmd("ACQUIRE", name, lease()) is None
    assert client.cmd("ACQUIRE", name, lease(), "WAIT", 20000) > 0
    assert boot_ms() - before >= 300


@pytest.mark.parametrize("protocol", [2, 3])
def test_floor_and_the_last_token(start, protocol):
    with start().connect(protocol) as client:
        first = client.cmd("ACQUIRE", "a", "l")
        floor = first + 1000
        assert client.cmd("FLOOR", floor) == floor
        assert client.cmd("FLOOR", floor - 500) == floor and client.cmd("FLOOR", 500) == floor, "never lower"
        assert client.cmd("ACQUIRE", "b", "l") == floor + 1
        assert client.cmd("FLOOR", TOKEN_MAX - 1) == TOKEN_MAX - 1
        assert client.cmd("ACQUIRE", "c", "l") == TOKEN_MAX
        assert client.cmd("ACQUIRE", "a", "l") == first, "what was given is not affected"
        assert refused(client, "ACQUIRE", "d", "l") == "LIMIT there are no tokens left"
        assert client.cmd("CHECK", "c", TOKEN_MAX) == 1
        assert client.cmd("RELEASE", "c", "l", "TOKEN", TOKEN_MAX) == 1


# ---- SHOW, LOCKS -------------------------------------------------------------------------------------------------


def test_show_keeps_the_secret(client, name, lease):
    l1, l2 = lease(), lease()
    token = client.cmd("ACQUIRE", name, l1, "OWNER", "o")
    with client.another() as other:
        other.send("ACQUIRE", name, l2, "WAIT", 60000, "OWNER", "p")
        shown = eventually(lambda: (s := client.show(name)) and s["waiters"] and s, "a waiter")
        assert l1 not in repr(shown) and l2 not in repr(shown)
        (holder,), (waiter,) = shown["holders"], shown["waiters"]
        assert {key: holder[key] for key in ("state", "mode", "token", "owner", "lease")} == \
            {"state": "holds", "mode": "exclusive", "token": token, "owner": "o", "lease": digest(l1)}
        assert {key: waiter[key] for key in ("state", "mode", "owner", "lease", "left_ms")} == \
            {"state": "waits", "mode": "exclusive", "owner": "p", "lease": digest(l2), "left_ms": -1}
        assert "token" not in waiter and l1 not in repr(client.cmd("LOCKS", "MATCH", name))
        client.cmd("RELEASE", name, l1)
        assert other.read() > token


def test_show_has_at_most_so_many(server, name):
    with server.connect(3) as client:
        client.pipeline(*[["ACQUIRE", name, f"{name}-{index}", "PERMITS", 150] for index in range(150)])
        queued = client.pipeline(*[["ACQUIRE", name, f"{name}-w{index}", "PERMITS", 150, "PUSH"] for index in range(130)])
        assert queued == ["QUEUED"] * 130
        shown = client.show(name)
        assert (shown["holds"], shown["queue"], len(shown["holders"]), len(shown["waiters"])) == (150, 130, 100, 100)
        tokens = [row["token"] for row in shown["holders"]]
        assert tokens == sorted(tokens), "the oldest first"
        assert [row["lease"] for row in shown["waiters"]] == [digest(f"{name}-w{index}") for index in range(100)]
        assert len(client.show(name, "WAITERS", 120)["waiters"]) == 120
        assert len(client.show(name, "waiters", 1)["waiters"]) == 1


def test_locks_in_pages(client, name):
    """Names that are in use all the while are met once each, whatever happens to others between the pages."""
    mine = {f"{name}/{index}" for index in range(300)}
    client.pipeline(*[["ACQUIRE", one, f"{name}-l"] for one in mine])
    met, cursor, pages = [], 0, 0
    while True:
        cursor, rows = client.cmd("LOCKS", "MATCH", name + "/*", "COUNT", 20, "CURSOR", cursor)
        rows = [pairs_of(row) for row in rows]
        assert len(rows) <= 20
        assert all(set(row) == {"name", "permits", "holds", "queue", "holders"} for row in rows)
        met += [row["name"] for row in rows]
        client.cmd("ACQUIRE", f"{name}!{pages}", f"{name}-k")
        client.cmd("RELEASE", f"{name}!{pages - 1}", f"{name}-k")
        pages += 1
        if cursor == 0:
            break
    assert pages >= 15
    assert len(met) == 300 and set(met) == mine
    assert client.cmd("END", f"{name}-l") == 300
    assert client.cmd("LOCKS", "MATCH", name + "/*", "COUNT", 1000) == [0, []]


@pytest.mark.parametrize("glob, matches", [("*", "abc abd b*c"), ("ab?", "abc abd"), ("ab[c-d]", "abc abd"), ("ab[^c]", "abd"),
                                           ("b\\*c", "b*c"), ("b*c", "b*c"), ("abc", "abc"), ("a", ""), ("?b*", "abc abd"),
                                           ("[", ""), ("", ""), ("*[dx]", "abd")])
def test_globs(client, name, lease, glob, matches):
    l1 = lease()
    for suffix in ("abc", "abd", "b*c"):
        client.cmd("ACQUIRE", f"{name}.{suffix}", l1)
    _, rows = client.cmd("LOCKS", "MATCH", f"{name}.{glob}", "COUNT", 1000)
    assert {pairs_of(row)["name"].removeprefix(name + ".") for row in rows} == set(matches.split())
    client.cmd("END", l1)


# ---- ONCE --------------------------------------------------------------------------------------------------------


def finish(client, key, lease, token, result, keep=60000):
    return client.cmd("ONCE", "FINISH", key, lease, "TOKEN", token, "KEEP", keep, result)


def test_once(client, name, lease):
    l1, l2 = lease(), lease()
    word, token = client.cmd("ONCE", "CLAIM", name, l1, "TTL", 60000, "OWNER", "me")
    assert word == "RUN" and token > 0
    assert client.cmd("ONCE", "CLAIM", name, l1) == ["RUN", token], "the same again"
    assert client.cmd("once", "claim", name, l2) is None, "somebody runs it"
    word, runs, owner, age, left = client.cmd("ONCE", "READ", name)
    assert (word, runs, owner) == ("RUNNING", token, "me") and 0 <= age < 60000 and 0 < left <= 60000
    assert client.show(name)["holds"] == 0, "keys are a name space of their own"
    result = "a\r\nb\0c" + "x" * 65000
    assert refused(client, "ONCE", "FINISH", name, l2, "TOKEN", token, "KEEP", 60000, result).startswith(
        "STALE this lease and token do not hold the record; the newest token is ")
    assert refused(client, "ONCE", "FINISH", name, l1, "TOKEN", token + 1, "KEEP", 60000, "no").startswith("STALE ")
    assert finish(client, name, l1, token, result) == 1
    assert finish(client, name, l1, token, "no") == 1, "whoever lost the answer asks again: it is finished"
    assert refused(client, "ONCE", "FINISH", name, l1, "TOKEN", token + 1, "KEEP", 60000, "no").startswith("STALE ")
    assert client.cmd("ONCE", "CLAIM", name, l2) == ["DONE", token, result]
    word, by, read, left = client.cmd("ONCE", "READ", name)
    assert (word, by, read) == ("DONE", token, result) and 50000 < left <= 60000
    assert client.cmd("ONCE", "RELEASE", name, l1) == 0, "it is finished"
    assert client.cmd("LOCKS", "MATCH", name) == [0, []]


def test_an_empty_result_is_one(client, name, lease):
    l1 = lease()
    token = client.cmd("ONCE", "CLAIM", name, l1)[1]
    assert finish(client, name, l1, token, "") == 1
    assert client.cmd("ONCE", "CLAIM", name, lease()) == ["DONE", token, ""]


def test_a_result_is_kept_as_long_as_said(client, name, lease):
    l1 = lease()
    token = client.cmd("ONCE", "CLAIM", name, l1)[1]
    before = boot_ms()
    finish(client, name, l1, token, "r", keep=200)
    eventually(lambda: client.cmd("ONCE", "READ", name) is None, "forgotten")
    assert boot_ms() - before >= 200
    assert client.cmd("ONCE", "CLAIM", name, lease())[0] == "RUN"


def test_a_released_key_is_free_again(client, name, lease):
    l1, l2 = lease(), lease()
    token = client.cmd("ONCE", "CLAIM", name, l1)[1]
    assert client.cmd("ONCE", "RELEASE", name, l1, "TOKEN", token + 1) == 0
    assert client.cmd("ONCE", "RELEASE", name, l1, "TOKEN", token) == 1
    assert client.cmd("ONCE", "READ", name) is None
    assert client.cmd("ONCE", "CLAIM", name, l2)[1] > token


def test_callers_wait_for_the_result(client, name, lease):
    l1 = lease()
    token = client.cmd("ONCE", "CLAIM", name, l1)[1]
    with client.another() as one, client.another() as two:
        for other in (one, two):
            other.send("ONCE", "CLAIM", name, lease(), "WAIT", 60000)
        eventually(lambda: int(client.info()["blocked_clients"]) == 2, "two wait")
        finish(client, name, l1, token, "r")
        assert one.read() == two.read() == ["DONE", token, "r"]


def test_a_runner_that_died(client, name, lease):
    l1, heir, other = lease(), lease(), lease()
    token = client.cmd("ONCE", "CLAIM", name, l1, "TTL", 2000, "KEEP", 60000)[1]  # so that both surely wait before its end
    with client.another() as one, client.another() as two:
        one.send("ONCE", "CLAIM", name, other, "WAIT", 60000, "NOHEIR")
        eventually(lambda: int(client.info()["blocked_clients"]) == 1, "one waits")
        two.send("ONCE", "CLAIM", name, heir, "WAIT", 60000)
        assert one.read() == ["DIED", token], "it would not run it again"
        word, newer = two.read()
        assert word == "RUN" and newer > token
    assert refused(client, "ONCE", "FINISH", name, l1, "TOKEN", token, "KEEP", 1, "late").startswith("STALE ")
    client.cmd("ONCE", "RELEASE", name, heir)


def test_a_death_is_known_as_long_as_said(client, name, lease):
    for keep in (60000, 0):
        token = client.cmd("ONCE", "CLAIM", name, lease(), "TTL", 100, "KEEP", keep)[1]
        died = eventually(lambda: (client.cmd("ONCE", "READ", name) or [None])[0] != "RUNNING" and
                          [client.cmd("ONCE", "READ", name)], "its end")[0]
        if keep:
            assert died[:2] == ["DIED", token] and 0 < died[2] <= keep
            assert client.cmd("ONCE", "CLAIM", name, lease(), "NOHEIR") == ["DIED", token]
        else:
            assert died is None, "as if it had never been"
            assert client.cmd("ONCE", "CLAIM", name, lease(), "NOHEIR")[0] == "RUN"


def test_once_by_push(server, clients, name, lease):
    one, two = clients(3), clients(3)
    l1, l2, l3 = lease(), lease(), lease()
    token = one.cmd("ONCE", "CLAIM", name, l1)[1]
    assert two.cmd("ONCE", "CLAIM", name, l2, "PUSH") == "QUEUED"
    assert two.cmd("ONCE", "CLAIM", name, l3, "PUSH") == "QUEUED"
    one.cmd("ONCE", "RELEASE", name, l1)
    assert two.push() == ("granted", name, l2, token + 1)
    finish(two, name, l2, token + 1, "r")
    assert two.push() == ("done", name, l3, token + 1, "r")
