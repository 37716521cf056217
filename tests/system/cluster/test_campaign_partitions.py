"""The network between three nodes and their clients is cut, in every way there is, while clients on both sides work. What is
acknowledged on one side is known to the other afterwards, and where there is no majority nothing is acknowledged at all.
make soak-cluster-partitions runs it in full."""
import functools
import statistics
import threading
import time

import pytest
from load import Load
from nets import PASSWORD, Net, NetCluster
from nodes import PATIENCE, SOAK, TTL_MAX, Client, NotDone, Refused, Unknown, fresh, until

ROUNDS = 5 if SOAK else 1
LASTS = 8 if SOAK else 2.5  # seconds, from when the others are served again
PLACES = ["1", "2", "3", "a", "b", "operator"]
# Who is on the smaller side, and which of the directions are cut: what it sends, what is sent to it.
KINDS = ["leader", "leader mute", "leader deaf", "follower", "follower mute", "follower deaf", "one link", "everybody"]


class Outpost(threading.Thread):
    """A client beside one node, who asks only that, wherever it is sent, and believes what it says."""

    def __init__(self, cluster, at, node):
        super().__init__()
        self.node, self.session, self.over = node, cluster.session(at, [node], answer_max=1), threading.Event()
        self.granted, self.denied, self.doubts = [], [], []  # (when, name, lease, answer)
        self.failure = None

    def run(self):
        try:
            with self.session:
                while not self.over.is_set() and len(self.granted) < 100000:
                    self.session.go_to((self.node.host, self.node.port))
                    self.ask(fresh("outpost"), fresh())
        except BaseException as failure:  # in a thread: the test has to hear of it
            self.failure = failure

    def ask(self, name, lease):
        try:
            answer = self.session.once("ACQUIRE", name, lease, "TTL", TTL_MAX)
            self.granted.append((time.monotonic(), name, lease, answer))
        except NotDone as reason:
            self.denied.append((time.monotonic(), name, lease, str(reason)))
            time.sleep(0.01)
        except Unknown as reason:
            self.doubts.append((time.monotonic(), name, lease, str(reason)))

    def end(self):
        self.over.set()
        self.join()
        if self.failure:
            raise self.failure

    def check_minority(self, healed):
        """As soon as it has noticed that it has no majority, it grants nothing."""
        noticed = min((when for when, _, _, why in self.denied if not why.startswith("not reached")), default=healed)
        late = [name for when, name, _, _ in self.granted if noticed < when < healed]
        assert not late, f"one of three acknowledged {late}"
        return noticed

    def verdict(self, session):
        """What it was told is true, and what was denied was not done."""
        for _, name, _, token in self.granted[-500:]:
            assert isinstance(token, int), f"{name} was busy"
            assert session.ask("CHECK", name, token) == 1, f"a hold acknowledged on one side is gone: {name} {token}"
        for _, _, lease, _ in self.denied[:200] + self.denied[-100:]:
            assert session.ask("RENEW", lease) == [-1], "said not to be done, and is"
        for _, name, lease, _ in self.doubts:
            token = session.ask("ACQUIRE", name, lease, "TTL", TTL_MAX)
            assert session.ask("ACQUIRE", name, lease, "TTL", TTL_MAX) == token


class Blocked:
    """Waits at a leader that is going to be cut off for what the others give to it meanwhile."""

    def __init__(self, cluster, leader):
        self.cluster, self.name, self.lease, self.holder = cluster, fresh("blocked"), fresh(), fresh()
        leader.cmd("ACQUIRE", self.name, self.holder, "TTL", TTL_MAX)
        with cluster.net["a"].inside():
            self.client = Client((leader.host, leader.port), 2, PATIENCE, PASSWORD)
        self.client.send("ACQUIRE", self.name, self.lease, "WAIT", 600000, "TTL", 60000)
        until(lambda: leader.show(self.name)["queue"] == 1, "a place in the queue")

    def grant(self):
        """On the other side, where nobody else may have it now."""
        with self.cluster.session("b") as session:
            assert session.ask("RELEASE", self.name, self.holder) in (0, 1)
            assert session.ask("ACQUIRE", self.name, fresh()) is None

    def verdict(self, session):
        answer = self.client.read_any()
        assert isinstance(answer, Refused) and answer.code in ("MOVED", "TRYAGAIN"), f"it did not lead, and said {answer!r}"
        self.client.close()
        token = session.ask("ACQUIRE", self.name, self.lease, "TTL", 60000)
        assert isinstance(token, int) and session.ask("CHECK", self.name, token) == 1


