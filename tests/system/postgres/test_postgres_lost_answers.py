"""The server did what it was asked, and its answer was lost. What comes of a later try must not be told as what came of the first."""
import pytest
from conftest import await_claims, claims, eventually, make_table
from relay import Relay

UNREACHED, LOST = 69, 76
IN_DOUBT = "the floor may or may not have been raised"


@pytest.fixture
def relay(server, servers):
    relay = Relay(server.port)
    servers.stack.callback(relay.stop)
    return relay


@pytest.fixture
def through(server, table, cli_on, relay):
    """The command on a store whose answers pass the relay. The tables are there, and only its own connections are at the server."""
    make_table(cli_on, server, table)

    def make(**options):
        return cli_on(server.url(table, hosts=relay.address, **options))

    return make


def blocked(session):
    """The process that waits for somebody else's lock."""
    found = eventually(lambda: session("SELECT DISTINCT pid FROM pg_locks WHERE NOT granted"), "it waits for a lock")
    assert len(found) == 1
    return found[0][0]


def lose_answers(relay):
    """What was held back since `cut` is lost, with its connections; new ones are served."""
    relay.reset()
    relay.heal()


def test_a_release_that_was_done_is_not_told_as_lost(server, table, through, relay):
    """The second try is refused in passing (57014), and the third finds nothing."""
    runner = through(listen="off").start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    session, other = server.session(), server.session()
    await_claims(session, table, "x", 1)
    relay.cut("down")
    runner.say("go")
    eventually(lambda: not claims(session, table, "x"), "it is released")
    other("BEGIN")
    other(f"SELECT FROM {table} WHERE name = 'x' FOR UPDATE")
    lose_answers(relay)
    second = blocked(session)
    assert session.value("SELECT pg_cancel_backend(%s)", second)
    eventually(lambda: session.value("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s", second) == 0, "it is cancelled")
    other("COMMIT")
    assert runner.wait() == 0, runner.rest("err")


