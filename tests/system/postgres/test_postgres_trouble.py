"""What goes wrong with a server or a table: clear words, the right exit status, and nothing left behind."""
import json
import os
import signal
import subprocess
import time

import psycopg2
import pytest
from conftest import ROOT, Server, await_claims, claims, eventually, guard_sql, make_table, seconds
from holder import hold, start_holder  # noqa: F401

UNREACHED, REFUSED, USAGE = 69, 77, 64


def fails(cli, *words, status=REFUSED, command=("run", "-n", "x", "--", "echo", "inside")):
    """One line that says it all, and nothing was run."""
    done = cli(*command)
    assert done.status == status, done
    assert "inside" not in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("holdfast: "), done.stderr
    for word in words:
        assert word in lines[0], done.stderr
    return lines[0]


def tables(session):
    return [name for (name,) in session("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')")]


# ---- tables


def test_no_table_and_no_right_to_make_one(servers, table, cli_on):
    server = servers.postgres()
    server.session()("CREATE ROLE nobody_special LOGIN")
    line = fails(cli_on(server.url(table, user="nobody_special")), f"guard sql --dialect postgres --locks --table {table}'")
    assert line.count("guard sql") == 1, "what to do is said once"
    assert tables(server.session()) == []


def test_undo_leaves_nothing(servers, cli_on):
    server = servers.postgres()
    session = server.session()
    before = tables(session), session("SELECT oid FROM pg_proc ORDER BY 1")
    session(guard_sql("--locks"))
    assert (tables(session), session("SELECT oid FROM pg_proc ORDER BY 1")) != before
    assert cli_on(server.url())("run", "x", "--", "true").status == 0
    undo = guard_sql("--locks", "--undo")
    assert "before the next one say holdfast floor" in undo, "tokens begin again"
    session(undo)
    assert (tables(session), session("SELECT oid FROM pg_proc ORDER BY 1")) == before


EARLIER = ["_bury(bytea, bigint[], bigint[], text, bigint)", "_floor(text, integer, bigint)", "_renew(text, integer, bytea[], bytea[], bigint[], bigint[], bigint[])",
           "_wake(bytea, boolean, boolean)"]
OWN = "_release(integer)"  # of somebody who calls one so


def named(session, table, tail=""):
    """Functions of the store, and whatever else is called so."""
    return sorted(name for (name,) in session("SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE %s", f"{table}{tail}%"))


def make_functions(session, table, parameters):
    for text in parameters:
        session(f"CREATE FUNCTION {table}{text} RETURNS void LANGUAGE sql AS $$ $$")


def test_functions_with_parameters_of_before_go_with_those_that_are_put_over_them(server, table, cli_on):
    """Tables that were dropped by hand leave the functions, and the next store is made beside them. What somebody else has called so stays."""
    session = server.session()
    make_functions(session, table, [*EARLIER, OWN])
    make_table(cli_on, server, table)
    made = named(session, table)
    assert len({name.partition("(")[0] for name in made}) == len(made) - 1, made
    assert f"{table}_release(integer)" in made
    make_functions(session, table, EARLIER)
    session(guard_sql("--locks", "--table", table))
    assert named(session, table) == made
    (line,) = [line for line in guard_sql("--locks", "--table", table).splitlines() if line.startswith("-- GRANT EXECUTE")]
    session(line.removeprefix("-- ").replace("TO app", "TO PUBLIC"))  # each is named so that there is one
    make_functions(session, table, EARLIER)
    session(guard_sql("--locks", "--undo", "--table", table))
    assert named(session, table) == [f"{table}_release(integer)"]


