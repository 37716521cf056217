"""TLS, as a server has it: who is let in and who is not, each with its line; certificates that are exchanged while it runs; what a hostile
client can do in a handshake, and after it. Commands over TLS by other people's clients are in test_tls_clients.py."""
import calendar
import contextlib
import os
import select
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from certificates import Authority, Certificate, client_context, new_key
from conftest import (PATIENCE, SOAK, YEAR_MS, Client, Ended, Process, Refused, die_with_parent, environment, eventually, pack,
                      run_refused)
from exposition import families_of
from fuzzing import drawn, mutated

FAILED = "a client's TLS handshake failed"
REFUSED = "a file could not be read again"
READ_AGAIN = "the certificate was read again"
HANDSHAKE_S = 10  # a server's patience
CROWD = int(os.environ.get("HF_TLS_CROWD", "300"))  # 19500 in full
FUZZ_S = float(os.environ.get("HF_TLS_FUZZ_S", "600" if SOAK else "30"))
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
LOST = (Ended, ConnectionError, ssl.SSLError)  # whoever is not let in hears one of these


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "other", "another authority")


@pytest.fixture(scope="module")
def certificate(ca):
    return ca.issue("server", "DNS:localhost", "IP:127.0.0.1")


@pytest.fixture(scope="module")
def client_certificate(ca):
    return ca.issue("client", "DNS:client.test")


@pytest.fixture
def server(start, certificate):
    return start(tls=certificate)


def strict(start, certificate, ca, *args, clients="yes", **kwargs):
    return start("--tls-clients", clients, "--tls-ca", ca.pem, *args, tls=certificate, **kwargs)


def dial(server, context, protocol=2):
    return Client(("127.0.0.1", server.tls_port), protocol, tls=context)


def says(server, why):
    """The next line about a failed handshake says this."""
    line = server.await_line(FAILED)
    assert " warning " in line and why in line, line


def is_shut_out(server, context):
    """With TLS 1.3 a client hears it only when it reads."""
    with pytest.raises(LOST):
        with dial(server, context) as client:
            client.cmd("PING")


def hang_up(server, word):
    server.logged()
    os.kill(server.pid, signal.SIGHUP)
    return server.await_line(word)


# ---- who is let in -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_it_speaks_both_versions(server, ca, version):
    with dial(server, client_context(ca, version=version), 3) as client:
        assert client.cmd("PING", "x" * 1000) == "x" * 1000
        assert client.info("TLS")["tls_connections"] == "1" == client.info("TLS")["tls_handshakes_done"]
        assert client.socket.compression() is None
    with server.connect() as plain:
        assert plain.info("TLS")["tls"] == "1", "the plain port is as before"
    assert server.info("TLS")["tls_handshakes_failed"] == "0"


def test_nothing_older(server):
    context = client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    is_shut_out(server, context)
    says(server, "unsupported protocol")


