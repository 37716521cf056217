"""Users, rights, and everything that libpq knows of how to get in: passwords, .pgpass, service files, TLS."""
import json
import os
import re
import subprocess
import urllib.parse

import pytest
from conftest import TESTS, claims, eventually, guard_sql, make_table
from holder import hold, start_holder  # noqa: F401

REFUSED, UNREACHED, USAGE = 77, 69, 64


# ---- least privileges: those of docs/postgres-store.md


def documented(heading):
    """The SQL of the page's block that follows this line."""
    text = (TESTS.parents[1] / "docs/postgres-store.md").read_text()
    block = text[text.index(heading):].split("\n\n")[1]
    return "\n".join(line[4:] for line in block.splitlines())


def printed_grants(*options):
    lines = guard_sql("--locks", *options).splitlines()
    return "\n".join(line.removeprefix("-- ") for line in lines if line.startswith("-- GRANT "))


def test_a_role_without_rights_is_told_where_they_are(servers, cli_on):
    server = servers.postgres()
    session = server.session()
    session("CREATE SCHEMA s")
    session(guard_sql("--locks", "--table", "s.t"))
    session("CREATE ROLE app LOGIN")
    session("GRANT USAGE ON SCHEMA s TO app")
    cli = cli_on(server.url("s.t", user="app"))
    done = cli("run", "x", "--", "true")
    assert done.status == 77
    assert "a role must be GRANTed what 'holdfast guard sql --dialect postgres --locks --table s.t' prints after COMMIT" in done.stderr, done.stderr
    session("REVOKE USAGE ON SCHEMA s FROM app")
    session(printed_grants("--table", "s.t"))
    assert cli("run", "x", "--", "true").status == 0


