"""Another server behind the same connections, as a pooler makes it when it is pointed at a promoted standby. Here the table says that it is another
one: its id is a part of what the server says it is."""
import time

import pytest
from conftest import await_claims, eventually, guard_sql, seconds
from holder import hold, start_holder  # noqa: F401

TTL_MS = 3000


def become_another(session, table):
    session(f"UPDATE {table}_meta SET id = reverse(id)")


def test_a_holder_is_told_with_its_next_renewal(server, table, hold):
    """What is there was perhaps never acknowledged there: nobody assumes it, though the row of the hold is there."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    session = server.session()
    become_another(session, table)
    changed = time.monotonic()
    holder.await_lost()
    assert seconds(changed) < TTL_MS / 1000  # told, not run out
    assert session.value(f"SELECT count(*) FROM {table}_claims") == 1


def test_whoever_waits_goes_on_and_counts_anew(server, table, hold, start_holder):
    """What it has seen of the one before does not count: the holder's whole TTL passes once more."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    waiter = start_holder(server.url(table), "x", f"ttl={TTL_MS}")
    session = server.session()
    await_claims(session, table, "x", 2)
    holder.pause()
    time.sleep(TTL_MS / 1000 * 2 / 3)
    become_another(session, table)
    changed = time.monotonic()
    assert waiter.token > holder.token
    assert seconds(changed) >= TTL_MS / 1000
    holder.resume()
    holder.await_lost()


def test_two_promotions_of_one_timeline_are_two(servers, table, cli_on):
    """Two standbys that are promoted from one timeline have the same number. Ids and beats that come again there are not those of before."""
    primary = servers.postgres()
    replicas = [servers.replica(primary, f"standby{number}") for number in (1, 2)]
    assert cli_on(primary.url(table))("run", "x", "--", "true").status == 0
    before = primary.session().value(f"SELECT {table}_incarnation()")
    for replica in replicas:
        eventually(lambda standby=replica: standby.session().value("SELECT to_regclass(%s) IS NOT NULL", f"{table}_meta"), "it has the tables")
    primary.kill9()
    said = []
    for replica in replicas:
        replica.promote()
        assert cli_on(replica.url(table))("run", "x", "--", "true").status == 0
        said.append(replica.session().value(f"SELECT {table}_incarnation()"))
    assert [text.rpartition(".")[2] for text in said] == ["00000002"] * 2
    assert len({before, *said}) == 3


def test_a_floor_makes_it_another(server, table, hold, cli_on):
    """Said after a copy was brought back: whoever held by what was before is told. The command says so first."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    done = cli_on(server.url(table))("floor", str(holder.token + 1000))
    assert done.status == 0 and "ends all holds of this store" in done.stderr, done
    said = time.monotonic()
    holder.await_lost()
    assert seconds(said) < TTL_MS / 1000  # told, not run out


def test_the_loss_by_a_floor_says_so(server, table, cli_on):
    on_it = cli_on(server.url(table))
    runner = on_it.start("run", "--ttl", "3s", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exec sleep 600")
    assert on_it("floor", str(int(runner.line()) + 1000)).status == 0
    assert runner.wait() == 76
    assert any("(holdfast floor)" in line for line in runner.rest("err"))


def test_what_a_copy_says_of_a_beat_counts_no_more_after_a_floor(server, table, hold, cli_on):
    """Why a floor makes it another one. The copy has the holder's claim with a beat of long ago, and the note of when it was seen: by these the holder is
    dead, though it has renewed since, and holds for most of a TTL. Nobody may follow it before that is over."""
    ttl_ms = 2 * TTL_MS
    holder = hold(server.url(table), "x", f"ttl={ttl_ms}")
    session = server.session()
    session(f"CREATE TABLE {table}_copy AS SELECT * FROM {table}_claims")
    copied = time.monotonic()
    eventually(lambda: seconds(copied) > 1.1 * ttl_ms / 1000 and session.value(f"SELECT beat FROM {table}_claims") > session.value(f"SELECT beat FROM {table}_copy"),
               "the beat of the copy is older than a TTL")
    holder.pause()
    renewed = time.monotonic()
    session(f"UPDATE {table}_claims AS k SET beat = c.beat, seen_beat = c.seen_beat, seen = c.seen FROM {table}_copy AS c WHERE c.id = k.id")
    on_it = cli_on(server.url(table))
    assert on_it("floor", str(holder.token + 1000)).status == 0
    assert on_it("run", "--no-wait", "x", "--", "true").status == 75
    assert seconds(renewed) < ttl_ms / 3, "this machine is too slow to tell"
    holder.resume()
    holder.await_lost()


# ---- ids that begin again


def begin_again(session, table, how):
    """As by hand; as what the command prints mends it; as tables that came by logical replication, which leaves sequences behind."""
    if how == "truncated":
        session(f"TRUNCATE {table}_claims RESTART IDENTITY")
    elif how == "made anew":
        session(f"DROP TABLE {table}_claims CASCADE")
        session(guard_sql("--locks", "--table", table))
    else:
        session(f"SELECT setval(pg_get_serial_sequence('{table}_claims', 'id'), 1)")


@pytest.mark.parametrize("how", ["truncated", "made anew", "replicated"])
@pytest.mark.parametrize("kind", ["once", "by rows"])
def test_a_claim_whose_id_is_below_the_first_counts(server, table, cli_on, kind, how):
    """Where a name was granted to one who waited, whoever looks begins at the id of that one."""
    cli = cli_on(server.url(table))
    session = server.session()
    words = ["once", "--keep", "1ms", "--only-success"] if kind == "once" else ["run"]
    name = "\0x" if kind == "once" else "x"
    if kind == "by rows":
        assert cli_on(server.url(table, mode="row"))("run", "x", "--", "true").status == 0
    for number in range(10):
        assert cli("run", f"other-{number}", "--", "true").status == 0
    first = cli.start(*words, "x", "--", "sh", "-c", "echo in; read line; false")
    first.line()
    second = cli.start(*words, "x", "--", "true")
    await_claims(session, table, name, 2)
    first.say("go")
    assert first.wait() == 1 and second.wait() == 0
    begin_again(session, table, how)
    assert session.value(f"SELECT first_id FROM {table} WHERE name = %s", name.encode()) > 10
    time.sleep(0.1)  # what was kept for a millisecond is over
    inside = cli.start(*words, "x", "--", "sh", "-c", "echo in; read line")
    assert inside.line() == "in"
    assert cli(*words, "--no-wait", "x", "--", "echo", "in").status == 75
    waiter = cli.start(*words, "x", "--", "echo", "in")
    await_claims(session, table, name, 2)
    inside.say("go")
    assert inside.wait() == 0, inside.rest("err")
    assert waiter.wait() == 0 and waiter.rest("err") == []