def test_nobody_chooses_keys_that_cost_a_lot(server):
    """ffdhe8192: more than 100 ms of the loop for one hello, which anybody can send."""
    subprocess.run(["openssl", "s_client", "-connect", f"localhost:{server.tls_port}", "-tls1_3", "-groups", "ffdhe8192"],
                   stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    says(server, "no suitable")


def test_no_renegotiation(server, ca):
    """A client that asks for one is answered with no. TLS 1.3 has none."""
    process = Process(["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", "-tls1_2", "-CAfile", str(ca.pem)],
                      environment(), preexec_fn=die_with_parent)
    try:
        while "Extended master secret" not in process.line():
            pass
        process.popen.stdin.write("R\n")
        process.popen.stdin.flush()
        while "no renegotiation" not in process.line("err"):
            pass
    finally:
        process.popen.kill()
        process.wait()


def test_new_keys_without_end(server, ca):
    """Each costs the server more than the client, and none of them says anything: whoever goes on with it is closed. Some are everybody's right."""
    process = Process(["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", "-tls1_3", "-CAfile", str(ca.pem)],
                      environment(), preexec_fn=die_with_parent)
    changed = 0
    try:
        while "Verify return code" not in process.line():
            pass
        with pytest.raises((AssertionError, BrokenPipeError, Ended)):
            for _ in range(1000):
                process.popen.stdin.write("k\n")
                process.popen.stdin.flush()
                while "KEYUPDATE" not in process.line("err"):
                    pass
                changed += 1
        assert 60 <= changed < 200, changed
        assert "it changes its keys all the time" in server.await_line("closed a client whose TLS is broken")
    finally:
        process.popen.kill()
        process.wait()
    with dial(server, client_context(ca)) as client:
        assert client.cmd("PING") == "PONG"


def test_who_does_not_trust_it_is_told_of(server, other):
    is_shut_out(server, client_context(other))
    says(server, "it does not accept this server's certificate: unknown CA")


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_clients_certificates(start, ca, other, certificate, version):
    good, bad = ca.issue(f"good-{version}"), other.issue(f"bad-{version}")
    late = ca.issue(f"late-{version}", begins="20200101000000Z", ends="20200102000000Z")
    revoked = ca.issue(f"revoked-{version}")
    ca.revoke(revoked)
    server = strict(start, certificate, ca, "--tls-crl", ca.crl(f"crl-{version}.pem"))
    with dial(server, client_context(ca, good, version)) as client:
        assert client.cmd("PING") == "PONG"
    for shown, why in ((None, "it shows no certificate, which tls-clients asks for"),
                       (bad, "its certificate is not trusted: unable to get local issuer certificate; its authority is not in tls-ca"),
                       (late, "its certificate is not valid: certificate has expired"),
                       (revoked, "its certificate is not valid: certificate revoked")):
        is_shut_out(server, client_context(ca, shown, version))
        says(server, why)
    assert server.info("TLS")["tls_handshakes_failed"] == "4"


def test_a_self_signed_one_is_refused(start, ca, other, certificate):
    server = strict(start, certificate, ca)
    is_shut_out(server, client_context(ca, Certificate(other.pem, other.folder / "ca.key")))
    says(server, "its certificate is not trusted: self-signed certificate; its authority is not in tls-ca")


def test_optional_ones(start, ca, other, certificate, client_certificate):
    server = strict(start, certificate, ca, clients="optional")
    for shown in (None, client_certificate):
        with dial(server, client_context(ca, shown)) as client:
            assert client.cmd("PING") == "PONG"
    is_shut_out(server, client_context(ca, other.issue("bad")))
    says(server, "its authority is not in tls-ca")


def test_a_list_that_is_missing_or_old_lets_nobody_in(start, ca, other, certificate, client_certificate):
    server = strict(start, certificate, ca, "--tls-crl", other.crl())
    is_shut_out(server, client_context(ca, client_certificate))
    says(server, "whether its certificate was revoked is not in tls-crl: unable to get certificate CRL")


def test_other_machines_need_no_password_where_they_need_a_certificate(start, certificate, ca):
    """And a plain port beside it does."""
    files = ["--tls-cert", certificate.cert, "--tls-key", certificate.key, "--tls-ca", ca.pem]
    for clients in ("no", "optional"):
        status, line = run_refused("--listen", "tls:0.0.0.0:7420", *files[:4], *(files[4:] if clients != "no" else []),
                                   "--tls-clients", clients)
        assert status == 78 and "lets other machines take locks without a password" in line
    status, line = run_refused("--listen", "tls:0.0.0.0:7420,0.0.0.0:7421", *files, "--tls-clients", "yes")
    assert status == 78 and "listening on 0.0.0.0:7421 lets" in line
    server = start("--tls-clients", "yes", "--tls-ca", ca.pem, "--tls-cert", certificate.cert, "--tls-key", certificate.key,
                   listen="tls:0.0.0.0:0")
    assert server.running()


# ---- files -------------------------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_used_are_named(tmp_path, ca, certificate):
    stranger, locked = new_key(tmp_path / "stranger.key"), new_key(tmp_path / "locked.key", "pass")
    shared, nothing = tmp_path / "shared.key", tmp_path / "nothing"
    shared.write_bytes(certificate.key.read_bytes())
    shared.chmod(0o644)
    nothing.touch(0o600)
    swapped = tmp_path / "swapped.key"
    swapped.touch(0o600)
    swapped.write_bytes(certificate.cert.read_bytes())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    other_file = "there is nothing of that kind in it, as PEM: is it another file?"
    for cert, key, more, why in (
            (certificate.key, certificate.key, [], f"tls-cert {certificate.key}: {other_file}"),
            (certificate.cert, swapped, [], f"tls-key {swapped}: this is a certificate, and not a key: name the file with the key of tls-cert"),
            (certificate.cert, certificate.cert, [], f"tls-key {certificate.cert}: this is a certificate, and not a key"),
            (tmp_path, certificate.key, [], f"tls-cert {tmp_path} is a directory: name a file, in PEM"),
            (certificate.cert, tmp_path, [], f"tls-key {tmp_path} is a directory: name a file, in PEM"),
            (certificate.cert, certificate.key, ["--tls-clients", "yes", "--tls-ca", tmp_path], f"tls-ca {tmp_path} is a directory: name a file, in PEM"),
            (pipe, certificate.key, [], f"tls-cert {pipe} is no regular file"),
            (certificate.cert, certificate.key, ["--tls-clients", "yes", "--tls-ca", pipe], f"tls-ca {pipe} is no regular file"),
            (certificate.cert, certificate.key, ["--tls-clients", "yes", "--tls-ca", ca.pem, "--tls-crl", pipe], f"tls-crl {pipe} is no regular file"),
            (nothing, certificate.key, [], f"tls-cert {nothing}: "), ("/nowhere", certificate.key, [], "tls-cert /nowhere: No such file"),
            (certificate.cert, "/nowhere", [], "tls-key /nowhere: No such file"), (certificate.cert, nothing, [], f"tls-key {nothing}: "),
            (certificate.cert, stranger, [], f"tls-key {stranger}: it is not the key of the certificate"),
            (certificate.cert, locked, [], "protected by a passphrase"), (certificate.cert, shared, [], "others can use it (mode 0644)"),
            (certificate.cert, certificate.key, ["--tls-clients", "yes", "--tls-ca", nothing], f"tls-ca {nothing}: "),
            (certificate.cert, certificate.key, ["--tls-clients", "yes", "--tls-ca", ca.pem, "--tls-crl", ca.pem], f"tls-crl {ca.pem}: ")):
        status, line = run_refused("--listen", "tls:127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, *more)
        assert status == 78 and why in line, line
        assert "BEGIN" not in line


def exchange(server, certificate):
    """New files under the old names. The key first: for a moment the two do not fit."""
    server.tls.key.write_bytes(certificate.key.read_bytes())
    server.tls.cert.write_bytes(certificate.cert.read_bytes())


@pytest.fixture
def renewable(start, tmp_path, certificate):
    files = Certificate(tmp_path / "server.pem", tmp_path / "server.key")
    files.key.touch(0o600)

    def make(*args, first=certificate):
        server_files = Certificate(files.cert, files.key)
        files.key.write_bytes(first.key.read_bytes())
        files.cert.write_bytes(first.cert.read_bytes())
        return start(*args, tls=server_files)
    return make


def seen(server):
    """The certificate that whoever connects now is shown."""
    with dial(server, client_context()) as client:
        return client.socket.getpeercert(True)


def der(certificate):
    return ssl.PEM_cert_to_DER_cert(certificate.cert.read_text())


def test_a_new_certificate_is_read_by_sighup(renewable, ca, certificate):
    server, renewed = renewable(), ca.issue("renewed", "IP:127.0.0.1")
    with dial(server, client_context(ca)) as before:
        assert before.cmd("PING") == "PONG" and seen(server) == der(certificate)
        exchange(server, renewed)
        assert " info " in hang_up(server, READ_AGAIN)
        assert seen(server) == der(renewed)
        assert before.cmd("PING") == "PONG", "whoever is connected stays so"


def test_files_that_cannot_be_used_change_nothing(renewable, ca, certificate):
    server, renewed = renewable(), ca.issue("half-renewed", "IP:127.0.0.1")
    server.tls.cert.write_bytes(renewed.cert.read_bytes())
    line = hang_up(server, REFUSED)
    assert " warning " in line and "it is not the key of the certificate" in line
    assert seen(server) == der(certificate)
    server.tls.cert.unlink()
    assert "No such file" in hang_up(server, REFUSED)
    assert seen(server) == der(certificate)
    os.mkfifo(server.tls.cert)
    assert f"tls-cert {server.tls.cert} is no regular file" in hang_up(server, REFUSED), "nobody waits for who writes into it"
    assert seen(server) == der(certificate)
    server.tls.cert.unlink()
    exchange(server, renewed)
    server.tls.key.chmod(0o604)
    assert "others can use it" in hang_up(server, REFUSED)
    assert seen(server) == der(certificate)
    server.tls.key.chmod(0o640)
    hang_up(server, READ_AGAIN)
    assert seen(server) == der(renewed)


def test_what_was_revoked_since_is_read_by_sighup(start, ca, certificate):
    doomed = ca.issue("doomed")
    crl = ca.crl("growing.pem")
    server = strict(start, certificate, ca, "--tls-crl", crl)
    with dial(server, client_context(ca, doomed)) as before:
        ca.revoke(doomed)
        ca.crl("growing.pem")
        hang_up(server, READ_AGAIN)
        is_shut_out(server, client_context(ca, doomed))
        says(server, "certificate revoked")
        assert before.cmd("PING") == "PONG", "whoever is connected stays so"


def test_no_session_outlives_its_certificate(start, ca, certificate):
    """What was given out before a certificate was revoked would let its bearer in again without a look at it."""
    doomed = ca.issue("doomed-session")
    server = strict(start, certificate, ca, "--tls-crl", ca.crl("sessions.pem"))
    for version in VERSIONS:
        context = client_context(ca, doomed, version)
        with dial(server, context) as client:
            assert client.cmd("PING") == "PONG"
            session = client.socket.session
            assert not client.socket.session_reused
        with socket.create_connection(("127.0.0.1", server.tls_port)) as plain:
            if session:
                with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as again:
                    assert not again.session_reused


@pytest.mark.parametrize("days, word", [(2, "it expires soon"), (13, "it expires soon"), (-1, "it has expired"), (15, None)])
def test_the_end_of_a_certificate_is_told(start, ca, days, word):
    at = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + days * 86400 + 3600))
    server = start(tls=ca.issue(f"ending-{days}", "IP:127.0.0.1", begins="20200101000000Z", ends=at))
    info = server.info("TLS")
    assert info["tls_certificate_expires"] == f"{at[:4]}-{at[4:6]}-{at[6:8]}T{at[8:10]}:{at[10:12]}:{at[12:14]}Z"
    assert int(info["tls_certificate_days_left"]) == (days if days > 0 else 0)
    with server.connect() as client:
        ends = families_of(client.cmd("INFO", "prometheus"))["holdfast_tls_certificate_ends_timestamp_seconds"].value()
    assert ends == calendar.timegm(time.strptime(at, "%Y%m%d%H%M%SZ"))
    if word:
        line = server.await_line(word)
        assert " warning " in line and "setting=tls-cert" in line
    else:  # it would be told within a second
        began = int(info["tls_handshakes_done"])
        time.sleep(2.5)
        assert not any("expire" in line for line in server.logged()) and began == 0