def test_where_functions_are_not_everybodys_the_printed_rights_name_them(servers, cli_on):
    """ALTER DEFAULT PRIVILEGES ... REVOKE EXECUTE: a role needs that right of each of them."""
    server = servers.postgres()
    session = server.session()
    session("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    session(guard_sql("--locks"))
    session("CREATE ROLE app LOGIN")
    session(documented("least privileges"))
    cli = cli_on(server.url(user="app"))
    done = cli("run", "x", "--", "true")
    assert done.status == REFUSED
    assert "permission denied for function" in done.stderr and "what 'holdfast guard sql --dialect postgres --locks' prints after COMMIT" in done.stderr
    session(printed_grants())
    assert cli("run", "x", "--", "true").status == 0
    withheld = ("SELECT proname FROM pg_proc WHERE proname LIKE 'holdfast%' AND NOT has_function_privilege('app', oid, 'EXECUTE')")
    assert session(withheld) == []


@pytest.mark.parametrize("grants", [lambda: documented("least privileges"), printed_grants], ids=["page", "command"])
def test_the_documented_privileges_are_enough(servers, cli_on, hold, start_holder, grants):
    """Made by the owner; a role that may do no more than that does all there is."""
    server = servers.postgres()
    session = server.session()
    session(guard_sql("--locks"))
    session("CREATE ROLE app LOGIN")
    session(grants())
    url = server.url(user="app")
    cli = cli_on(url)
    holder = hold(url, "x", "ttl=20000")
    waiter = start_holder(url, "x", "ttl=20000")
    cli.await_waiters("x")
    assert cli("ls").status == 0
    assert cli("check", "x", str(holder.token)).status == 0
    assert cli("once", "key", "--", "echo", "done").stdout == "done\n"
    assert cli("once", "key", "--", "echo", "again").stdout == "done\n"
    assert cli("floor", str(holder.token + 1000)).status == 0
    assert cli("break", "x", "--grace", "0").status == 0
    holder.await_lost()
    assert waiter.token > holder.token + 1000
    assert waiter.release() == "HF_OK"
    session("CREATE TABLE other (i integer)")
    with pytest.raises(Exception, match="permission denied"):
        server.session(user="app")("SELECT * FROM other")
    with pytest.raises(Exception, match="permission denied"):
        server.session(user="app")("CREATE TABLE mine (i integer)")


# ---- what a role may write is not what others run


EVIL = 'x";ALTER USER app SUPERUSER--'  # as an id, in the name of a channel


def test_what_a_role_writes_into_the_row_of_all_is_no_sql(servers, cli_on):
    """A store that was made before: a role that may use it may write any id. Everybody's LISTEN has it in its text."""
    server = servers.postgres()
    session = server.session()
    session(guard_sql("--locks"))
    session("ALTER TABLE holdfast_locks_meta DROP CONSTRAINT IF EXISTS holdfast_locks_meta_id_check, "
            "DROP CONSTRAINT IF EXISTS holdfast_locks_meta_era_check")
    session("CREATE ROLE app LOGIN")
    session(printed_grants())
    session("GRANT UPDATE ON holdfast_locks_meta TO app")
    assert cli_on(server.url(user="app"))("run", "x", "--", "true").status == 0
    for wrong in EVIL, "x" * 16, "0123456789ABCDEF", "0123456789abcde":
        server.session(user="app")("UPDATE holdfast_locks_meta SET era = '', id = %s", wrong)
        done = cli_on(server.url())("run", "--ttl", "30s", "nightly", "--", "sleep", "2")  # long enough to listen
        assert not session.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'")
        assert done.status == REFUSED and "holdfast_locks_meta is not one that holdfast draws" in done.stderr, (wrong, done)
    session("UPDATE holdfast_locks_meta SET id = left(replace(gen_random_uuid()::text, '-', ''), 16), era_of = ''")  # as the page says
    assert cli_on(server.url())("run", "nightly", "--", "true").status == 0


def test_nobody_writes_such_an_id(servers, cli_on):
    """A store that is made now: the printed rights are not of the id, and the table refuses what is none."""
    server = servers.postgres()
    session = server.session()
    session(guard_sql("--locks"))
    session("CREATE ROLE app LOGIN")
    session(printed_grants())
    assert cli_on(server.url(user="app"))("run", "x", "--", "true").status == 0
    for column in "id", "version", "only_one":
        with pytest.raises(Exception, match="permission denied"):
            server.session(user="app")(f"UPDATE holdfast_locks_meta SET {column} = {column}")
    for column in "id", "era":
        with pytest.raises(Exception, match="check constraint"):
            session(f"UPDATE holdfast_locks_meta SET {column} = %s", EVIL)


CAUGHT = """CREATE FUNCTION public.{what} RETURNS {result} LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO public.caught VALUES ({sign}, current_user); RETURN {instead}; END $$"""
BETTER = [  # than PostgreSQL's own, or the store's, for the arguments that the store's statements have: none of their own needs a conversion
    ("cardinality(bigint[])", "integer", "pg_catalog.cardinality($1)"),
    ("jsonb_build_object(text, bigint)", "jsonb", "pg_catalog.jsonb_build_object($1, $2)"),
    ("unnest(bytea[])", "SETOF bytea", None),
    ("unnest(bigint[])", "SETOF bigint", None),
    ("hashtextextended(text, integer)", "bigint", "pg_catalog.hashtextextended($1, $2::bigint)"),
    ("array_to_string(bigint[], text)", "text", "pg_catalog.array_to_string($1, $2)"),
    ("format(text, text)", "text", "pg_catalog.format($1, $2)"),
    ("power(double precision, integer)", "double precision", "pg_catalog.power($1, $2::double precision)"),
    ("holdfast_locks_page(text)", "tid[]", "ARRAY[]::tid[]"),
    ("holdfast_locks_renew(text, text, text, text, text, text, text, text, text, text)", "record", "NULL"),
    ("holdfast_locks_release(text, text, text, text, text, text, text, text, text, text)", "record", "NULL"),
]
OPERATORS = [("*", "numeric", "integer", "numeric"), ("*", "double precision", "bigint", "double precision"), ("||", "text", "bigint", "text"),
             ("||", "text", "integer", "text"), ("=", "oid", "regclass", "boolean"), ("=", "oid", "regprocedure", "boolean"),
             ("->>", "jsonb", "jsonb", "text"), ("||", "bigint[]", "bigint", "bigint[]")]


def test_nobody_puts_functions_in_the_path_of_others(servers, cli_on, hold):
    """Up to version 14, and after an upgrade from it, everybody may CREATE in public: a better match of the arguments runs as whoever takes a lock."""
    server = servers.postgres()
    session = server.session()
    session("CREATE ROLE app LOGIN")
    session("CREATE ROLE mallory LOGIN")
    session("GRANT CREATE ON SCHEMA public TO PUBLIC")
    session("CREATE TABLE caught (what text, who text)")
    session("GRANT INSERT ON caught TO PUBLIC")
    mallory = server.session(user="mallory")
    for what, result, instead in BETTER:
        body = CAUGHT.format(what=what, result=result, sign=f"'{what}'", instead=instead or "")
        mallory(body.replace("RETURN ;", "RETURN QUERY SELECT pg_catalog.unnest($1); RETURN;"))
    for number, (name, left, right, result) in enumerate(OPERATORS):
        mallory(CAUGHT.format(what=f"op{number}({left}, {right})", result=result, sign=f"'{name} {left} {right}'", instead="NULL"))
        mallory(f"CREATE OPERATOR public.{name} (FUNCTION = public.op{number}, LEFTARG = {left}, RIGHTARG = {right})")
    for line in guard_sql(), guard_sql("--locks"):
        session(line)
    session(printed_grants())
    for user in "app", "postgres":
        url = server.url(user=user)
        cli = cli_on(url)
        holder = hold(url, "x", "ttl=30000")
        assert cli("run", "-n", "x", "--", "true").status == 75
        assert cli("run", "y", "--", "true").status == 0
        assert cli("once", user, "--", "echo", "done").stdout == "done\n"
        assert cli("once", user, "--", "echo", "again").stdout == "done\n"
        assert cli("show", "x").status == 0 and cli("ls").status == 0 and cli("check", "x", str(holder.token)).status == 0
        env = dict(re.findall(r"^(HOLDFAST_(?:LEASE|TOKEN))='?([^';]*)", cli("lock", "--ttl", "30s", "z").stdout, re.M))
        assert cli("renew", "z", env=env).status == 0
        server.session()("SELECT holdfast_enter_held('z', %s, %s)", env["HOLDFAST_LEASE"], int(env["HOLDFAST_TOKEN"]))
        assert cli("unlock", "z", env=env).status == 0
        assert cli("break", "x", "--now").status == 0
        assert cli("floor", str(holder.token + 1000)).status == 0
    rows = cli_on(server.url(mode="row"))
    assert rows("run", "r", "--", "true").status == 0
    session("SELECT * FROM holdfast_locks_shown")
    assert session("SELECT DISTINCT what, who FROM caught") == []


# ---- the schema


def test_the_schema_that_was_found_is_named(servers, cli_on, hold):
    """With a schema for each user, the same URL is two stores, and nobody would see it."""
    server = servers.postgres()
    session = server.session()
    for role in ("ann", "bob"):
        session(f"CREATE ROLE {role} LOGIN")
        session(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    for role in ("ann", "bob"):
        cli = cli_on(server.url(user=role))
        where = f"{server.host}, database postgres, table {role}.holdfast_locks"
        holder = hold(server.url(user=role), "x", "ttl=60000")
        assert cli("show", "x").stdout.splitlines()[-1] == f"x: looked for in {where}"
        assert json.loads(cli("show", "--json", "x").stdout)["where"] == where
        lines = cli("stores").stdout.splitlines()
        assert lines[-2] == f"  found: {where}" and lines[-3].startswith("In effect: "), lines[-3:]
        (effect,) = [each for line in cli("stores", "--json").stdout.splitlines() if (each := json.loads(line))["in_effect"]]
        assert effect["where"] == where
        waiter = cli.start("run", "x", "--", "true")
        assert waiter.line("err").startswith(f"holdfast: waiting for 'x' in {where}: held by ")
        assert holder.release() == "HF_OK"
        assert waiter.wait() == 0
        named = cli_on(server.url(f"{role}.holdfast_locks", user=role))
        assert "looked for" not in named("show", "x").stdout and "found:" not in named("stores").stdout


@pytest.mark.parametrize("hosts, shown", [
    ("127.0.0.1:5534,127.0.0.1:5533", "127.0.0.1:5534,127.0.0.1:5533"), ("[::1]:5533", "[::1]:5533"), ("127.0.0.1,[::1]", "127.0.0.1,[::1]"),
    ("127.0.0.1:1,[::1],127.0.0.2:3", "127.0.0.1:1,[::1],127.0.0.2:3"), ("", "the local server"), ("%2Ftmp:5", "/tmp:5")])
def test_hosts_are_shown_as_in_a_url(cli_on, hosts, shown):
    stores = cli_on(f"postgres://{hosts}/d").start("stores")  # nobody is there: what comes before the server is asked
    while not (line := stores.line()).startswith("In effect"):
        pass
    assert f"({shown}, database d, table holdfast_locks)" in line


# ---- passwords


@pytest.fixture
def guarded(servers):
    server = servers.postgres("-c", "password_encryption=scram-sha-256")
    session = server.session()
    session("CREATE ROLE ann LOGIN PASSWORD 'p w/d%:'")
    session("CREATE DATABASE hers OWNER ann")
    server.let_in("host all ann 127.0.0.1/32 scram-sha-256")
    return server


def test_a_password_in_the_url(guarded, table, cli_on):
    url = guarded.url(table, user="ann:p%20w%2Fd%25%3A", database="hers")
    assert cli_on(url)("run", "x", "--", "true").status == 0
    done = cli_on(guarded.url(table, user="ann:wrong", database="hers"))("run", "x", "--", "true")
    assert done.status == REFUSED and "password" in done.stderr and "wrong" not in done.stderr, done
    done = cli_on(guarded.url(table, user="ann", database="hers"))("run", "x", "--", "true")
    assert done.status == REFUSED and "password" in done.stderr, done


def test_no_output_shows_the_password(guarded, table, cli_on):
    cli = cli_on(guarded.url(table, user="ann:p%20w%2Fd%25%3A", database="hers"))
    for words in (("run", "x", "--", "env"), ("stores",), ("show", "x"), ("run", "x", "--", "true"), ("ls", "--json")):
        done = cli(*words)
        assert "p%20w" not in done.stdout + done.stderr and "p w/d" not in done.stdout + done.stderr, words


def test_no_output_shows_the_password_of_listen(guarded, table, cli_on):
    """A URL within the URL; what a job gets of it still works with the password from elsewhere."""
    hers = {"user": "ann:p%20w%2Fd%25%3A", "database": "hers"}
    cli = cli_on(guarded.url(table, **hers, listen=guarded.url(**hers)))
    bare = guarded.url(table, user="ann", database="hers", listen=guarded.url(user="ann", database="hers"))
    for words in (("run", "x", "--", "env"), ("stores",), ("stores", "--json"), ("show", "x"), ("ls",), ("lock", "y"),
                  ("floor", "1"), ("floor", "--json", "2")):
        done = cli(*words)
        assert done.status == 0 and not any(part in done.stdout + done.stderr for part in ("p%20w", "p%2520w", "p w")), (words, done)
        assert words[:2] != ("run", "x") or f"HOLDFAST_URL={bare}\n" in done.stdout, done
    (effect,) = [each for line in cli_on(bare, HOLDFAST_PASSWORD="p w/d%:")("stores", "--json").stdout.splitlines()
                 if (each := json.loads(line))["in_effect"]]
    assert "cannot" not in effect["wakes"] and effect["url"] == bare
    assert cli_on(bare, HOLDFAST_PASSWORD="p w/d%:")("run", "x", "--", "true").status == 0


def test_a_password_file(guarded, table, cli_on, tmp_path):
    path = tmp_path / "password"
    path.write_text("p w/d%:\n")
    path.chmod(0o600)
    url = guarded.url(table, user="ann", database="hers", **{"password-file": path})
    assert cli_on(url)("run", "x", "--", "true").status == 0


def test_holdfast_password(guarded, table, cli_on):
    assert cli_on(guarded.url(table, user="ann", database="hers"), HOLDFAST_PASSWORD="p w/d%:")("run", "x", "--", "true").status == 0


def test_pgpass(guarded, table, cli_on, tmp_path):
    path = tmp_path / "pgpass"
    path.write_text(f"127.0.0.1:{guarded.port}:hers:ann:p w/d%\\:\n")
    path.chmod(0o600)
    url = guarded.url(table, user="ann", database="hers")
    assert cli_on(url, PGPASSFILE=str(path))("run", "x", "--", "true").status == 0
    assert cli_on(guarded.url(table, user="ann", database="hers", passfile=path))("run", "x", "--", "true").status == 0


def test_a_service_file(guarded, table, cli_on, tmp_path):
    path = tmp_path / "services"
    path.write_text(f"[locks]\nhost=127.0.0.1\nport={guarded.port}\nuser=ann\npassword=p w/d%:\ndbname=hers\n")
    done = cli_on(f"postgres://?service=locks&table={table}", PGSERVICEFILE=str(path))("run", "x", "--", "true")
    assert done.status == 0, done
    assert guarded.session(database="hers").value(f"SELECT count(*) FROM {table}") == 1


def test_the_environment_of_libpq(guarded, table, cli_on):
    env = {"PGHOST": "127.0.0.1", "PGPORT": str(guarded.port), "PGUSER": "ann", "PGPASSWORD": "p w/d%:", "PGDATABASE": "hers"}
    done = cli_on(f"postgres://?table={table}", **env)("run", "x", "--", "true")
    assert done.status == 0, done


def test_a_unix_socket(servers, table, cli_on):
    server = servers.postgres()
    if os.stat(server.directory).st_uid != os.geteuid() and os.geteuid() != 0:
        pytest.skip("the socket is somebody else's")
    folder = str(server.directory).replace("/", "%2F")
    done = cli_on(f"postgres://postgres@{folder}:{server.port}/postgres?table={table}")("run", "x", "--", "true")
    assert done.status == 0, done
    done = cli_on(f"postgres:///postgres?host={folder}&port={server.port}&user=postgres&table={table}")("run", "x", "--", "true")
    assert done.status == 0, done


# ---- TLS


def make_certificates(folder):
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    for ca in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={ca}", "-keyout", str(folder / f"{ca}.key"), "-out", str(folder / f"{ca}.pem"))
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(folder / "csr"))
    openssl("x509", "-req", "-in", str(folder / "csr"), "-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key"),
            "-CAcreateserial", "-days", "2", "-copy_extensions", "copy", "-out", str(folder / "cert.pem"))


