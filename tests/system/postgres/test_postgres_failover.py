"""Replicas, promoted: what an asynchronous one forgets, guards remember; a synchronous one forgets nothing. And servers that are not the
primary, or not the one they were."""
import socket
import threading
import time

import psycopg2
import pytest
from conftest import STALE, await_claims, claims, eventually, guard_sql, make_table, seconds
from holder import hold, start_holder  # noqa: F401
from relay import Relay

TTL_MS = 3000
TTL = TTL_MS / 1000
SLACK = 20  # seconds, on a busy machine


@pytest.fixture
def pair(servers):
    """A primary, and an asynchronous replica."""
    primary = servers.postgres()
    return primary, servers.replica(primary, "standby1")


def both(primary, replica, table, **options):
    return primary.url(table, hosts=f"{primary.host},{replica.host}", **options)


def caught_up(primary, replica):
    there = primary.session().value("SELECT pg_current_wal_flush_lsn()")
    eventually(lambda: replica.session().value("SELECT pg_last_wal_replay_lsn() >= %s", there), "the replica has it")


def fall_behind(replica):
    """From now on it hears nothing. (Paused, it would still find in its socket what was sent before the primary died.)"""
    replica.set("primary_conninfo", "")
    eventually(lambda: replica.session()("SELECT 1 FROM pg_stat_wal_receiver") == [], "the replica is cut off")


def enter(session, key, token):
    return session.value("SELECT holdfast_enter(%s, %s)", key, token)


