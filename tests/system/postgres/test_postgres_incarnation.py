"""Another server behind the same connections, as a pooler makes it when it is pointed at a promoted standby. Here the table says that it is another
one: its id is a part of what the server says it is."""
import json
import time

import pytest
from conftest import await_claims, eventually, guard_sql, seconds
from holder import hold, start_holder  # noqa: F401

TTL_MS = 3000


def become_another(session, table):
    session(f"UPDATE {table}_meta SET id = reverse(id)")


def listeners(session, table):
    """Connections that listen on the channel of the tables as they are now."""
    channel = "holdfast_" + session.value(f"SELECT id FROM {table}_meta")
    return session.value("SELECT count(*) FROM pg_stat_activity WHERE query = %s", f'LISTEN "{channel}"')


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


@pytest.mark.parametrize("ahead", [0, 2 * 3600 * 1000000], ids=["clock", "floor"])
def test_tokens_grow_over_promotions_of_whichever_copy(servers, table, cli_on, ahead):
    """Three in a row: of a copy, of a copy of that, and of one that has heard of neither. Also where an operator has put tokens above the clock."""

    def tokens(server):
        said = [cli_on(server.url(table))("run", name, "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout for name in ("known", "known", "new")]
        return [int(token) for token in said]

    def copy(server, name):
        replica = servers.replica(server, name)
        asked = f"SELECT (SELECT token FROM {table} WHERE name = 'known'), (SELECT floor FROM {table}_meta)"
        eventually(lambda: replica.session()(asked) == server.session()(asked), "it has them")
        return replica

    first = servers.postgres()
    on_it = cli_on(first.url(table))
    known = int(on_it("run", "known", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout)
    if ahead:
        assert on_it("floor", str(known + ahead)).status == 0
    second, late = copy(first, "second"), copy(first, "late")
    given = [[known]]
    first.kill9()
    second.promote()
    given.append(tokens(second))
    third = copy(second, "third")
    for before, after in ((second, third), (third, late)):
        before.kill9()
        after.promote()
        given.append(tokens(after))
    for before, after in zip(given, given[1:]):
        assert max(before) < min(after), given
    assert min(given[1]) > known + ahead


def test_a_floor_makes_it_another(server, table, hold, cli_on):
    """Said after a copy was brought back: whoever held by what was before is told. The command says so first."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    done = cli_on(server.url(table))("floor", str(holder.token + 1000))
    assert done.status == 0 and "ends all holds of this store" in done.stderr and "all holds of before have ended" in done.stdout, done
    said = time.monotonic()
    holder.await_lost()
    assert seconds(said) < TTL_MS / 1000  # told, not run out


def test_a_floor_below_all_tokens_ends_nothing(server, table, hold, cli_on):
    """Each name has tokens of its own: one whose last is not above it is what a floor is for, and a copy that was brought back shows itself so."""
    on_it = cli_on(server.url(table))
    one, other = hold(server.url(table), "x", f"ttl={TTL_MS}"), hold(server.url(table), "y", f"ttl={TTL_MS}")
    session = server.session()
    before = session.value(f"SELECT {table}_incarnation()")
    for floor in (20, 21, one.token - 1, 5):
        done = on_it("floor", str(floor))
        assert done.status == 0 and done.stderr == "" and f" are at {one.token} already" in done.stdout, done
    assert session.value(f"SELECT {table}_incarnation()") == before
    for holder, name in ((one, "x"), (other, "y")):
        assert on_it("check", name, str(holder.token)).status == 0
    done = on_it("floor", str(one.token))
    assert "have ended" in done.stdout, done
    for holder in (one, other):
        holder.await_lost()
    done = on_it("floor", str(one.token))
    assert done.status == 0 and done.stderr == "" and "ended" not in done.stdout, done


def test_a_floor_below_the_clock_is_kept_in_an_empty_store(server, table, cli_on):
    """The first name would begin at the clock, above it; but the clock may be set back until then."""
    on_it = cli_on(server.url(table))
    assert on_it("ls").status == 0  # makes the tables, and says so
    done = on_it("floor", "1700000000000000")
    assert done.status == 0 and done.stderr == "" and done.stdout.startswith("nothing changed"), done
    assert server.session().value(f"SELECT floor FROM {table}_meta") == 1700000000000000


def test_the_loss_by_a_floor_says_so(server, table, cli_on):
    on_it = cli_on(server.url(table))
    runner = on_it.start("run", "--ttl", "3s", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exec sleep 600")
    assert on_it("floor", str(int(runner.line()) + 1000)).status == 0
    assert runner.wait() == 76
    assert any("(holdfast floor)" in line for line in runner.rest("err"))


@pytest.mark.parametrize("options, ttl", [({"listen": "off"}, ["--ttl", "60s"]), ({"mode": "row"}, [])], ids=["table", "row"])
def test_a_job_that_ends_after_a_floor_has_not_held(server, table, cli_on, options, ttl):
    """Before it could be told. Here nobody is told, and no renewal is due."""
    on_it = cli_on(server.url(table, **options))
    runner = on_it.start("run", *ttl, "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; read line")
    assert on_it("floor", str(int(runner.line()) + 1000)).status == 0
    runner.say("go\n")
    assert runner.wait() == 76


def test_whoever_listens_hears_of_a_floor(server, table, cli_on):
    """With a TTL of an hour the next renewal is far."""
    on_it = cli_on(server.url(table))
    runner = on_it.start("run", "--ttl", "1h", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exec sleep 600")
    token = int(runner.line())
    session = server.session()
    channel = "holdfast_" + session.value(f"SELECT id FROM {table}_meta")
    eventually(lambda: session.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND query LIKE %s", f"%{channel}%"), "it listens")
    assert on_it("floor", str(token + 1000)).status == 0
    assert runner.wait() == 76


def test_tables_that_were_made_anew_have_another_channel(server, table, start_holder, cli_on):
    """A handle that listens goes on to that. With a TTL of an hour the next renewal, which would tell it, is far."""
    dead = start_holder(server.url(table), "x", f"ttl={TTL_MS}")
    assert dead.token
    waiter = start_holder(server.url(table), "x", "ttl=3600000")
    session = server.session()
    await_claims(session, table, "x", 2)
    dead.kill()
    eventually(lambda: listeners(session, table) == 1, "the waiter listens")
    become_another(session, table)
    assert waiter.token > dead.token
    eventually(lambda: listeners(session, table) == 1, "it listens to the other one")
    assert cli_on(server.url(table))("break", "x", "--now").status == 0
    waiter.await_lost()


@pytest.mark.parametrize("how", ["DELETE FROM", "TRUNCATE"])
def test_a_hold_whose_names_row_is_gone_is_one(server, table, hold, start_holder, cli_on, how):
    """Its last token is gone with that row, and nothing else."""
    on_it = cli_on(server.url(table))
    holder = hold(server.url(table), "x", "ttl=60000")
    waiter = start_holder(server.url(table), "x", "ttl=60000")
    session = server.session()
    await_claims(session, table, "x", 2)
    waiting = session.value(f"SELECT id FROM {table}_claims WHERE token IS NULL")
    eventually(lambda: listeners(session, table) == 2, "both listen")
    session(f"{how} {table}")
    assert on_it("check", "x", str(holder.token)).status == 0
    assert "held (exclusive)" in on_it("show", "x").stdout
    assert on_it("run", "--no-wait", "x", "--", "true").status == 75
    session(f'LISTEN "holdfast_{session.value(f"SELECT id FROM {table}_meta")}"')
    done = on_it("break", "x", "--now")
    assert done.status == 0 and "nobody held" not in done.stdout, done
    session("SELECT 1")
    assert f"w{waiting}" in [notify.payload for notify in session.connection.notifies]
    holder.await_lost()
    assert waiter.token > holder.token


def test_a_floor_ends_what_an_open_transaction_holds(server, table, cli_on):
    """Its connection is asked every three seconds."""
    on_it = cli_on(server.url(table, mode="row"))
    runner = on_it.start("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; exec sleep 600")
    token = int(runner.line())
    assert on_it("floor", str(token + 1000)).status == 0
    assert on_it("check", "x", str(token)).status == 1
    assert "held (exclusive)" not in on_it("show", "x").stdout
    assert runner.wait() == 76
    assert any("(holdfast floor)" in line for line in runner.rest("err"))
    done = on_it("run", "--no-wait", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
    assert done.status == 0 and int(done.stdout) > token + 1000, done


def test_what_was_held_before_a_floor_is_not_said_to_be_held(server, table, hold, start_holder, cli_on):
    """Its holder has lost it, and may not know: the name is withheld for its TTL. Whoever waits counts from the floor on."""
    on_it = cli_on(server.url(table))
    holder = hold(server.url(table), "x", "ttl=6000")
    waiter = start_holder(server.url(table), "x", "ttl=6000")
    session = server.session()
    await_claims(session, table, "x", 2)
    waiting = session.value(f"SELECT id FROM {table}_claims WHERE token IS NULL")
    assert waiter.waits()
    session(f'LISTEN "holdfast_{session.value(f"SELECT id FROM {table}_meta")}"')
    assert on_it("floor", str(holder.token + 1000)).status == 0
    said = time.monotonic()
    session("SELECT 1")
    assert f"w{waiting}" in [notify.payload for notify in session.connection.notifies]
    withheld = "withheld for the TTL of a hold from before a floor or a promotion"
    assert f"x: nobody holds it: {withheld}\n" in on_it("show", "x").stdout
    assert "exclusive" not in on_it("ls").stdout
    assert on_it("check", "x", str(holder.token)).status != 0
    done = on_it("run", "--no-wait", "x", "--", "true")
    assert done.status == 75 and withheld in done.stderr, done
    holder.await_lost()
    assert waiter.token > holder.token + 1000
    assert 6 * 0.9 < seconds(said) < 6 * 1.01 + 2
    assert "held (exclusive)" in on_it("show", "x").stdout


@pytest.mark.parametrize("options", [(), ("--now",)])
def test_what_a_floor_has_ended_is_not_broken_once_more(server, table, hold, cli_on, options):
    on_it = cli_on(server.url(table))
    holder = hold(server.url(table), "x", "ttl=60000")
    assert on_it("floor", str(holder.token + 1000)).status == 0
    done = on_it("break", "x", *options)
    assert done.status == 0 and done.stdout.startswith("nobody held 'x'"), done
    assert on_it("run", "-n", "x", "--", "true").status == (0 if options else 75)


def test_what_was_run_before_a_floor_is_said_to_be_withheld(server, table, cli_on):
    """Its runner has lost it; whoever asks for the key afterwards has to wait for its TTL, and is told why."""
    on_it = cli_on(server.url(table))
    runner = on_it.start("once", "k", "--", "sh", "-c", "read line")
    eventually(lambda: '"running"' in on_it("once", "k", "--show", "--json").stdout, "it runs")
    token = json.loads(on_it("once", "k", "--show", "--json").stdout)["token"]
    assert on_it("floor", str(token + 1000)).status == 0
    assert runner.end() == 76
    assert any("(holdfast floor)" in line for line in runner.rest("err"))
    withheld = "withheld for the TTL of a run from before a floor or a promotion"
    assert on_it("once", "k", "--show").stdout == f"k: {withheld}\n"
    shown = json.loads(on_it("once", "k", "--show", "--json").stdout)
    assert (shown["state"], shown["withheld"]) == ("nothing", True)
    done = on_it("once", "k", "--no-wait", "--", "true")
    assert done.status == 75 and f"'k' is not finished: {withheld}\n" in done.stderr, done
    done = on_it("once", "k", "--wait", "3s", "--", "true")
    assert done.status == 75 and "waiting for 'k' in " in done.stderr and f": {withheld}\n" in done.stderr, done
    assert "withheld" not in on_it("once", "other", "--show").stdout


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


def draw_again(session, table, number):
    """The next id is this one."""
    session(f"SELECT setval(pg_get_serial_sequence('{table}_claims', 'id'), %s, false)", number)


def test_a_hold_whose_id_is_below_that_of_a_watcher_counts(server, table, cli_on):
    """Whoever is granted a lock beside a watcher takes the watcher's id for the first: its own may be lower."""
    cli, session = cli_on(server.url(table)), server.session()
    assert cli("run", "x", "--", "true").status == 0
    draw_again(session, table, 100)
    cli.start("watch", "x")
    eventually(lambda: session.value(f"SELECT count(*) FROM {table}_claims WHERE mode = 'o'") == 1, "it watches")
    draw_again(session, table, 7)
    inside = cli.start("run", "x", "--", "sh", "-c", "echo in; read line")
    assert inside.line() == "in"
    assert cli("run", "--no-wait", "x", "--", "echo", "in").status == 75
    inside.say("go")
    assert inside.wait() == 0, inside.rest("err")


def number_of(session, table, name):
    return session.value(f"SELECT id FROM {table}_claims WHERE name = %s", name.encode())


@pytest.mark.parametrize("how", [[], ["--now"]], ids=["withheld", "now"])
def test_a_break_ends_no_hold_of_another_name(server, table, hold, cli_on, how):
    """Two names have a hold with the same id, and one of them is broken."""
    url, session = server.url(table), server.session()
    broken = hold(url, "a", "ttl=60000")
    draw_again(session, table, number_of(session, table, "a"))
    other = hold(url, "b", "ttl=60000")
    assert number_of(session, table, "a") == number_of(session, table, "b")
    time.sleep(1)  # both listen by now
    assert cli_on(url)("break", "a", *how).status == 0
    broken.await_lost(patience=10)  # long before it renews
    time.sleep(0.5)
    assert not other.told_lost()
    assert other.release() == "HF_OK"


def test_a_break_that_was_heard_before_ends_no_later_hold(server, table, hold, start_holder, cli_on):
    """Who listens has heard of ids that are not its own, and gets one of these later."""
    url, session = server.url(table), server.session()
    broken, listens = hold(url, "a", "ttl=60000"), hold(url, "b", "ttl=60000")
    waits = start_holder(url, "b", "ttl=60000")
    await_claims(session, table, "b", 2)
    time.sleep(1)
    number = number_of(session, table, "a")
    assert cli_on(url)("break", "a", "--now").status == 0
    broken.await_lost(patience=10)
    assert listens.release() == "HF_OK" and waits.token > 0
    draw_again(session, table, number)
    listens.ask_again("c")
    assert listens.token > 0 and number_of(session, table, "c") == number
    time.sleep(0.5)
    assert not listens.told_lost()
    assert listens.release() == "HF_OK"


def test_an_id_that_is_there_already_is_passed_over(server, table, hold, cli_on):
    url, session = server.url(table), server.session()
    held = [hold(url, "x", "mode=shared") for _ in range(3)]
    draw_again(session, table, session.value(f"SELECT min(id) FROM {table}_claims WHERE name = 'x'"))
    done = cli_on(url)("run", "--shared", "--wait", "20s", "x", "--", "true")
    assert done.status == 0, done
    assert [holder.release() for holder in held] == ["HF_OK"] * 3
