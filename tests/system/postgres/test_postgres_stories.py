"""Faults that locks in PostgreSQL had elsewhere, as their users met them (docs/postgres-store.md has the list). Where it can be shown, first
theirs, as plain SQL, so that the test is known to see the fault; then ours."""
import re
import signal
import time

import pytest
from conftest import await_claims, await_gone, claims, eventually, guard_sql, is_running, make_table, seconds
from holder import hold, start_holder  # noqa: F401

TTL_MS = 1500
SLACK = 5  # seconds, on a busy machine


# ---- authentik 23876, pgbouncer 102, rails 31190: advisory locks strand behind a pooler


def test_advisory_locks_behind_a_pooler_have_two_holders_and_then_none_who_can_unlock(pooler):
    """What others do. The lock belongs to the pooler's connection, not to the client."""
    first, second, third = pooler.session(), pooler.session(), pooler.session()
    assert first.value("SELECT pg_try_advisory_lock(4711)")
    assert second.value("SELECT pg_try_advisory_lock(4711)")  # through the same connection: a second holder
    first.close()
    second.close()
    third("BEGIN")  # keeps that connection busy
    third("SELECT 1")
    fourth = pooler.session()
    assert not fourth.value("SELECT pg_try_advisory_lock(4711)")  # stranded: both who had it are gone
    third("ROLLBACK")
    third("SELECT pg_advisory_unlock_all()")


def test_authentik_23876_nothing_strands_behind_a_pooler(server, pooler, table, hold, cli_on):
    """The holder is gone, without a word: the next has it after a TTL. And after a release, at once."""
    url = pooler.url(table)
    first = hold(url, "x", f"ttl={TTL_MS}")
    assert cli_on(url)("run", "-n", "x", "--", "true").status == 75
    first.kill()
    began = time.monotonic()
    second = hold(url, "x", f"ttl={TTL_MS}")
    assert seconds(began) < TTL_MS / 1000 + SLACK
    assert second.token > first.token
    assert second.release() == "HF_OK"
    for _ in range(20):  # over all connections that the pooler has
        assert cli_on(url)("run", "-n", "x", "--", "true").status == 0
    assert server.session().value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_pgbouncer_102_a_session_leaves_nothing_in_the_pooler(server, pooler, table, hold, start_holder):
    """Waiting and holding change nothing of a connection that others get next: no LISTEN, no settings, no prepared statements."""
    first = hold(pooler.url(table), "x", "ttl=30000")
    waiter = start_holder(pooler.url(table), "x", "ttl=30000")
    await_claims(server.session(), table, "x", 2)
    assert first.release() == "HF_OK"
    assert waiter.token > first.token
    session = pooler.session()
    for _ in range(20):
        session("BEGIN")  # until COMMIT it is one connection
        assert session("SELECT * FROM pg_listening_channels()") == []
        assert session("SELECT name FROM pg_prepared_statements") == []
        assert session("SELECT name, setting FROM pg_settings WHERE source = 'session' AND name NOT IN "
                       "('client_encoding', 'DateStyle', 'TimeZone', 'application_name', 'standard_conforming_strings')") == []
        session("COMMIT")
    assert waiter.release() == "HF_OK"


def test_rails_31190_many_come_and_go_behind_few_connections(servers, server, table, cli_on, tmp_path):
    """More clients than connections of the pooler, all at once: each is inside once, and alone."""
    pooler = servers.pgbouncer(server, "default_pool_size = 3")
    cli = cli_on(pooler.url(table))
    counter = tmp_path / "counter"
    counter.write_text("0")
    job = f"mkdir {tmp_path}/inside && n=$(cat {counter}) && echo $((n + 1)) > {counter} && rmdir {tmp_path}/inside"
    started = [cli.start("run", "x", "--", "sh", "-c", job) for _ in range(12)]
    assert [process.wait() for process in started] == [0] * len(started)
    assert counter.read_text() == f"{len(started)}\n"


# ---- DistributedLock 230: a client that is gone without a word is noticed after a minute


