"""Expiry without believing a clock of the server: nobody is early, whatever it shows; and a crash costs one TTL, whoever comes and goes
meanwhile."""
import os
import signal
import time

import pytest
from conftest import await_claims, await_gone, claims, eventually, make_table, seconds
from holder import hold, start_holder  # noqa: F401

TTL_MS = 2000
TTL = TTL_MS / 1000
SLACK = 5  # seconds, on a busy machine

JUMPS = ["+10d", "-10d"]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_clock_that_jumps_ends_no_hold(servers, table, hold, start_holder, jump):
    """Far beyond any TTL, while somebody waits, who would be the first to be early."""
    server = servers.postgres(clock=True)
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    waiter = start_holder(server.url(table), "x", f"ttl={TTL_MS}")
    session = server.session()
    await_claims(session, table, "x", 2)
    before = session.value("SELECT clock_timestamp()")
    server.set_clock(jump)
    eventually(lambda: abs((session.value("SELECT clock_timestamp()") - before).days) >= 9, "the clock has jumped")
    time.sleep(2 * TTL)
    assert waiter.waits()
    assert not holder.told_lost()
    server.set_clock("+0")
    time.sleep(TTL / 2)
    assert waiter.waits()
    assert holder.release() == "HF_OK"
    assert waiter.token > holder.token


@pytest.mark.parametrize("jump", JUMPS)
def test_a_dead_holder_is_over_after_a_ttl_whatever_the_clock_shows(servers, table, hold, start_holder, jump):
    server = servers.postgres(clock=True)
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    waiter = start_holder(server.url(table), "x", f"ttl={TTL_MS}")
    await_claims(server.session(), table, "x", 2)
    holder.kill()
    killed = time.monotonic()
    server.set_clock(jump)
    assert waiter.token > holder.token
    assert TTL / 2 < seconds(killed) < TTL + SLACK  # it was renewed at most TTL / 3 before it died


