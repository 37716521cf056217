"""Servers that are gone, alone, full, or do not know us: clear words, nothing left behind, and a loss is told in time."""
import contextlib
import socket
import socketserver
import subprocess
import threading
import time

import pytest
from conftest import PATIENCE, EtcdError, eventually, seconds, text64
from holder import hold, start_holder  # noqa: F401


def fill(node):
    for i in range(1000):
        try:
            node.ask("kv/put", key=text64(f"fill/{i}"), value=text64("x" * 100000))
        except EtcdError as error:
            assert "space exceeded" in str(error)
            return
    raise AssertionError("it is never full")


def test_the_space_alarm(servers, cli_on, hold):
    """Nobody gets a lock; who has one can give it up, and who cannot renew is told."""
    etcd = servers.etcd(nodes=1, args=["--quota-backend-bytes", "1000000"])
    cli = cli_on(etcd.url())
    kept = hold(etcd.url(), "kept", "ttl=60000")
    brief = hold(etcd.url(), "brief", "ttl=2000")
    fill(etcd.nodes[0])
    done = cli("run", "-n", "y", "--", "true")
    assert done.status == 69 and "alarm NOSPACE" in done.stderr, done
    assert etcd.keys("locks/y/") == []
    began = time.monotonic()
    brief.await_lost()
    assert seconds(began) < 3
    assert kept.release() == "HF_OK"
    assert etcd.keys("locks/kept/") == []
    assert cli("show", "brief").status == 0  # looking needs no space


def test_no_server(cli_on):
    began = time.monotonic()
    done = cli_on("etcd://127.0.0.1:1,127.0.0.1:2")("run", "x", "--", "true")
    assert done.status == 69 and "127.0.0.1:" in done.stderr
    assert seconds(began) < 5


