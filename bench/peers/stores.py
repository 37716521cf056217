"""The stores that are compared: real servers on this machine, on free ports, with their data in one temporary folder, ended by pid.

Each has what its makers ship: their defaults for elections and for the disk, so that a store that promises to be durable waits for it.
Where it says "Redis" alone, nothing is kept on disk. A store of which something is not installed says so in `Missing`.
"""
import contextlib
import glob
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import servers
from servers import free_port

START_MAX_S = 60
STOP_MAX_S = 10
NODES = 3
REDLOCK_NODES = 5
CLIENTS_MAX = 1200  # connections that PostgreSQL and ZooKeeper are to take
JARS = "zookeeper zookeeper-jute slf4j-api slf4j-nop metrics-core snappy-java netty-all"
JAR_FOLDER = "/usr/share/java"


class Missing(Exception):
    """What is not installed, in words."""


def need(program, package):
    found = shutil.which(program)
    if not found:
        raise Missing("%s is not installed (%s)" % (program, package))
    return found


def await_true(look, what, patience_s=START_MAX_S):
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError, EOFError, KeyError, TypeError):
            found = look()
            if found:
                return found
        time.sleep(0.02)
    raise SystemExit("peers: %s: not within %d s" % (what, patience_s))


class Process:
    """One server process, which ends with us however we end."""

    def __init__(self, folder, words, user=None, env=None):
        self.folder, self.words, self.user, self.env = folder, words, user, {**os.environ, **(env or {})}
        self.popen = None
        self.start()

    def start(self):
        with open(os.path.join(self.folder, "output"), "ab") as output:
            self.popen = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.env, cwd=self.folder,
                                          user=self.user, group=self.user and pwd.getpwnam(self.user).pw_gid,
                                          extra_groups=[] if self.user else None,
                                          preexec_fn=servers.die_with_us)

    def kill9(self):
        self.popen.kill()
        self.popen.wait()

    def stop(self, how=signal.SIGTERM):
        if self.popen.poll() is not None:
            return
        self.popen.send_signal(how)
        try:
            self.popen.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self.kill9()


class Store:
    """`key` is what --stores takes; `title` is for people; `own` names the usual client of the place (clients.py)."""
    key = title = own = url = ""
    promise = "best effort"
    durable = False  # does a grant wait for a disk?
    waiters_max = 1000  # on one name: with more of them a turn takes longer than a round
    clients_max = 1000
    leads = False  # has it a leader that can be killed?

    def __init__(self, folder, build):
        self.folder, self.build = os.path.join(folder, self.key), build
        os.mkdir(self.folder, 0o755)
        self.start()

    def start(self):
        raise NotImplementedError

    def stop(self):
        pass


class Files(Store):
    key, title, own, promise = "files", "files", "flock", "strict, one machine"

    def start(self):
        need("flock", "util-linux")
        self.locks = os.path.join(self.folder, "locks")
        os.mkdir(self.locks, 0o700)
        self.url = "file:%s?allow=tmpfs" % self.locks


class Redis(Store):
    key, title, own, waiters_max = "redis", "Redis", "redis-py", 10000
    settings = ()

    def start(self):
        need("redis-server", "redis-server")
        self.server = servers.redis(self.folder, *self.settings)
        self.port = self.server.port
        self.ports = [self.port]
        self.url = "redis://127.0.0.1:%d" % self.port

    def stop(self):
        self.server.stop()


class RedisAlways(Redis):
    key, title, durable = "redis-always", "Redis, appendfsync always", True
    settings = ("--appendonly", "yes", "--appendfsync", "always")


class Redlock(Store):
    key, title, own, waiters_max = "redlock", "Redlock, five Redis", "node-redlock", 100

    def start(self):
        need("redis-server", "redis-server")
        self.nodes = [servers.redis(self.folder) for _ in range(REDLOCK_NODES)]
        self.ports = [node.port for node in self.nodes]
        self.url = "redlock://" + ",".join("127.0.0.1:%d" % port for port in self.ports)

    def stop(self):
        for node in self.nodes:
            node.stop()


class Holdfastd(Store):
    key, title, own, promise, durable, waiters_max = "holdfastd", "one holdfastd", "redis-py-holdfastd", "strict", True, 10000

    def start(self):
        program = os.path.join(self.build, "src/server/holdfastd")
        if not os.access(program, os.X_OK):
            raise Missing("holdfastd was not built (libuv)")
        self.server = servers.holdfastd(program, self.folder, "--config", os.devnull, "--allow", "tmpfs")
        self.port = self.server.port
        self.ports = [self.port]
        self.url = "holdfast://127.0.0.1:%d" % self.port

    def stop(self):
        self.server.stop()