# ---- whose certificate ------------------------------------------------------------------------------------------------------------


def write_users(path, *blocks):
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text("\n".join(blocks) + "\n")
    new.replace(path)
    return path


@pytest.fixture
def users(tmp_path):
    return write_users(tmp_path / "users", "user = alice\ncertificate = alice\nallow = acquire look: mine/*", "user = bob",
                       "certificate = bob.jobs.test\ncertificate = spiffe://jobs.test/bob\nallow = look\nconnections = 2",
                       "user = default\nallow = look")


@pytest.mark.parametrize("clients", ["yes", "optional"])
def test_a_certificate_says_who_it_is(start, ca, certificate, users, clients):
    server = strict(start, certificate, ca, "--users-file", users, clients=clients)
    for number, (common, alternatives, user) in enumerate((
            ("alice", [], "alice"), ("anything", ["DNS:bob.jobs.test"], "bob"), ("", ["DNS:Bob.Jobs.Test"], "bob"),
            ("x", ["URI:spiffe://jobs.test/bob"], "bob"), ("x", ["DNS:other.test", "URI:spiffe://jobs.test/bob"], "bob"),
            ("Alice", [], None), ("alice.test", ["DNS:alice.test"], None), ("x", ["URI:spiffe://jobs.test/Bob"], None),
            ("x", ["DNS:x.bob.jobs.test"], None), ("x", ["email:alice"], None), ("default", [], None), ("bob", [], None),
            ("alice", ["DNS:bob.jobs.test"], None))):
        shown = ca.issue(f"{clients}-{number}", *alternatives, common=common)
        with dial(server, client_context(ca, shown)) as client:
            if user:
                assert f" user={user} " in client.cmd("CLIENT", "INFO"), (common, alternatives)
            else:
                assert client.error("SHOW", "mine/x").startswith("NOAUTH"), (common, alternatives)
    assert " warning " in server.await_line("a certificate has the names of several users")


