"""?mode=row: a lock that is an open transaction, and ends with its connection."""
import contextlib
import signal
import threading
import time

import pytest
from conftest import await_claims, await_gone, claims, eventually, make_table, psycopg2, seconds
from holder import hold, start_holder  # noqa: F401

SLACK = 8  # seconds, on a busy machine

OPEN = "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()"


@pytest.fixture
def url(server, table):
    return server.url(table, mode="row")


def test_one_holds_and_the_next_has_it_after_it(url, hold, start_holder, cli_on):
    first = hold(url, "x")
    assert cli_on(url)("run", "-n", "x", "--", "true").status == 75
    second = start_holder(url, "x")
    time.sleep(1)
    assert second.waits()
    assert first.release() == "HF_OK"
    assert second.token > first.token
    assert second.release() == "HF_OK"


@pytest.mark.parametrize("command, status", [
    (("run", "--ttl", "5s", "x", "--", "true"), 64),
    (("run", "--shared", "x", "--", "true"), 64),
    (("run", "--permits", "2", "x", "--", "true"), 64),
    (("run", "--need", "strict", "x", "--", "true"), 78),
    (("break", "x"), 64),
    (("once", "x", "--", "true"), 64),
    (("lock", "x"), 64),
], ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "")
def test_what_it_cannot_do_is_said_of_this_mode_alone(url, cli_on, command, status):
    """PostgreSQL without it can do all of that."""
    done = cli_on(url)(*command)
    assert done.status == status and "a postgres store with mode=row " in done.stderr, done