def test_functions_of_before_are_told_once_and_used(server, table, cli_on):
    """A store that was made before. A client that is older itself says nothing."""
    make_table(cli_on, server, table)
    session, cli = server.session(), cli_on(server.url(table))
    older = f"holdfast: the functions of the locks in the database are older than this holdfast: whoever may applies once more what 'holdfast guard sql " \
            f"--dialect postgres --locks --table {table}' prints\n"
    job = ("run", "x", "--", "true")
    assert older not in cli(*job).stderr
    revision = session.value(f"SELECT {table}_revision()")
    for there, told in ((f"CREATE OR REPLACE FUNCTION {table}_revision() RETURNS integer LANGUAGE sql AS 'SELECT {revision + 1}'", 0),
                        (f"CREATE OR REPLACE FUNCTION {table}_revision() RETURNS integer LANGUAGE sql AS 'SELECT {revision - 1}'", 1),
                        (f"DROP FUNCTION {table}_revision", 1),
                        (guard_sql("--locks", "--table", table), 0)):
        session(there)
        done = cli(*job)
        assert done.status == 0 and done.stderr.count(older) == told, (there[:80], done)


def test_what_the_command_prints_is_what_the_first_use_makes(servers, cli_on):
    """For those who may not CREATE: an operator applies it, and the store works."""
    server = servers.postgres()
    session = server.session()
    session(guard_sql("--locks"))
    made = sorted(tables(session))
    assert "holdfast_locks" in made
    assert cli_on(server.url())("run", "-n", "x", "--", "true").status == 0
    assert sorted(tables(session)) == made
    session(guard_sql("--locks"))  # again, over what is there


def test_a_table_of_another_shape(server, table, cli_on):
    server.session()(f"CREATE TABLE {table} (id integer)")
    fails(cli_on(server.url(table)), table)
    assert server.session()("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", table) == [("id",)]


def test_a_table_of_another_version(server, table, cli_on):
    make_table(cli_on, server, table)
    server.session()(f"UPDATE {table}_meta SET version = 999")
    line = fails(cli_on(server.url(table)), "version")
    assert "999" in line