def test_tls(servers, table, cli_on, hold, start_holder, tmp_path):
    make_certificates(tmp_path)
    server = servers.postgres()
    data = server.directory / "data"
    for name in ("cert.pem", "key.pem"):
        (data / name).write_text((tmp_path / name).read_text())
        os.chown(data / name, data.stat().st_uid, data.stat().st_gid)
        (data / name).chmod(0o600)
    session = server.session()
    for name, value in (("ssl_cert_file", "cert.pem"), ("ssl_key_file", "key.pem"), ("ssl", "on")):
        session(f"ALTER SYSTEM SET {name} = '{value}'")
    server.restart()
    server.session()("CREATE ROLE tina LOGIN SUPERUSER")
    server.let_in("hostssl all tina 127.0.0.1/32 trust", "host all tina 127.0.0.1/32 reject")
    sure = {"sslmode": "verify-full", "sslrootcert": tmp_path / "ca.pem", "user": "tina"}
    first = hold(server.url(table, **sure), "x", "ttl=20000")
    waiter = start_holder(server.url(table, **sure), "x", "ttl=20000")
    cli_on(server.url(table, **sure)).await_waiters("x")
    assert len(claims(server.session(), table, "x")) == 2
    assert server.session().value("SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'tina'")
    assert first.release() == "HF_OK"
    assert waiter.token > first.token
    done = cli_on(server.url(table, **{**sure, "sslrootcert": tmp_path / "other.pem"}))("run", "-n", "y", "--", "true")
    assert done.status in (UNREACHED, REFUSED) and "certificate" in done.stderr, done
    done = cli_on(server.url(table, user="tina", sslmode="disable"))("run", "-n", "y", "--", "true")
    assert done.status == REFUSED, done
    # Whom to trust, as other stores call it: nobody else is believed, though the server would take anybody without TLS, too.
    assert cli_on(server.url(table, **{"ca-file": tmp_path / "ca.pem"}))("run", "-n", "y", "--", "true").status == 0
    done = cli_on(server.url(table, **{"ca-file": tmp_path / "other.pem"}))("run", "-n", "y", "--", "true")
    assert done.status in (UNREACHED, REFUSED) and "certificate" in done.stderr, done
    for more in ({}, {"sslmode": "require"}):
        done = cli_on(server.url(table, **{"ca-file": tmp_path / "nowhere.pem"}, **more))("run", "-n", "y", "--", "true")
        assert done.status == USAGE and "ca-file" in done.stderr and "nowhere.pem" in done.stderr, done
    session = server.session()
    session("ALTER SYSTEM SET ssl = off")
    session("SELECT pg_reload_conf()")
    eventually(lambda: server.session().value("SHOW ssl") == "off", "it speaks no TLS any more")
    done = cli_on(server.url(table, **{"ca-file": tmp_path / "ca.pem"}))("run", "-n", "y", "--", "true")
    assert done.status in (UNREACHED, REFUSED) and "SSL" in done.stderr, done


