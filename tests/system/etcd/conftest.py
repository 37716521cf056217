"""Real etcd, of one node or three, for black-box tests of the store on it.

Told by the environment as tests/system/redis/conftest.py is: HF_HOLDER, HF_TEST_TMP, and what tests/system/cli/holdfast_cli.py reads. Whatever a test
starts is ended after it, also when it fails, and dies with pytest.

    servers.etcd()                          a started Etcd of three nodes; nodes=1, args=(...), tls=True
    etcd.url("locks")                       the store, keys below locks/
    etcd.nodes[0].ask("kv/range", key=...)  one request to the gateway
    etcd.ctl("lock", "locks/x", "true")     etcdctl
    cli_on(etcd.url())                      the command on this store
"""
import base64
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(1, str(TESTS / "cli"))
sys.path.append(str(TESTS / "redis"))  # holder.py
pytest.register_assert_rewrite("holdfast_cli")
from holdfast_cli import (BIN, PATIENCE, ROOT, SOAK, Cli, Process, await_gone, die_with_parent,  # noqa: E402,F401
                          eventually, is_running)
from ports import free_port  # noqa: E402,F401
from relay import Relay  # noqa: E402

HEARTBEAT_MS, ELECTION_MS = 30, 300


def text64(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def of64(text):
    return base64.b64decode(text or "").decode()


class EtcdError(Exception):
    """An error of the gateway."""


class Node:
    def __init__(self, cluster, index):
        self.cluster = cluster
        self.name = f"n{index}"
        self.port, self.peer_port = free_port(), free_port()
        self.dir = cluster.dir / self.name
        self.dir.mkdir()
        self.popen = None

    @property
    def client_url(self):
        return f"{self.cluster.http}://127.0.0.1:{self.port}"

    @property
    def peer_url(self):
        return f"http://127.0.0.1:{self.peer_port}"

    def start(self):
        argv = ["etcd", "--name", self.name, "--data-dir", str(self.dir / "data"),
                "--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url,
                "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
                "--initial-cluster", ",".join(f"{n.name}={n.peer_url}" for n in self.cluster.nodes),
                "--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout", str(ELECTION_MS),
                "--logger", "zap", "--log-outputs", "stderr", "--log-level", "warn", *self.cluster.args]
        with open(self.dir / "output", "ab") as output:
            self.popen = subprocess.Popen(argv, env={**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"},
                                          stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                          preexec_fn=die_with_parent)

    def kill9(self):
        if self.popen and self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()

    def restart(self):
        self.kill9()
        self.start()

    def pause(self):
        os.kill(self.popen.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.popen.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        os.kill(self.popen.pid, signal.SIGCONT)

    def ask(self, what, token=None, patience=5, **body):
        """A request to the gateway: ask("lease/revoke", ID="7")."""
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(f"{self.client_url}/v3/{what}", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=patience, context=self.cluster.context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise EtcdError(error.read().decode()) from None

    def metric(self, name):
        """The sum of a metric over all its labels that `name` begins."""
        with urllib.request.urlopen(f"{self.client_url}/metrics", timeout=5, context=self.cluster.context) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


class Etcd:
    def __init__(self, nodes=3, args=(), tls=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="etcd.", dir="/dev/shm" if os.access("/dev/shm", os.W_OK)
                                                 else os.environ.get("HF_TEST_TMP")))
        self.args = list(args)
        self.tls = tls
        self.http = "https" if tls else "http"
        self.context = ssl.create_default_context(cafile=tls["ca"]) if tls else None
        if tls:
            self.args += ["--cert-file", tls["cert"], "--key-file", tls["key"]]
        if tls and tls.get("clients"):  # only those that this CA has signed
            self.args += ["--client-cert-auth", "--trusted-ca-file", tls["ca"]]
            self.context.load_cert_chain(tls["cert"], tls["key"])
        self.nodes = []
        for index in range(nodes):
            self.nodes.append(Node(self, index))
        for node in self.nodes:
            node.start()
        self.await_all()

    def await_all(self):
        eventually(lambda: all(self.leader_of(node) for node in self.nodes), "all nodes know a leader")

    @staticmethod
    def leader_of(node):
        with contextlib.suppress(OSError, EtcdError, ValueError):
            answer = node.ask("maintenance/status", patience=1)
            return answer.get("leader", "0") != "0" and answer
        return None

    def leader(self):
        def look():
            for node in self.nodes:
                answer = self.leader_of(node)
                if answer and answer["leader"] == answer["header"]["member_id"]:
                    return node
            return None
        return eventually(look, "a leader")

    def url(self, prefix="locks", user=None, **options):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        query = "&".join(f"{key.replace('_', '-')}={value}" for key, value in options.items())
        return (f"etcd{'s' if self.tls else ''}://{user + '@' if user else ''}{hosts}/{prefix}"
                + (f"?{query}" if query else ""))

    def ctl_argv(self, *words):
        return ["etcdctl", "--endpoints", ",".join(node.client_url for node in self.nodes), *words]

    def ctl(self, *words, check=True):
        done = subprocess.run(self.ctl_argv(*words), env={**os.environ, "ETCDCTL_API": "3"}, text=True,
                              capture_output=True, timeout=PATIENCE)
        assert not check or done.returncode == 0, done.stderr
        return done

    def keys(self, prefix, token=None):
        """Of all keys that begin so: (key, kv)."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = self.nodes[0].ask("kv/range", key=text64(prefix), range_end=text64(end), token=token)
        return [(of64(kv["key"]), kv) for kv in answer.get("kvs", [])]

    def leases(self):
        return [lease["ID"] for lease in self.nodes[0].ask("lease/leases").get("leases", [])]

    def stop(self):
        for node in self.nodes:
            node.kill9()
        shutil.rmtree(self.dir, ignore_errors=True)


class Losing(http.server.ThreadingHTTPServer):
    """A proxy before one node that loses the answer to a request with certain words in it, once for each lose(). It has no watches."""
    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), LosingHandler)
        self.upstream, self.words, self.delayed, self.seconds = port, [], [], 0
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def lose(self, *words):
        """Then .words is empty when it was done."""
        self.words = [word.encode() for word in words]

    def delay(self, seconds, *words):
        """Such a request is held up, once; then .delayed is empty."""
        self.seconds, self.delayed = seconds, [word.encode() for word in words]

    def stop(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """Whoever went away is not worth a word."""


class LosingHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v3/watch":
            self.send_error(503)
            return
        if self.server.delayed and all(word in body for word in self.server.delayed):
            self.server.delayed = []
            time.sleep(self.server.seconds)
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=PATIENCE)
        upstream.request("POST", self.path, body)
        answer = upstream.getresponse()
        text = answer.read()
        upstream.close()
        if self.server.words and all(word in body for word in self.server.words):
            self.server.words = []
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Servers:
    """Starts servers, and ends them in the reverse order."""

    def __init__(self, stack):
        self.stack = stack

    def etcd(self, **options):
        etcd = Etcd(**options)
        self.stack.callback(etcd.stop)
        return etcd

    def relay(self, port):
        relay = Relay(port)
        self.stack.callback(relay.stop)
        return relay

    def losing(self, port):
        losing = Losing(port)
        self.stack.callback(losing.stop)
        return losing


@pytest.fixture
def servers():
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(scope="module")
def three():
    """Three nodes, for all tests of a file that do them no harm."""
    etcd = Etcd()
    yield etcd
    etcd.stop()


@pytest.fixture
def prefix():
    return f"p{random.randrange(1 << 48):x}"


@pytest.fixture
def cli_on(servers):
    def make(url):
        cli = Cli(url)
        servers.stack.callback(cli.clean)
        return cli

    return make


def seconds(since):
    return time.monotonic() - since