class HoldfastdThree(Holdfastd):
    key, title, leads = "holdfastd3", "three holdfastd", True

    def start(self):
        program = os.path.join(self.build, "src/server/holdfastd")
        if not os.access(program, os.X_OK):
            raise Missing("holdfastd was not built (libuv)")
        self.cluster = servers.Cluster(program, self.folder, "--config", os.devnull, "--allow", "tmpfs")
        self.url = "holdfast://" + ",".join("127.0.0.1:%d" % member.port for member in self.cluster.members)

    @property
    def port(self):
        """Another one may lead by now: a node that had no processor for its election timeout leads no more."""
        self.await_whole()
        return self.cluster.leader.port

    @property
    def ports(self):
        return [self.port]  # followers do not serve

    def kill_leader(self):
        """Its end, by the monotonic clock, and what brings it back."""
        self.await_whole()
        leader = self.cluster.leader
        at = time.monotonic()
        leader.stop(signal.SIGKILL)
        return at, leader.start

    def await_whole(self):
        await_true(self.cluster.settled, "three holdfastd do not agree")

    def stop(self):
        for member in self.cluster.members:
            if member.process.poll() is None:
                member.stop()


class Etcd(Store):
    key, title, own, promise, durable, leads = "etcd", "three etcd", "etcdctl", "strict", True, True

    def start(self):
        need("etcd", "etcd-server")
        if not os.access(os.path.join(self.build, "src/engines/holdfast-etcd.so"), os.R_OK):
            raise Missing("Holdfast's store on etcd was not built (libcurl, jansson)")
        self.ports = [free_port() for _ in range(NODES)]
        peers = ["http://127.0.0.1:%d" % free_port() for _ in range(NODES)]
        members = ",".join("n%d=%s" % member for member in enumerate(peers))
        self.nodes = []
        for i, (port, peer) in enumerate(zip(self.ports, peers)):
            folder = os.path.join(self.folder, "n%d" % i)
            os.mkdir(folder)
            client = "http://127.0.0.1:%d" % port
            self.nodes.append(Process(folder, [
                "etcd", "--name", "n%d" % i, "--data-dir", os.path.join(folder, "data"), "--listen-client-urls", client,
                "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                members, "--logger", "zap", "--log-outputs", "stderr", "--log-level", "warn"],
                env={"ETCD_UNSUPPORTED_ARCH": "arm64"}))
        self.await_whole()
        self.url = "etcd://" + ",".join("127.0.0.1:%d" % port for port in self.ports)
        self.endpoints = ",".join("http://127.0.0.1:%d" % port for port in self.ports)

    def status(self, port):
        request = urllib.request.Request("http://127.0.0.1:%d/v3/maintenance/status" % port, b"{}")
        with urllib.request.urlopen(request, timeout=1) as answer:
            return json.load(answer)

    def leader(self):
        for port, node in zip(self.ports, self.nodes):
            status = self.status(port)
            if status["leader"] == status["header"]["member_id"]:
                return node
        return None

    def await_whole(self):
        await_true(lambda: all(int(self.status(port)["leader"]) for port in self.ports) and self.leader(), "etcd does not serve")

    def kill_leader(self):
        leader = await_true(self.leader, "%s: no leader" % self.title)
        at = time.monotonic()
        leader.kill9()
        return at, leader.start

    def stop(self):
        for node in self.nodes:
            node.stop()


class ZooKeeper(Store):
    key, title, own, promise, durable, leads = "zookeeper", "three ZooKeeper", "kazoo", "strict", True, True

    def start(self):
        need("java", "default-jre-headless")
        jars = [os.path.join(JAR_FOLDER, jar + ".jar") for jar in JARS.split()]
        if not os.path.exists(jars[0]):
            raise Missing("ZooKeeper is not installed (libzookeeper-java)")
        if not os.access(os.path.join(self.build, "src/engines/holdfast-zookeeper.so"), os.R_OK):
            raise Missing("Holdfast's store on ZooKeeper was not built (libzookeeper-mt)")
        self.ports = [free_port() for _ in range(NODES)]
        lines = ["server.%d=127.0.0.1:%d:%d" % (i + 1, free_port(), free_port()) for i in range(NODES)]
        self.nodes = []
        for i, port in enumerate(self.ports):
            folder = os.path.join(self.folder, "n%d" % i)
            os.makedirs(os.path.join(folder, "data"))
            with open(os.path.join(folder, "data/myid"), "w", encoding="ascii") as file:
                file.write("%d\n" % (i + 1))
            config = os.path.join(folder, "zoo.cfg")
            with open(config, "w", encoding="ascii") as file:  # times as in the sample that comes with it
                file.write("\n".join(["tickTime=2000", "initLimit=10", "syncLimit=5", "dataDir=%s/data" % folder, "clientPort=%d" % port,
                                      "clientPortAddress=127.0.0.1", "maxClientCnxns=0", "4lw.commands.whitelist=srvr", *lines, ""]))
            self.nodes.append(Process(folder, ["java", "-Xmx512m", "-Djava.awt.headless=true", "-Dzookeeper.admin.enableServer=false", "-cp",
                                               ":".join(jars), "org.apache.zookeeper.server.quorum.QuorumPeerMain", config]))
        self.await_whole()
        self.hosts = ",".join("127.0.0.1:%d" % port for port in self.ports)
        self.url = "zookeeper://" + self.hosts

    @staticmethod
    def mode(port):
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"srvr")
            found = re.search(rb"Mode: (\w+)", connection.makefile("rb").read())
            return found and found.group(1).decode()

    def leader(self):
        return next((node for port, node in zip(self.ports, self.nodes) if self.mode(port) == "leader"), None)

    def await_whole(self):
        await_true(lambda: all(self.mode(port) for port in self.ports) and self.leader(), "ZooKeeper does not serve")

    kill_leader = Etcd.kill_leader
    stop = Etcd.stop


