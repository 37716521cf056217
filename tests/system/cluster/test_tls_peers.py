"""TLS between the nodes of a cluster: what can be read on the network, who is let in and who is not, each with its line on both sides;
certificates that are exchanged, and TLS that is turned on, while clients work; and strangers at the port for peers."""
import contextlib
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest
from helpers import add, all_there, has_all, held, pour
from load import Load
from nodes import HERE, PATIENCE, TTL_MAX, argv_of, environment, fresh, free_port, put_first, run_refused, until

sys.path.insert(1, str(HERE.parent / "holdfastd"))
from certificates import Authority  # noqa: E402

REFUSED = "refused a connection to the port for peers"
UNREACHED = "a node cannot be reached"
IN_CLEAR = "a node is spoken to in the clear"
READ_AGAIN = "the certificate for other nodes was read again"
NOT_READ = "a file could not be read again"
HERE_NAMES = ("IP:127.0.0.1", "DNS:localhost")
STORM_S = 4


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "other", "another authority")


@pytest.fixture(scope="module")
def certificate(ca):
    return ca.issue("node", *HERE_NAMES)


def settings(ca, certificate, mode="yes", *more):
    return ["--peer-tls", mode, "--peer-tls-cert", certificate.cert, "--peer-tls-key", certificate.key,
            "--peer-tls-ca", ca.pem, *more]


def log_of(node):
    return "\n".join(node.logged())


def awaits(node, *words):
    """A line of its log, now or later, has all of them."""
    return until(lambda: next((line for line in node.logged() if all(word in line for word in words)), None),
                 f"{node} says {words}")


def secret_file(directory, name, text="0123456789abcdef" * 2):
    path = directory / name
    path.touch(0o600)
    path.write_text(text + "\n")
    return path


