"""The leader is killed, or stopped, over and over while clients work. make soak-cluster-kills runs it in full."""
import random
import statistics
import time

from load import Load
from nodes import SOAK, TTL_MAX, fresh, until

KILLS = 50 if SOAK else 5
STOPS = 20 if SOAK else 3
KILL_BAR = 1.0 if SOAK else 15  # seconds, of the median
STOP_BAR = 0.15 if SOAK else 5
DISASTER_EVERY = 5  # turns
LONG_HOLDS = 5  # that are added with each turn, and stay


class Auditor:
    """Holds that nobody gives back, more with each turn, and what was given back."""

    def __init__(self, cluster, load):
        self.cluster, self.load, self.holds = cluster, load, []

    def add(self):
        with self.cluster.session() as session:
            for _ in range(LONG_HOLDS):
                name = fresh("long")
                self.holds.append((name, session.ask("ACQUIRE", name, name, "TTL", TTL_MAX)))

    def look(self):
        self.load.failed()
        tokens = [token for _, token in self.holds]
        assert tokens == sorted(set(tokens)), "a token went back"
        gone = [(hold.name, hold.token) for worker in self.load.workers for hold in list(worker.gone)]
        with self.cluster.session() as session:
            for name, token in self.holds:
                assert session.ask("CHECK", name, token) == 1, f"an acknowledged hold is gone: {name} {token}"
            for name, token in gone:
                assert session.ask("CHECK", name, token) == 0, f"an acknowledged release was undone: {name} {token}"

    def look_at_all(self):
        """Each node by itself has what the others have."""
        seen = []
        for node in self.cluster:
            self.cluster.lead_by(node)
            self.look()
            with node.connect(3) as client:
                _, rows = client.cmd("LOCKS", "MATCH", "long-*", "COUNT", 1000)
                seen.append(sorted(row["name"] for row in rows))
        assert seen[0] == seen[1] == seen[2]


def disaster(cluster, chance):
    """All three are killed. What the leader did last has not reached the others, and they come back before it."""
    leader = cluster.settled()
    others = cluster.followers()
    for node in others:
        node.pause()
    time.sleep(chance.uniform(0.02, 0.1))
    for node in [leader, *others]:
        node.kill9()
    for node in others:
        assert node.launch(), f"it does not start again: {node.logged()}"
    cluster.leader()
    assert leader.launch(), f"it does not start again: {leader.logged()}"


def campaign(cluster, turns, end, measure):
    """The leader ends so often; returns how long nobody was served, each time."""
    chance, gaps = random.Random(turns), []
    load = Load(cluster)
    auditor = Auditor(cluster, load)
    with load:
        for turn in range(turns):
            auditor.add()
            time.sleep(chance.uniform(0.05, 0.4))  # the moment of the end is up to chance
            leader = cluster.leader()
            before = time.monotonic()
            end(leader)
            gaps.append(measure(load.prober, before))
            assert not leader.running()
            auditor.look()
            assert leader.launch(), f"it does not start again: {leader.logged()}"
            cluster.settled()
            if turn % DISASTER_EVERY == 0:
                disaster(cluster, chance)
                auditor.look()
                cluster.settled()
        auditor.add()
    auditor.look_at_all()
    load.verdict()
    assert len(load.record.holds) > 10 * turns, "that was no load"
    return gaps, load


def test_kills_of_the_leader(start, figures):
    def measure(prober, before):
        return until(lambda: prober.failure or prober.after(before), "the next grant") - before

    gaps, load = campaign(start(), KILLS, lambda node: node.kill9(), measure)
    figures(f"{KILLS} kills of the leader: next grant after {statistics.median(gaps) * 1000:.0f} ms (median), "
            f"{max(gaps) * 1000:.0f} ms (longest); {load.figures()}")
    assert statistics.median(gaps) <= KILL_BAR


def test_clean_stops_of_the_leader(start, figures):
    def stop(node):
        node.terminate()
        assert node.ended() == 0

    def measure(prober, before):
        first = until(lambda: prober.failure or prober.after(time.monotonic() - 0.001), "the next grant")
        return prober.longest(before, first)

    gaps, load = campaign(start(), STOPS, stop, measure)
    figures(f"{STOPS} clean stops of the leader: longest time without a grant {statistics.median(gaps) * 1000:.0f} ms "
            f"(median), {max(gaps) * 1000:.0f} ms (longest); {load.figures()}")
    assert statistics.median(gaps) <= STOP_BAR
