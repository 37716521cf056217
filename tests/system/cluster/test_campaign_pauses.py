"""The leader is stopped for five seconds, over and over, while clients work: another one leads meanwhile, and whoever is
still connected to the sleeper hears nothing from it that is not true. make soak-cluster-pauses runs it in full."""
import statistics
import threading
import time

from load import Load
from nodes import PATIENCE, SOAK, TTL_MAX, Client, Ended, Refused, fresh, until

PAUSES = 20 if SOAK else 2
PAUSE = 5  # seconds
STREAMS, STREAM_MAX = 3, 1000  # clients that ask without waiting for answers while it falls asleep; what each asks at most
REFUSALS = ("MOVED", "TRYAGAIN", "UNKNOWN")


class Stream(threading.Thread):
    """Asks, and looks at the answers later."""

    def __init__(self, client):
        super().__init__()
        self.client, self.asked, self.over = client, [], False

    def run(self):
        while not self.over and len(self.asked) < STREAM_MAX:
            name, lease = fresh("asleep"), fresh()
            self.client.send("ACQUIRE", name, lease, "TTL", TTL_MAX)
            self.asked.append((name, lease))


class Sleeper:
    """Clients of one node, who do not know that it sleeps."""

    def __init__(self, cluster, node):
        self.cluster, self.node = cluster, node
        self.during = self.connect()
        self.streams = [Stream(self.connect()) for _ in range(STREAMS)]
        self.holds, self.others, self.woken, self.late = [], [], [], None
        self.over = False

    def connect(self):
        return Client((self.node.host, self.node.port), 3, PATIENCE)

    def prepare(self):
        """Holds that will be somebody else's when it wakes up."""
        for _ in range(5):
            name, lease = fresh("stale"), fresh()
            self.holds.append((name, lease, self.during.cmd("ACQUIRE", name, lease, "TTL", TTL_MAX)))

    def fall_asleep(self):
        """In the middle of something: what the streams ask is answered before, after, or never."""
        for stream in self.streams:
            stream.start()
        until(lambda: all(len(stream.asked) > 20 for stream in self.streams), "they ask")
        self.node.pause()
        for stream in self.streams:
            stream.over = True
            stream.join(PATIENCE)

    def ask_during(self):
        for name, lease, token in self.holds:
            self.during.send("CHECK", name, token)
            self.during.send("RENEW", lease)
            self.during.send("SHOW", name)
            self.during.send("ACQUIRE", name, lease, "TTL", TTL_MAX)
            self.during.send("RELEASE", name, lease, "TOKEN", token)
        self.late = fresh("late"), fresh()
        self.during.send("ACQUIRE", self.late[0], self.late[1], "TTL", TTL_MAX)

    def take_away(self):
        """With the one that leads now, what the clients of the sleeper hold changes hands."""
        with self.cluster.session() as session:
            for name, lease, token in self.holds:
                assert session.ask("CHECK", name, token) == 1, "an acknowledged hold is gone"
                assert session.ask("END", lease) == 1
                other = fresh()
                self.others.append((name, session.ask("ACQUIRE", name, other, "TTL", TTL_MAX)))
                assert self.others[-1][1] > token

    def _wake(self):
        """Asks without end, from before it wakes until it knows that it does not lead."""
        try:
            with self.connect() as client:
                while not self.over and len(self.woken) < 100000:
                    name, lease = fresh("waking"), fresh()
                    client.send("ACQUIRE", name, lease, "TTL", TTL_MAX)
                    answer = client.read_any()
                    self.woken.append((name, lease, answer))
                    if isinstance(answer, Refused) and answer.code == "MOVED":
                        return
        except (OSError, Ended) as error:
            self.woken.append(("", "", error))

    def wake(self):
        waking = threading.Thread(target=self._wake)
        waking.start()
        self.node.resume()
        waking.join(PATIENCE)
        assert not waking.is_alive(), "it never finds out that it does not lead"

    def confirmed(self, session, name, lease, answer):
        """True for a grant. It is one only if whoever leads now says so, too."""
        if isinstance(answer, Refused):
            assert answer.code in REFUSALS, answer
            if answer.code != "UNKNOWN":
                assert session.ask("RENEW", lease) == [-1], f"said not to be done, and is: {answer}"
            return False
        assert isinstance(answer, int), f"neither a token nor a refusal: {answer!r}"
        assert session.ask("CHECK", name, answer) == 1, f"token {answer} of {name} was given by a node that did not lead"
        return True

    def verdict(self):
        """How many were granted after all."""
        granted = 0
        with self.cluster.session() as session:
            for stream in self.streams:
                for name, lease in stream.asked:
                    granted += self.confirmed(session, name, lease, stream.client.read_any())
                stream.client.close()
            for name, lease, answer in self.woken:
                granted += self.confirmed(session, name, lease, answer)
            answers = [self.during.read_any() for _ in range(5 * len(self.holds) + 1)]
            for answer in answers:
                assert isinstance(answer, Refused) and answer.code in REFUSALS, f"a deposed leader said {answer!r}"
            for name, token in self.others:
                assert session.ask("CHECK", name, token) == 1, "a hold of somebody else's is gone"
        self.during.close()
        return granted


def test_pauses_of_the_leader(start, figures):
    cluster, gaps, granted = start(), [], 0
    load = Load(cluster)
    with load:
        for turn in range(PAUSES):
            leader = cluster.settled()
            sleeper = Sleeper(cluster, leader)
            sleeper.prepare()
            sleeper.fall_asleep()
            began = time.monotonic()
            sleeper.ask_during()
            new = cluster.leader(other_than=leader)
            until(lambda: load.prober.failure or load.prober.after(began), "others are served")
            gaps.append(load.prober.after(began) - began)
            sleeper.take_away()
            time.sleep(max(began + PAUSE - time.monotonic(), 0))
            assert new.leads(), "and nobody disturbed the new one"
            sleeper.wake()
            granted += sleeper.verdict()
            load.failed()
            until(lambda: leader.status()["leader"] == cluster.leader().number, "it follows")
    load.verdict()
    figures(f"{PAUSES} pauses of {PAUSE} s: others served after {statistics.median(gaps) * 1000:.0f} ms (median), "
            f"{max(gaps) * 1000:.0f} ms (longest); {granted} of the sleeper's requests were granted, all of them known to "
            f"its successor; {load.figures()}")