def test_nobody_without_a_certificate(start, ca, certificate, users):
    """What is not shown, or comes over a plain port, says nothing."""
    server = strict(start, certificate, ca, "--users-file", users, clients="optional")
    with dial(server, client_context(ca)) as client:
        assert client.error("SHOW", "x").startswith("NOAUTH")
    with server.connect() as client:
        assert client.error("SHOW", "x").startswith("NOAUTH")


def test_rights_of_a_certificate_and_another_user(start, ca, certificate, users, tmp_path):
    from test_users import PASSWORD, STORED
    write_users(users, users.read_text(), f"user = carol\npassword = {STORED}\nallow = acquire: yours/*")
    audit = tmp_path / "audit.json"
    server = strict(start, certificate, ca, "--users-file", users, "--audit-file", audit)
    with dial(server, client_context(ca, ca.issue("rights", common="alice"))) as client:
        assert client.cmd("ACQUIRE", "mine/x", "l1", "OWNER", "me") > 0
        assert client.error("ACQUIRE", "yours/x", "l1").startswith("NOPERM user 'alice'")
        assert client.cmd("AUTH", "carol", PASSWORD) == "OK", "and it may be somebody else"
        assert client.cmd("ACQUIRE", "yours/x", "l2") > 0
        assert client.error("ACQUIRE", "mine/y", "l2").startswith("NOPERM user 'carol'")
    assert [word in audit.read_text() for word in ('"user":"alice"', '"user":"carol"')] == [True, True]


