"""Clients over TLS: other people's, as test_clients.py has them, and holdfast, which says in one line what is wrong."""
import json
import os
import subprocess

import pytest
from certificates import Authority, Certificate
from conftest import PATIENCE, environment, eventually, free_port
from test_clients import (CLI, IOREDIS, Error, ask, check_table, commands_of, needs_cli, needs_py, node_argv, node_value, redis,
                          with_code)
from test_cluster_command import Cluster

HOLDFAST = os.environ.get("HOLDFAST_BIN", "holdfast")


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("tls") / "ca")
    made.server, made.client = made.issue("server", "DNS:localhost", "IP:127.0.0.1"), made.issue("client")
    return made


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("tls") / "other", "another authority")
    made.client = made.issue("client")
    return made


@pytest.fixture(params=["TLS", "mTLS"])
def mutual(request):
    return request.param == "mTLS"


@pytest.fixture
def server(start, ca, mutual):
    return start(*(["--tls-clients", "yes", "--tls-ca", ca.pem] if mutual else []), tls=ca.server)


# ---- other people's -------------------------------------------------------------------------------------------------------------


@needs_cli
def test_redis_cli(server, ca, mutual):
    """A command by itself, and a hundred through one connection."""
    argv = [CLI, "--tls", "--cacert", str(ca.pem), "-p", str(server.tls_port)]
    argv += ["--cert", str(ca.client.cert), "--key", str(ca.client.key)] if mutual else []
    done = subprocess.run([*argv, "ACQUIRE", "x", "cli"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip().isdigit(), done.stderr
    lines = "".join(f"PING {'x' * 1000}{i}\n" for i in range(100))
    done = subprocess.run([*argv, "--json"], input=lines, capture_output=True, text=True, timeout=PATIENCE)
    assert [json.loads(line) for line in done.stdout.splitlines()] == ["x" * 1000 + str(i) for i in range(100)]


@needs_py
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "all at once"])
def test_redis_py(server, ca, mutual, at_once):
    commands, last = commands_of(server)
    files = {"ssl_certfile": str(ca.client.cert), "ssl_keyfile": str(ca.client.key)} if mutual else {}
    with redis.Redis(port=server.tls_port, ssl=True, ssl_ca_certs=str(ca.pem), decode_responses=True, **files) as client:
        client.response_callbacks.clear()
        if at_once:
            pipe = client.pipeline(transaction=False)
            for words in commands:
                pipe.execute_command(*words)
            answers = pipe.execute(raise_on_error=False)
        else:
            answers = [ask(client, words) for words in commands]
    check_table([with_code(answer) for answer in answers], last)


@pytest.mark.parametrize("how", ["ask", "pipeline"])
@pytest.mark.parametrize("package, protocol", IOREDIS)
def test_ioredis(start, ca, package, protocol, how):
    server = start(tls=ca.server)
    commands, last = commands_of(server)
    argv = node_argv(server, package, protocol, how)
    argv[argv.index(str(server.port))] = str(server.tls_port)
    done = subprocess.run(argv, input=json.dumps(commands), capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "HF_TLS_CA": str(ca.pem)})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    check_table([node_value(line) for line in done.stdout.splitlines()], last, resp3=protocol == "3")


# ---- holdfast -------------------------------------------------------------------------------------------------------------------