def test_distributed_lock_230_a_frozen_client_is_noticed_after_a_ttl(server, table, hold):
    """Its connection stays open, so an advisory lock, or a row lock, would stay with it."""
    frozen = hold(server.url(table), "x", f"ttl={TTL_MS}")
    frozen.pause()
    began = time.monotonic()
    second = hold(server.url(table), "x", f"ttl={TTL_MS}")
    assert TTL_MS / 1000 / 2 < seconds(began) < TTL_MS / 1000 + SLACK
    assert second.token > frozen.token
    frozen.ask_release()
    frozen.resume()
    assert frozen.hear_released() == "HF_ELOST"
    assert [claim["token"] for claim in claims(server.session(), table, "x")] == [second.token]
    assert second.release() == "HF_OK"


# ---- ShedLock 3577, 3682: now() is frozen at the transaction's start


def test_a_lock_by_now_is_over_before_it_begins(server):
    """What others do: in a transaction that began some time ago, now() is that time."""
    setup, late, other = server.session(), server.session(), server.session()
    setup("CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamptz, locked_by text)")
    take = ("INSERT INTO shedlock VALUES ('x', now() + interval '1 s', %s) ON CONFLICT (name) DO UPDATE SET lock_until = "
            "EXCLUDED.lock_until, locked_by = EXCLUDED.locked_by WHERE shedlock.lock_until <= now()")
    late("BEGIN")
    late("SELECT 1")
    time.sleep(1.1)
    assert late(take, "pod 1") == 1
    late("COMMIT")
    assert other(take, "pod 2") == 1  # while pod 1 believes to have a second


def test_shedlock_3577_a_statement_that_was_held_up_is_not_early(server, table, hold, start_holder, cli_on):
    """The waiter's statement began before renewals that it cannot see yet: it waits for a row for longer than a TTL."""
    make_table(cli_on, server, table)
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    blocker = server.session()
    blocker("BEGIN")
    blocker(f"SELECT FROM {table} WHERE name = %s FOR UPDATE", b"x")
    waiter = start_holder(server.url(table), "x", f"ttl={TTL_MS}")
    time.sleep(2.5 * TTL_MS / 1000)
    alive = holder.left() > 0 and not holder.told_lost()
    blocker("COMMIT")
    time.sleep(TTL_MS / 2000)
    assert alive, "a row that somebody locks must not keep a holder from renewing"
    assert waiter.waits()
    assert not holder.told_lost()
    assert holder.release() == "HF_OK"
    assert waiter.token > holder.token


def test_shedlock_3682_no_decision_asks_for_the_time(server):
    """Of all that runs in the server, nothing reads a clock that a transaction stops. What reads one at all puts it into a token or into a column for
    people, or uses it to find old once-records to look at, which then are forgotten by what their hosts have seen."""
    text = guard_sql("--locks")
    code = re.sub(r"--[^\n]*", "", text)
    assert not re.findall(r"\b(now\s*\(\)|current_timestamp|transaction_timestamp|statement_timestamp|localtimestamp|current_time)\b",
                          code, re.I)
    for line in code.splitlines():
        if "clock_timestamp" in line:
            assert re.search(r"epoch|since|until|interval '1 ms'", line), line
        if re.search(r"[<>] *clock_timestamp|clock_timestamp\(\) *[<>]", line):
            assert "s.until < clock_timestamp()" in line, line


# ---- River 197: a renewal that matches anybody


def test_river_197_a_renewal_renews_its_own_hold_only(server, table, hold, start_holder):
    """The old leader wakes up, and renews; the new one dies. Whoever is next must not wait for the old one's renewals."""
    old = hold(server.url(table), "leader", f"ttl={TTL_MS}")
    old.pause()
    new = hold(server.url(table), "leader", f"ttl={TTL_MS}")
    old.resume()
    old.await_lost()
    session = server.session()
    (claim,) = claims(session, table, "leader")
    assert claim["token"] == new.token
    new.kill()
    time.sleep(0.2)
    (before,) = claims(session, table, "leader")
    began = time.monotonic()
    next_one = hold(server.url(table), "leader", f"ttl={TTL_MS}")
    assert seconds(began) < TTL_MS / 1000 + SLACK
    assert next_one.token > new.token
    assert old.release() == "HF_ELOST"
    assert before["token"] == new.token