class Relay:
    """Between the nodes and one of them: what passes is recorded, or changed by whoever stands there."""

    def __init__(self, port):
        self.port, self.passed, self.lock = port, bytearray(), threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.over = False
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self.pass_on, args=(near,), daemon=True).start()

    def meet(self, near):
        """Both ends of what passes here."""
        return near, socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def pass_on(self, near):
        with contextlib.suppress(OSError):
            near, far = self.meet(near)
            threading.Thread(target=self.copy, args=(far, near), daemon=True).start()
            self.copy(near, far)

    def copy(self, source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self.lock:
                    self.passed += data
                to.sendall(data)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Impostor(Relay):
    """Has a certificate of the nodes' authority, and passes on what he hears inside of it."""

    def __init__(self, port, ca, certificate):
        self.server, self.client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
        for context in (self.server, self.client):
            context.load_cert_chain(certificate.cert, certificate.key)
            context.load_verify_locations(ca.pem)
        self.server.verify_mode = ssl.CERT_REQUIRED
        super().__init__(port)

    def meet(self, near):
        near, far = super().meet(near)
        return self.server.wrap_socket(near, server_side=True), self.client.wrap_socket(far, server_hostname="127.0.0.1")


@contextlib.contextmanager
def relayed(start, make, *args):
    """Three nodes that reach each other by relays only."""
    cluster = start(founded=False)
    relays = []
    try:
        for node in cluster:
            port = free_port()
            relays.append(make(port))
            node.peer = relays[-1].address
            node.args += ["--peer-listen", f"127.0.0.1:{port}", *args]
        line = ",".join(f"{node.number}={node.peer}" for node in cluster)
        for node in cluster:
            node.line = line
        yield cluster, relays
    finally:
        for node in cluster:
            node.kill9()
        for relay in relays:
            relay.close()


# ---- a cluster -----------------------------------------------------------------------------------------------------


def test_a_cluster_with_tls(start, ca, certificate):
    """It is founded, grants, elects, restarts, takes a newcomer by a snapshot, and lets a member go."""
    cluster = start(3, "--snapshot-bytes", "64KiB", *settings(ca, certificate))
    assert "peer_tls:yes" in "\n".join(f"{k}:{v}" for k, v in cluster[1].info("TLS").items())
    holds = held(cluster)
    leader = cluster.leader()
    leader.kill9()
    cluster.leader(other_than=leader)
    with cluster.session() as session:
        assert all_there(session, holds)
        for _ in range(40):
            pour(session)
        assert leader.launch()
        until(lambda: list(cluster.leader().data.glob("snapshot-*")), "a snapshot was taken")
        add(cluster, 4)
        cluster.settled()
        assert session.ask("CLUSTER", "REMOVE", 4) == "OK"
        assert all_there(session, holds)
    cluster[4].kill9()
    del cluster.nodes[4]
    for node in cluster:
        assert node.stop() == 0
        assert node.launch()
        cluster.settled()
    has_all(cluster, cluster[2], holds)
    assert not any(REFUSED in line or IN_CLEAR in line for node in cluster for line in node.logged())


def test_the_certificate_of_clients_serves_nodes_too(start, ca, certificate):
    """Without peer-tls-...: tls-cert, tls-key and tls-ca."""
    cluster = start(3, "--peer-tls", "yes", "--tls-cert", certificate.cert, "--tls-key", certificate.key, "--tls-ca", ca.pem)
    assert held(cluster, 3)


@pytest.mark.parametrize("mode", ["no", "yes"])
def test_nothing_can_be_read_on_the_way(start, ca, certificate, mode):
    """With TLS: neither names, nor leases, nor who the nodes are. Without it, so that this can be seen: all of it."""
    name, lease = fresh("secret-name"), fresh("secret-lease")
    with relayed(start, Relay, *(settings(ca, certificate) if mode == "yes" else [])) as (cluster, relays):
        cluster.begin()
        cluster.ask("ACQUIRE", name, lease, "TTL", TTL_MAX)
        cluster.settled()
        seen = b"".join(bytes(relay.passed) for relay in relays)
        assert len(seen) > 1000
        for word in (name.encode(), lease.encode(), b"HFPEER", cluster[1].address.encode()):
            assert (word in seen) == (mode == "no"), word


def test_nobody_between_two_nodes_can_pass_the_proof_on(start, ca, certificate):
    """Not even with a certificate that is good for either side: both say that the secret was not proved, which it was, to somebody else."""
    with relayed(start, lambda port: Impostor(port, ca, certificate), *settings(ca, certificate)) as (cluster, relays):
        for node in cluster:
            assert node.launch()
        with cluster[1].connect() as client:
            client.error("CLUSTER", "INIT")
        awaits(cluster[1], UNREACHED, "it does not know the cluster's secret")
        awaits(cluster[2], REFUSED, "it does not know the cluster's secret")
        assert not any(status["leader"] for node in cluster if (status := node.status()))


# ---- who is not let in ---------------------------------------------------------------------------------------------


def is_not_let_in(cluster, args, here, there, revoked=()):
    """Node 3, with these settings. here: what the others say when they reach it, and when it reaches them; there: the same of node 3."""
    for node in cluster:
        assert node.stop() == 0
        node.args += revoked
    cluster[3].args = args
    for node in cluster:
        node.begin()
    leader = cluster.leader()
    assert leader is not cluster[3]
    for node, (reaching, reached) in ((leader, here), (cluster[3], there)):
        if reaching:
            awaits(node, " warning ", UNREACHED, reaching)
        if reached:
            awaits(node, REFUSED, reached)
    assert leader.members()[3]["silent"] == -1
    before = cluster[3].status()["applied"]
    leader.cmd("ACQUIRE", fresh(), fresh(), "TTL", TTL_MAX)
    status = cluster[3].status()
    assert status["leader"] == 0 and status["applied"] == before


UNKNOWN = "its certificate is not of an authority that nodes have here"
UNACCEPTED = "it does not accept this node's certificate"


def test_a_certificate_of_another_authority(start, ca, other, certificate):
    cluster = start(3, *settings(ca, certificate))
    foreign = other.issue("foreign", *HERE_NAMES)
    is_not_let_in(cluster, settings(ca, foreign), (UNKNOWN, UNKNOWN),
                  (f"{UNACCEPTED}: unknown CA", f"{UNACCEPTED}: unknown CA"))


def test_a_node_that_trusts_another_authority(start, ca, other, certificate):
    cluster = start(3, *settings(ca, certificate))
    is_not_let_in(cluster, settings(other, certificate), (f"{UNACCEPTED}: unknown CA", f"{UNACCEPTED}: unknown CA"),
                  (UNKNOWN, UNKNOWN))


def test_a_certificate_that_has_ended(start, ca, certificate):
    cluster = start(3, *settings(ca, certificate))
    old = ca.issue("old", *HERE_NAMES, begins="20200101000000Z", ends="20210101000000Z")
    ended = "its certificate is not valid: certificate has expired"
    is_not_let_in(cluster, settings(ca, old), (ended, ended),
                  (f"{UNACCEPTED}: certificate expired", f"{UNACCEPTED}: certificate expired"))


def test_a_certificate_for_another_host(start, ca, certificate):
    """That of a client, say, which the same authority has given."""
    cluster = start(3, *settings(ca, certificate))
    elsewhere = ca.issue("elsewhere", "DNS:client.example.com", "IP:127.0.0.2", common="127.0.0.1")
    is_not_let_in(cluster, settings(ca, elsewhere),
                  ("its certificate is not for the host of this address",
                   "its certificate is not for the host of the address that it says is its own"),
                  (f"{UNACCEPTED}: it is not for the host of this node's address", f"{UNACCEPTED}: bad certificate"))


def test_a_certificate_that_was_revoked(start, ca, certificate):
    cluster = start(3, *settings(ca, certificate))
    lost = ca.issue("lost", *HERE_NAMES)
    ca.revoke(lost)
    revoked = "its certificate is not valid: certificate revoked"
    is_not_let_in(cluster, settings(ca, lost), (revoked, revoked),
                  (f"{UNACCEPTED}: certificate revoked", f"{UNACCEPTED}: certificate revoked"),
                  ["--peer-tls-crl", ca.crl("of-nodes.pem")])


def test_a_node_without_tls(start, ca, certificate):
    """It knows the secret, and shows no certificate. Each side says what the other lacks."""
    cluster = start(3, *settings(ca, certificate))
    is_not_let_in(cluster, [], ("it does not answer a TLS handshake: set peer-tls on both", "it does not speak TLS, which peer-tls asks for"),
                  ("it speaks TLS with other nodes, and this one does not",) * 2)


def test_a_right_certificate_and_a_wrong_secret(start, ca, certificate):
    cluster = start(3, *settings(ca, certificate))
    for node in cluster:
        node.args += ["--secret-file", secret_file(cluster.directory, "right")]
    wrong = settings(ca, certificate, "yes", "--secret-file", secret_file(cluster.directory, "wrong", "fedcba9876543210"))
    unproven = "it does not know the cluster's secret"
    is_not_let_in(cluster, wrong, (unproven, unproven), (unproven, None))


def test_whoever_shows_no_certificate(start, ca, certificate):
    """A client of TLS that trusts this authority, and is nobody."""
    cluster = start(3, *settings(ca, certificate))
    context = ssl.create_default_context(cafile=ca.pem)
    host, port = cluster[1].peer.rsplit(":", 1)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with context.wrap_socket(socket.create_connection((host, int(port)), PATIENCE), server_hostname="127.0.0.1") as client:
            client.sendall(b"HFPEER05")
            assert client.recv(1)
            raise AssertionError("it was heard")
    awaits(cluster[1], REFUSED, "it shows no certificate")


def test_tls_1_2_is_not_spoken(start, ca, certificate):
    cluster = start(3, *settings(ca, certificate))
    context = ssl.create_default_context(cafile=ca.pem)
    context.load_cert_chain(certificate.cert, certificate.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    host, port = cluster[1].peer.rsplit(":", 1)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(socket.create_connection((host, int(port)), PATIENCE), server_hostname="127.0.0.1")
    awaits(cluster[1], REFUSED, "unsupported protocol")


def test_nobody_chooses_keys_that_cost_a_lot(start, ca, certificate):
    """ffdhe8192: more than 100 ms of the loop for one hello, which anybody can send."""
    cluster = start(3, *settings(ca, certificate))
    subprocess.run(["openssl", "s_client", "-connect", cluster[1].peer, "-groups", "ffdhe8192"], stdin=subprocess.DEVNULL,
                   capture_output=True, timeout=PATIENCE, check=False)
    awaits(cluster[1], REFUSED, "no suitable")


# ---- while clients work ----------------------------------------------------------------------------------------------


def hang_up(node, word):
    node.logged()
    os.kill(node.pid, signal.SIGHUP)
    return node.await_line(word)


def test_certificates_are_exchanged_under_load(start, ca, tmp_path):
    """Everybody stays connected, and nobody is elected; a new connection sees the new one. A bad file changes nothing, and is named."""
    files = ca.issue("first", *HERE_NAMES)
    second = ca.issue("second", *HERE_NAMES, key=files.key)
    cluster = start(3, *settings(ca, files))
    put_first(cluster)
    term = cluster.leader().status()["term"]
    load = Load(cluster)
    with load:
        until(lambda: len(load.record.holds) > 50, "the load is one")
        for turn in range(3):
            for node in cluster:
                hang_up(node, READ_AGAIN)
        files.cert.write_bytes(second.cert.read_bytes())
        for node in cluster:
            hang_up(node, READ_AGAIN)
        files.cert.write_text("no certificate\n")
        for node in cluster:
            line = hang_up(node, NOT_READ)
            assert "setting=peer-tls" in line and str(files.cert) in line, line
        files.cert.write_bytes(second.cert.read_bytes())
    load.verdict()
    assert cluster.leader().status()["term"] == term
    for node in cluster:
        assert "the connection from a node is closed" not in log_of(node) and UNREACHED not in log_of(node)
    host, port = cluster[1].peer.rsplit(":", 1)
    shown = subprocess.run(["openssl", "s_client", "-connect", f"{host}:{port}", "-showcerts"], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
    assert second.cert.read_text().strip() in shown
    for node in cluster:  # what they have read is good for a start
        node.kill9()
        assert node.launch()
    cluster.settled()


USELESS = {"authority": "it is not of an authority that nodes have here", "host": "it is not for the host 127.0.0.1, which is this node's address in cluster",
           "ended": "certificate has expired", "revoked": "certificate revoked", "client": "its extendedKeyUsage does not allow serverAuth"}


@pytest.mark.parametrize("what", USELESS)
def test_a_certificate_that_others_would_refuse(start, ca, other, tmp_path, what):
    """It can be read, and would shut the node out with the next connection: SIGHUP leaves the one of before, --check-config and a start say it."""
    issued = {"authority": lambda: other.issue("strange", *HERE_NAMES), "host": lambda: ca.issue("db9", "DNS:db9.example.com"),
              "ended": lambda: ca.issue("gone", *HERE_NAMES, begins="20200101000000Z", ends="20210101000000Z"),
              "revoked": lambda: ca.issue("taken-back", *HERE_NAMES), "client": lambda: ca.issue("client", *HERE_NAMES, usage="clientAuth")}[what]()
    if what == "revoked":
        ca.revoke(issued)
    files = ca.issue(f"good-{what}", *HERE_NAMES)
    cluster = start(1, *settings(ca, files, "yes", *(["--peer-tls-crl", ca.crl(f"of-{what}.pem")] if what == "revoked" else [])))
    good = files.cert.read_bytes(), files.key.read_bytes()
    files.cert.write_bytes(issued.cert.read_bytes())
    files.key.write_bytes(issued.key.read_bytes())
    line = hang_up(cluster[1], NOT_READ)
    assert USELESS[what] in line and f"peer-tls-cert {files.cert}" in line and READ_AGAIN not in log_of(cluster[1]), line
    checked = subprocess.run(argv_of(*cluster[1].words(), "--check-config"), env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=PATIENCE, check=False)
    assert checked.returncode == 78 and f"holdfastd: other nodes would refuse this one: peer-tls-cert {files.cert}: {USELESS[what]}" in checked.stderr, checked
    cluster[1].kill9()
    assert cluster[1].launch()
    assert USELESS[what] in awaits(cluster[1], "other nodes will refuse this one")
    files.cert.write_bytes(good[0])
    files.key.write_bytes(good[1])
    hang_up(cluster[1], READ_AGAIN)


def test_tls_is_turned_on_under_load(start, ca, certificate, figures):
    """Node by node: optional, and when all have that, yes. No request fails; and who speaks in the clear is not let in any more."""
    cluster = start(3)
    load = Load(cluster)
    with load:
        until(lambda: len(load.record.holds) > 50, "the load is one")
        for mode in ("optional", "yes"):
            for node in cluster.followers() + [cluster.leader()]:
                assert node.stop() == 0
                node.args = settings(ca, certificate, mode)
                assert node.launch()
                cluster.settled()
    load.verdict()
    clear = [sum(IN_CLEAR in line for line in node.logged()) for node in cluster]
    assert any(clear), "while they were turned on, the first spoke in the clear with those that had no TLS yet"
    assert all(node.info("TLS")["peer_tls"] == "yes" for node in cluster)
    figures(f"{len(load.record.holds)} holds; lines about nodes in the clear: {clear}")
    plain = cluster.node(4)
    plain.args = []
    assert plain.launch()
    with cluster.leader().connect() as client:
        answer = client.error("CLUSTER", "ADD", 4, plain.peer)
    assert answer.startswith("NOREPLY ") and "it does not answer a TLS handshake: set peer-tls on both" in answer, answer
    awaits(plain, REFUSED, "it speaks TLS with other nodes")


# ---- strangers ----------------------------------------------------------------------------------------------------------


def storm(address, ca, over, seed):
    """Handshakes that stop in the middle, others that go on to the end without a certificate, and what is none at all."""
    chance = random.Random(seed)
    host, port = address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=ca.pem)
    waiting = []
    while not over.is_set():
        with contextlib.suppress(OSError):
            client = socket.create_connection((host, int(port)), PATIENCE)
            client.settimeout(PATIENCE)
            kind = chance.randrange(4)
            if kind == 0:
                with context.wrap_socket(client, server_hostname="127.0.0.1") as tls:
                    tls.recv(1)
                continue
            if kind == 1:
                client.sendall(b"\x16\x03\x01" + chance.randbytes(chance.randrange(2000)))
            elif kind == 2:
                client.sendall(b"\x16")
            else:
                client.sendall(chance.randbytes(200))
            waiting = waiting[-200:] + [client]
    for client in waiting:
        client.close()


def test_strangers_do_not_stop_a_cluster(start, ca, certificate, figures):
    """Slow ones, garbage, and handshakes as fast as they go: who is connected is served, and nobody is elected. Then the port is as it was."""
    cluster = start(3, *settings(ca, certificate))
    put_first(cluster)
    leader = cluster.leader()
    term, over = leader.status()["term"], threading.Event()
    threads = [threading.Thread(target=storm, args=(node.peer, ca, over, seed)) for seed, node in enumerate([*cluster, leader])]
    longest, count = 0, 0
    try:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + STORM_S
        with leader.connect() as client:
            while time.monotonic() < deadline:
                began, lease = time.monotonic(), fresh()
                assert client.cmd("ACQUIRE", lease, lease, "TTL", TTL_MAX)
                longest, count = max(longest, time.monotonic() - began), count + 1
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert cluster.leader().status()["term"] == term
    figures(f"{count} grants beside strangers, the slowest took {longest * 1000:.0f} ms")
    other = cluster.followers()[0]
    other.kill9()
    assert other.launch()
    cluster.settled()


# ---- settings -------------------------------------------------------------------------------------------------------------


def test_settings_that_do_not_fit(ca, certificate, tmp_path):
    alone = ["--data", tmp_path / "data", "--listen", "127.0.0.1:0"]
    member = [*alone, "--cluster", "1=127.0.0.1:7431"]
    cert = ["--peer-tls-cert", certificate.cert, "--peer-tls-key", certificate.key]
    for words, why in (
            ([*alone, "--peer-tls", "yes", *cert, "--peer-tls-ca", ca.pem], "this node is alone"),
            ([*member, "--peer-tls", "yes"], "peer-tls needs a certificate"),
            ([*member, "--peer-tls", "yes", *cert], "peer-tls needs the authorities"),
            ([*member, "--peer-tls", "yes", *cert[:2], "--peer-tls-ca", ca.pem], "come together"),
            ([*member, *cert], "set peer-tls to yes"),
            ([*member, "--peer-tls", "yes", *cert, "--peer-tls-ca", certificate.key], "peer-tls-ca "),
            ([*member, "--peer-tls", "yes", *cert[:2], "--peer-tls-key", ca.folder / "ca.key", "--peer-tls-ca", ca.pem], "peer-tls-key ")):
        assert why in run_refused(*words)[1], words