@pytest.mark.parametrize("jump", JUMPS)
def test_tokens_grow_whatever_the_clock_shows(servers, table, cli_on, jump):
    server = servers.postgres(clock=True)
    cli = cli_on(server.url(table))
    tokens = []
    for offset in ("+0", jump, "+0"):
        server.set_clock(offset)
        for name in ("x", "y"):
            tokens.append((name, int(cli("run", name, "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout)))
    for name in ("x", "y"):
        own = [token for its, token in tokens if its == name]
        assert own == sorted(set(own))
        assert own[-1] < own[0] + 100  # of a name that is known here, the clock says nothing


# ---- those who do not stay


def dead_holder(cli):
    """A hold of a process that is gone; when it went."""
    holder = cli.hold("x", "--ttl", f"{TTL_MS}ms")
    holder.kill(signal.SIGKILL)
    await_gone(holder.job)
    return time.monotonic()


def test_a_floor_is_not_ahead_of_a_clock_that_is_obviously_wrong(servers, table, cli_on):
    """By such a clock every floor would be decades ahead, and later ones with it, when it is right again."""
    server = servers.postgres(clock=True)
    server.set_clock("-9000d")
    on_it = cli_on(server.url(table))
    assert on_it("floor", "1000").status == 0
    session = server.session()
    assert session(f"SELECT floor, ahead FROM {table}_meta") == [(1000, 0)]
    server.set_clock("+0")
    assert on_it("floor", "1001").status == 0
    assert session(f"SELECT floor, ahead FROM {table}_meta") == [(1001, 0)]


def test_a_job_on_the_host_of_the_dead_one_need_not_wait(server, table, cli_on):
    """As each night: nobody has looked since the crash. When the dead one was last alive is noted by its own host's clock, in its row."""
    cli = cli_on(server.url(table))
    dead_holder(cli)
    time.sleep(TTL + 0.5)
    assert cli("run", "--no-wait", "x", "--", "true").status == 0


def test_a_job_on_the_host_of_the_dead_one_is_not_early(server, table, cli_on):
    cli = cli_on(server.url(table))
    holder = cli.hold("x", "--ttl", f"{TTL_MS}ms")
    holder.kill(signal.SIGSTOP)  # its last renewal was at most a third of a TTL ago
    began = time.monotonic()
    done = cli("run", "--no-wait", "x", "--", "true")
    assert done.status == 75 or seconds(began) > TTL / 2, done
    while done.status == 75 and seconds(began) < TTL + SLACK:
        done = cli("run", "--no-wait", "x", "--", "true")
    assert done.status == 0 and seconds(began) > TTL / 2
    holder.kill(signal.SIGCONT)
    assert holder.wait() != 0


@pytest.mark.parametrize("known", ["the beat before", "nothing"])
def test_a_renewal_that_was_held_up_turns_no_note_back(server, table, hold, cli_on, known):
    """It was sent long ago over a connection that hung, its client has renewed over another one since, and now it arrives."""
    holder = hold(server.url(table), "x", f"ttl={10 * TTL_MS}")
    session = server.session()
    ((lease, token, before, host, sent_ms),) = session(
        f"SELECT lease, token, beat, (SELECT jsonb_object_keys(seen)), seen ->> (SELECT jsonb_object_keys(seen)) FROM {table}_claims")
    eventually(lambda: claims(session, table, "x")[0]["beat"] > before, "it renews")
    ((code, lefts),) = session(
        f"SELECT code, lefts FROM {table}_renew({table}_incarnation(), 1000, %s, %s, %s, %s, %s, %s, %s, %s)", [b"x"], [lease], [token], [0],
        [10 * TTL_MS], [before if known != "nothing" else 0], host, int(sent_ms) - 60 * 60 * 1000)
    assert (code, lefts) == (0, str(10 * TTL_MS)), "it is carried out"
    assert cli_on(server.url(table))("run", "--no-wait", "x", "--", "true").status == 75
    assert holder.left() > 0 and holder.release() == "HF_OK"


def test_a_finish_that_was_held_up_is_kept_for_as_long_as_another(server, table, cli_on, tmp_path):
    """It was sent long ago, and arrives now: its result is new. Whatever else of the page was new to the host is, too."""
    cli = cli_on(server.url(table))
    session = server.session()
    go = tmp_path / "go"
    os.mkfifo(go)
    for other in ("y", "z"):
        assert cli("once", "--keep", "1h", other, "--", "echo", other).stdout == f"{other}\n"
    session(f"UPDATE {table}_once SET seen = '{{}}'")  # as of other hosts
    first = cli.start("once", "--keep", "1h", "x", "--", "sh", "-c", f"read a < {go}; echo first")
    await_claims(session, table, "\0x", 1)
    ((name, lease, token, host, sent_ms),) = session(
        f"SELECT name, lease, token, (SELECT jsonb_object_keys(seen)), seen ->> (SELECT jsonb_object_keys(seen)) FROM {table}_claims")
    ((code,),) = session(f"SELECT code FROM {table}_finish({table}_incarnation(), 1000, %s, %s, %s, %s, %s, %s, %s)", name, lease, token,
                         session.value(f"SELECT result FROM {table}_once WHERE name = %s", b"\0y"), 3600 * 1000, host, int(sent_ms) - 3700 * 1000)
    assert code == 1
    for key in ("x", "y", "z"):
        assert cli("once", key, "--", "echo", "second").stdout == ("y" if key == "x" else key) + "\n"
    go.write_text("\n")
    assert first.wait() == 0


def test_a_result_is_kept_no_longer_where_it_was_made(server, table, cli_on):
    cli = cli_on(server.url(table))
    for number in range(8):
        assert cli("once", "--keep", "100ms", "x", "--", "echo", str(number)).stdout == f"{number}\n"
        time.sleep(0.2)


def test_results_deep_in_a_page_go(server, table, cli_on):
    """The places of deleted rows are kept in their page until it is vacuumed, so that there may be hundreds."""
    cli = cli_on(server.url(table))
    session = server.session()
    assert cli("once", "--keep", "1h", "first", "--", "true").status == 0
    session(f"ALTER TABLE {table}_once SET (autovacuum_enabled = false)")
    for _ in range(3):
        session(f"INSERT INTO {table}_once (name, state, token, keep_ms, seen) SELECT int4send(n), 'd', 1, 1, '{{}}' FROM generate_series(1, 80) AS n")
        if session.value(f"SELECT max((ctid::text::point)[1]) FROM {table}_once WHERE (ctid::text::point)[0] = 0") > 200:
            break
        session(f"DELETE FROM {table}_once WHERE token = 1")
    deep = f"SELECT count(*) FROM {table}_once WHERE token = 1 AND (ctid::text::point)[1] > 128"
    assert session.value(deep) > 0
    for number in range(200):
        assert cli("once", "--keep", "1ms", f"new-{number}", "--", "true").status == 0
        if session.value(f"SELECT count(*) FROM {table}_once WHERE token = 1") == 0:
            break
    else:
        pytest.fail(f"{session.value(deep)} of them were kept")


def test_results_that_nobody_asks_for_go(server, table, cli_on):
    cli = cli_on(server.url(table))
    session = server.session()
    for number in range(20):
        assert cli("once", "--keep", "1ms", f"old-{number}", "--", "true").status == 0
    assert cli("once", "--keep", "1h", "kept", "--", "echo", "kept").status == 0
    for number in range(200):
        assert cli("once", "--keep", "1ms", f"new-{number}", "--", "true").status == 0
        if session.value(f"SELECT count(*) FROM {table}_once WHERE position('old-'::bytea IN name) > 0") == 0:
            break
    else:
        pytest.fail("all of them were kept")
    assert cli("once", "kept", "--", "false").stdout == "kept\n"


def test_a_dead_hold_is_in_no_list(server, table, cli_on):
    cli = cli_on(server.url(table))
    dead_holder(cli)
    assert "x" in cli("ls").stdout
    time.sleep(TTL + 0.5)
    assert "x" not in cli("ls").stdout


@pytest.mark.parametrize("how", [["--no-wait"], ["--wait", "300ms"]], ids=["no-wait", "short-waits"])
def test_a_chain_of_those_who_do_not_stay_gets_there_in_one_ttl(server, table, cli_on, how):
    """None of them is there for a TTL. What the first has seen is kept in the row for the next."""
    cli = cli_on(server.url(table))
    killed = dead_holder(cli)
    server.session()(f"UPDATE {table}_claims SET seen = NULL, seen_beat = NULL")  # as of another host, on which it died
    tries = 0
    while True:
        done = cli("run", *how, "--ttl", f"{TTL_MS}ms", "x", "--", "true")
        tries += 1
        if done.status == 0:
            break
        assert done.status == 75, done
        assert seconds(killed) < TTL + SLACK
        time.sleep(0.1)
    assert tries > 2
    assert seconds(killed) > TTL / 2
    assert claims(server.session(), table, "x") == []


def test_whoever_only_asks_from_another_host_knows_a_ttl_later(server, table, cli_on):
    """Nobody wants the lock. What the first has seen is kept in the row for the next who asks."""
    cli = cli_on(server.url(table))
    dead_holder(cli)
    session = server.session()
    session(f"UPDATE {table}_claims SET seen = NULL, seen_beat = NULL, ttl_ms = 500")
    (token,) = [claim["token"] for claim in claims(session, table, "x")]
    assert cli("check", "x", str(token)).status == 0
    eventually(lambda: "nobody holds it" in cli("show", "x").stdout, "it is over")
    assert cli("check", "x", str(token)).status == 1
    assert claims(session, table, "x") == []


NOTES_MAX = 32  # hosts


def test_notes_of_those_who_came_first_stay(server, table, cli_on):
    """More hosts look again and again than there is room for: those that are noted stay so, or nobody would be for a TTL."""
    cli = cli_on(server.url(table))
    session = server.session()
    dead_holder(cli)
    ((claim, beat),) = session(f"SELECT id, beat FROM {table}_claims")
    for sight in range(1, 5):
        for host in range(NOTES_MAX + 8):
            session(f"SELECT {table}_note({table}_incarnation(), 'x', %s, %s, %s, %s)", f"{host:016x}", [claim], [beat], [sight])
    seen = session.value(f"SELECT seen FROM {table}_claims")
    assert len(seen) == NOTES_MAX
    assert list(seen.values()).count(1) > NOTES_MAX - 8, seen  # one in a thousand takes the place of another


def test_a_host_whose_place_is_taken_gets_one_in_the_end(server, table, cli_on):
    """Of those who are noted nobody comes back."""
    make_table(cli_on, server, table)
    session = server.session()
    count = session.value(f"""SELECT count(*) FROM generate_series(1, 30000) AS n,
        {table}_add_note((SELECT jsonb_object_agg(h::text, 0) FROM generate_series(1, {NOTES_MAX} + 0 * n) AS h), 'new', n) AS s WHERE s ? 'new'""")
    assert 0 < count < 300


def test_notes_of_results_stay_likewise(server, table, cli_on):
    cli = cli_on(server.url(table))
    session = server.session()
    assert cli("once", "--keep", "1h", "x", "--", "true").status == 0
    ((name, token),) = session(f"SELECT name, token FROM {table}_once")
    for sight in range(1, 5):
        for host in range(NOTES_MAX + 8):
            session(f"SELECT {table}_note_records({table}_incarnation(), %s, %s, %s, %s)", f"{host:016x}", [name], [token], sight)
    seen = session.value(f"SELECT seen FROM {table}_once")
    assert len(seen) == NOTES_MAX
    assert list(seen.values()).count(1) > NOTES_MAX - 8, seen


def test_a_chain_is_never_early(server, table, hold, cli_on):
    """The same against a holder that lives and renews."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    cli = cli_on(server.url(table))
    began = time.monotonic()
    while seconds(began) < 2.5 * TTL:
        assert cli("run", "--no-wait", "--ttl", f"{TTL_MS}ms", "x", "--", "true").status == 75
        assert cli("run", "--wait", "50ms", "--ttl", f"{TTL_MS}ms", "x", "--", "true").status == 75
    assert not holder.told_lost()
    assert holder.release() == "HF_OK"


def test_a_holder_that_is_paused_between_looks_is_not_taken_for_alive(server, table, hold, cli_on):
    """Pauses just short of a TTL, twice: it renews in between, so counting begins again each time."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    cli = cli_on(server.url(table))
    for _ in range(2):
        holder.pause()
        began = time.monotonic()
        while seconds(began) < TTL / 2:
            assert cli("run", "--no-wait", "--ttl", f"{TTL_MS}ms", "x", "--", "true").status == 75
        holder.resume()
        before = claims(server.session(), table, "x")[0]["beat"]
        eventually(lambda: claims(server.session(), table, "x")[0]["beat"] > before, "a renewal")
    assert holder.release() == "HF_OK"


def test_a_waiter_that_was_stopped_buries_nobody_with_what_it_saw_before(server, table, hold, start_holder):
    """It saw a beat, and wakes after a TTL: by its clock that beat was there all the time. The holder has renewed since."""
    holder = hold(server.url(table), "x", f"ttl={TTL_MS}")
    waiter = start_holder(server.url(table), "x", "ttl=60000")
    await_claims(server.session(), table, "x", 2)
    time.sleep(0.2)
    for _ in range(3):
        waiter.pause()
        time.sleep(1.2 * TTL)
        waiter.resume()
        time.sleep(0.3)
        assert waiter.waits()
        assert not holder.told_lost()
    assert holder.release() == "HF_OK"
    assert waiter.token > holder.token


# ---- dead waiters


def test_dead_waiters_cost_one_ttl_together(server, table, hold, start_holder):
    """Four of them, one behind the other, and the holder lives: whoever is behind them finds out about all at once."""
    holder = hold(server.url(table), "x", "ttl=60000")
    session = server.session()
    dead = []
    for i in range(4):
        dead.append(start_holder(server.url(table), "x", f"ttl={TTL_MS}"))
        await_claims(session, table, "x", i + 2)
    last = start_holder(server.url(table), "x", f"ttl={TTL_MS}")
    await_claims(session, table, "x", 6)
    for waiter in dead:
        waiter.kill()
    killed = time.monotonic()
    assert holder.release() == "HF_OK"
    assert last.token > holder.token
    assert seconds(killed) < TTL + SLACK
    assert len(claims(session, table, "x")) == 1


def test_a_dead_waiter_does_not_delay_whoever_comes_without_waiting(server, table, hold, start_holder, cli_on):
    holder = hold(server.url(table), "x", "ttl=60000")
    waiter = start_holder(server.url(table), "x", f"ttl={TTL_MS}")
    await_claims(server.session(), table, "x", 2)
    waiter.kill()
    killed = time.monotonic()
    assert holder.release() == "HF_OK"
    cli = cli_on(server.url(table))
    while cli("run", "--no-wait", "x", "--", "true").status != 0:
        assert seconds(killed) < TTL + SLACK
        time.sleep(0.1)


def test_a_live_waiter_keeps_its_place(server, table, hold, start_holder):
    """For much longer than its TTL, behind a holder that stays; in the order in which they came."""
    holder = hold(server.url(table), "x", "ttl=60000")
    session = server.session()
    line = []
    for i in range(3):
        line.append(start_holder(server.url(table), "x", "ttl=1000"))
        await_claims(session, table, "x", i + 2)
    time.sleep(3.5)
    assert len(claims(session, table, "x")) == 4
    assert holder.release() == "HF_OK"
    token = holder.token
    for waiter in line:
        assert waiter.token > token
        token = waiter.token
        assert waiter.release() == "HF_OK"


def test_a_lock_delay_is_counted_like_a_ttl(server, table, hold, start_holder):
    holder = hold(server.url(table), "x", "ttl=1000", "delay=2000")
    waiter = start_holder(server.url(table), "x", "ttl=1000")
    await_claims(server.session(), table, "x", 2)
    holder.kill()
    killed = time.monotonic()
    assert waiter.token > holder.token
    assert seconds(killed) > 2.3  # 3 s, less the third of a TTL that may have gone since it renewed


class Asker:
    """Whoever asks the store's functions as the client does, one statement at a time."""

    def __init__(self, server, table, lease):
        self.server, self.table, self.lease, self.queued = server, table, lease, False

    def acquire(self, beats=True, dead=()):
        """code (0 held, 1 busy, 2 queued), and what is in the way: {id: beat}."""
        values = {"name": b"x", "lease": self.lease.encode(), "owner": b"", "mode": "x", "permits": 0, "ttl_ms": 8000, "delay_ms": 0, "death_ms": 0,
                  "waits": True, "no_heir": False, "queued": self.queued, "beats": beats, "known": 0, "host": "h", "boot_ms": 0,
                  "dead": [claim for claim, _ in dead], "dead_beats": [beat for _, beat in dead], "forget": 0, "patience_ms": 1000}
        named = ", ".join(f"a_{name} => %({name})s" + {"dead": "::bigint[]", "dead_beats": "::bigint[]", "mode": '::"char"'}.get(name, "")
                          for name in values)
        with self.server.session().connection.cursor() as cursor:
            cursor.execute(f"SELECT code, others FROM {self.table}_acquire(a_expected => {self.table}_incarnation(), {named})", values)
            code, others = cursor.fetchone()
        self.queued = code == 2
        numbers = [int(number) for number in (others or "").split()]
        return code, dict(zip(numbers[0::4], numbers[1::4]))


def test_what_was_seen_before_a_crash_buries_nobody_after_it(servers, table, hold, cli_on):
    """A server that crashes may forget a waiter's last renewal, and come to the same number again: by then it may hold. The second of those who
    wait is seen with it before, and is inside after."""
    server = servers.postgres("-c", "wal_writer_delay=10000")
    make_table(cli_on, server, table)
    first = hold(server.url(table), "x", "ttl=60000")
    second, third = Asker(server, table, "second"), Asker(server, table, "third")
    assert second.acquire()[0] == 2
    assert third.acquire()[0] == 2
    assert second.acquire()[0] == 2  # it renews its place
    code, seen = third.acquire(beats=False)
    assert code == 2 and len(seen) == 2
    server.kill9()
    server.start()
    assert first.release() == "HF_OK"
    assert second.acquire()[0] == 0
    code, now = third.acquire(dead=list(seen.items()))
    assert code == 2, (seen, now)


def test_one_who_died_is_found_beside_one_who_lives(server, table, hold, start_holder):
    """Their ids are as far apart as the table of what was seen is long: neither makes the other one forgotten."""
    url, words = server.url(table), (f"ttl={TTL_MS}", "permits=2")
    lives = hold(url, "x", *words)
    session = server.session()
    number = session.value(f"SELECT id FROM {table}_claims")
    session(f"ALTER TABLE {table}_claims ALTER COLUMN id RESTART WITH {number + 4096}")
    hold(url, "x", *words).kill()
    died = time.monotonic()
    next_one = start_holder(url, "x", *words)
    assert next_one.token > lives.token
    assert seconds(died) < TTL + SLACK