def test_river_197_a_late_unlock_or_renewal_touches_nothing_newer(server, table, cli_on, hold):
    """By a script, which has no clock of its own: its lease is over, and somebody else is inside."""
    cli = cli_on(server.url(table))
    done = cli("lock", "--ttl", "1s", "x")
    env = dict(re.findall(r"^(HOLDFAST_\w+)='?([^';]*)", done.stdout, re.M))
    new = hold(server.url(table), "x", "ttl=30000")
    (before,) = claims(server.session(), table, "x")
    assert cli("renew", "x", env=env).status == 1
    assert cli("unlock", "x", env=env).status == 1
    (after,) = claims(server.session(), table, "x")
    assert after == before
    assert new.release() == "HF_OK"


@pytest.mark.parametrize("what", ["lease", "token"])
def test_river_197_a_release_names_lease_and_token(server, table, hold, what):
    """As a packet that comes late would: asked of the function itself, because the client knows better than to send it."""
    holder = hold(server.url(table), "x", "ttl=30000")
    session = server.session()
    lease = session.value(f"SELECT lease FROM {table}_claims WHERE token = %s", holder.token)
    ask = (f"SELECT code FROM {table}_release(a_expected => {table}_incarnation(), a_patience_ms => 1000, a_name => %s, a_lease => %s, "
           "a_token => %s, a_remember_ms => 0, a_host => 'h', a_noted => '{}', a_noted_beats => '{}', a_noted_ms => '{}')")
    wrong = (b"somebody else's", holder.token) if what == "lease" else (lease, holder.token - 1)
    assert session.value(ask, b"x", *wrong) == (0 if what == "lease" else 7), "nothing of it; such a token it never gave"
    assert len(claims(session, table, "x")) == 1
    assert session.value(ask, b"x", lease, holder.token) == 1
    assert claims(session, table, "x") == []


# ---- Oban 1488: the leader's row is gone, and it leads on


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_oban_1488_a_leader_whose_row_is_gone_leads_no_more(server, table, cli_on, how):
    cli = cli_on(server.url(table))
    script = "echo lead $HOLDFAST_TOKEN $$; exec sleep 1000"
    first = cli.start("elect", "--ttl", "2s", "--grace", "200ms", "svc", "--", "sh", "-c", script)
    _, token, pid = first.line().split()
    second = cli.start("elect", "--ttl", "2s", "--grace", "200ms", "svc", "--", "sh", "-c", script)
    session = server.session()
    await_claims(session, table, "svc", 2)
    session(f"DELETE FROM {table}_claims WHERE token = %s" if how == "deleted" else f"TRUNCATE {table}_claims",
            *([token] if how == "deleted" else []))
    await_gone(int(pid))
    # Where the waiter's row is gone, too, both ask anew.
    leader = eventually(lambda: next((one for one in (first, second) if not one.queues["out"].empty()), None), "another leader")
    assert leader is second or how == "emptied"
    _, next_token, next_pid = leader.line().split()
    assert int(next_token) > int(token)
    assert is_running(int(next_pid))
    for process in (first, second):
        process.kill(signal.SIGTERM)
        process.wait()
    assert claims(session, table, "svc") == []


# ---- Liquibase: a row without an expiry


def test_liquibase_a_killed_holder_blocks_nobody_for_ever(server, table, cli_on):
    cli = cli_on(server.url(table))
    holder = cli.hold("changelog", "--ttl", f"{TTL_MS}ms")
    holder.kill(signal.SIGKILL)
    await_gone(holder.job)
    began = time.monotonic()
    done = cli("run", "--ttl", f"{TTL_MS}ms", "changelog", "--", "true")
    assert done.status == 0
    assert seconds(began) < TTL_MS / 1000 + SLACK
    assert claims(server.session(), table, "changelog") == []


# ---- the table itself


