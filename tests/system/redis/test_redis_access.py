"""Being let in: passwords, users, certificates, and URLs; and that no secret is ever shown."""
import subprocess
import time

import pytest
from conftest import BIN, free_port, refused

HALVES = "Tr0ub4", "d0r3x"
SECRET = "".join(HALVES)


def keys(redis):
    return set(redis.cmd("KEYS", "*"))


# ---- passwords


@pytest.fixture
def locked(servers):
    """A Redis with a password, and a user of its own."""
    redis = servers.redis("--requirepass", SECRET)

    def cmd(*words):
        with redis.connect() as connection:
            connection.cmd("AUTH", SECRET)
            return connection.cmd(*words)

    redis.ask = cmd
    return redis


def password_file(directory, text=SECRET + "\n"):
    path = directory / "password"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_the_password_of_client_conf_is_for_its_own_url(locked, cli_on, tmp_path):
    """Which is said to who names another one, or the same by other means, and has none."""
    conf = tmp_path / "client.conf"
    conf.write_text(f"url = {locked.url()}\npassword-file = {password_file(tmp_path)}\n")
    conf.chmod(0o600)
    cli = cli_on(locked.url())
    cli.env["HOLDFAST_CLIENT_CONF"] = str(conf)
    unused = f"(that of {conf} is for the url there, and not used for one from --on, HOLDFAST_URL or hf_open)"
    refused(cli, "needs a password", "or with the url in client.conf", unused)
    conf.write_text(f"url = {locked.url()}\n")
    assert unused not in refused(cli, "needs a password")
    conf.write_text(f"url = redis://:{SECRET}@{locked.address}\n")
    refused(cli, unused)
    cli.env.pop("HOLDFAST_URL")
    assert cli("run", "-n", "x", "true").status == 0


def test_wrong_and_missing_password(redis, locked, cli_on):
    refused(cli_on(locked.url()), "needs a password", "HOLDFAST_PASSWORD", "password-file")
    for userinfo in (":wrong", "default:wrong", f"nobody:{SECRET}"):
        said = refused(cli_on(f"redis://{userinfo}@{locked.address}"), "does not accept")
        assert "wrong" not in said and SECRET not in said
    refused(cli_on(f"redis://nobody@{locked.address}"), "does not accept this user without a password", "password-file")
    said = refused(cli_on(f"redis://:{SECRET}@{redis.address}"), "no password")
    assert SECRET not in said
    assert locked.ask("DBSIZE") == 0


def ways_of_giving_it(locked, directory, user=""):
    at = f"{user}@" if user else ""
    path = password_file(directory)
    return {"in the URL": (f"redis://{user}:{SECRET}@{locked.address}", {}),
            "percent-encoded": (f"redis://{user}:%54{SECRET[1:]}@{locked.address}", {}),
            "in the environment": (f"redis://{at}{locked.address}", {"HOLDFAST_PASSWORD": SECRET}),
            "in a file": (f"redis://{at}{locked.address}?password-file={path}", {})}


def test_password_works_and_is_never_shown(locked, cli_on, directory):
    """However it is given: in no output, no variable of the job, no command line of it."""
    everything = 'env; tr "\\0" "\\n" </proc/self/environ; tr "\\0" " " </proc/$$/cmdline'
    for way, (url, env) in ways_of_giving_it(locked, directory).items():
        cli = cli_on(url)
        cli.env.update(env)
        said = []

        def ask(*args, status=0):
            done = cli(*args)
            assert done.status == status, (way, args, done.stderr)
            said.append(done.stdout + done.stderr)

        ask("run", "-v", "-n", "x", "--", "sh", "-c", everything)
        assert "HOLDFAST_TOKEN" in said[-1], "it has said what it sees"
        holder = cli.hold("x")
        for args in (("stores",), ("stores", "--json"), ("show", "x"), ("show", "x", "--json"), ("ls",), ("ls", "--json"),
                     ("check", "x", str(holder.token)), ("leader", "x")):
            ask(*args)
        ask("run", "-n", "x", "true", status=75)
        ask("run", "-v", "-w", "200ms", "x", "true", status=75)
        assert holder.end() == 0
        ask("lock", "x")
        ask("break", "--now", "x")
        said += holder.rest("err")
        assert not any(half in text for text in said for half in HALVES), way
        assert not any(SECRET in key for key in locked.ask("KEYS", "*"))