def test_somebody_who_awaits_the_table_of_rows_holds_nobody_up(server, table, url, hold, start_holder):
    """VACUUM FULL, or an ALTER TABLE: it waits for whoever has a row locked, and all who would read the table wait behind it."""
    first = hold(url, "x")
    second = start_holder(url, "x")
    locker, session = server.connect(), server.session()
    eventually(lambda: session.value("SELECT count(*) FROM pg_locks WHERE NOT granted"), "a waiter")

    def lock():
        with contextlib.suppress(psycopg2.Error):
            locker.cursor().execute(f"LOCK TABLE {table}_rows IN ACCESS EXCLUSIVE MODE")

    thread = threading.Thread(target=lock)
    thread.start()
    eventually(lambda: session.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"), "it waits")
    assert first.release() == "HF_OK"
    assert second.token > first.token
    assert session.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'") == 1, "as long as that waited"
    locker.cancel()
    thread.join()
    locker.close()
    assert second.release() == "HF_OK"


def test_a_dead_holder_is_gone_at_once(url, hold, start_holder):
    """The server sees the end of its connection: there is no TTL to wait for."""
    first = hold(url, "x")
    second = start_holder(url, "x")
    time.sleep(0.5)
    first.kill()
    killed = time.monotonic()
    assert second.token > first.token
    assert seconds(killed) < SLACK


def test_a_dead_holder_is_none_while_the_next_one_is_stopped(server, url, hold, start_holder, cli_on):
    """The server gives the next one the row, and his client does not come for his token: the name is not free, and not the dead one's."""
    first = hold(url, "x")
    session = server.session()
    gone = session.value(OPEN)
    second = start_holder(url, "x")
    eventually(lambda: session("SELECT pid FROM pg_locks WHERE NOT granted"), "the next one waits")
    assert cli_on(url)("check", "x", str(first.token)).status == 0
    second.pause()
    first.kill()
    eventually(lambda: session(OPEN) and not session("SELECT pid FROM pg_stat_activity WHERE pid = %s", gone), "the server has given it the row")
    assert cli_on(url)("check", "x", str(first.token)).status == 1
    assert str(first.token) not in cli_on(url)("show", "x").stdout
    second.resume()
    assert second.token > first.token
    assert cli_on(url)("check", "x", str(second.token)).status == 0
    assert second.release() == "HF_OK"


def test_a_holder_that_is_stopped_keeps_it(url, hold, cli_on):
    first = hold(url, "x")
    first.pause()
    time.sleep(4)
    assert cli_on(url)("run", "-n", "x", "--", "true").status == 75
    first.resume()
    assert first.release() == "HF_OK"


def test_a_holder_whose_connection_is_ended_is_told(server, url, hold, cli_on):
    first = hold(url, "x")
    session = server.session()
    (pid,) = eventually(lambda: session(OPEN), "its transaction")[0]
    session("SELECT pg_terminate_backend(%s)", pid)
    ended = time.monotonic()
    first.await_lost()
    assert seconds(ended) < SLACK
    assert first.left() == 0
    done = cli_on(url)("run", "-n", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
    assert done.status == 0 and int(done.stdout) > first.token, done
    assert first.release() == "HF_ELOST"


@pytest.mark.parametrize("how", ["restart", "kill9"])
def test_a_restart_of_the_server_ends_it(servers, table, hold, how):
    server = servers.postgres()
    first = hold(server.url(table, mode="row"), "x")
    getattr(server, how)()
    first.await_lost()
    if how == "kill9":
        server.start()
    second = hold(server.url(table, mode="row"), "x")
    assert second.token > first.token


def test_tokens_grow_also_when_a_transaction_is_aborted(server, url, hold):
    tokens = []
    session = server.session()
    for _ in range(4):
        holder = hold(url, "x")
        tokens.append(holder.token)
        session("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()")
        holder.await_lost()
    assert tokens == sorted(set(tokens))


def test_a_job_is_ended_when_its_connection_is(server, url, cli_on):
    process = cli_on(url).hold("x", "--grace", "100ms")
    session = server.session()
    session("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()")
    await_gone(process.job)
    assert process.wait() == 76


def test_a_pooler_is_refused(pooler, table, cli_on):
    done = cli_on(pooler.url(table, mode="row"))("run", "-n", "x", "--", "echo", "inside")
    assert done.status in (64, 77, 78) and "pooler" in done.stderr, done
    assert "inside" not in done.stdout


def test_both_modes_do_not_hold_a_name_together(server, table, hold, cli_on):
    """Whichever way it is kept: refused, or busy."""
    hold(server.url(table), "x", "ttl=30000")
    assert cli_on(server.url(table, mode="row"))("run", "-n", "x", "--", "true").status != 0
    hold(server.url(table, mode="row"), "y")
    assert cli_on(server.url(table))("run", "-n", "y", "--", "true").status != 0


def test_an_open_transaction_throws_nobody_out_of_the_queue(server, table, hold, cli_on):
    """It may have the row of the name only for as long as it takes to see that somebody holds the name otherwise. Here that takes until the waiter has looked."""
    make_table(cli_on, server, table)
    holder = hold(server.url(table), "x", "ttl=60000")
    waiter = cli_on(server.url(table)).start("run", "--ttl", "60s", "x", "--", "echo", "inside")
    session, other = server.session(), server.session()
    await_claims(session, table, "x", 2)
    other("BEGIN")
    other(f"INSERT INTO {table}_rows VALUES ('x')")
    other("COMMIT")
    other("BEGIN")
    other(f"SELECT FROM {table}_rows WHERE name = 'x' FOR UPDATE")
    assert holder.release() == "HF_OK"
    (claim,) = await_claims(session, table, "x", 1)
    eventually(lambda: (now := claims(session, table, "x")) == [] or now[0]["beat"] != claim["beat"], "the waiter has looked")
    assert len(claims(session, table, "x")) == 1
    other("COMMIT")
    assert waiter.wait() == 0, waiter.rest("err")
    assert waiter.line() == "inside"


def test_a_dead_hold_with_a_ttl_blocks_nobody(server, table, hold, cli_on):
    """Also one that waited: both are over when their TTL is."""
    hold(server.url(table), "x", "ttl=1000").kill()
    waiter = cli_on(server.url(table)).start("run", "--ttl", "1s", "x", "--", "true")
    await_claims(server.session(), table, "x", 2)
    waiter.kill(signal.SIGKILL)
    row = cli_on(server.url(table, mode="row"))
    assert row("run", "-n", "x", "--", "true").status != 0
    time.sleep(1.5)
    assert row("run", "-n", "x", "--", "true").status == 0


def test_a_grant_that_was_held_up_displaces_nobody(server, table, hold, cli_on):
    """Whoever asked for it has died, and another one has the row by now."""
    holder = hold(server.url(table, mode="row"), "x")
    session = server.session()
    ((code, token),) = session(f"SELECT code, token FROM {table}_row_grant({table}_incarnation(), 1000, 'x', 'lease', 'dead', 999999999)")
    assert (code, token) == (-1, None)
    assert cli_on(server.url(table, mode="row"))("check", "x", str(holder.token)).status == 0
    assert holder.release() == "HF_OK"


def test_what_a_dead_one_left_goes_with_the_next_hold(server, table, hold):
    """Else each release after it would take it for a holder, and wake nobody."""
    hold(server.url(table, mode="row"), "x").kill()
    session = server.session()
    eventually(lambda: session(OPEN) == [], "no transaction is open")
    assert session.value(f"SELECT count(*) FROM {table}_claims WHERE mode = 'r'") == 1
    holder = hold(server.url(table), "x", "ttl=30000")
    assert session.value(f"SELECT count(*) FROM {table}_claims WHERE mode = 'r'") == 0
    assert holder.release() == "HF_OK"


def test_a_ttl_is_refused(url, cli_on):
    done = cli_on(url)("run", "--ttl", "5s", "x", "--", "true")
    assert done.status == 64 and "TTL" in done.stderr.upper(), done


def test_it_says_what_it_costs(url, cli_on):
    done = cli_on(url)("stores")
    assert done.status == 0, done


def test_a_role_whose_idle_transactions_are_ended(server, table, hold):
    """The session says otherwise for itself."""
    session = server.session()
    session("DROP ROLE IF EXISTS tidy")
    session("CREATE ROLE tidy LOGIN SUPERUSER")
    session("ALTER ROLE tidy SET idle_in_transaction_session_timeout = '1s'")
    session("ALTER ROLE tidy SET statement_timeout = '1s'")
    holder = hold(server.url(table, mode="row", user="tidy"), "x")
    time.sleep(2.5)
    assert not holder.told_lost()
    assert session(OPEN)
    assert holder.release() == "HF_OK"


def test_nothing_stays_open_after_it(server, url, cli_on):
    session = server.session()
    assert cli_on(url)("run", "x", "--", "true").status == 0
    process = cli_on(url).hold("x")
    process.kill(signal.SIGKILL)
    eventually(lambda: session(OPEN) == [], "no transaction is open")


def test_a_break_says_that_it_ends_no_transaction(server, table, hold, cli_on):
    """Through the table's own URL, as an operator may come."""
    holder = hold(server.url(table, mode="row"), "x")
    cli = cli_on(server.url(table))
    for words in (["break", "x"], ["break", "--now", "x"]):
        done = cli(*words)
        assert done.status == 77 and "pg_terminate_backend" in done.stderr, done
    assert holder.release() == "HF_OK"


def test_a_role_that_reads_strings_in_another_way(server, table, hold, start_holder):
    """standard_conforming_strings = off: a backslash in a literal means something else."""
    user = f"odd_{table}"
    session = server.session()
    session(f"CREATE ROLE {user} LOGIN SUPERUSER")
    session(f"ALTER ROLE {user} SET standard_conforming_strings = off")
    first = hold(server.url(table, mode="row"), "abc")
    second = start_holder(server.url(table, user=user, mode="row"), "abc")
    time.sleep(1)
    assert second.waits()
    assert first.release() == "HF_OK"
    assert second.token > first.token
    assert second.release() == "HF_OK"