def cut(cluster, kind, one):
    """One is this node, the leader or a follower, whom the cut is about."""
    net, me = cluster.net, str(one.number)
    them = [str(node.number) for node in cluster if node is not one]
    if kind == "everybody":
        net.part("1", "2", "3")
    elif kind == "one link":  # the third node still sees both
        net.part([me], [them[0]])
    elif kind in ("leader", "follower"):
        net.part([me, "a"], [*them, "b"])
    elif kind.endswith("mute"):
        net.cut(*[(me, other) for other in them])
    else:
        net.cut(*[(other, me) for other in them])


def no_majority(cluster):
    """Every node refuses, and none grants: waits until all have noticed, then looks again."""
    for node in cluster:
        with cluster.session("operator", [node], answer_max=3) as session:
            refusals = 0
            deadline = time.monotonic() + 15
            while refusals < 30:
                assert time.monotonic() < deadline, f"{node} does not notice that it is alone"
                try:
                    answer = session.once("ACQUIRE", fresh("nobody"), fresh(), "TTL", TTL_MAX)
                    raise AssertionError(f"one of three acknowledged {answer}")
                except NotDone as reason:
                    session.go_to((node.host, node.port))
                    refusals += str(reason).startswith("TRYAGAIN ")
                except Unknown:
                    refusals = 0


def live_on(load, seconds):
    """The larger side is served all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        load.failed()
        now = time.monotonic()
        until(lambda: load.prober.failure or load.prober.after(now), "it is served")
        time.sleep(0.02)


def one_cut(cluster, load, kind):
    """Seconds until clients of the larger side were served again, and until all was well after it healed."""
    leader, served = cluster.settled(), None
    one = cluster.followers()[0] if kind.startswith("follower") else leader
    blocked = Blocked(cluster, leader) if kind == "leader" else None
    outpost = Outpost(cluster, "a", one)
    outpost.start()
    try:
        cut(cluster, kind, one)
        begin = time.monotonic()
        if kind == "everybody":
            no_majority(cluster)
        else:
            served = until(lambda: load.prober.failure or load.prober.after(begin), "the larger side is served") - begin
            if blocked:
                blocked.grant()
            live_on(load, LASTS)
        healed = time.monotonic()
    finally:
        cluster.net.heal()
        outpost.end()
    cluster.settled()
    well = time.monotonic() - healed
    if kind != "one link":  # there the leader still has a majority
        outpost.check_minority(healed)
    with cluster.session() as session:
        outpost.verdict(session)
        if blocked:
            blocked.verdict(session)
    return served, well


@pytest.fixture
def net():
    made = Net(PLACES)
    yield made
    made.close()


def test_partitions(net, figures):
    cluster = NetCluster(net)
    served, healed = {}, []
    try:
        sessions = [functools.partial(cluster.session, "a"), functools.partial(cluster.session, "b")]
        load = Load(cluster, sessions=sessions)
        with load:
            for _ in range(ROUNDS):
                for kind in KINDS:
                    seconds, well = one_cut(cluster, load, kind)
                    healed.append(well)
                    if seconds is not None:
                        served.setdefault(kind, []).append(seconds)
        load.verdict()
    finally:
        net.heal()
        cluster.clean()
    figures(f"{ROUNDS * len(KINDS)} partitions: larger side served after " +
            ", ".join(f"{statistics.median(times) * 1000:.0f} ms ({kind})" for kind, times in served.items()) +
            f" (medians), all well again {statistics.median(healed) * 1000:.0f} ms (median), {max(healed) * 1000:.0f} ms "
            f"(longest) after it healed; {load.figures()}")