def test_waiting_and_losing_show_no_password(locked, cli_on):
    cli = cli_on(f"redis://:{SECRET}@{locked.address}")
    holder = cli.hold("x")
    waiter = cli.start("run", "x", "true")
    said = waiter.line("err")
    assert "waiting for 'x'" in said and locked.address in said
    locked.kill()
    waiter.kill(15)
    waiter.wait()
    holder.popen.stdin.close()
    holder.wait()
    done = cli("run", "-n", "x", "true")
    assert done.status == 69
    for text in [said, done.stderr, *waiter.rest("err"), *holder.rest("err")]:
        assert SECRET not in text


def test_job_can_go_on_with_a_password_file(locked, cli_on, directory):
    """HOLDFAST_URL, as the job has it, still names the file, so that it can ask about its own lock."""
    url, _ = ways_of_giving_it(locked, directory)["in a file"]
    cli = cli_on(url)
    done = cli("run", "-n", "x", "--", "sh", "-c", f'{BIN} check x $HOLDFAST_TOKEN && {BIN} show x')
    assert done.status == 0 and "held" in done.stdout, done.stderr


@pytest.mark.parametrize("text", ["", "\n", "a\0b\n", "p" * 2000 + "\n"])
def test_bad_password_files(locked, cli_on, directory, text):
    path = password_file(directory, text)
    said = refused(cli_on(locked.url(**{"password-file": path})), "password-file", str(path), status=64)
    assert "pppp" not in said


def test_users_of_an_acl(locked, cli_on, directory):
    """A user who may not ask what the server is, nor see keys of others, can lock."""
    locked.ask("ACL", "SETUSER", "app", "on", f">{SECRET}", "~holdfast*", "&holdfast*", "+@all", "-@admin", "-@dangerous")
    for way, (url, env) in ways_of_giving_it(locked, directory, "app").items():
        cli = cli_on(url)
        cli.env.update(env)
        done = cli("run", "-n", "x", "true")
        assert (done.status, done.stderr) == (0, ""), way
    holder = cli.hold("x")
    waiter = cli.start("run", "x", "--", "echo", "inside")
    cli.await_waiters("x")
    assert holder.end() == 0
    assert waiter.line() == "inside" and waiter.wait() == 0
    assert refused(cli_on(f"redis://app:{SECRET}@{locked.address}?prefix=other:"), "refuses", "key")


def test_user_without_rights_is_refused(locked, cli_on):
    locked.ask("ACL", "SETUSER", "guest", "on", f">{SECRET}", "~*", "&*", "+@read", "+@connection")
    said = refused(cli_on(f"redis://guest:{SECRET}@{locked.address}"), "refuses", "permissions")
    assert SECRET not in said
    locked.ask("ACL", "SETUSER", "gone", "off", f">{SECRET}", "~*", "&*", "+@all")
    assert SECRET not in refused(cli_on(f"redis://gone:{SECRET}@{locked.address}"), "does not accept")


# ---- TLS


def openssl(directory, *args):
    subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)


def make_authority(directory, name):
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")


def make_certificate(directory, name, authority, alternative):
    (directory / "extensions").write_text(f"subjectAltName={alternative}\n")
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
            f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-days", "2", "-extfile", "extensions", "-out", f"{name}.pem")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls")
    make_authority(path, "ca")
    make_authority(path, "stranger")
    make_certificate(path, "server", "ca", "IP:127.0.0.1")
    make_certificate(path, "elsewhere", "ca", "DNS:redis.example.org")
    make_certificate(path, "client", "ca", "DNS:client")
    return path


@pytest.fixture
def tls_redis(servers, certificates):
    """Makes one; .tls(options) is its URL."""
    def make(certificate="server", clients="no"):
        port = free_port()
        redis = servers.redis("--tls-port", port, "--tls-cert-file", certificates / f"{certificate}.pem", "--tls-key-file",
                              certificates / f"{certificate}.key", "--tls-ca-cert-file", certificates / "ca.pem",
                              "--tls-auth-clients", clients)
        redis.tls_port = port
        redis.tls = lambda **options: f"rediss://127.0.0.1:{port}?" + "&".join(
            f"{key.replace('_', '-')}={certificates / value}" for key, value in options.items())
        return redis

    return make


def test_tls(tls_redis, cli_on):
    redis = tls_redis()
    cli = cli_on(redis.tls(ca_file="ca.pem"))
    holder = cli.hold("x")
    assert cli_on(redis.url()).show("x")["holders"][0]["token"] == holder.token
    waiter = cli.start("run", "x", "--", "echo", "inside")
    cli.await_waiters("x")
    assert holder.end() == 0
    assert waiter.line() == "inside" and waiter.wait() == 0


def test_tls_of_a_stranger_is_refused(tls_redis, cli_on):
    redis = tls_redis()
    for options in ({"ca_file": "stranger.pem"}, {}):
        refused(cli_on(redis.tls(**options)), str(redis.tls_port), "certificate")
    refused(cli_on(redis.tls(ca_file="nothing.pem")), "nothing.pem")
    assert keys(redis) == set()