class Postgres(Store):
    key, title, own, promise, durable = "postgres", "PostgreSQL", "psycopg2", "strict, one primary", True
    clients_max = 1000

    def start(self):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        self.bin = found[-1] if found else os.path.dirname(need("initdb", "postgresql"))
        if not os.access(os.path.join(self.build, "src/engines/holdfast-postgres.so"), os.R_OK):
            raise Missing("Holdfast's store on PostgreSQL was not built (libpq)")
        user = "postgres" if os.getuid() == 0 else None  # it refuses to be root
        if user:
            shutil.chown(self.folder, user)
        data, self.port = os.path.join(self.folder, "data"), free_port()
        initdb = Process(self.folder, [os.path.join(self.bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--locale=C", "-E",
                                       "UTF8", "--no-sync"], user)
        if initdb.popen.wait() != 0:
            raise SystemExit("peers: initdb failed: see %s/output" % self.folder)
        self.server = Process(self.folder, [os.path.join(self.bin, "postgres"), "-D", data, "-p", str(self.port), "-k", self.folder,
                                            "-clisten_addresses=127.0.0.1", "-cmax_connections=%d" % CLIENTS_MAX], user)
        await_true(self.serves, "PostgreSQL does not serve: see %s/output" % self.folder)
        self.ports = [self.port]
        self.url = "postgres://postgres@127.0.0.1:%d/postgres" % self.port

    def serves(self):
        return subprocess.run([os.path.join(self.bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode == 0

    def stop(self):
        self.server.stop(signal.SIGINT)  # without waiting for its clients


ALL = [Files, Redis, RedisAlways, Redlock, ZooKeeper, Etcd, Postgres, Holdfastd, HoldfastdThree]


def versions(keys):
    """What is compared, in its own words: the first line of each."""
    asked = {"redis": ["redis-server", "--version"], "etcd": ["etcd", "--version"], "postgres": ["psql", "--version"],
             "files": ["flock", "--version"], "redlock": ["node", "--version"]}
    found = []
    for key in keys:
        if key in asked and shutil.which(asked[key][0]):
            line = subprocess.run(asked[key], capture_output=True, text=True, check=False).stdout.splitlines()[:1]
            found += ["node " + text if key == "redlock" else re.sub(r" sha=.*", "", text) for text in line]
    jars = glob.glob(os.path.join(JAR_FOLDER, "zookeeper-[0-9]*.jar"))
    if "zookeeper" in keys and jars:
        found.append(os.path.basename(jars[0]).removesuffix(".jar").replace("-", " "))
    return found