def test_a_server_that_takes_no_connection(cli_on):
    """A connection has a second, whatever an answer has: the words say which of both did not come, and after how long."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        for _ in range(4):  # what is behind the queue gets no answer from the kernel
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        done = cli_on(f"etcd://127.0.0.1:{full.getsockname()[1]}?timeout=8s")("show", "x")
    assert done.status == 69 and "no connection within 1." in done.stderr, done


def test_no_majority(servers, cli_on, hold):
    etcd = servers.etcd()
    cli = cli_on(etcd.url())
    holder = hold(etcd.url(), "x", "ttl=3000")
    etcd.nodes[0].kill9()
    assert cli("run", "-n", "y", "--", "true").status == 0
    etcd.nodes[1].kill9()
    killed = time.monotonic()
    done = cli("run", "-n", "y", "--", "true")
    assert done.status == 69, done
    holder.await_lost()
    assert seconds(killed) < 3.5
    etcd.nodes[0].start()
    etcd.nodes[1].start()
    assert hold(etcd.url(), "x", "ttl=3000").token > holder.token


def test_a_holder_outlives_the_loss_of_any_node(servers, hold):
    etcd = servers.etcd()
    holder = hold(etcd.url(), "x", "ttl=3000")
    for node in etcd.nodes:
        node.kill9()
        time.sleep(3.2)  # longer than its TTL
        assert holder.left() > 0
        node.start()
        etcd.await_all()
    assert not holder.told_lost()
    assert holder.release() == "HF_OK"


def test_a_paused_leader_costs_no_hold(servers, hold):
    """It is paused for longer than the lease, and wakes with its old ideas: 15247, 12528, 20418."""
    etcd = servers.etcd()
    holder = hold(etcd.url(), "x", "ttl=3000")
    for _ in range(2):
        leader = etcd.leader()
        leader.pause()
        time.sleep(4)
        assert holder.left() > 0
        leader.resume()
        time.sleep(1)
    assert not holder.told_lost()
    assert holder.release() == "HF_OK"


class Load:
    """Several that take and give up, each a name of its own, until it is stopped. Whatever else they are told is kept."""

    def __init__(self, url, start_holder, count=8):
        self.over = threading.Event()
        self.rounds = [0] * count
        self.complaints = []
        self.holders = [start_holder(url, f"load{i}", "ttl=60000") for i in range(count)]
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, index):
        holder = self.holders[index]
        try:
            while not self.over.is_set():
                assert holder.token > 0
                assert (result := holder.release()) == "HF_OK", result
                self.rounds[index] += 1
                holder.ask_again(f"load{index}")
        except Exception as error:
            self.complaints.append(f"{index}: {error}")

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE)
        return self.complaints

    def await_rounds(self, count):
        goal = [rounds + count for rounds in self.rounds]
        eventually(lambda: self.complaints or all(a >= b for a, b in zip(self.rounds, goal)), "they go on")


def test_orderly_restarts_refuse_nobody(servers, start_holder):
    """SIGTERM to the leader: what is under way is cancelled, which is no word about whether it was done."""
    etcd = servers.etcd()
    load = Load(etcd.url(), start_holder)
    try:
        for _ in range(4):
            load.await_rounds(5)
            leader = etcd.leader()
            leader.popen.terminate()
            leader.popen.wait(PATIENCE)
            load.await_rounds(5)
            leader.start()
            etcd.await_all()
    finally:
        complaints = load.stop()
    assert complaints == []


def test_a_leader_that_is_moved_refuses_nobody(servers, start_holder):
    """Meanwhile proposals are dropped."""
    etcd = servers.etcd()
    leader = etcd.leader()
    members = {node: etcd.leader_of(node)["header"]["member_id"] for node in etcd.nodes}
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in sorted(etcd.nodes, key=lambda node: node is not leader))
    load = Load(f"etcd://{hosts}/locks", start_holder)
    try:
        for i in range(10):
            load.await_rounds(3)
            leader = etcd.leader()
            other = [node for node in etcd.nodes if node is not leader][i % 2]
            etcd.ctl("move-leader", f"{int(members[other]):x}", check=False)
    finally:
        complaints = load.stop()
    assert complaints == []


# ---- users


def authenticate(node, user, password):
    return node.ask("auth/authenticate", name=user, password=password)["token"]


@pytest.fixture
def guarded(servers):
    """Whose authentications last for as long as nobody uses them for a second."""
    etcd = servers.etcd(nodes=1, args=["--auth-token-ttl", "1"])
    node = etcd.nodes[0]
    node.ask("auth/user/add", name="root", password="secret")
    node.ask("auth/user/grant", user="root", role="root")
    node.ask("auth/role/add", name="locks")
    node.ask("auth/role/grant", name="locks", perm={"permType": "READWRITE", "key": text64("locks/"),
                                                     "range_end": text64("locks0")})
    node.ask("auth/user/add", name="ann", password="p w/d%")
    node.ask("auth/user/grant", user="ann", role="locks")
    node.ask("auth/enable")
    return etcd


ANN = "ann:p%20w%2Fd%25"


def test_users(guarded, cli_on):
    assert cli_on(guarded.url(user=ANN))("run", "x", "--", "true").status == 0
    for user, words in (("ann:wrong", "does not accept this user"), (None, "asks for a user")):
        done = cli_on(guarded.url(user=user))("run", "x", "--", "true")
        assert done.status == 77 and words in done.stderr, done
        assert "wrong" not in done.stderr
    done = cli_on(guarded.url("elsewhere", user=ANN))("run", "x", "--", "true")
    assert done.status == 77 and "may not read and write" in done.stderr, done
    assert guarded.keys("locks/", token=authenticate(guarded.nodes[0], "root", "secret")) == []


def test_a_password_file(guarded, cli_on, tmp_path):
    path = tmp_path / "password"
    path.write_text("p w/d%\n")
    path.chmod(0o600)
    assert cli_on(guarded.url(user="ann", password_file=path))("run", "x", "--", "true").status == 0


def test_an_authentication_that_ran_out_is_made_again(guarded, hold):
    """It renews every three seconds."""
    holder = hold(guarded.url(user=ANN), "x", "ttl=9000")
    time.sleep(10)
    assert holder.left() > 0
    assert holder.release() == "HF_OK"


def test_a_role_that_is_withdrawn_ends_a_hold(guarded, hold, start_holder):
    """etcd does not look at permissions within nested transactions: renewals went on, and only the release was refused."""
    holder = hold(guarded.url(user=ANN), "x", "ttl=3000")
    root = authenticate(guarded.nodes[0], "root", "secret")
    guarded.nodes[0].ask("auth/user/revoke", token=root, name="ann", role="locks")
    withdrawn = time.monotonic()
    holder.await_lost(patience=10)
    assert seconds(withdrawn) < 3.5
    root = authenticate(guarded.nodes[0], "root", "secret")
    guarded.nodes[0].ask("auth/user/grant", token=root, user="ann", role="locks")
    assert hold(guarded.url(user=ANN), "x", "ttl=3000").token > holder.token


def test_a_user_where_none_is_asked_for(servers, cli_on):
    """It is let in, and told that this is so."""
    etcd = servers.etcd(nodes=1)
    cli = cli_on(etcd.url(user=ANN))
    assert cli("run", "x", "--", "true").status == 0
    done = cli("stores")
    assert done.status == 0 and "does not ask who we are" in done.stderr and ANN.partition(":")[2] not in done.stderr, done
    assert "does not ask" not in cli_on(etcd.url())("stores").stderr


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
    return {"ca": str(folder / "ca.pem"), "cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}


def test_tls(servers, cli_on, hold, start_holder, tmp_path):
    tls = make_certificates(tmp_path)
    etcd = servers.etcd(nodes=1, tls=tls)
    first = hold(etcd.url(ca_file=tls["ca"]), "x", "ttl=20000")
    waiter = start_holder(etcd.url(ca_file=tls["ca"]), "x", "ttl=20000")
    eventually(lambda: len(etcd.keys("locks/x/")) == 2, "a waiter")
    assert first.release() == "HF_OK"
    assert waiter.token > first.token
    done = cli_on(etcd.url(ca_file=tmp_path / "other.pem"))("run", "x", "--", "true")
    assert done.status == 69 and "certificate" in done.stderr, done
    done = cli_on(etcd.url(ca_file=tls["ca"]).replace("etcds:", "etcd:"))("run", "x", "--", "true")
    assert done.status == 64 and "etcds://" in done.stderr, done


def test_client_certificates(servers, cli_on, hold, tmp_path):
    """Not who we are, but whether we may come at all: the gateway has a certificate of its own before etcd."""
    tls = make_certificates(tmp_path)
    etcd = servers.etcd(nodes=1, tls={**tls, "clients": True})
    holder = hold(etcd.url(ca_file=tls["ca"], cert_file=tls["cert"], key_file=tls["key"]), "x", "ttl=20000")
    for options in ({}, {"cert_file": tmp_path / "other.pem", "key_file": tmp_path / "other.key"}):
        done = cli_on(etcd.url(ca_file=tls["ca"], **options))("run", "y", "--", "true")
        assert done.status == 69, done  # with TLS 1.3 it may be hung up on before it reads why
    assert etcd.keys("locks/y/") == []
    assert holder.release() == "HF_OK"


# ---- cuts


@pytest.fixture
def behind(servers, three, prefix):
    """Ways to all three nodes that can be cut, and the URL that leads over them."""
    relays = [servers.relay(node.port) for node in three.nodes]
    return relays, f"etcd://{','.join(relay.address for relay in relays)}/{prefix}"


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_holder_that_is_cut_off_one_way(three, prefix, behind, hold, start_holder, way):
    """What it sends does not arrive; or it arrives, and the answers do not come back. It knows that it is lost before anybody else holds."""
    relays, url = behind
    holder = hold(url, "x", "ttl=3000")
    waiter = start_holder(three.url(prefix), "x", "ttl=3000")
    eventually(lambda: len(three.keys(f"{prefix}/x/")) == 2, "a waiter")
    for relay in relays:
        relay.cut(way)
    assert waiter.token > holder.token
    assert holder.left() == 0
    holder.await_lost()
    for relay in relays:
        relay.heal()
    assert holder.release() == "HF_ELOST"
    assert waiter.left() > 0 and waiter.release() == "HF_OK"


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_waiter_that_is_cut_off_one_way(three, prefix, behind, hold, start_holder, way):
    """It loses its place with its TTL, holds nobody up for longer, and comes again when the way is open."""
    relays, url = behind
    holder = hold(three.url(prefix), "x", "ttl=30000")
    waiter = start_holder(url, "x", "ttl=3000")
    eventually(lambda: len(three.keys(f"{prefix}/x/")) == 2, "a waiter")
    third = start_holder(three.url(prefix), "x", "ttl=30000")
    eventually(lambda: len(three.keys(f"{prefix}/x/")) == 3, "another")
    for relay in relays:
        relay.cut(way)
    cut = time.monotonic()
    assert holder.release() == "HF_OK"
    assert third.token > holder.token
    assert seconds(cut) < 3 * 3 + 2  # what was under way may have moved its key to another lease
    for relay in relays:
        relay.heal()
    time.sleep(1)
    assert waiter.waits()
    assert third.release() == "HF_OK"
    assert waiter.token > third.token
    assert waiter.release() == "HF_OK"


# ---- URLs


@pytest.mark.parametrize("url, words", [
    ("etcd:x", "after the scheme comes //host"),
    ("etcd://a,a", "named twice"),
    ("etcd://a/p?prefix=q", "given twice"),
    ("etcd://a?nonsense=1", "nonsense"),
    ("etcd://a?timeout=1ms", "timeout"),
])
def test_wrong_urls(cli_on, url, words):
    done = cli_on(url)("run", "x", "--", "true")
    assert done.status == 64 and words in done.stderr, done


@contextlib.contextmanager
def answering(answer):
    """A server that reads a request and gives this answer, whatever it was. Yields its port."""
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def http_answer(status, body):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


NOT_ETCD = "not the gateway of etcd"


@pytest.mark.parametrize("answer, status, words", [
    (http_answer("501 Unsupported method ('POST')", "<html>"), 77, NOT_ETCD),  # as python3 -m http.server
    (http_answer("404 Not Found", "<html>"), 77, NOT_ETCD),
    (http_answer("200 OK", "<html>welcome"), 77, NOT_ETCD),
    (b"-ERR unknown command\r\n", 77, NOT_ETCD),
    (http_answer("503 Service Unavailable", "<html>"), 69, "is there a proxy before it?"),  # which may come back; but nobody was reached
], ids=["501", "404", "200", "no HTTP", "503"])
def test_not_etcd(cli_on, answer, status, words):
    """Nobody waits there for a lock, nor for ever."""
    with answering(answer) as port:
        for command in (("run", "x", "--", "true"), ("run", "-n", "x", "--", "true"), ("ls",)):
            done = cli_on(f"etcd://127.0.0.1:{port}")(*command)
            assert done.status == status and words in done.stderr and "still trying" not in done.stderr, done


def test_tls_where_nobody_speaks_it(servers, cli_on):
    etcd = servers.etcd(nodes=1)
    done = cli_on(etcd.url().replace("etcd:", "etcds:", 1))("run", "-n", "x", "--", "true")
    assert done.status == 69 and done.stderr.endswith("does it speak TLS at this port? (etcd:// is without)\n"), done.stderr