def test_the_row_of_the_version_is_gone(server, table, cli_on):
    """An operator has emptied that table. What made it makes it once more."""
    make_table(cli_on, server, table)
    session = server.session()
    session(f"TRUNCATE {table}_meta")
    fails(cli_on(server.url(table)), f"the one row of public.{table}_meta is gone", f"guard sql --dialect postgres --locks --table {table}'")
    session(guard_sql("--locks", "--table", table))
    assert cli_on(server.url(table))("run", "-n", "x", "--", "true").status == 0


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP", "EUC_KR", "KOI8R"])
def test_a_database_of_any_encoding(server, table, cli_on, encoding):
    """What is put into it is of ASCII, with its comments: a database refuses characters that its encoding does not have."""
    server.session()(f"CREATE DATABASE {table} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    done = cli_on(server.url(table, database=table))("run", "x", "--", "true")
    assert done.status == 0, done
    server.session(database=table)(guard_sql())


def test_what_is_put_into_a_database_is_of_ascii(tmp_path):
    file = tmp_path / "x.sql"
    for words, status in (("SELECT 1; -- any", 0), ("SELECT 1; -- \u2026", 1)):
        file.write_text(words + "\n", encoding="utf-8")
        for options in ([], ["--as", "all"]):
            done = subprocess.run([ROOT / "tools/embed-sql", *options, file], capture_output=True, check=False)
            assert done.returncode == status, done


def test_functions_of_another_version_are_not_put_over_tables(server, table, cli_on):
    """Whoever uses the tables goes on as before."""
    make_table(cli_on, server, table)
    session = server.session()
    session(f"UPDATE {table}_meta SET version = 1")
    session(f"DROP FUNCTION {table}_clock")
    with pytest.raises(psycopg2.Error) as refused:
        session(guard_sql("--locks", "--table", table))
    assert "of version 1, and this is version 3: nothing was changed" in str(refused.value)
    session("ROLLBACK")
    assert session.value("SELECT count(*) FROM pg_proc WHERE proname = %s", f"{table}_clock") == 0


def test_a_table_that_goes_away_meanwhile(server, table, cli_on, hold):
    holder = hold(server.url(table), "x", "ttl=3000")
    session = server.session()
    for name in (table + "_claims", table + "_once", table + "_meta", table):
        session(f"DROP TABLE {name} CASCADE")
    holder.await_lost()
    assert holder.release() != "HF_OK"


def test_two_who_make_the_table_at_once(server, cli_on):
    """Many at once, on a table that none of them finds."""
    for round_number in range(4):
        cli = cli_on(server.url(f"at_once_{round_number}"))
        started = [cli.start("run", f"n{i}", "--", "true") for i in range(16)]
        assert [process.wait() for process in started] == [0] * 16
        said = [line for process in started for line in process.rest("err")]
        assert said == [f"holdfast: made the tables of a new store for locks at {server.host}: public.at_once_{round_number}"]


def test_no_rights_on_a_table_that_is_there(server, table, cli_on):
    make_table(cli_on, server, table)
    server.session()("DROP ROLE IF EXISTS looker")
    server.session()("CREATE ROLE looker LOGIN")
    fails(cli_on(server.url(table, user="looker")), "permission denied")


@pytest.mark.parametrize("name", ["a-b", "a b", "a;b", "1a", "", "a.b.c", "x" * 64, 'a"b'])
def test_names_that_are_no_tables(server, cli_on, name):
    import urllib.parse
    url = server.url() + "?table=" + urllib.parse.quote(name)
    fails(cli_on(url), "table", status=USAGE)


def test_a_schema_that_is_not_there(server, cli_on):
    line = fails(cli_on(server.url("nosuch.locks")), "there is no such schema: make it, or name another one")
    assert "guard sql" not in line, "one thing to do"


def test_a_function_that_is_not_there(server, table, cli_on):
    make_table(cli_on, server, table)
    server.session()(f"ALTER FUNCTION {table}_acquire RENAME TO {table}_acquire_before")
    line = fails(cli_on(server.url(table)), f": a function of the locks is missing: apply what 'holdfast guard sql --dialect postgres --locks --table {table}' prints (")
    assert line.endswith(f"{table}_acquire)") and "unknown" not in line, line


def test_a_listen_that_is_not_there_is_named_by_its_own_address(server, table, cli_on, servers):
    make_table(cli_on, server, table)
    pooler = servers.pgbouncer(server)
    holder = cli_on(server.url(table)).start("run", "x", "--", "sh", "-c", "echo in; read line")
    assert holder.line() == "in"
    waiter = cli_on(pooler.url(table, listen="postgres://postgres@127.0.0.1:1/postgres")).start("run", "x", "--", "true")
    said = [waiter.line("err"), waiter.line("err")]
    (warned,) = [line for line in said if "the URL of listen= cannot be used" in line]
    assert "port 1 " in warned and pooler.host not in warned
    assert not [line for line in said if "are told over the URL of listen=" in line]


def test_a_table_in_a_schema(server, table, cli_on):
    server.session()(f"CREATE SCHEMA s_{table}")
    cli = cli_on(server.url(f"s_{table}.locks"))
    assert cli("run", "x", "--", "true").status == 0
    assert server.session().value(f"SELECT count(*) FROM s_{table}.locks") == 1


# ---- servers


def test_no_server(cli_on):
    began = time.monotonic()
    for command in (("run", "-n", "x", "--", "echo", "inside"), ("ls",), ("show", "x")):
        fails(cli_on("postgres://postgres@127.0.0.1:1/postgres"), "127.0.0.1", "Connection refused; is the server running there?", status=UNREACHED,
              command=command)
    assert seconds(began) < 20
    fails(cli_on("postgres:///postgres?host=/nowhere"), "No such file or directory; is the server running there?", status=UNREACHED)


def test_no_such_database(server, cli_on):
    fails(cli_on(server.url(database="nowhere")), "nowhere")


def test_stores_says_how_waiters_wake_here(server, table, cli_on, servers):
    make_table(cli_on, server, table)
    pooler = servers.pgbouncer(server)
    for url, words in ((server.url(table), "told by NOTIFY, in their order"), (server.url(table, listen="off"), "listen=off"),
                       (server.url(table, listen="postgres://postgres@127.0.0.1:1/postgres"), "over the URL of listen=, which was not tried"),
                       (pooler.url(table), "a pooler is in between")):
        cli = cli_on(url)
        last = cli("stores").stdout.splitlines()[-1]
        assert last.startswith("  waiters: ") and words in last
        (effect,) = [each for line in cli("stores", "--json").stdout.splitlines() if (each := json.loads(line))["in_effect"]]
        assert words in effect["wakes"]


def test_no_such_role(server, cli_on):
    assert "USER@" not in fails(cli_on(server.url(user="nobody_here")), "nobody_here")
    fails(cli_on(f"postgres://{server.host}/postgres", PGUSER="nobody_here"), "nobody_here", "the URL names no user: postgres://USER@HOST/DATABASE")


def test_a_server_that_hangs(servers, table, cli_on, hold):
    """The holder is told in time, and whoever asks is told that nobody answers."""
    server = servers.postgres()
    holder = hold(server.url(table), "x", "ttl=3000")
    server.pause()
    began = time.monotonic()
    holder.await_lost()
    assert seconds(began) < 4
    fails(cli_on(server.url(table)), status=UNREACHED)
    server.resume()
    assert hold(server.url(table), "x", "ttl=3000").token > holder.token


def test_a_server_that_is_down_for_a_moment_costs_no_hold(servers, table, hold, start_holder):
    server = servers.postgres()
    holder = hold(server.url(table), "x", "ttl=6000")
    waiter = start_holder(server.url(table), "x", "ttl=6000")
    await_claims(server.session(), table, "x", 2)
    server.kill9()
    time.sleep(2.5)
    server.start()
    time.sleep(4)
    assert holder.left() > 0
    assert waiter.waits()
    assert holder.release() == "HF_OK"
    assert waiter.token > holder.token


def test_connections_that_are_ended_cost_no_hold(server, table, hold, start_holder):
    holder = hold(server.url(table), "x", "ttl=3000")
    waiter = start_holder(server.url(table), "x", "ttl=3000")
    session = server.session()
    await_claims(session, table, "x", 2)
    for _ in range(10):
        session("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        time.sleep(0.5)
    assert holder.left() > 0 and not holder.told_lost()
    assert waiter.waits()
    assert holder.release() == "HF_OK"
    assert waiter.token > holder.token


# ---- settings


def test_read_only(servers, table, cli_on, hold):
    server = servers.postgres()
    make_table(cli_on, server, table)
    holder = hold(server.url(table), "held", "ttl=3000")
    server.set("default_transaction_read_only", "on")
    line = fails(cli_on(server.url(table)), "read-only, though it is no standby")
    assert "primary" not in line, "it is the primary"
    server.set("default_transaction_read_only", "off")
    assert cli_on(server.url(table))("run", "-n", "x", "--", "true").status == 0
    assert holder.release() in ("HF_OK", "HF_ELOST")


def test_statement_timeout(servers, table, cli_on):
    """A role whose statements are ended: said in words, and nothing is left."""
    server = servers.postgres()
    make_table(cli_on, server, table)
    session = server.session()
    session("CREATE ROLE hasty LOGIN SUPERUSER")
    session("ALTER ROLE hasty SET statement_timeout = '30ms'")
    blocker = server.session()
    blocker("BEGIN")
    blocker(f"INSERT INTO {table} VALUES (%s, 0, '')", b"x")
    line = fails(cli_on(server.url(table, user="hasty")), "statement_timeout", status=UNREACHED)
    blocker("ROLLBACK")
    assert claims(session, table, "x") == [], line


def test_a_serializable_role_is_served(server, table, cli_on):
    """Failures to serialize are tried again."""
    session = server.session()
    session("DROP ROLE IF EXISTS strict_one")
    session("CREATE ROLE strict_one LOGIN SUPERUSER")
    session("ALTER ROLE strict_one SET default_transaction_isolation = 'serializable'")
    cli = cli_on(server.url(table, user="strict_one"))
    started = [cli.start("run", "x", "--", "true") for _ in range(8)]
    assert [process.wait() for process in started] == [0] * 8


def test_connection_slots_used_up(servers, table, cli_on, hold):
    server = servers.postgres("-c", "max_connections=6", "-c", "superuser_reserved_connections=0")
    holder = hold(server.url(table), "held", "ttl=3000")
    taken = []
    with pytest.raises(Exception, match="too many clients"):
        while len(taken) < 20:
            taken.append(server.connect())
    done = cli_on(server.url(table, timeout="20s"))("run", "-n", "x", "--", "echo", "inside")
    *slow, last = done.stderr.splitlines()  # on a slow machine it says before that it still tries
    assert all("no word of it" in line for line in slow) and len(slow) <= 1, done
    assert done.status == UNREACHED and "too many clients" in last and done.stdout == "", done
    time.sleep(4)
    assert holder.left() > 0  # it has its connection
    for connection in taken:
        connection.close()
    eventually(lambda: cli_on(server.url(table))("run", "-n", "x", "--", "true").status == 0, "there is room again")
    assert holder.release() == "HF_OK"


def test_the_last_try_does_not_hide_why_the_others_failed(servers, table, cli_on):
    """What is left of the time is too short for it: that there was no connection in so little of it says nothing."""
    server = servers.postgres("-c", "max_connections=6", "-c", "superuser_reserved_connections=0")
    make_table(cli_on, server, table)
    taken = []
    with pytest.raises(Exception, match="too many clients"):
        while len(taken) < 20:
            taken.append(server.connect())
    refused = server.log().count("too many clients")
    asking = cli_on(server.url(table)).start("run", "--wait", "30s", "x", "--", "echo", "inside")
    eventually(lambda: server.log().count("too many clients") > refused, "it was refused")
    time.sleep(1.1)  # of two seconds; it tries again until 1.5
    server.pause()
    assert asking.wait() == UNREACHED
    assert "too many clients" in "".join(asking.rest("err"))
    server.resume()


# ---- a full disk


@pytest.fixture
def small_disk(servers):
    """A few megabytes that anybody may use, as a place for a table."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    mount = servers.folder() / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0777", "tmpfs", mount], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("cannot mount: " + done.stderr)
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_a_full_disk(servers, small_disk, table, cli_on, hold):
    """Nobody new is let in, with the server's own words; and when there is room again, all is well."""
    server = servers.postgres()
    folder = small_disk / "space"
    folder.mkdir()
    os.chown(folder, (server.directory / "data").stat().st_uid, -1)
    session = server.session()
    session(f"CREATE TABLESPACE small LOCATION '{folder}'")
    session("CREATE DATABASE tight")
    session("ALTER DATABASE tight SET default_tablespace = 'small'")
    url = server.url(table, database="tight")
    make_table(cli_on, server, table, database="tight")
    kept = hold(url, "kept", "ttl=60000")
    (folder / "filler").write_bytes(b"")
    with open(folder / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(4096))
    cli = cli_on(url)
    done = None
    for i in range(400):  # until the pages that are there are full
        done = cli("run", "-n", f"{i}" + "x" * 500, "--", "true")
        if done.status != 0:
            break
    assert done.status == UNREACHED and "No space left" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    (folder / "filler").unlink()
    assert cli("run", "-n", "x" * 500, "--", "true").status == 0
    assert kept.release() == "HF_OK"


# ---- URLs


@pytest.mark.parametrize("url, words", [
    ("postgres://h/db?nonsense=1", "nonsense"),
    ("postgres://h/db?tabel=x", "tabel"),
    ("postgres://h/db?mode=colum", "mode"),
    ("postgres://h/db?listen=nonsense", "listen"),
    ("postgres://me:hi@dden@h/db", "%40"),
    ("postgres://me:hi/dden@h/db", "%2F"),
])
def test_wrong_urls(cli_on, url, words):
    done = cli_on(url)("run", "x", "--", "true")
    assert done.status == USAGE and words in done.stderr, done
    assert "dden" not in done.stderr


def test_what_libpq_refuses_is_said_in_its_words(cli_on):
    done = cli_on("postgres://h/db?sslmode=perhaps")("run", "x", "--", "true")
    assert done.status in (USAGE, REFUSED) and "sslmode" in done.stderr, done


def test_both_schemes(server, table, cli_on):
    url = server.url(table)
    assert cli_on("postgresql" + url[len("postgres"):])("run", "x", "--", "true").status == 0


@pytest.mark.parametrize("options", ["", "?sslmode=disable"])
@pytest.mark.parametrize("says,status,words", [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", REFUSED, " is no PostgreSQL server: it answered in another protocol"),
    (b"-ERR unknown command\r\n", USAGE, " is not a PostgreSQL server (a holdfastd or a Redis server? then use holdfast:// or redis://)")], ids=["http", "resp"])
def test_not_postgres(cli_on, says, status, words, options):
    """Something that speaks another protocol: the exit status is that of other wrong URLs."""
    import socket
    import threading
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def talk():
        while True:
            try:
                connections.append(listener.accept()[0])
                connections[-1].sendall(says)
            except OSError:
                return

    threading.Thread(target=talk, daemon=True).start()
    try:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        for command in (("run", "x", "--", "true"), ("show", "x")):
            done = cli_on(f"postgres://postgres@{place}/x{options}")(*command)
            assert (done.status, done.stderr.splitlines()[0]) == (status, f"holdfast: {place}{words}"), done
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_connection_takes_longer_than_a_first_contact(servers, table, cli_on):
    """timeout= counts for the first connection of a command, too; without it somebody who mistyped a host hears that soon."""
    server = servers.postgres("-c", "post_auth_delay=3")
    allowed = cli_on(server.url(table, timeout="30s"))
    for command in (("run", "x", "--", "echo", "inside"), ("run", "-n", "x", "--", "echo", "inside"),
                    ("once", "k", "--", "echo", "inside")):
        done = allowed(*command)
        assert (done.status, done.stdout) == (0, "inside\n"), (command, done)
    assert allowed("show", "x").status == 0
    line = fails(cli_on(server.url(table)), ": no connection within ", " s: ?timeout= in the URL allows more", status=UNREACHED,
                 command=("run", "x", "--", "echo", "inside"))
    assert "within its time" not in line
    assert "?timeout=" not in fails(allowed, "no connection within ", status=UNREACHED,
                                    command=("run", "--wait", "1s", "x", "--", "echo", "inside")), "it was the wait"


def test_a_program_that_is_not_there(servers):
    """The tests' own: a server that does not start says so."""
    with pytest.raises(AssertionError):
        servers.keep(Server("server", "-c", "nonsense=1"))


# ---- a server that hangs


@pytest.mark.parametrize("words", [("run", "x", "--", "true"), ("watch", "x")], ids=" ".join)
def test_a_server_that_hangs_is_told_of_long_before_its_answer_is_given_up(servers, table, cli_on, words):
    server = servers.postgres()
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table))
    assert cli("lock", "x").status == 0
    process = cli.start(*words)
    process.line("out" if words[0] == "watch" else "err")  # who holds it
    server.pause()
    try:
        assert "'x': no answer for a second: the server hangs, or waits for a row that is locked, or for a synchronous standby; still trying" in process.line("err")
    finally:
        server.resume()