def holdfast(url, *words, variables=()):
    done = subprocess.run([HOLDFAST, "--on", url, *words], env={**environment(), **dict(variables)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def url_of(server, ca=None, certificate=None, host="127.0.0.1", scheme="holdfasts", port=None, crl=None):
    options = [f"ca-file={ca.pem}"] if ca else []
    options += [f"cert-file={certificate.cert}", f"key-file={certificate.key}"] if certificate else []
    options += [f"crl-file={crl}"] if crl else []
    return f"{scheme}://{host}:{port or server.tls_port}" + ("?" + "&".join(options) if options else "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_job_under_a_lock(server, ca, mutual, host):
    """What the job is told in its environment leads it to the same place."""
    url = url_of(server, ca, ca.client if mutual else None, host)
    assert holdfast(url, "run", "x", "sh", "-c", 'echo "$HOLDFAST_URL"') == (0, url, "")
    status, out, _ = holdfast(url, "run", "x", "sh", "-c", f'{HOLDFAST} check "$HOLDFAST_SEQUENCER" && {HOLDFAST} show x --json')
    assert status == 0 and '"x"' in out


def logged(server, why):
    """The server's line about the same."""
    while why not in server.await_line("a client's TLS handshake failed"):
        pass


def refused(url, status, *words):
    """One line, which has all these words in it."""
    done = holdfast(url, "ls")
    done = *done[:2], done[2].splitlines()[-1] if "; still trying" in done[2] else done[2]  # after 2 s, where another try may help
    assert done[0] == status and done[1] == "" and len(done[2].splitlines()) == 1, done
    for word in words:
        assert word in done[2], done[2]
    return done[2]


def test_what_is_wrong_with_the_server_is_told(start, ca, other, tmp_path):
    server = start(tls=ca.server)
    at = f"127.0.0.1:{server.tls_port}: "
    refused(url_of(server, other), 77, at, f"is not trusted: unable to get local issuer certificate; its authority is not in {other.pem}")
    logged(server, "it does not accept this server's certificate: unknown CA")
    refused(url_of(server), 77, at, "is not trusted", "name its authority with ?ca-file=")
    for words, why in ((["DNS:elsewhere.test", "IP:127.0.0.2"], "is not for 127.0.0.1"), ([], "is not for 127.0.0.1")):
        wrong = start(tls=ca.issue(f"wrong-{len(words)}", *words, common="127.0.0.1"))
        refused(url_of(wrong, ca), 77, why)
        logged(wrong, "it does not accept this server's certificate: bad certificate")
    common = start(tls=ca.issue("common", "IP:127.0.0.1", common="localhost"))
    refused(url_of(common, ca, host="localhost"), 77, "is not for localhost")
    only_common = start(tls=ca.issue("only-common", common="localhost"))
    refused(url_of(only_common, ca, host="localhost"), 77, "is not for localhost")
    late = start(tls=ca.issue("late", "IP:127.0.0.1", begins="20200101000000Z", ends="20200102000000Z"))
    refused(url_of(late, ca), 77, "is not valid: certificate has expired")
    logged(late, "it does not accept this server's certificate: certificate expired")
    itself = start(tls=Certificate(other.pem, other.folder / "ca.key"))
    refused(url_of(itself, ca), 77, "is not trusted: self-signed certificate")
    revoked = ca.issue("revoked", "IP:127.0.0.1")
    ca.revoke(revoked)
    gone = start(tls=revoked)
    assert holdfast(url_of(gone, ca), "ls")[0] == 0, "nobody has asked"
    refused(url_of(gone, ca, crl=ca.crl()), 77, "is not valid: certificate revoked")
    logged(gone, "it does not accept this server's certificate: certificate revoked")
    assert holdfast(url_of(server, ca, crl=ca.crl()), "ls")[0] == 0
    refused(url_of(server, ca, crl=other.crl()), 77, "whether the server's certificate was revoked is not in")
    refused(url_of(server, ca, crl="/nowhere"), 77, "crl-file /nowhere: ")


def test_what_is_wrong_with_the_client_is_told(start, ca, other):
    server = start("--tls-clients", "yes", "--tls-ca", ca.pem, tls=ca.server)
    refused(url_of(server, ca), 77, "the server wants a client's certificate: give it with ?cert-file= and &key-file=")
    refused(url_of(server, ca, other.client), 77, f"the server does not accept {other.client.cert}: unknown CA")
    late = ca.issue("late-client", begins="20200101000000Z", ends="20200102000000Z")
    refused(url_of(server, ca, late), 77, f"the server does not accept {late.cert}: certificate expired")
    with_list = ca.issue("revoked-client")
    ca.revoke(with_list)
    strict = start("--tls-clients", "yes", "--tls-ca", ca.pem, "--tls-crl", ca.crl("clients.pem"), tls=ca.server)
    refused(url_of(strict, ca, with_list), 77, f"the server does not accept {with_list.cert}: certificate revoked")


def test_plain_and_tls_mistaken_for_each_other(start, ca):
    server = start(tls=ca.server)
    refused(url_of(server, ca, port=server.port), 69, f"127.0.0.1:{server.port}: the server's answer is not TLS: is this its TLS port?")
    refused(url_of(server, scheme="holdfast"), 77, f"127.0.0.1:{server.tls_port} refuses: ", "this port speaks TLS: use holdfasts://")
    refused(url_of(server, ca, scheme="holdfast"), 64, "ca-file, cert-file, key-file and crl-file are for TLS: use holdfasts://")
    refused(f"holdfast+unix:///nowhere?ca-file={ca.pem}", 64, "are for TLS")


def test_who_a_certificate_is(start, ca, tmp_path):
    """No password anywhere."""
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("user = jobs\ncertificate = client\nallow = acquire look: jobs/*\n")
    server = start("--users-file", users, "--tls-clients", "yes", "--tls-ca", ca.pem, tls=ca.server)
    url = url_of(server, ca, ca.client)
    status, out, _ = holdfast(url, "run", "jobs/x", "sh", "-c", f"{HOLDFAST} show jobs/x --json")
    assert status == 0 and "jobs: " in out
    status, _, err = holdfast(url, "run", "other", "true")
    assert status == 77 and "user 'jobs' has no right 'acquire'" in err


@pytest.fixture
def cluster(ca):
    """Each node listens with TLS first, which is where it sends clients, and in the clear beside it."""
    made = Cluster()
    try:
        for node in made.nodes.values():
            node.kill9()
            node.tls_port = free_port()
            node.listen = f"tls:127.0.0.1:{node.tls_port},127.0.0.1:{node.port}"
            node.args += ["--tls-cert", ca.server.cert, "--tls-key", ca.server.key, "--tls-clients", "yes", "--tls-ca", ca.pem]
            node.launch()
        eventually(lambda: all(node.says() for node in made.nodes.values()), "all answer")
        eventually(lambda: all(f"127.0.0.1:{node.tls_port}" in [member["client"] for member in made.leader().says()["members"]]
                               for node in made.nodes.values()), "the leader knows where all are")
        yield made
    finally:
        made.clean()


def test_a_cluster(cluster, ca):
    """The leader is found by all, and by one that sends us there; and the next one, when it is killed."""
    nodes = list(cluster.nodes.values())
    options = f"?ca-file={ca.pem}&cert-file={ca.client.cert}&key-file={ca.client.key}"
    everyone = "holdfasts://" + ",".join(f"localhost:{node.tls_port}" for node in nodes) + options
    assert holdfast(everyone, "run", "x", "echo", "hi") == (0, "hi", "")
    for node in nodes:
        assert holdfast(f"holdfasts://127.0.0.1:{node.tls_port}{options}", "run", "x", "echo", "hi") == (0, "hi", "")
    cluster.leader().kill9()
    assert holdfast(everyone, "run", "x", "echo", "hi")[:2] == (0, "hi")
    assert "leader" in holdfast(everyone, "cluster", "status")[1]


def test_watch_and_waiters_are_told(start, ca):
    server = start(tls=ca.server)
    url = url_of(server, ca)
    watcher = subprocess.Popen([HOLDFAST, "--on", url, "watch", "x", "--json"], env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert json.loads(watcher.stdout.readline())
        done = holdfast(url, "run", "x", "sh", "-c", f"{HOLDFAST} --on '{url}' run y true")
        assert done[0] == 0
        assert "x" in watcher.stdout.readline()
    finally:
        watcher.kill()
        watcher.wait()
