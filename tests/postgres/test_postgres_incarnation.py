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
    """Said after a copy was brought back: whoever held by what was before is told."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    assert cli_on(server.url(table))("floor", str(holder.token + 1000)).status == 0
    said = time.monotonic()
    holder.await_lost()
    assert seconds(said) < TTL_MS / 1000  # told, not run out