def test_a_floor_whose_answer_is_lost_may_or_may_not_be_done(servers, table, cli_on):
    """The synchronous standby is missing: it is done, and the server does not say so."""
    server = servers.postgres()
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table))
    floor = int(time.time() * 1e6) + 10 ** 12
    server.set("synchronous_standby_names", "ghost")
    done = cli("floor", str(floor))
    first, slow, last = done.stderr.splitlines()
    assert done.status == UNREACHED and done.stdout == "" and "ends all holds" in first, done
    assert slow.startswith("holdfast: floor: no word that it is done from ") and slow.endswith("still trying"), done
    assert "may or may not have been raised: repeat the command" in last, done
    server.set("synchronous_standby_names", "")
    assert eventually(lambda: (again := cli("floor", str(floor))).status == 0 and again, "it is done").stdout.endswith(f"is greater than {floor}\n")
    assert cli("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").stdout > f"{floor}\n"


# ---- what is said, and when


def test_whoever_was_told_to_end_says_that_it_leaves_and_not_that_it_waits(servers, table, cli_on):
    server = servers.postgres()
    make_table(cli_on, server, table)
    cli = cli_on(server.url(table))
    assert cli("lock", "x").status == 0
    running = cli.start("once", "k", "--", "sh", "-c", "echo inside >&2; read line")
    assert running.line("err") == "inside"
    names = {"run": "x", "lock": "x", "elect": "x", "once": "k"}
    waiting = [cli.start(word, name, *(() if word == "lock" else ("--", "true"))) for word, name in names.items()]
    quiet = cli.start("run", "-q", "x", "--", "true")
    for process, name in zip(waiting, names.values()):
        assert f"waiting for '{name}' in" in process.line("err")
    cli.await_waiters("x", 4)
    server.pause()
    for process in [*waiting, quiet]:
        process.kill(signal.SIGINT)
    for process, name in zip(waiting, names.values()):
        assert process.wait() == 128 + signal.SIGINT
        assert process.rest("err") == [f"holdfast: leaving the queue for '{name}': the store is being told, for up to 5.0 s (another signal ends that)"]
    assert quiet.wait() == 128 + signal.SIGINT and quiet.rest("err") == []
    server.resume()
    assert running.end() == 0