def test_connections_of_a_certificate_are_bounded(start, ca, certificate, users):
    server = strict(start, certificate, ca, "--users-file", users)
    context = client_context(ca, ca.issue("bounded", "DNS:bob.jobs.test"))
    with dial(server, context) as first, dial(server, context) as second:
        assert first.cmd("PING") == second.cmd("PING") == "PONG"
        with dial(server, context) as third:
            with pytest.raises(Refused, match="LIMIT user 'bob' has 2 connections already"):
                third.read()


def test_names_of_certificates_are_reloaded(start, ca, certificate, users):
    server = strict(start, certificate, ca, "--users-file", users)
    context = client_context(ca, ca.issue("later", common="dave"))
    with dial(server, context) as client:
        assert client.error("SHOW", "x").startswith("NOAUTH")
    write_users(users, "user = dave\ncertificate = dave\nallow = look")
    hang_up(server, "the users file was read again")
    with dial(server, context) as client:
        assert client.cmd("LOCKS") == [0, []]
        write_users(users, "user = dave\nallow = look\nuser = eve\ncertificate = eve\ncertificate = EVE")
        assert "users:5: the certificate EVE is there twice" in hang_up(server, REFUSED)


def test_whose_certificate_was_taken_away_is_closed(start, ca, certificate, users):
    """The user stays, and so do those who said its password, or who are it by another certificate."""
    from test_users import PASSWORD, STORED
    server = strict(start, certificate, ca, "--users-file", users)
    password = f"password = {STORED}"
    context, other = (client_context(ca, ca.issue(f"taken-{name}", common=name)) for name in ("dave", "dave2"))
    write_users(users, "user = dave", password, "certificate = dave\ncertificate = dave2\nallow = look")
    hang_up(server, "the users file was read again")
    with dial(server, context) as gone, dial(server, context) as said, dial(server, other) as stays:
        said.cmd("AUTH", "dave", PASSWORD)
        for client in (gone, said, stays):
            assert client.cmd("LOCKS") == [0, []]
        write_users(users, "user = dave", password, "certificate = dave2\nallow = look", "user = eve\ncertificate = dave")
        hang_up(server, "the users file was read again")
        line = server.await_line("closed a client: its certificate is not one of its user's any more")
        assert "user=dave" in line
        with pytest.raises(LOST):
            gone.cmd("LOCKS")
        assert said.cmd("LOCKS") == stays.cmd("LOCKS") == [0, []]
        with dial(server, context) as client:
            assert " user=eve " in client.cmd("CLIENT", "INFO")


# ---- plain where TLS is spoken, and the reverse -----------------------------------------------------------------------------------------


def test_plain_where_tls_is_spoken(server):
    """It is told in its own protocol."""
    for words in (pack("PING"), b"PING\r\n", b"GET / HTTP/1.0\r\n\r\n", pack("HELLO", 3)):
        with Client(("127.0.0.1", server.tls_port)) as client:
            client.raw(words)
            assert client.read_to_end().startswith(b"-ERR this port speaks TLS: use holdfasts://")
        says(server, "it does not speak TLS")