def test_an_asynchronous_replica_may_forget_a_grant_and_the_guard_does_not(pair, table, hold, cli_on):
    """Two holders, for a while, which is what it says of itself. Their tokens grow all the same, and the guard refuses the older."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    primary.session()(guard_sql())
    hold(primary.url(table), "x", "ttl=30000").release()  # the name is known there
    caught_up(primary, replica)
    fall_behind(replica)
    first = hold(both(primary, replica, table), "x", "ttl=20000")
    first.pause()  # a long one
    primary.kill9()
    replica.promote()
    second = hold(both(primary, replica, table), "x", "ttl=60000")
    assert second.token > first.token
    session = replica.session()
    assert enter(session, "x", second.token)
    with pytest.raises(psycopg2.Error) as refused:
        enter(session, "x", first.token)
    assert refused.value.pgcode == STALE
    began = time.monotonic()
    first.ask_left()
    first.resume()
    first.hear_left()
    first.await_lost()  # with the first word to another timeline
    assert seconds(began) < 15
    assert first.release() in ("HF_ELOST", "HF_EUNKNOWN")
    assert [claim["token"] for claim in claims(session, table, "x")] == [second.token]


def test_tokens_of_a_promoted_replica_are_above_all_that_it_forgot(pair, table, cli_on):
    """Grants that it never heard of, while its counter is still the old one."""
    primary, replica = pair
    cli = cli_on(both(primary, replica, table))
    make_table(cli_on, primary, table)
    cli("run", "x", "--", "true")
    caught_up(primary, replica)
    fall_behind(replica)
    last = 0
    for _ in range(20):
        last = int(cli("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout)
    primary.kill9()
    replica.promote()
    assert int(cli("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout) > last


@pytest.mark.parametrize("known", [True, False])
def test_tokens_go_on_above_what_was_forgotten_where_a_floor_is_above_the_clock(pair, table, cli_on, known):
    """Then the clock tells nothing: what was given after the floor, and forgotten, is not given again, be the name new or not."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    before = cli_on(primary.url(table))
    run = ("run", "-n", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
    if known:
        assert before(*run).status == 0
    floor = time.time_ns() // 1000 + 7200 * 1000000
    assert before("floor", str(floor)).status == 0
    caught_up(primary, replica)
    fall_behind(replica)
    forgotten = [int(before(*run).stdout) for _ in range(3)]
    assert min(forgotten) > floor
    primary.kill9()
    replica.promote()
    assert int(cli_on(replica.url(table))(*run).stdout) > max(forgotten)


def test_the_store_says_that_an_asynchronous_replica_forgets(pair, table, cli_on):
    """In words, where a user looks: holdfast --need strict is for one primary, or a synchronous one."""
    primary, replica = pair
    done = cli_on(both(primary, replica, table))("stores")
    assert done.status == 0 and "postgres" in done.stdout


def test_with_a_synchronous_replica_there_are_never_two(servers, table, hold, start_holder, cli_on):
    """Whoever holds when the primary dies is told, or its TTL has run, before anybody gets it from the replica."""
    primary = servers.postgres()
    replica = servers.replica(primary, "standby1")
    primary.set("synchronous_standby_names", "standby1")
    make_table(cli_on, primary, table)
    url = both(primary, replica, table)
    first = hold(url, "x", f"ttl={TTL_MS}")
    waiter = start_holder(url, "x", f"ttl={TTL_MS}")
    await_claims(primary.session(), table, "x", 2)
    primary.kill9()
    killed = time.monotonic()
    replica.set("synchronous_standby_names", "")
    replica.promote()
    token = waiter.token
    assert first.told_lost() or first.left() == 0
    assert token > first.token
    assert seconds(killed) < TTL + SLACK
    assert [claim["token"] for claim in claims(replica.session(), table, "x")] == [token]


def test_a_grant_that_a_synchronous_replica_acknowledged_is_there_after_the_failover(servers, table, cli_on, hold):
    """The holder, frozen, is honoured by the replica for its TTL: it does not know that another timeline has begun."""
    primary = servers.postgres()
    replica = servers.replica(primary, "standby1")
    primary.set("synchronous_standby_names", "standby1")
    make_table(cli_on, primary, table)
    first = hold(both(primary, replica, table), "x", f"ttl={TTL_MS}")
    first.pause()
    primary.kill9()
    replica.set("synchronous_standby_names", "")
    replica.promote()
    promoted = time.monotonic()
    second = hold(both(primary, replica, table), "x", f"ttl={TTL_MS}")
    assert seconds(promoted) > TTL - 1  # counted by whoever takes it over, from when he first saw it
    assert second.token > first.token
    first.resume()
    first.await_lost()


# ---- not the primary


def test_a_standby_is_refused(pair, table, cli_on):
    primary, replica = pair
    make_table(cli_on, primary, table)
    caught_up(primary, replica)
    done = cli_on(replica.url(table))("run", "-n", "x", "--", "echo", "inside")
    assert done.status in (69, 77) and "standby" in done.stderr, done
    assert "inside" not in done.stdout


@pytest.mark.parametrize("first", ["primary", "replica"])
def test_a_dead_primary_is_named_and_so_is_its_standby(pair, table, cli_on, first):
    primary, replica = pair
    make_table(cli_on, primary, table)
    caught_up(primary, replica)
    primary.kill9()
    hosts = [primary.host, replica.host] if first == "primary" else [replica.host, primary.host]
    done = cli_on(primary.url(table, hosts=",".join(hosts)))("run", "-n", "x", "--", "true")
    assert done.status == 69 and "Connection refused" in done.stderr and f"; {replica.host} is a standby" in done.stderr, done


def test_the_primary_is_found_among_several_hosts(pair, table, cli_on):
    primary, replica = pair
    make_table(cli_on, primary, table)
    url = replica.url(table, hosts=f"{replica.host},{primary.host}")
    assert cli_on(url)("run", "-n", "x", "--", "true").status == 0


# ---- not the one it was


def test_a_restart_is_no_failover(servers, table, hold):
    """The same server, the same timeline: what was held is held."""
    server = servers.postgres()
    holder = hold(server.url(table), "x", "ttl=20000")
    for how in (server.restart, server.kill9):
        how()
        server.start()
        assert holder.left() > 0
    assert not holder.told_lost()
    assert holder.release() == "HF_OK"


def test_a_holder_learns_of_another_timeline_before_its_ttl(pair, table, hold, start_holder, cli_on):
    """It renews with the new primary, which answers that it is another one: that the hold is there proves nothing."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    holder = hold(both(primary, replica, table), "x", "ttl=9000")
    caught_up(primary, replica)
    assert len(claims(replica.session(), table, "x")) == 1
    primary.kill9()
    replica.promote()
    began = time.monotonic()
    holder.await_lost()
    assert seconds(began) < 9
    assert holder.left() == 0


@pytest.mark.parametrize("heard", ["of nothing", "of the release", "of the next one, too"])
def test_a_release_says_no_more_than_the_promoted_replica_knows(servers, pair, table, cli_on, heard):
    """It is asked for at the primary, and again at the replica. That has forgotten the hold, and somebody else has the lock; or it has it, and its release; or
    that, and somebody else came after it, which looks there as the first does."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    caught_up(primary, replica)
    relay = Relay(primary.port)
    servers.stack.callback(relay.stop)
    if heard == "of nothing":
        fall_behind(replica)
    url = primary.url(table, hosts=f"{relay.address},{replica.host}", listen="off")
    holder = cli_on(url).start("run", "--ttl", "60s", "x", "--", "sh", "-c", "echo inside; read line")
    assert holder.line() == "inside"
    relay.cut("up" if heard == "of nothing" else "down")
    if heard == "of nothing":
        replica.promote()
        next_one = cli_on(replica.url(table)).hold("x")
    before = relay.count().up_chunks
    holder.say("go")
    eventually(lambda: relay.count().up_chunks > before, "it is asked for")
    if heard != "of nothing":
        session = primary.session()
        eventually(lambda: not claims(session, table, "x"), "it is released")
        caught_up(primary, replica)
        replica.promote()
    if heard == "of the next one, too":
        next_one = cli_on(replica.url(table)).hold("x")
    relay.stop()
    assert holder.wait() == (0 if heard == "of the release" else 76)
    said = holder.rest("err")
    if heard != "of the release":
        assert any("no answer came to its release, which may have been done before that" in line for line in said), said
        assert next_one.end() == 0


def test_another_server_at_the_same_address_is_another_store(servers, table, hold, cli_on):
    """Exchanged behind a pooler: the sequencer's store is not this one, and what was held is lost."""
    old = servers.postgres()
    new = servers.postgres(fresh=True)
    pooler = servers.pgbouncer(old)
    make_table(cli_on, new, table)
    cli = cli_on(pooler.url(table))
    sequencer = cli("run", "y", "--", "sh", "-c", "echo $HOLDFAST_SEQUENCER").stdout.strip()
    holder = hold(pooler.url(table), "x", "ttl=6000")
    config = pooler.directory / "pgbouncer.ini"
    config.write_text(config.read_text().replace(f"port={old.port}", f"port={new.port}"))
    admin = psycopg2.connect(host="127.0.0.1", port=pooler.port, user="postgres", dbname="pgbouncer")
    admin.autocommit = True
    with admin.cursor() as cursor:
        cursor.execute("RELOAD")
        cursor.execute("RECONNECT")
    admin.close()
    old.kill9()
    began = time.monotonic()
    holder.await_lost()
    assert seconds(began) < 6
    second = hold(pooler.url(table), "x", "ttl=6000")
    assert second.token > holder.token
    done = cli("check", sequencer)
    assert done.status == 64 and "sequencer is of the store" in done.stderr, done


def test_a_pooler_whose_server_hangs_keeps_nobody_from_the_other(servers, pair, table, cli_on):
    """It lets everybody in, and says no more. And the one before the promoted server still says what that was before."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    caught_up(primary, replica)
    first, second = servers.pgbouncer(primary), servers.pgbouncer(replica)
    url = primary.url(table, hosts=f"{first.host},{second.host}", timeout="20s")
    assert cli_on(url)("run", "-n", "x", "--", "true").status == 0
    assert second.session().value("SELECT pg_is_in_recovery()")  # so it has heard that
    caught_up(primary, replica)  # else it has the hold, and not its release
    primary.pause()
    try:
        replica.promote()
        done = cli_on(url)("run", "-n", "x", "--", "true")
    finally:
        primary.resume()
    assert done.status == 0, done


@pytest.fixture
def named(tmp_path):
    """Ways to say which hosts there are: the URL's beginning, its end, and an environment."""
    def make(way, hosts, database="postgres"):
        names, ports = zip(*(host.split(":") for host in hosts))
        names, ports = ",".join(names), ",".join(ports)
        service = tmp_path / "services"
        service.write_text(f"[both]\nhost={names}\nport={ports}\nuser=postgres\ndbname={database}\n")
        return {"environment": (f"postgres:///{database}?user=postgres", {"PGHOST": names, "PGPORT": ports}),
                "service": ("postgres://?service=both", {"PGSERVICEFILE": str(service)}),
                "addresses": (f"postgres:///{database}?user=postgres&hostaddr={names}&port={ports}", {})}[way]

    return make


@pytest.mark.parametrize("way", ["environment", "service", "addresses"])
def test_several_hosts_are_several_wherever_they_are_named(pair, table, cli_on, named, way):
    """The first is a standby; then the first is a primary that hangs, and the other one is promoted."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    caught_up(primary, replica)
    url, env = named(way, [replica.host, primary.host])
    done = cli_on(f"{url}&table={table}&timeout=20s", **env)("run", "-n", "x", "--", "true")
    assert done.status == 0, done
    caught_up(primary, replica)  # else it has the hold, and not its release
    primary.pause()
    try:
        replica.promote()
        url, env = named(way, [primary.host, replica.host])
        done = cli_on(f"{url}&table={table}&timeout=20s", **env)("run", "-n", "x", "--", "true")
    finally:
        primary.resume()
    assert done.status == 0, done


def test_an_open_transaction_is_not_looked_for_on_the_standby(pair, table, cli_on):
    """The primary has no room for the second connection of mode=row at first, and the standby has."""
    primary, replica = pair
    session = primary.session()
    session("CREATE ROLE app LOGIN")
    session("GRANT CREATE ON SCHEMA public TO app")
    url = both(primary, replica, table, timeout="20s")
    url = url.replace("postgres://postgres@", "postgres://app@") + "&mode=row"
    assert cli_on(url)("run", "x", "--", "true").status == 0
    session("ALTER ROLE app CONNECTION LIMIT 1")
    caught_up(primary, replica)
    process = cli_on(url).start("run", "--wait", "120s", "x", "--", "true")
    assert "too many connections" in process.line("err")
    session("ALTER ROLE app CONNECTION LIMIT -1")
    assert process.wait(60) == 0


def test_of_several_hosts_of_listen_the_primary_is_listened_to(pair, table, hold, start_holder, cli_on):
    primary, replica = pair
    make_table(cli_on, primary, table)
    caught_up(primary, replica)
    url = primary.url(table, listen=primary.url(hosts=f"{replica.host},{primary.host}"))
    first = hold(url, "x", "ttl=60000")
    waiter = start_holder(url, "x", "ttl=60000")
    session = primary.session()
    eventually(lambda: session.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' OR query LIKE 'NOTIFY%%'") > 0, "somebody listens")
    assert first.release() == "HF_OK"
    assert waiter.token > first.token


def test_a_wait_is_not_ended_by_a_host_that_lets_nobody_in(servers, pair, table, hold, start_holder, cli_on):
    """The primary is away for a moment; the other host refuses the role, which says nothing of the primary."""
    primary, other = servers.postgres(), servers.postgres(fresh=True)
    other.let_in("host all postgres 127.0.0.1/32 reject")
    make_table(cli_on, primary, table)
    url = primary.url(table, hosts=f"{primary.host},{other.host}")
    first = hold(url, "x", "ttl=60000")
    waiter = start_holder(url, "x", "ttl=60000")
    await_claims(primary.session(), table, "x", 2)
    primary.kill9()
    time.sleep(3)  # longer than a first contact would be waited for
    primary.start()
    assert first.release() == "HF_OK"
    assert waiter.token > first.token


def test_hosts_and_addresses_that_do_not_match(cli_on):
    done = cli_on("postgres://a,b/x?hostaddr=127.0.0.1")("show", "x")
    assert done.status == 64 and "could not match" in done.stderr, done


# ---- a host that was used, and is of no more use


def await_waiter(primary, table, mode=None):
    """Until it has asked there: before that, a server that is of no use is refused at once, as for anybody who comes anew."""
    session = primary.session()
    if mode == "row":
        eventually(lambda: session("SELECT 1 FROM pg_locks WHERE NOT granted"), "it waits")
    else:
        await_claims(session, table, "x", 2)


def promote_under(primary, replica, table, cli_on, start_holder, retire, options=(), **url_options):
    """Somebody waits at the primary for a lock that is held there. The replica is promoted, and the waiter has to find it: its token."""
    url = both(primary, replica, table, **url_options)
    first = start_holder(url, "x", *options)
    assert first.token
    waiter = start_holder(url, "x", *options)
    await_waiter(primary, table, url_options.get("mode"))
    caught_up(primary, replica)
    retire()
    replica.promote()
    return first, waiter


def test_a_waiter_leaves_a_primary_that_was_made_read_only(pair, table, cli_on, start_holder):
    """As operators fence one: it lets everybody in, and answers."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    first, waiter = promote_under(primary, replica, table, cli_on, start_holder,
                                  lambda: primary.set("default_transaction_read_only", "on"), ["ttl=3000"])
    assert waiter.token > first.token
    first.await_lost()