def test_nobody_is_silent_for_long(servers, table, cli_on):
    """From the first moment on: no line has said yet who holds it."""
    server = servers.postgres()
    make_table(cli_on, server, table)
    silent = servers.postgres()
    silent.pause()
    locker = server.session()
    locker("BEGIN")
    locker(f"LOCK TABLE {table}_claims")
    cli, patient = cli_on(server.url(table)), cli_on(silent.url(table, timeout="6s"))
    started = [("waiting for", server, cli.start("run", "x", "--", "true")), ("watching", server, cli.start("watch", "x")),
               ("waiting for", silent, patient.start("run", "x", "--", "true")), ("watching", silent, patient.start("watch", "x")),
               ("asking for", silent, patient.start("run", "-n", "x", "--", "true"))]
    for doing, asked, process in started:
        line = process.line("err")
        missing = "no answer" if doing == "watching" else "no word of it" if asked is silent else ""  # why may be known by then
        assert line.startswith(f"holdfast: {doing} 'x': {missing}") and line.endswith("; still trying"), line
    locker("ROLLBACK")
    assert started[0][2].wait() == 0
    started[1][2].line("out")  # and it goes on
    silent.resume()
    server.set("synchronous_standby_names", "ghost")
    assert cli.start("run", "-n", "y", "--", "true").line("err").startswith("holdfast: asking for 'y': ")
    server.set("synchronous_standby_names", "")


def test_after_a_loss_the_line_says_how_long_the_store_is_told(servers, table, cli_on):
    """For 5 s, and before that a renewal that hangs has to end: a fifth of the TTL."""
    server = servers.postgres()
    make_table(cli_on, server, table)
    job = cli_on(server.url(table)).start("run", "--ttl", "2s", "x", "--", "sh", "-c", "echo inside; exec sleep 1000")
    assert job.line() == "inside"
    server.pause()
    assert "lost 'x'" in job.line("err")
    line = job.line("err")
    assert line.startswith("holdfast: releasing 'x': no answer from ") and line.endswith("; trying for up to 5.4 s in all"), line
    server.resume()
    assert job.wait() == 76
