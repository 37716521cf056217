"""Roles whose transactions are not READ COMMITTED by default: the store's statements are, and its functions refuse any other."""
import re
import threading

import psycopg2
import pytest
from conftest import STALE, claims, eventually, guard_sql, make_table

LEVELS = ["repeatable read", "serializable"]
REFUSED, CONFLICT = "HF003", "40001"


@pytest.fixture
def roles(server):
    """One for each level, named after it."""
    session = server.session()
    for level in LEVELS:
        name = level.replace(" ", "_")
        if not session("SELECT FROM pg_roles WHERE rolname = %s", name):
            session(f"CREATE ROLE {name} LOGIN SUPERUSER")
        session(f"ALTER ROLE {name} SET default_transaction_isolation = '{level}'")
    return [level.replace(" ", "_") for level in LEVELS]


def await_waiting(session, count, table=None):
    """So many statements wait for a lock; for that of a table."""
    if table:
        eventually(lambda: session.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass", table) == count, table)
    else:
        eventually(lambda: session.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == count, f"{count} wait")


@pytest.mark.parametrize("way", ["directly", "pooled"])
@pytest.mark.parametrize("first", LEVELS)
def test_whoever_waits_is_seen_by_whoever_comes(server, pooler, roles, table, cli_on, way, first):
    """The first one waits for the name's row until a release has removed the holder, and is held up before it writes. The second one comes after the
    release. By the snapshots that their statements began with, the one waits for a holder that is gone, and the other does not see it."""
    at = server if way == "directly" else pooler
    make_table(cli_on, server, table)
    assert cli_on(server.url(table))("lock", "--ttl", "1m", "x").status == 0
    session, release, pause = server.session(), server.session(), server.session()
    release("BEGIN")
    release(f"SELECT FROM {table} WHERE name = 'x' FOR UPDATE")
    release(f"DELETE FROM {table}_claims WHERE name = 'x'")
    one = cli_on(at.url(table, user=first.replace(" ", "_"))).start("run", "--wait", "20s", "x", "--", "true")
    await_waiting(session, 1)
    pause("BEGIN")
    paused = threading.Thread(target=pause, args=(f"LOCK TABLE {table}_claims IN SHARE ROW EXCLUSIVE MODE",))
    paused.start()
    await_waiting(session, 1, f"{table}_claims")
    release("COMMIT")
    paused.join()
    await_waiting(session, 1, f"{table}_claims")
    two = cli_on(at.url(table, user="repeatable_read")).start("run", "--wait", "20s", "x", "--", "true")
    await_waiting(session, 2)
    pause("COMMIT")
    assert (one.wait(), two.wait()) == (0, 0)
    assert claims(session, table, "x") == []


@pytest.mark.parametrize("level", LEVELS)
def test_all_that_there_is_works(server, roles, table, cli_on, level):
    """Names, owners and results with whatever is special in SQL go through, whichever way a statement is sent."""
    name = "it's \\x41 $1 \"$2\" ä"
    cli = cli_on(server.url(table, user=level.replace(" ", "_")))
    assert cli("run", name, "--", "true").status == 0
    done = cli("lock", "--ttl", "1m", name)
    lease = dict(re.findall(r"^(HOLDFAST_\w+)='?([^';]*)", done.stdout, re.M))
    assert name in cli("ls").stdout
    assert cli("run", "--no-wait", name, "--", "true").status == 75
    assert cli("unlock", name, env=lease).status == 0
    for _ in range(2):
        assert cli("once", name, "--", "printf", "%s", name).stdout == name
    assert cli("floor", "5").status == 0


@pytest.mark.parametrize("level", LEVELS)
def test_a_function_refuses_an_old_snapshot(server, table, cli_on, level):
    """Whoever calls it from elsewhere is told, before anything is done."""
    make_table(cli_on, server, table)
    session = server.session()
    session(f"BEGIN ISOLATION LEVEL {level}")
    with pytest.raises(psycopg2.Error) as failure:
        session(f"SELECT {table}_floor({table}_incarnation(), 1000, 5, true)")
    assert failure.value.pgcode == REFUSED
    assert "READ COMMITTED" in str(failure.value)


def test_a_release_looks_for_what_it_removes_where_it_removes_it(server, table, cli_on):
    """A row that somebody has put below the first that counts is nobody's claim: a release says so, at once."""
    make_table(cli_on, server, table)
    session = server.session()
    done = cli_on(server.url(table))("lock", "--ttl", "1m", "x")
    session(f"UPDATE {table} SET first_id = first_id + 1 WHERE name = 'x'")
    ((code,),) = session(f"SELECT code FROM {table}_release({table}_incarnation(), 1000, 'x', (SELECT lease FROM {table}_claims), 0, 0, '', '{{}}', '{{}}', '{{}}')")
    assert (done.status, code) == (0, 0)
    session(f"DELETE FROM {table} WHERE name = 'x'")  # nor is there a first, where its name's row is gone: then all of them count
    ((code,),) = session(f"SELECT code FROM {table}_release({table}_incarnation(), 1000, 'x', (SELECT lease FROM {table}_claims), 0, 0, '', '{{}}', '{{}}', '{{}}')")
    assert code == 1 and claims(session, table, "x") == []


# ---- transactions of the user's own


@pytest.fixture
def guarded(servers, cli_on):
    server = servers.postgres()
    make_table(cli_on, server, None)
    server.session()(guard_sql())
    return server


@pytest.mark.parametrize("level", LEVELS)
def test_a_holder_enters_with_any_level(guarded, cli_on, level):
    done = cli_on(guarded.url())("lock", "--ttl", "1m", "x")
    lease = dict(re.findall(r"^(HOLDFAST_\w+)='?([^';]*)", done.stdout, re.M))
    session = guarded.session()
    session(f"BEGIN ISOLATION LEVEL {level}")
    session("SELECT holdfast_enter_held('x', %s, %s)", lease["HOLDFAST_LEASE"], int(lease["HOLDFAST_TOKEN"]))
    session("COMMIT")
    assert session.value("SELECT token FROM holdfast_marks WHERE key = 'x'") == int(lease["HOLDFAST_TOKEN"])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("how", ["released", "broken", "freed", "floor", "taken over"])
def test_nobody_enters_with_what_an_old_snapshot_shows(guarded, cli_on, level, how):
    """The transaction has looked around before the hold was over."""
    cli = cli_on(guarded.url())
    done = cli("lock", "--ttl", "1s" if how == "taken over" else "1m", "x")
    lease = dict(re.findall(r"^(HOLDFAST_\w+)='?([^';]*)", done.stdout, re.M))
    session = guarded.session()
    session(f"BEGIN ISOLATION LEVEL {level}")
    assert session.value("SELECT count(*) FROM holdfast_locks_claims") == 1
    if how == "released":
        assert cli("unlock", "x", env=lease).status == 0
    elif how == "broken":
        assert cli("break", "x").status == 0
    elif how == "freed":
        assert cli("break", "x", "--now").status == 0
    elif how == "floor":
        assert cli("floor", str(int(lease["HOLDFAST_TOKEN"]) + 1000)).status == 0
    else:
        assert cli("run", "--wait", "20s", "x", "--", "true").status == 0
    with pytest.raises(psycopg2.Error) as failure:
        session("SELECT holdfast_enter_held('x', %s, %s)", lease["HOLDFAST_LEASE"], int(lease["HOLDFAST_TOKEN"]))
    assert failure.value.pgcode in (CONFLICT, STALE)


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "READ COMMITTED"])
def test_entering_keeps_nobody_from_renewing(guarded, cli_on, level):
    """Nor is anything found changed that is not: what looks for that gives its locks back."""
    cli = cli_on(guarded.url())
    done = cli("lock", "--ttl", "1m", "x")
    lease = dict(re.findall(r"^(HOLDFAST_\w+)='?([^';]*)", done.stdout, re.M))
    session = guarded.session()
    session(f"BEGIN ISOLATION LEVEL {level}")
    session("SELECT holdfast_enter_held('x', %s, %s)", lease["HOLDFAST_LEASE"], int(lease["HOLDFAST_TOKEN"]))
    assert cli("renew", "x", env=lease).status == 0
    assert cli("floor", "1000").status == 0
    session("COMMIT")