def test_a_row_is_never_deleted_and_its_tokens_never_repeat(server, table, cli_on):
    cli = cli_on(server.url(table))
    tokens = []
    for _ in range(5):
        done = cli("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
        tokens.append(int(done.stdout))
    assert tokens == sorted(set(tokens))
    session = server.session()
    assert session.value(f"SELECT count(*) FROM {table} WHERE name = %s", b"x") == 1
    assert session.value("SELECT relpersistence FROM pg_class WHERE relname = %s", table) == "p"
    assert session.value("SELECT relpersistence FROM pg_class WHERE relname = %s", table + "_claims") == "p"


def test_a_new_table_goes_on_above_the_old_one(server, table, cli_on):
    """It begins at the clock: marks of guards stay below."""
    cli = cli_on(server.url(table))
    before = int(cli("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout)
    session = server.session()
    for (name,) in session("SELECT relname FROM pg_class WHERE relname LIKE %s AND relkind = 'r'", table + "%"):
        session(f"DROP TABLE {name} CASCADE")
    after = int(cli("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout)
    assert after > before


def test_synchronous_commit_is_on_for_ours_whatever_the_role_says(servers, table, hold, cli_on):
    """A crash right after a grant: with synchronous_commit off the last commits would be gone."""
    server = servers.postgres("-c", "synchronous_commit=off", "-c", "wal_writer_delay=10000")
    server.session()("ALTER ROLE postgres SET synchronous_commit = off")
    make_table(cli_on, server, table)
    for _ in range(3):
        holder = hold(server.url(table), "x", "ttl=20000")
        server.kill9()
        server.start()
        assert [claim["token"] for claim in claims(server.session(), table, "x")] == [holder.token]
        assert holder.release() == "HF_OK"


def test_the_servers_messages_are_not_ours(server, table, cli_on):
    """Nothing that a server tells of itself, such as that a table is there already, gets to the user."""
    for said in (f"holdfast: made the tables of a new store for locks at {server.host}: public.{table}\n", ""):
        done = cli_on(server.url(table))("run", "x", "--", "true")
        assert (done.status, done.stderr) == (0, said)


# ---- a hold that is broken before anybody listens for it


def test_a_hold_that_is_broken_at_once_hears_of_it(server, table, cli_on):
    """Its next renewal is minutes away, and nobody listens for it in its first half second."""
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table))
    holder = cli.hold("x", "--ttl", "20m", script="echo in $HOLDFAST_TOKEN $$; exec sleep 1000")
    said = cli("break", "x").stdout
    assert said.startswith("broke 1 hold of 'x'") and ", whatever the holder does (--now frees it at once)." in said, said
    assert ": broken by an operator;" in holder.line("err")
    assert holder.wait() == 76


ENDED_BY = {"break": ["break", "x"], "break --now": ["break", "--now", "x"], "floor": ["floor", "4000000000000000"]}
TOLD_AS = {"break": "broken by an operator", "break --now": "broken by an operator", "floor": "(holdfast floor)"}


@pytest.mark.parametrize("how", ["break --now", "floor"])
def test_a_young_hold_that_is_ended_at_once_hears_of_it(servers, table, cli_on, how):
    """As above. The next one is in already: of the hold nothing is left but a mark, or an incarnation that is another."""
    server = servers.postgres()
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table))
    holder = cli.hold("x", "--ttl", "20m", script="echo in $HOLDFAST_TOKEN $$; exec sleep 1000")
    assert cli(*ENDED_BY[how]).status == 0
    assert TOLD_AS[how] in holder.line("err")
    assert holder.wait() == 76


@pytest.mark.parametrize("how", ["break", "break --now", "floor"])
def test_a_hold_that_is_ended_while_nobody_listens_hears_of_it(servers, table, cli_on, how):
    """The connection that listened has ended, and cannot be made anew until all that is over."""
    server = servers.postgres()
    make_table(cli_on, server, table)
    session = server.session()
    session("CREATE ROLE holding LOGIN SUPERUSER")
    holder = cli_on(server.url(table, user="holding")).hold("x", "--ttl", "20m", script="echo in $HOLDFAST_TOKEN $$; exec sleep 1000")
    listens = "SELECT pid FROM pg_stat_activity WHERE usename = 'holding' AND query LIKE 'LISTEN%%'"
    eventually(lambda: session(listens), "it listens")
    session("ALTER ROLE holding NOLOGIN")
    session(f"SELECT pg_terminate_backend(pid) FROM ({listens}) AS l")
    eventually(lambda: not session(listens), "nobody listens")
    assert cli_on(server.url(table))(*ENDED_BY[how]).status == 0
    session("ALTER ROLE holding LOGIN")
    assert TOLD_AS[how] in holder.line("err")
    assert holder.wait() == 76


def test_a_break_is_called_one_where_nobody_listens(server, table, cli_on):
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table, listen="off"))
    holder = cli.hold("x", "--ttl", "6s", script="echo in $HOLDFAST_TOKEN $$; exec sleep 1000")
    assert cli("break", "x").stdout.startswith("broke 1 hold of 'x'")
    assert ": broken by an operator;" in holder.line("err")
    assert holder.wait() == 76