def test_a_hold_that_was_broken_is_not_told_as_released(server, table, cli_on):
    """Its connection was ended by the server while it was idle: that is no answer that was lost."""
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table, listen="off"))
    runner = cli.start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    session = server.session()
    session("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
    assert cli("break", "--now", "x").status == 0
    assert cli("run", "-n", "x", "--", "true").status == 0
    assert runner.end() == 76, runner.rest("err")


ENDS = {"break": ("break", "x"), "break-now": ("break", "--now", "x"), "floor": ("floor", "4000000000000000")}


def holding(through):
    """One that hears of nothing by itself."""
    runner = through(listen="off").start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    return runner


@pytest.mark.parametrize("ended", ENDS)
def test_a_hold_that_was_ended_is_not_told_as_released_where_the_release_was_lost(server, table, cli_on, through, relay, ended):
    """The first one never arrives, and the second one finds what somebody else did before."""
    cli = cli_on(server.url(table))
    runner = holding(through)
    assert cli(*ENDS[ended]).status == 0
    before = relay.count().up_chunks
    relay.cut("up")
    runner.say("go")
    eventually(lambda: relay.count().up_chunks > before, "it is asked for")
    lose_answers(relay)
    assert runner.wait() == LOST, runner.rest("err")


@pytest.mark.parametrize("ended", ["break", "break-now"])
def test_a_hold_that_was_ended_is_not_told_as_released_where_the_answer_was_lost(server, table, cli_on, through, relay, ended):
    """The first one found that, and cleared it away; the second one finds nothing, but that."""
    cli = cli_on(server.url(table))
    runner = holding(through)
    session = server.session()
    assert cli(*ENDS[ended]).status == 0
    relay.cut("down")
    before = relay.count().up_chunks
    runner.say("go")
    eventually(lambda: relay.count().up_chunks > before and not claims(session, table, "x"), "it is cleared away")
    done = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s AND state = 'active' AND pid <> pg_backend_pid()"
    eventually(lambda: session.value(done, f"%{table}_release%") == 0, "the server is done with it")
    lose_answers(relay)
    assert runner.wait() == LOST, runner.rest("err")


def test_a_broken_hold_that_somebody_has_cleared_away_is_not_told_as_released(server, table, cli_on, through, relay):
    """Its time was over before the release came through, and the next one has the lock."""
    cli = cli_on(server.url(table))
    runner = through(listen="off").start("run", "--ttl", "1s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    relay.cut("up")
    before = relay.count().up_chunks
    assert cli("break", "x").status == 0
    next_one = cli.start("run", "x", "--", "sh", "-c", "echo inside; read line")
    runner.say("go")
    eventually(lambda: relay.count().up_chunks > before, "it is asked for")
    assert next_one.line() == "inside"
    lose_answers(relay)
    assert runner.wait() == LOST, runner.rest("err")
    next_one.say("go")
    assert next_one.wait() == 0


def test_each_of_many_who_shared_a_lock_that_was_broken_hears_of_it(server, table, cli_on, through, relay):
    """The first of them, too, though all of them were cleared away at once."""
    cli = cli_on(server.url(table))
    runner = through(listen="off").start("run", "--shared", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    session = server.session()
    columns = "owner, mode, permits, token, ttl_ms, delay_ms, death_ms, beat, incarnation"
    session(f"INSERT INTO {table}_claims (name, lease, {columns}) SELECT name, sha256(n::text::bytea), {columns} "
            f"FROM {table}_claims, generate_series(1, 200) AS n WHERE name = 'x'")
    assert cli("break", "--now", "x").status == 0
    before = relay.count().up_chunks
    relay.cut("up")
    runner.say("go")
    eventually(lambda: relay.count().up_chunks > before, "it is asked for")
    lose_answers(relay)
    assert runner.wait() == LOST, runner.rest("err")


def test_what_is_left_of_a_hold_that_was_ended_keeps_nobody_out(server, table, cli_on):
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table))
    runner = cli.start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    for _ in range(2):
        assert cli("break", "--now", "x").status == 0
    assert cli("show", "x").stdout == cli("show", "never").stdout.replace("never", "x")
    assert cli("run", "-n", "x", "--", "true").status == 0
    assert cli("run", "-n", "--shared", "x", "--", "true").status == 0
    assert runner.end() == LOST


def test_an_open_transaction_whose_end_was_not_heard_is_not_told_as_lost(server, table, through, relay):
    """It was asked a moment before, and was open."""
    runner = through(mode="row").start("run", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    session, other = server.session(), server.session()
    there = f"SELECT count(*) FROM {table}_claims WHERE name = 'x'"
    other("BEGIN")
    other(f"SELECT FROM {table}_claims WHERE name = 'x' FOR UPDATE")
    runner.say("go")
    blocked(session)
    relay.cut("down")
    other("COMMIT")
    eventually(lambda: session.value(there) == 0, "it has ended")
    lose_answers(relay)
    assert runner.wait() == 0, runner.rest("err")


def test_an_open_transaction_that_had_ended_before_is_lost(server, table, through):
    """Nobody asked it in time."""
    runner = through(mode="row").start("run", "x", "--", "sh", "-c", "echo inside; read line")
    assert runner.line() == "inside"
    server.session()("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
    assert runner.end() == 76


def test_a_floor_that_was_raised_is_not_called_not_done(server, table, through, relay):
    """The server stays away until the command gives up."""
    session, other = server.session(), server.session()
    floor = 3000000000000000
    other("BEGIN")
    other(f"SELECT FROM {table}_meta FOR UPDATE")
    asking = through(listen="off").start("floor", str(floor))
    blocked(session)
    relay.cut("down")
    other("COMMIT")
    eventually(lambda: session.value(f"SELECT floor FROM {table}_meta") == floor, "it is raised")
    relay.stop()
    assert asking.wait() == UNREACHED
    assert any(IN_DOUBT in line for line in asking.rest("err"))


def test_a_break_that_was_done_is_not_called_not_done(server, table, cli_on, through, relay):
    holder = cli_on(server.url(table)).start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert holder.line() == "inside"
    session, other = server.session(), server.session()
    other("BEGIN")
    other(f"SELECT FROM {table} WHERE name = 'x' FOR UPDATE")
    asking = through(listen="off").start("break", "x")
    blocked(session)
    relay.cut("down")
    other("COMMIT")
    eventually(lambda: session.value(f"SELECT count(*) FROM {table}_claims WHERE broken"), "it is broken")
    relay.stop()
    assert asking.wait() == UNREACHED
    assert any("the holders may or may not have been told" in line for line in asking.rest("err"))
    assert holder.end() == LOST


def test_a_floor_that_was_only_looked_at_is_not_raised(server, table, through, relay):
    """Before it raises anything it asks where tokens are. Whoever has no answer to that knows that nothing was done."""
    session, other = server.session(), server.session()
    other("BEGIN")
    other(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    asking = through(listen="off").start("floor", "1000")
    blocked(session)
    relay.cut()
    assert asking.wait() == UNREACHED
    assert not any(IN_DOUBT in line for line in asking.rest("err"))
    other("COMMIT")
    assert session.value(f"SELECT floor FROM {table}_meta") == 0
