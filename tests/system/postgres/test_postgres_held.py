"""Lock and write in one transaction: the holder's own transaction checks the lock's row and enters the guard, in one statement."""
import json
import re
import subprocess
import time

import psycopg2
import pytest
from conftest import STALE, claims, eventually, guard_sql, make_table, seconds
from holder import hold, start_holder  # noqa: F401
from relay import Relay


@pytest.fixture
def batches(servers, cli_on):
    server = servers.postgres()
    make_table(cli_on, server, None)
    server.session()(guard_sql())
    server.session()("CREATE TABLE batches (id integer PRIMARY KEY, state text)")
    return server


def locked(cli, name, *options):
    """Name's lease and token, as a script gets them."""
    done = cli("lock", *options, name)
    assert done.status == 0, done
    pairs = dict(re.findall(r"^(HOLDFAST_\w+)='?([^';]*)", done.stdout, re.M))
    return pairs["HOLDFAST_LEASE"], int(pairs["HOLDFAST_TOKEN"])


def enter(session, name, lease, token):
    return session("SELECT holdfast_enter_held(%s, %s, %s)", name, lease, token)


def refused(session, name, lease, token):
    with pytest.raises(psycopg2.Error) as failure:
        enter(session, name, lease, token)
    assert failure.value.pgcode == STALE, failure.value
    return str(failure.value)


def test_the_holder_writes(batches, cli_on):
    cli = cli_on(batches.url())
    lease, token = locked(cli, "batch:4472", "--ttl", "20s")
    session = batches.session()
    session("BEGIN")
    enter(session, "batch:4472", lease, token)
    session("INSERT INTO batches VALUES (4472, 'settled')")
    session("COMMIT")
    assert session.value("SELECT token FROM holdfast_marks WHERE key = 'batch:4472'") == token
    enter(session, "batch:4472", lease, token)  # as often as it likes
    assert cli("unlock", "batch:4472", env={"HOLDFAST_LEASE": lease, "HOLDFAST_TOKEN": str(token)}).status == 0


@pytest.mark.parametrize("what", ["lease", "token", "name"])
def test_whoever_does_not_hold_it_is_refused(batches, cli_on, what):
    lease, token = locked(cli_on(batches.url()), "batch:4472", "--ttl", "20s")
    wrong = {"name": "batch:4472", "lease": lease, "token": token}
    wrong[what] = {"name": "batch:4473", "lease": "0" * 32, "token": token - 1}[what]
    words = refused(batches.session(), **wrong)
    assert "stale fencing token" in words
    assert lease not in words


def test_after_a_release_it_is_stale(batches, cli_on):
    cli = cli_on(batches.url())
    lease, token = locked(cli, "x", "--ttl", "20s")
    done = cli("unlock", "x", env={"HOLDFAST_LEASE": lease, "HOLDFAST_TOKEN": str(token)})
    assert done.status == 0, done
    assert claims(batches.session(), "holdfast_locks", "x") == []
    assert "stale fencing token" in refused(batches.session(), "x", lease, token)


def test_nobody_takes_it_over_while_the_transaction_is_open(batches, cli_on, start_holder):
    """The hold's TTL is over, and its holder too: until COMMIT the next one waits, and sees all that was written."""
    cli = cli_on(batches.url())
    lease, token = locked(cli, "x", "--ttl", "1s")
    session = batches.session()
    session("BEGIN")
    enter(session, "x", lease, token)
    session("INSERT INTO batches VALUES (1, 'written')")
    waiter = start_holder(batches.url(), "x", "ttl=1000")
    time.sleep(3)
    assert waiter.waits()
    assert cli("break", "x", "--grace", "0").status in (0, 1, 69, 75, 77)
    time.sleep(0.5)
    assert waiter.waits()
    session("COMMIT")
    assert waiter.token > token
    assert batches.session().value("SELECT state FROM batches WHERE id = 1") == "written"
    refused(session, "x", lease, token)