def test_tls_where_plain_is_spoken(server):
    """It would wait for ever: a handshake may be the beginning of a line, to RESP."""
    with pytest.raises(ssl.SSLError):
        Client(("127.0.0.1", server.port), tls=client_context())
    assert " warning " in server.await_line("a client speaks TLS at an address without it")
    with server.connect() as client:
        assert client.cmd("PING", "\x16\x03\x01") == "\x16\x03\x01"


# ---- hostile clients --------------------------------------------------------------------------------------------------------------


def hello_of(context):
    """A ClientHello, as bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


def test_who_is_slow_in_the_handshake_is_shut_out(server, ca):
    """Whoever says nothing, a byte at a time, or only the beginning. Others are served meanwhile."""
    hello = hello_of(client_context())
    began = time.monotonic()
    with Client(("127.0.0.1", server.tls_port)) as silent, Client(("127.0.0.1", server.tls_port)) as half, \
            Client(("127.0.0.1", server.tls_port)) as slow:
        half.raw(hello[:len(hello) // 2])
        with contextlib.suppress(OSError):
            for byte in hello[:100]:
                slow.raw(bytes([byte]))
                with dial(server, client_context(ca)) as client:
                    assert client.cmd("PING") == "PONG"
                time.sleep(0.02)
        for client in (silent, half, slow):
            assert client.ended()
    assert time.monotonic() - began > HANDSHAKE_S - 1
    for _ in range(3):
        says(server, "it took too long")


def test_handshakes_at_a_time_are_bounded(start, certificate, ca):
    """So many strangers who have begun to speak keep others waiting for a second, and not longer."""
    server = start("--max-clients", 40, tls=certificate)  # 10 handshakes
    hello = hello_of(client_context())
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(Client(("127.0.0.1", server.tls_port))).raw(hello[:len(hello) // 2])
        with dial(server, client_context(ca)) as client:
            assert client.cmd("PING") == "PONG"
            assert int(client.info("TLS")["tls_handshakes_in_progress"]) <= 10
        says(server, "it takes long, and others wait for their turn")
        assert server.cmd("PING") == "PONG"


def test_who_says_nothing_keeps_nobody_out(start, certificate, ca):
    """Two hundred who connect and say nothing, where ten may be at it: who has a hello to say does not wait a second for each ten of them."""
    server = start("--max-clients", 40, tls=certificate)
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        for _ in range(200):
            stack.enter_context(Client(("127.0.0.1", server.tls_port)))
        with dial(server, client_context(ca)) as client:
            assert client.cmd("PING") == "PONG"
            assert int(client.info("TLS")["tls_handshakes_in_progress"]) <= 10
        assert time.monotonic() - began < 12, "it takes 19 seconds where each silent one has a second"
        says(server, "it has said nothing, and others wait for their turn")


def test_who_hangs_up_in_a_handshake(server, ca):
    hello = hello_of(client_context(ca))
    for cut in (0, 1, 5, 6, 50, len(hello) - 1, len(hello)):
        with Client(("127.0.0.1", server.tls_port)) as client:
            client.raw(hello[:cut])
            if cut % 2:
                client.reset()
        says(server, "")
    eventually(lambda: server.info("TLS")["tls_connections"] == "0", "all are gone")


def test_more_certificates_than_anybody_has(start, certificate, ca, tmp_path):
    """A chain of 100 KB: it is not kept."""
    server = strict(start, certificate, ca)
    long = ca.issue("long")
    chain = tmp_path / "chain.pem"
    chain.write_text(long.cert.read_text() + ca.pem.read_text() * 100)
    is_shut_out(server, client_context(ca, Certificate(chain, long.key)))
    says(server, "excessive message size")


def torment(draw, server, context):
    """One connection: a handshake that goes wrong somewhere, or records after it that do. Until the server has had enough, or nothing follows."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    spoil, step, done = draw.randrange(6), 0, False
    with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE) as raw:
        raw.settimeout(0.2)
        with contextlib.suppress(OSError, ssl.SSLError):
            while step < 12:
                try:
                    if not done:
                        made.do_handshake()
                        done = True
                    made.write(pack("PING", "x" * draw.choice([1, 100, 20000])))
                except ssl.SSLWantReadError:
                    pass
                data = outgoing.read()
                if step >= spoil:
                    data = mutated(draw, data or bytes([draw.choice([20, 21, 22, 23, 24, 128]), 3, draw.randrange(5), draw.randrange(256),
                                                        draw.randrange(256)]) + draw.randbytes(draw.choice([0, 1, 16, 300])))
                raw.sendall(data)
                step += 1
                got = raw.recv(65536)
                if not got:
                    break
                incoming.write(got)


