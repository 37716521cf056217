"""A network of its own for each node and for its clients, in namespaces that nothing but the test has: they have no name,
and are gone with the process that made them. Nothing of the machine's own network is touched.

    net = Net(["1", "2", "3", "a", "b"])     places that all reach each other, over a bridge in one more namespace
    with net["a"].inside(): ...              sockets that this thread makes now are made there
    net.cut("1", "2")                        what 1 sends to 2 gets lost; not what 2 sends to 1
    net.heal()                               nothing gets lost any more

Who reaches whom at which hardware address is written down by hand; a cut is a wrong one, to which the bridge delivers
nothing. So nobody is told that anything is lost.
"""
import contextlib
import ctypes
import os
import shutil
import subprocess
import threading

import pytest
from nodes import PATIENCE, Cluster, Session

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
PREFIX = "10.99.0."
NOWHERE = "02:00:00:00:ff:ff"
CLIENT_PORT, PEER_PORT = 7420, 7431
PASSWORD = "a password of this test"


def enter(descriptor):
    if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def new_namespace():
    """A descriptor of it."""
    made = []

    def make():  # in a thread: the caller stays where it is
        if LIBC.unshare(CLONE_NEWNET) == 0:
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0] if made else None


class Spot:
    """One end of the network."""

    def __init__(self, number, descriptor):
        self.descriptor = descriptor
        self.address, self.hardware = f"{PREFIX}{number}", f"02:00:00:00:00:{number:02x}"

    def enter(self):
        """For good: in a child, before its exec."""
        enter(self.descriptor)

    @contextlib.contextmanager
    def inside(self):
        """This thread only."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(self.descriptor)
            yield
        finally:
            enter(home)
            os.close(home)

    def ip(self, *lines):
        """Runs them in this namespace."""
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True, timeout=PATIENCE,
                       preexec_fn=self.enter)


class Net:
    def __init__(self, names):
        if os.geteuid() != 0 or not shutil.which("ip"):
            pytest.skip("network namespaces need root and iproute2's ip")
        self.spots, self.cuts = {}, set()
        self.hub = Spot(254, new_namespace())
        if self.hub.descriptor is None:
            pytest.skip("the kernel does not let us make network namespaces")
        try:
            self.hub.ip("link add hub type bridge", "link set hub up")
            for number, name in enumerate(names, 1):
                self.spots[name] = Spot(number, new_namespace())
            for spot in self.spots.values():
                self.plug_in(spot)
        except BaseException:
            self.close()
            raise

    def plug_in(self, spot):
        port = spot.address.replace(".", "-")[-12:]
        self.hub.ip(f"link add {port} type veth peer name wire address {spot.hardware} "
                    f"netns /proc/{os.getpid()}/fd/{spot.descriptor}", f"link set {port} master hub up")
        spot.ip("link set lo up", f"address add {spot.address}/24 dev wire", "link set wire up",
                *[self.route(other) for other in self.spots.values() if other is not spot])

    @staticmethod
    def route(spot, hardware=None):
        return f"neighbour replace {spot.address} lladdr {hardware or spot.hardware} dev wire nud permanent"

    def __getitem__(self, name):
        return self.spots[name]

    def cut(self, *pairs):
        """(from, to): what it sends there gets lost."""
        for source in {source for source, _ in pairs}:
            self.spots[source].ip(*[self.route(self.spots[to], NOWHERE) for at, to in pairs if at == source])
        self.cuts |= set(pairs)

    def part(self, *sides):
        """Nothing passes between these groups, in either direction."""
        self.cut(*[(one, other) for side in sides for one in side for rest in sides if rest is not side for other in rest])

    def heal(self):
        for source in {source for source, _ in self.cuts}:
            self.spots[source].ip(*[self.route(self.spots[to]) for at, to in self.cuts if at == source])
        self.cuts = set()

    def close(self):
        """The kernel removes what is in them when nobody is there any more."""
        for spot in [self.hub, *self.spots.values()]:
            if spot.descriptor is not None:
                os.close(spot.descriptor)


class NetCluster(Cluster):
    """Each node in a network of its own, at the usual ports: node 1 at the place "1". The operator sees all nodes, always."""

    def __init__(self, net, count=3, **kwargs):
        self.net = net
        super().__init__(count, **kwargs)

    def node_there(self, number, *args):
        spot = self.net[str(number)]
        return self.node(number, *args, host=spot.address, port=CLIENT_PORT, peer=f"{spot.address}:{PEER_PORT}", prepare=spot.enter,
                         password=PASSWORD, enter=self.net["operator"].inside)

    def found(self, count):
        for word, text in (("secret", "a secret of this test"), ("password", PASSWORD)):
            (self.directory / word).touch(0o600)
            (self.directory / word).write_text(text + "\n")
        self.args = ["--secret-file", self.directory / "secret", "--password-file", self.directory / "password"]
        for number in range(1, count + 1):
            self.node_there(number)
        self.line = ",".join(f"{node.number}={node.peer}" for node in self.nodes.values())
        for node in self.nodes.values():
            node.line = self.line

    def session(self, at="operator", of=None, **kwargs):
        """A client at this place, of all nodes or of these."""
        addresses = [(node.host, node.port) for node in of or self]
        return Session(addresses, password=PASSWORD, enter=self.net[at].inside, **kwargs)
