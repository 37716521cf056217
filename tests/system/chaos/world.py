"""The cluster that is maltreated: real nodes, each in a network of its own, with a clock and a disk that can be made to go wrong;
who belongs to it, who is out, and whether what is left can be a majority.

    world = World(net, 3)            three members that serve
    world.possible(out={2})          would there be a majority without node 2, as the network is?
    world.net.set(cuts)              exactly these (from, to) are cut
    node.away = True; node.kill9()   whoever ends a node says so: one that ends by itself is a finding
    node.begin()                     and starts it again
"""
import contextlib
import glob
import os
import pathlib
import shutil
import time

from nets import CLIENT_PORT, PASSWORD, PEER_PORT, Net, NetCluster
from nodes import LOOK_MAX, Ended, Node, Process, Refused, Session, argv_of, environment

ROOT = pathlib.Path(__file__).resolve().parents[3]
NEXT = os.environ.get("HF_SERVER_NEXT", str(ROOT / "build-check/src/server/holdfastd-next"))
BAD_DISK = os.environ.get("HF_DISK_LIBRARY", str(ROOT / "build-check/tests/lib/disk/hf-disk.so"))
SPOTS = [str(number) for number in range(1, 9)]  # where nodes can be; one that was removed makes room for another
CLIENTS = ["a", "b"]
SETTINGS = ["--snapshot-bytes", "64KiB"]  # the least that there is
STOPS_MAX = 15  # seconds in which a node whose disk has failed finds that out


def clock_library():
    return next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)


class ChaosNet(Net):
    def set(self, cuts):
        """Exactly these are cut."""
        cuts = set(cuts)
        lines = {}
        for source, to in cuts ^ self.cuts:
            spot = self.spots[to]
            lines.setdefault(source, []).append(self.route(spot, "02:00:00:00:ff:ff" if (source, to) in cuts else None))
        for source, routes in lines.items():
            self.spots[source].ip(*routes)
        self.cuts = cuts