def test_several_hosts(server, table, cli_on):
    """The first is not there: libpq goes on to the next."""
    make_table(cli_on, server, table)
    url = server.url(table, hosts=f"127.0.0.1:1,{server.host}")
    assert cli_on(url)("run", "-n", "x", "--", "true").status == 0


@pytest.mark.parametrize("port", ["abc", "0", "65536", "5432,x", "99999999999"])
def test_a_port_that_is_none(cli_on, port):
    hosts = ",".join(f"127.0.0.1:{part}" for part in port.split(","))
    done = cli_on(f"postgres://me@{hosts}/x")("run", "-n", "x", "--", "true")
    assert done.status == USAGE and done.stderr.endswith(f"'{port.split(',')[-1]}' is not a port, from 1 to 65535\n"), done.stderr
    done = cli_on(f"postgres://{hosts}/x")("run", "-n", "x", "--", "true")
    assert done.status == USAGE and "a port is a number from 1 to 65535; if it was a password, the host is missing" in done.stderr, done.stderr


@pytest.mark.parametrize("mistyped, words", [
    ("pw:Secret100%@127.0.0.1:1/x", "a '%' in a password is written %25"),
    ("pw:Secret%zz@127.0.0.1:1/x", "badly percent-encoded"),
    ("pw:Secret%00@127.0.0.1:1/x", "badly percent-encoded"),
    ("pw:Secret@127.0.0.1%:1/x", "badly percent-encoded"),
    ("pw:Secret@[::1:1/x", "an IPv6 address is written [::1], or [::1]:PORT"),
    ("pw:Secret@[::1]x:1/x", "an IPv6 address"),
    ("pw:Secret@[]:1/x", "HOST"),
    ("pw:Sec@Secret@127.0.0.1:1/x", "written %40"),
    ("pw:Sec/Secret@127.0.0.1:1/x", "a '/' %2F"),
    ("pw:Sec?Secret=ret@127.0.0.1:1/x", "'@' after '?'"),
    ("pw:Secret", "if it was a password, the host is missing"),
    ("pw:Secret/x", "if it was a password, the host is missing"),
    ("pw:1234567Secret", "if it was a password, the host is missing"),
])
def test_no_error_shows_the_password_of_a_mistyped_url(cli_on, mistyped, words):
    """libpq quotes what it cannot read."""
    for url in (f"postgres://{mistyped}", f"postgres://127.0.0.1:1/x?listen={urllib.parse.quote('postgres://' + mistyped)}"):
        done = cli_on(url)("run", "-n", "x", "--", "true")
        assert done.status == USAGE and words in done.stderr and "Secret" not in done.stderr, (url, done)
    done = cli_on(f"postgres://127.0.0.1:1/x?listen={urllib.parse.quote('postgres://h/x?Secret=1')}")("run", "-n", "x", "--", "true")
    assert done.status == USAGE and "options of libpq" in done.stderr and "Secret" not in done.stderr, done