def test_garbage_in_records(start, certificate, ca, client_certificate):
    """HF_SEED=N repeats one. HF_SOAK=1, or HF_TLS_FUZZ_S: longer."""
    draw = drawn()
    server = strict(start, certificate, ca, clients="optional")
    contexts = [client_context(None, shown, version) for shown in (None, client_certificate) for version in VERSIONS]
    until, count, before = time.monotonic() + FUZZ_S, 0, server.rss()
    with dial(server, client_context(ca)) as steady:
        while time.monotonic() < until:
            torment(draw, server, draw.choice(contexts))
            count += 1
            if count % 20 == 0:
                assert steady.cmd("PING") == "PONG"
    assert count > 20 and server.running()
    eventually(lambda: server.info("TLS")["tls_connections"] == "0", "all are gone", 2 * HANDSHAKE_S)
    assert server.rss() < before + 32 * 2**20
    print(f"{count} connections")


# ---- much, and many ---------------------------------------------------------------------------------------------------------------


def ready(client, writes, patience):
    """Whether the socket is ready to be read, or also to be written to."""
    return any(select.select([client.socket], [client.socket] if writes else [], [], patience))


def send_what_is_taken(client, data, patience):
    """Until the server takes no more for so long. What is left. The socket does not block, afterwards neither."""
    client.socket.setblocking(False)
    while data:
        try:
            data = data[client.socket.send(data[:65536]):]
        except ssl.SSLWantWriteError:
            if not select.select([], [client.socket], [], patience)[1]:
                break
    return data


def send_and_read(client, data):
    """All of it, and reads meanwhile, so that neither side waits for the other. (Two threads may not use one connection of TLS.)"""
    chunks = []
    while data := send_what_is_taken(client, data, 0):
        assert ready(client, True, PATIENCE)
        with contextlib.suppress(ssl.SSLWantReadError):
            chunks.append(client.socket.recv(65536))
            assert chunks[-1], "the server has closed the connection"
    client.socket.settimeout(PATIENCE)
    client.buffer = client.buffer[client.at:] + b"".join(chunks)
    client.at = 0


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_big_answers_and_big_commands(server, ca, version):
    with dial(server, client_context(ca, version=version)) as client:
        for size in (1, 16383, 16384, 16385, 100000, 900000):
            assert client.cmd("PING", "x" * size) == "x" * size
        texts = [f"{i}-" + "y" * 30000 for i in range(100)]
        send_and_read(client, memoryview(b"".join(pack("PING", text) for text in texts)))
        assert [client.read() for _ in texts] == texts


def test_who_reads_late_gets_it_all(server, ca):
    """The server stops to read, and to write, and what TLS has kept back is read when it goes on."""
    with dial(server, client_context(ca)) as client:
        text, count = "z" * 10000, 2000
        left = send_what_is_taken(client, memoryview(pack("PING", text) * count), 0.5)
        assert left, "the server stops to read"
        assert int(server.info()["total_commands_processed"]) > 20
        send_and_read(client, left)
        assert [client.read() for _ in range(count)] == [text] * count
        assert client.cmd("PING") == "PONG"


@pytest.mark.parametrize("limit", [1, 4096])
def test_many_commands_in_one_record(start, certificate, ca, limit):
    """All of them are in TLS's buffer when the server pauses the client, and the socket has nothing more to tell."""
    server = start("--max-pipeline", limit, tls=certificate)
    with dial(server, client_context(ca)) as client:
        commands = b"".join(pack("ACQUIRE", f"n-{i}", "l") + pack("PING", i) for i in range(250))
        for _ in range(3):
            client.raw(commands)
            answers = [client.read() for _ in range(500)]
            assert answers[1::2] == [str(i) for i in range(250)] and all(token > 0 for token in answers[::2])


def test_what_is_behind_a_command_that_waits(server, ca):
    with dial(server, client_context(ca)) as client, server.connect() as holder:
        holder.cmd("ACQUIRE", "x", "holder")
        client.raw(pack("ACQUIRE", "x", "waiter", "WAIT", 60000) + pack("PING", "behind" * 1000))
        eventually(lambda: holder.show("x")["queue"] == 1, "it waits")
        holder.cmd("RELEASE", "x", "holder")
        assert client.read() > 0 and client.read() == "behind" * 1000