def test_tls_of_another_host_is_refused(tls_redis, cli_on):
    redis = tls_redis("elsewhere")
    refused(cli_on(redis.tls(ca_file="ca.pem")), str(redis.tls_port), "certificate")


def test_tls_with_a_certificate_of_ours(tls_redis, cli_on):
    redis = tls_redis(clients="yes")
    done = cli_on(redis.tls(ca_file="ca.pem"))("run", "-n", "x", "true")
    assert done.status in (69, 77) and str(redis.tls_port) in done.stderr
    cli = cli_on(redis.tls(ca_file="ca.pem", cert_file="client.pem", key_file="client.key"))
    assert cli("run", "-n", "x", "true").status == 0


def test_tls_that_wants_a_certificate_of_ours_says_so(tls_redis, cli_on):
    """With TLS 1.3 the server says so after the handshake, and hangs up: whichever of the two is seen first."""
    redis = tls_redis(clients="yes")
    for _ in range(15):
        refused(cli_on(redis.tls(ca_file="ca.pem")), str(redis.tls_port), "client's certificate", "cert-file")


def test_tls_and_plain_do_not_mix(tls_redis, cli_on, certificates):
    """Told within seconds, not with a hang."""
    redis = tls_redis()
    started = time.monotonic()
    asked = [cli_on(url).start("run", "-n", "x", "true") for url in (
        f"redis://127.0.0.1:{redis.tls_port}", f"rediss://{redis.address}?ca-file={certificates / 'ca.pem'}")]
    for process in asked:
        assert process.wait() == 69
        (said,) = process.rest("err")
        assert "127.0.0.1" in said
    assert time.monotonic() - started < 15


# ---- URLs


BAD_URLS = ["redis:h", "redis:/h", "redis://h:0", "redis://h:65536", "redis://h:", "redis://h:x", "redis://:6379",
            "redis://[::1", "redis://[::1]x", "redis://[zz]:1", "redis://::1:6379", "redis://h!x", "redis://h1,h2",
            "redis://h/-1", "redis://h/65536", "redis://h/1/2", "redis://h/0x1", "redis://h/ ", "redis://h/1?db=2",
            "redis://h?ttl=1ms", "redis://h?ttl=abc", "redis://h?ttl", "redis://h?=x", "redis://h?ttl=1s&ttl=2s",
            "redis://h?nope=1", "redis://h?timeout=1s", "redis://h?tls=yes", "redis://h?prefix=%zz",
            "redis://h?prefix=holdfast.x", "redis://h?prefix=" + "p" * 513, "redis://" + "h" * 256, "redis://" + "h" * 2100,
            "redis://h?password-file=/nonexistent", "redis://u:p@h?password-file=/etc/hostname", "redis://u:%zz@h",
            "rediss://h?cert-file=/x", "rediss://h?ca-file=", "redis+unix:", "redis+unix://h/x", "redis+unix:///" + "x" * 200,
            "rediss+unix:///x", "redis+foo://h", "Redis://h", "redis"]


@pytest.mark.parametrize("url", BAD_URLS, ids=lambda url: url[:40])
def test_bad_urls(cli_on, url):
    refused(cli_on(url), status=64)


@pytest.mark.parametrize("url", [
    "redis://:{0}{1}@h:x", "redis://:{0}{1}@h:99999", "redis://:{0}@{1}@h:x", "redis://:{0}%zz{1}@h", "redis://:{0}#{1}@h:z",
    "redis://u:{0}{1}@h/abc", "redis:{0}{1}@h", "redis://:{0}{1}@h1,h2", "redis://u:{0}{1}@h?nope=1",
    "redis://h?password={0}{1}", "redis://u:{0}?{1}=1@h",
    "Redis://:{0}{1}@h", "redis//:{0}{1}@h",
    "redis://:{0}/{1}@h/0", "redis://:{0}?{1}@h"])
def test_bad_urls_do_not_show_their_password(cli_on, url):
    """Also not the part of it that was taken for something else."""
    said = refused(cli_on(url.format(*HALVES)), status=64)
    assert not any(half in said for half in HALVES)


def test_tls_where_nobody_speaks_it(servers, cli_on):
    """A Redis waits for the rest of what it takes for a command."""
    redis = servers.redis()
    done = cli_on(f"rediss://127.0.0.1:{redis.port}")("run", "-n", "x", "--", "true")
    assert done.status == 69 and done.stderr.endswith("does it speak TLS at this port? (redis:// is without)\n"), done.stderr