def test_a_stranger_keeps_nobody_from_entering(batches, cli_on):
    """Everybody who can connect may lock any key for as long as he likes, and which one it will be is easily told."""
    cli, session = cli_on(batches.url()), batches.session()
    session("CREATE ROLE stranger LOGIN")
    stranger = batches.session(user="stranger")
    stranger("SELECT pg_advisory_lock(hashtextextended(%s || encode('x', 'hex') || ' ' || i, 0)) FROM generate_series(1, 2000) AS i",
             '"public"."holdfast_locks" ')
    lease, token = locked(cli, "x", "--ttl", "60s")
    assert session.value("SELECT id FROM holdfast_locks_claims WHERE name = 'x'") <= 2000
    session("SET statement_timeout = '20s'")
    session("BEGIN")
    enter(session, "x", lease, token)
    session("INSERT INTO batches VALUES (1, 'written')")
    assert "has not ended" in cli("break", "x", "--now").stdout
    assert len(claims(batches.session(), "holdfast_locks", "x")) == 1
    session("COMMIT")
    refused(session, "x", lease, token)


def test_renewals_go_on_while_the_transaction_is_open(batches, tmp_path, cli_on):
    """A long transaction of a job that `holdfast run` keeps renewing."""
    script = ("psql -X -v ON_ERROR_STOP=1 -q -h 127.0.0.1 -p $PORT -U postgres postgres -c \"BEGIN; SELECT holdfast_enter_held('x', '$HOLDFAST_LEASE', "
              "$HOLDFAST_TOKEN); SELECT pg_sleep(3); INSERT INTO batches VALUES (2, 'long'); COMMIT\"")
    cli = cli_on(batches.url(), PORT=str(batches.port))
    lease, token = locked(cli, "x", "--ttl", "2s")
    env = {"HOLDFAST_LEASE": lease, "HOLDFAST_TOKEN": str(token)}
    process = subprocess.Popen(["sh", "-c", script], env={**cli.env, **env}, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    while process.poll() is None:
        assert cli("renew", "x", env=env).status == 0
        assert seconds(began) < 30
        time.sleep(0.3)
    assert process.returncode == 0
    assert batches.session().value("SELECT state FROM batches WHERE id = 2") == "long"
    assert cli("unlock", "x", env=env).status == 0


@pytest.mark.parametrize("how", ["plain", "now"])
def test_a_break_says_that_a_transaction_is_inside(batches, cli_on, how):
    cli = cli_on(batches.url())
    lease, token = locked(cli, "batch:4473", "--ttl", "20s")
    session = batches.session()
    session("BEGIN")
    enter(session, "batch:4473", lease, token)
    if how == "plain":
        done = cli("break", "batch:4473")
        assert done.status == 0 and done.stdout.startswith("broke 1 hold of") and "has not ended" in done.stdout and "at once)" not in done.stdout, done
    else:
        done = cli("break", "--now", "batch:4473")
        assert done.status == 0 and "has not ended" in done.stdout and "free at once" not in done.stdout, done
    until = "withheld until an open transaction of its last holder ends"
    assert f"nobody holds it: {until}" in cli("show", "batch:4473").stdout
    for now in ((), ("--now",)):
        done = cli("break", *now, "batch:4473")
        assert f"nobody held 'batch:4473': it is {until}. Once that has ended" in done.stdout and "at once" not in done.stdout, done
        told = json.loads(cli("break", *now, "--json", "batch:4473").stdout)
        assert told["entered"] and not told["freed"] and told["broken"] == 0, told
    done = cli("run", "-n", "batch:4473", "--", "true")
    assert done.status == 75 and until in done.stderr, done
    session("COMMIT")
    assert "until an open transaction" not in cli("show", "batch:4473").stdout
    told = json.loads(cli("break", "--now", "--json", "batch:4473").stdout)
    assert told["freed"] and not told["entered"], told
    assert cli("run", "-n", "batch:4473", "--", "true").status == 0


def test_an_unlock_whose_last_answer_is_missing_says_what_the_one_before_it_said(batches, servers, cli_on):
    """The last look has what is left of the time, which may be too little for an answer."""
    relay = Relay(batches.port)
    servers.stack.callback(relay.stop)
    lease, token = locked(cli_on(batches.url()), "x", "--ttl", "60s")
    session = batches.session()
    session("BEGIN")
    enter(session, "x", lease, token)
    leaving = cli_on(batches.url(hosts=relay.address)).start("unlock", "x", env={"HOLDFAST_LEASE": lease, "HOLDFAST_TOKEN": str(token)})
    other = batches.session()
    looks = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%%holdfast_locks_release%%' AND pid <> pg_backend_pid()"
    eventually(lambda: other.value(looks), "it asks")
    before = relay.count().down_chunks
    eventually(lambda: relay.count().down_chunks >= before + 3, "it is answered, again and again")
    relay.cut("down")
    assert leaving.wait() == 69
    assert any("a transaction that entered with this hold of 'x' had not ended" in line for line in leaving.rest("err"))
    session("COMMIT")


def test_those_who_look_lock_nothing(batches, cli_on):
    """However long the answer to a look takes to be read, and whoever looks: breaks go on, and nobody takes it for a transaction that has entered."""
    cli = cli_on(batches.url())
    for name in "x", "y":
        locked(cli, name, "--ttl", "60s")
    assert cli("break", "x").status == 0
    looking = batches.session()
    looking("BEGIN")
    assert looking.value("SELECT holdfast_locks_is_entered(name, id) FROM holdfast_locks_claims WHERE broken") is False
    assert "until an open transaction" not in cli("show", "x").stdout
    assert json.loads(cli("break", "--now", "--json", "x").stdout)["freed"]
    assert json.loads(cli("break", "--now", "--json", "y").stdout)["broken"] == 1
    looking("COMMIT")


def test_of_many_it_is_asked_at_once_who_has_entered(batches, cli_on):
    """The locks of the whole server are read for that: not with each of thousands who shared a lock that was broken."""
    count = 2000
    cli, session = cli_on(batches.url()), batches.session()
    locked(cli, "x", "--ttl", "60s", "--shared")
    lease, token = locked(cli, "y", "--ttl", "60s")
    columns = "name, owner, mode, permits, token, ttl_ms, delay_ms, death_ms, beat, incarnation"
    session(f"INSERT INTO holdfast_locks_claims (lease, {columns}) SELECT sha256(n::text::bytea), {columns} "
            f"FROM holdfast_locks_claims, generate_series(1, {count}) AS n WHERE name = 'x'")
    inside = batches.session()
    inside("BEGIN")
    enter(inside, "y", lease, token)
    session("ALTER DATABASE postgres SET track_functions = 'all'")
    assert cli("break", "x").status == cli("break", "--now", "y").status == 0
    began = time.monotonic()
    assert "nobody holds it: withheld" in cli("show", "x").stdout
    print(f"{count} broken holds are shown in {1000 * seconds(began):.0f} ms")
    assert "until an open transaction of its last holder ends" in cli("show", "y").stdout
    assert json.loads(cli("ls", "--json", "-a").stdout.splitlines()[0])

    def calls(name):
        return session.value("SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = %s", name)

    eventually(lambda: calls("holdfast_locks_incarnation") >= 5, "what they have counted")
    eventually(lambda: session.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'") == 0, "they have gone")
    assert calls("holdfast_locks_is_entered") == 0
    inside("COMMIT")


def test_whoever_may_only_read_sees_what_is_broken(batches, cli_on):
    session = batches.session()
    session("CREATE ROLE monitor LOGIN")
    session("GRANT SELECT ON ALL TABLES IN SCHEMA public TO monitor")
    cli, monitor = cli_on(batches.url()), cli_on(batches.url(user="monitor"))
    lease, token = locked(cli, "x", "--ttl", "60s")
    locked(cli, "y", "--ttl", "60s")
    session("BEGIN")
    enter(session, "x", lease, token)
    assert cli("break", "x").status == 0
    done = monitor("ls")
    assert done.status == 0 and "\ny " in done.stdout, done
    assert "until an open transaction of its last holder ends" in monitor("show", "x").stdout
    session("COMMIT")


def test_what_a_floor_has_ended_is_withheld_until_its_transaction_ends(batches, cli_on):
    """However long its TTL is over."""
    cli = cli_on(batches.url())
    lease, token = locked(cli, "x", "--ttl", "1s")
    session = batches.session()
    session("BEGIN")
    enter(session, "x", lease, token)
    assert cli("floor", str(token + 1000)).status == 0
    assert "nobody holds it: withheld until an open transaction of its last holder ends" in cli("show", "x").stdout
    session("COMMIT")
    assert cli("run", "--wait", "20s", "x", "--", "true").status == 0


@pytest.mark.parametrize("mode", [("--shared",), ("--permits=3",), ()], ids=["shared", "permits", "exclusive"])
def test_what_a_floor_has_ended_does_not_come_back(batches, cli_on, mode):
    """Also when others get the name beside it: a hold is of the era in which it was granted, whatever the name's last grant is of."""
    cli = cli_on(batches.url())
    lease, token = locked(cli, "x", "--ttl", "60s", *mode)
    assert cli("floor", str(token + 1000)).status == 0
    if mode:
        assert cli("run", "--no-wait", *mode, "x", "--", "true").status == 0
    env = {"HOLDFAST_LEASE": lease, "HOLDFAST_TOKEN": str(token)}
    assert cli("check", "x", str(token)).status == 1
    assert cli("renew", "x", env=env).status == 1
    assert "withheld for the TTL of a hold from before a floor" in cli("show", "x").stdout
    refused(batches.session(), "x", lease, token)
    assert cli("unlock", "x", env=env).status == 1


def test_whoever_holds_enters_also_where_the_names_row_is_gone(batches, cli_on):
    """An operator has deleted it."""
    lease, token = locked(cli_on(batches.url()), "x", "--ttl", "60s")
    session = batches.session()
    session("DELETE FROM holdfast_locks WHERE name = 'x'")
    enter(session, "x", lease, token)


def test_a_shared_hold_may_not_enter(batches, cli_on):
    lease, token = locked(cli_on(batches.url()), "x", "--shared", "--ttl", "20s")
    refused(batches.session(), "x", lease, token)


def test_an_older_token_than_the_mark_is_refused(batches, cli_on):
    """The mark is the guard's: somebody entered with a newer token, by whatever way."""
    lease, token = locked(cli_on(batches.url()), "x", "--ttl", "20s")
    session = batches.session()
    session("SELECT holdfast_enter('x', %s)", token + 5)
    assert str(token + 5) in refused(session, "x", lease, token)


def test_without_a_guard_it_says_so(servers, cli_on):
    server = servers.postgres()
    make_table(cli_on, server, None)
    lease, token = locked(cli_on(server.url()), "x", "--ttl", "20s")
    with pytest.raises(psycopg2.Error) as failure:
        enter(server.session(), "x", lease, token)
    assert "guard sql" in str(failure.value)


def test_two_transactions_of_one_holder(batches, cli_on):
    """They do not wait for each other at the lock's row; at the guard's mark the second waits, as with holdfast_enter."""
    lease, token = locked(cli_on(batches.url()), "x", "--ttl", "20s")
    first = batches.session()
    first("BEGIN")
    enter(first, "x", lease, token)
    first("COMMIT")
    second = batches.session()
    second("BEGIN")
    enter(second, "x", lease, token)
    second("ROLLBACK")
    eventually(lambda: claims(batches.session(), "holdfast_locks", "x"), "it holds on")