def test_a_waiter_leaves_a_primary_that_became_a_standby_behind_its_pooler(servers, pair, table, cli_on, start_holder):
    """The pooler keeps the client's connection, and makes its own anew."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    poolers = servers.pgbouncer(primary), servers.pgbouncer(replica)
    url = primary.url(table, hosts=",".join(pooler.host for pooler in poolers), timeout="20s")
    first = start_holder(url, "x", "ttl=3000")
    assert first.token
    waiter = start_holder(url, "x", "ttl=3000")
    await_waiter(primary, table)
    caught_up(primary, replica)
    waiter.pause()  # between two looks
    (primary.directory / "data/standby.signal").touch()
    primary.start()
    replica.promote()
    waiter.resume()
    assert waiter.token > first.token


def test_a_waiter_for_a_row_leaves_a_primary_that_hangs(pair, table, cli_on, start_holder):
    """mode=row: its question is pending there, and the kernel of that machine answers for it."""
    primary, replica = pair
    make_table(cli_on, primary, table, mode="row")
    try:
        first, waiter = promote_under(primary, replica, table, cli_on, start_holder, primary.pause, mode="row", timeout="20s")
        assert waiter.token > first.token
        first.await_lost()
    finally:
        primary.resume()


def test_whoever_waits_for_a_row_hears_that_the_server_hangs(servers, table, cli_on, start_holder):
    server = servers.postgres()
    make_table(cli_on, server, table, mode="row")
    held = start_holder(server.url(table, mode="row"), "x")
    assert held.token
    waiting = cli_on(server.url(table, mode="row")).start("run", "--wait", "12s", "x", "--", "echo", "inside")
    eventually(lambda: server.session()("SELECT 1 FROM pg_locks WHERE NOT granted"), "it waits")
    server.pause()
    try:
        assert waiting.wait(60) == 69
        words = "\n".join(waiting.rest("err"))
        assert "no answer" in words or "did not answer" in words, words
    finally:
        server.resume()


def test_a_break_is_heard_at_once_after_a_failover_to_another_host(pair, table, cli_on, start_holder):
    """The connection of the listener is with the host that hangs, and nothing else says so."""
    primary, replica = pair
    make_table(cli_on, primary, table)
    url = both(primary, replica, table)
    first = start_holder(url, "x", "ttl=3000")
    assert first.token
    waiter = start_holder(url, "x", "ttl=300000")
    await_waiter(primary, table)
    listens = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'"
    eventually(lambda: primary.session().value(listens) == 2, "both listen")
    time.sleep(1)  # until it has heard itself, which nobody else can see
    caught_up(primary, replica)
    primary.pause()
    try:
        replica.promote()
        assert waiter.token > first.token
        session = replica.session()
        eventually(lambda: session.value(listens), "it listens there")
        assert cli_on(replica.url(table))("break", "--now", "x").status == 0
        said = time.monotonic()
        waiter.await_lost()
        assert seconds(said) < 60  # of 100, until its next renewal
    finally:
        primary.resume()


def test_an_old_primary_that_waits_for_its_standby_is_passed_over(servers, table, cli_on):
    """It came back, lets everybody in, and commits nothing: the standby that it needs was promoted."""
    primary = servers.postgres()
    replica = servers.replica(primary, "standby1")
    make_table(cli_on, primary, table)
    primary.set("synchronous_standby_names", "standby1")
    caught_up(primary, replica)
    primary.pause()
    replica.promote()
    cli = cli_on(both(primary, replica, table, timeout="5s"))
    assert cli("run", "--wait", "60s", "x", "--", "true").status == 0
    primary.resume()
    done = cli("run", "--wait", "60s", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
    assert done.status == 0, done
    assert int(done.stdout) == replica.session().value(f"SELECT token FROM {table} WHERE name = 'x'")


def test_a_connection_that_ended_says_nothing_of_its_host(server, table, cli_on, hold):
    """The next one goes there again, and not to the other host first, which may be mute."""
    make_table(cli_on, server, table)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(0)
        holder = hold(server.url(table, hosts=f"{server.host},127.0.0.1:{mute.getsockname()[1]}"), "x", "ttl=60000")
        session = server.session()
        for _ in range(3):
            session("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
            assert holder.left() > 0
        assert holder.release() == "HF_OK"
        with pytest.raises(BlockingIOError):
            mute.accept()


def test_a_server_that_is_read_only_is_not_flooded_with_connections(servers, table, cli_on, hold):
    """There is no other host to go to. Those who have something to renew there ask over what they have."""
    server = servers.postgres("-c", "log_connections=on")
    make_table(cli_on, server, table)
    holder = hold(server.url(table), "x", "ttl=9000")
    server.set("default_transaction_read_only", "on")
    before = server.log().count("connection authorized")
    since = time.monotonic()
    while seconds(since) < 5:  # the first renewal is due after three
        assert holder.left() > 0
        time.sleep(0.1)
    assert server.log().count("connection authorized") - before < 10


@pytest.mark.parametrize("order", ["mute first", "mute last"])
def test_of_a_mute_host_and_a_dead_one_the_reason_that_is_one_is_told(servers, table, cli_on, order):
    mute, dead = servers.postgres(), servers.postgres()
    make_table(cli_on, mute, table)
    dead.kill9()
    mute.pause()
    try:
        hosts = [mute.host, dead.host] if order == "mute first" else [dead.host, mute.host]
        done = cli_on(mute.url(table, hosts=",".join(hosts)))("run", "--wait", "30s", "x", "--", "true")
        assert done.status == 69 and "Connection refused" in done.stderr and " ms" not in done.stderr, done
        assert "timeout=" not in done.stderr, done
    finally:
        mute.resume()


# ---- a wait for the standby that is cancelled


def waiting_for_the_standby(session):
    return session("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


def test_a_host_that_hangs_keeps_nobody_from_the_others(pair, table, cli_on):
    """The old primary is frozen, and not gone: nobody is refused there."""
    primary, replica = pair
    cli = cli_on(both(primary, replica, table, timeout="20s"))
    assert cli("run", "x", "--", "true").status == 0
    caught_up(primary, replica)
    primary.pause()
    try:
        replica.promote()
        assert cli("run", "--wait", "30s", "x", "--", "true").status == 0
    finally:
        primary.resume()


@pytest.mark.parametrize("messages", ["notice", "error"])
def test_a_cancelled_wait_for_the_standby_is_unknown_never_held(servers, table, cli_on, messages):
    """PostgreSQL says yes, with a warning that the standby may not have it. Nothing may run on that, also where a role does not care to be
    warned."""
    server = servers.postgres()
    make_table(cli_on, server, table)
    session = server.session()
    session("SET synchronous_commit = local")
    session(f"CREATE ROLE careless LOGIN SUPERUSER; ALTER ROLE careless SET client_min_messages = {messages}")
    server.set("synchronous_standby_names", "ghost")
    cli = cli_on(server.url(table, user="careless", timeout="20s"))
    process = cli.start("run", "--wait", "3s", "--ttl", "4s", "x", "--", "echo", "inside")
    stop = threading.Event()

    def cancel():
        other = server.session()
        while not stop.is_set():
            for (pid,) in waiting_for_the_standby(other):
                other("SELECT pg_cancel_backend(%s)", pid)
            time.sleep(0.02)

    eventually(lambda: waiting_for_the_standby(session), "it waits for the standby")
    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        assert process.wait(60) == 69
    finally:
        stop.set()
        thread.join()
    assert "inside" not in process.rest()
    words = "\n".join(process.rest("err"))
    assert "unknown" in words or "standby" in words, words


def test_a_result_is_not_known_before_the_standby_has_it(servers, table, cli_on, tmp_path):
    """Whoever ran it waits for the standby, is cut off, and asks again; and somebody else asks. The record is there by then, and on the standby
    it is not: a failover would run it again."""
    primary = servers.postgres()
    replica = servers.replica(primary, "standby1")
    make_table(cli_on, primary, table)
    cli = cli_on(primary.url(table))
    go = tmp_path / "go"
    runner = cli.start("once", "job", "--", "sh", "-c", f'echo runs; while ! [ -e "{go}" ]; do sleep 0.05; done')
    assert runner.line() == "runs"
    session = primary.session()
    session("SET synchronous_commit = local")
    replica.pause()
    primary.set("synchronous_standby_names", "standby1")
    go.touch()
    ((pid,),) = eventually(lambda: waiting_for_the_standby(session), "it waits for the standby")
    session("SELECT pg_terminate_backend(%s)", pid)
    eventually(lambda: session(f"SELECT 1 FROM {table}_once WHERE state = 'd'"), "the record is there")
    other = cli.start("once", "job", "--", "echo", "again")
    eventually(lambda: waiting_for_the_standby(session), "one of them waits for the standby")
    time.sleep(1)
    assert runner.popen.poll() is None and other.popen.poll() is None
    done = cli("once", "--show", "job")
    assert done.status == 69, done
    replica.resume()
    assert runner.wait() == 0 and other.wait() == 0
    assert "again" not in "".join(other.rest())
    assert cli("once", "--show", "job").status == 0


def test_a_hold_is_not_had_before_the_standby_has_it(servers, table, cli_on):
    """The synchronous replica hangs: whoever asks waits with it, and gets the lock when it is back."""
    primary = servers.postgres()
    replica = servers.replica(primary, "standby1")
    primary.set("synchronous_standby_names", "standby1")
    make_table(cli_on, primary, table)
    cli = cli_on(primary.url(table))
    replica.pause()
    process = cli.start("run", "--ttl", "20s", "x", "--", "echo", "inside")
    session = primary.session()
    eventually(lambda: waiting_for_the_standby(session), "it waits for the standby")
    time.sleep(0.5)
    assert process.queues["out"].empty()
    replica.resume()
    assert process.line() == "inside"
    assert process.wait() == 0