def test_the_end_comes_after_all_answers(server, ca):
    """It says something, and that it will say no more, at once."""
    with dial(server, client_context(ca)) as client:
        client.raw(pack("ACQUIRE", "x", "l") + pack("PING", "last"))
        socket.socket.shutdown(client.socket, socket.SHUT_WR)  # that of SSLSocket forgets the TLS
        assert b"last" in client.read_to_end()


def test_the_end_comes_with_the_handshake(server, ca):
    """The last of the handshake, a command and the end of the connection are there at once: nothing that comes later tells the server of the end."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = client_context(ca, version=ssl.TLSVersion.TLSv1_3).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", server.tls_port), PATIENCE) as raw:
        while True:
            try:
                made.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65536))
        made.write(pack("PING", "at once"))
        server.pause()
        raw.sendall(outgoing.read())
        raw.shutdown(socket.SHUT_WR)
        server.resume()
        while data := raw.recv(65536):
            incoming.write(data)
        assert made.read(100) == b"$7\r\nat once\r\n"


def test_pushes(server, ca):
    with dial(server, client_context(ca), 3) as observer, dial(server, client_context(ca), 3) as waiter, server.connect() as holder:
        assert observer.cmd("OBSERVE", "x") == "OK"
        token = holder.cmd("ACQUIRE", "x", "l1")
        assert observer.push()[:2] == ("changed", "x")
        assert waiter.cmd("ACQUIRE", "x", "l2", "PUSH", "WAIT", YEAR_MS) == "QUEUED"
        holder.cmd("RELEASE", "x", "l1")
        assert waiter.push()[:3] == ("granted", "x", "l2")
        assert observer.show("x")["holders"][0]["token"] > token


def test_half_of_a_crowd(server, ca):
    """CROWD connections, every second one over TLS; HF_TLS_CROWD=19500 in full. What one that is idle costs."""
    context, size = client_context(ca), CROWD // 2
    with contextlib.ExitStack() as stack:
        before = server.rss()
        crowd = [stack.enter_context(dial(server, context)) for _ in range(size)]
        assert all(client.cmd("PING", "x" * 5000) for client in crowd)
        cost = (server.rss() - before) / size
        crowd += [stack.enter_context(server.connect()) for _ in range(size)]
        print(f"{size} idle connections with TLS: {cost / 1024:.1f} KiB each")
        assert cost < 40000
        for turn in range(3):
            for number, client in enumerate(crowd):
                client.send("PING", f"{number}-{turn}")
            assert [client.read() for client in crowd] == [f"{number}-{turn}" for number in range(len(crowd))]
        assert int(server.info("TLS")["tls_connections"]) == size


def test_a_herd_comes_in(server, ca):
    """All at once, more than may be at their handshakes at a time."""
    context, failures, threads, each = client_context(ca), [], 8, 50

    def come():
        try:
            with contextlib.ExitStack() as stack:
                for _ in range(each):
                    assert stack.enter_context(dial(server, context)).cmd("PING") == "PONG"
        except Exception as failure:  # pylint: disable=broad-except
            failures.append(failure)

    herd = [threading.Thread(target=come) for _ in range(threads)]
    for thread in herd:
        thread.start()
    for thread in herd:
        thread.join()
    assert failures == [] and server.info("TLS")["tls_handshakes_done"] == str(threads * each)


def test_sighup_under_load(renewable, ca):
    """The certificate changes 20 times; nobody's request fails, whether he is connected or comes just then."""
    both = [ca.issue(f"turn-{i}", "IP:127.0.0.1") for i in range(2)]
    server, failures, over, served = renewable(first=both[0]), [], threading.Event(), [0, 0]
    context = client_context(ca)

    def stay(number):
        with dial(server, context) as client:
            while not over.is_set():
                assert client.cmd("ACQUIRE", f"load-{number}", "l") > 0 and client.cmd("RELEASE", f"load-{number}", "l") == 1
                served[0] += 1

    def come_and_go(_):
        while not over.is_set():
            with dial(server, context) as client:
                assert client.cmd("PING") == "PONG"
            served[1] += 1

    def guarded(what, number):
        try:
            what(number)
        except Exception as failure:  # pylint: disable=broad-except
            failures.append(repr(failure))

    threads = [threading.Thread(target=guarded, args=(what, i)) for i in range(3) for what in (stay, come_and_go)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(20):
            before = list(served)
            exchange(server, both[(turn + 1) % 2])
            hang_up(server, READ_AGAIN)
            eventually(lambda: failures or all(now > then for now, then in zip(served, before)), "they go on")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert seen(server) == der(both[0])