class ChaosNode(Node):
    """`away`: somebody has ended it; `newer`: of the next version; `ill_at`: when its disk last failed."""

    def __init__(self, number, directory, *args, spot=None, **kwargs):
        super().__init__(number, directory, *args, **kwargs)
        self.spot, self.away, self.newer, self.ill_at = spot, False, False, None
        self.disk, self.clock = directory / f"disk-{number}", directory / f"clock-{number}"
        # Of half of the nodes only: the library is in the way of all that asks for the time.
        self.has_clock = number % 2 == 0 and clock_library() is not None

    def begin(self):
        if self.process:
            self.logged()
        self.log.append(f"---- started at {time.strftime('%H:%M:%S')}{', the next version' if self.newer else ''}: {' '.join(map(str, self.words()))}")
        self.paused, self.away = False, False
        argv = argv_of(*self.words())
        preload, more = [BAD_DISK], {"HF_DISK": str(self.disk), "HF_DISK_OF": str(self.data)}
        if self.has_clock:
            preload.append(clock_library())
            more.update({"FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_NO_CACHE": "1", "NO_FAKE_STAT": "1",
                         "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
            if not self.clock.exists():
                self.set_clock("+0")
        self.process = Process([NEXT if self.newer else argv[0], *argv[1:]], {**environment(), **more, "LD_PRELOAD": ":".join(preload)},
                               preexec_fn=self._in_child)

    def begins(self):
        """It does not listen yet, neither to clients nor to signals."""
        lines = self.logged()
        return not any(" serving " in line for line in lines[max(at for at, line in enumerate(lines) if line.startswith("----")):])

    def set_clock(self, offset):
        self.replace(self.clock, offset + "\n")

    def set_disk(self, word):
        """None: it is well."""
        if word:
            self.replace(self.disk, word)
        else:
            self.disk.unlink(missing_ok=True)

    @staticmethod
    def replace(path, text):
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    def look(self):
        """(what it says of the cluster, and of its table), or None: it says nothing."""
        if not self.running() or self.paused:
            return None
        try:
            with self.connect(3, LOOK_MAX) as client:
                return client.cmd("CLUSTER", "STATUS"), client.cmd("CLUSTER", "DIGEST")
        except (OSError, Ended):
            return None
        except Refused as refused:  # it was asked just now, and is another time
            if not str(refused).startswith("TRYAGAIN"):
                raise
            return None

    def status(self):
        seen = self.look()
        return seen[0] if seen else None


class World(NetCluster):
    """`members`: by number; `out`: numbers of those that cannot be counted on, and why; `joining`, `leaving`: of whom a change is under
    way; `gone`: were removed, and may still run; `final`: there is no way back to the older version."""

    node_class = ChaosNode

    def __init__(self, count, net=None):
        self.members, self.out, self.joining, self.leaving, self.gone = {}, {}, None, None, []
        self.everybody, self.final = [], False
        net = net or ChaosNet([*SPOTS, *CLIENTS, "operator"])
        try:
            super().__init__(net, count)
        except BaseException:
            net.close()
            raise
        self.members = dict(self.nodes)

    def node_there(self, number, *args):
        taken = {node.spot for node in self.nodes.values()} | {node.spot for node in self.gone}
        name = next(name for name in SPOTS if name not in taken)
        spot = self.net[name]
        node = self.node(number, *SETTINGS, *args, host=spot.address, port=CLIENT_PORT, peer=f"{spot.address}:{PEER_PORT}",
                         prepare=spot.enter, password=PASSWORD, enter=self.net["operator"].inside, spot=name)
        node.directory = self.directory
        self.everybody.append(node)
        return node

    def room(self):
        return len(self.nodes) + len(self.gone) < len(SPOTS)

    def next_number(self):
        return max(node.number for node in self.everybody) + 1

    def session(self, at="operator", of=None, **kwargs):
        """Of all places where a node may be."""
        addresses = [(self.net[name].address, CLIENT_PORT) for name in SPOTS] if of is None else [(node.host, node.port) for node in of]
        return Session(addresses, password=PASSWORD, enter=self.net[at].inside, **kwargs)

    # -- what is left

    def configurations(self):
        """The sets of voters that may decide, as far as anybody can know."""
        sets = [set(self.members)]
        if self.joining:
            sets.append(set(self.members) | {self.joining.number})
        if self.leaving:
            sets.append(set(self.members) - {self.leaving.number})
        return sets

    def possible(self, out=(), cuts=(), voters=None):
        """Some node reaches a majority, in both directions, if these are out, too, and these ways are cut, too."""
        cuts = self.net.cuts | set(cuts)
        out = set(self.out) | set(out)
        return all(self.reaches(numbers, out, cuts) for numbers in ([voters] if voters else self.configurations()))

    def reaches(self, numbers, out, cuts):
        spots = {number: self.nodes[number].spot for number in numbers}
        well = [spots[number] for number in numbers if number not in out]
        return any(sum(1 for other in well if other == one or not {(one, other), (other, one)} & cuts) > len(numbers) // 2
                   for one in well)

    def counted(self):
        """Members that can be counted on."""
        return [node for number, node in self.members.items() if number not in self.out]

    def empty(self):
        return [self.members[number] for number, why in self.out.items() if why == "empty" and number in self.members]

    # -- versions

    def would_be_final(self, leaving=None, newer=None):
        """Only the next version is left then: its formats come into use, and the older one is not let in any more."""
        nodes = [node for node in [*self.members.values(), *([self.joining] if self.joining else [])] if node not in (leaving, self.leaving)]
        return all(node.newer or node is newer for node in nodes)

    # -- those that end by themselves

    def check_ended(self, tell):
        """A node whose disk has failed ends, and says why. No other one ends before it is told to."""
        for node in list(self.nodes.values()):
            if node.away or node.process is None or node.running():
                continue
            status = node.process.popen.returncode
            said = [line for line in node.logged() if not line.startswith("----")]
            late = node.ill_at is None or time.monotonic() > node.ill_at + STOPS_MAX
            assert not late, f"{node} ended by itself, with {status}: {said[-3:]}"
            assert status > 0 and said, f"{node} did not stop in words when its disk failed, but with {status}: {said[-3:]}"
            node.away = True
            tell(f"{node} stops, since its disk failed: {said[-1][-150:]}")
            if node.number not in self.out:  # the disk is well again by now
                node.begin()

    def check_stopped(self, seen, tell):
        """One whose disk has failed may also stay, take part in nothing, and say why to whoever asks. True: some did."""
        for number, (status, _) in seen.items():
            node = self.nodes.get(number)
            if status["role"] != "stopped" or not node or node.away or not node.running():
                continue
            late = node.ill_at is None or time.monotonic() > node.ill_at + STOPS_MAX
            assert not late, f"{node} stopped by itself: {status['trouble']}"
            assert status["trouble"], f"{node} does not say why it stopped"
            if node.number not in self.out:
                tell(f"{node} had stopped, since its disk failed, and is started again: {status['trouble'][:150]}")
                node.kill9()
                node.begin()

    def bury(self, node):
        """For good: its place is free."""
        node.away = True
        node.kill9()
        node.logged()
        if node in self.gone:
            self.gone.remove(node)
        shutil.rmtree(node.data, ignore_errors=True)

    # -- the end

    def keep(self, story):
        """All logs, for whoever looks into what went wrong. The nodes must have ended."""
        for node in self.everybody:
            if node.process:
                (self.directory / f"node-{node.number}.log").write_text("\n".join(node.logged()) + "\n")
        (self.directory / "story").write_text("\n".join(story) + "\n")
        return self.directory

    def statuses(self):
        """What each says now: (node, status, digest)."""
        for node in list(self.nodes.values()):
            with contextlib.suppress(Exception):
                yield f"{node}: {node.look()}"

    def kill_all(self):
        for node in self.everybody:
            node.away = True
            node.kill9()
