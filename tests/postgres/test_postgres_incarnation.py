"""Another server behind the same connections, as a pooler makes it when it is pointed at a promoted standby. Here the table says that it is another
one: its id is a part of what the server says it is."""
import time

from conftest import await_claims, eventually, seconds
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
