"""Another leader every two seconds, with leases of five. No lease that is renewed ends early, and none lives for ever. make
soak-cluster-leases runs it in full."""
import statistics
import threading
import time

from nodes import PATIENCE, SOAK, boot_ms, fresh, until

CHANGES = 60 if SOAK else 8
EVERY = 2  # seconds from one change of the leader to the next
TTL = 5000
GONE_MAX = 15000  # ms until somebody who died holds nothing any more
KEEPERS, HEIRS = 4, 3


class Watcher(threading.Thread):
    def __init__(self, cluster, over):
        super().__init__()
        self.session, self.over, self.failure = cluster.session(answer_max=1), over, None

    def run(self):
        try:
            with self.session:
                self.work()
        except BaseException as failure:  # in a thread: the test has to hear of it
            self.failure = failure


class Keeper(Watcher):
    """Renews every second, and has the same token all the time."""

    def work(self):
        name, lease, self.renewals = fresh("kept"), fresh(), 0
        token = self.session.ask("ACQUIRE", name, lease, "TTL", TTL)
        while not self.over.wait(1):
            left, = self.session.ask("RENEW", lease)
            assert left > 0, f"a lease ended although it was renewed, after {self.renewals} times"
            assert self.session.ask("CHECK", name, token) == 1, "its hold is gone"
            self.renewals += 1
        assert self.session.ask("ACQUIRE", name, lease, "TTL", TTL) == token


class Heir(Watcher):
    """Waits for what somebody holds who is dead, again and again."""

    def work(self):
        self.waited = []
        while not self.over.is_set():
            name, mine = fresh("dead"), fresh()
            sent = boot_ms()
            first = self.session.ask("ACQUIRE", name, fresh(), "TTL", TTL)
            known = boot_ms()
            second = self.session.ask("ACQUIRE", name, mine, "TTL", 60000, "WAIT", 600000, answer_max=GONE_MAX / 1000 + 5,
                                      patience=3 * PATIENCE)
            now = boot_ms()
            assert isinstance(second, int) and second > first
            assert now - sent >= TTL, f"a lease of {TTL} ms ended after {now - sent:.0f} ms"
            self.waited.append(now - known)
            assert self.waited[-1] <= GONE_MAX, f"somebody who is dead still holds after {self.waited[-1]:.0f} ms"
            assert self.session.ask("RELEASE", name, mine, "TOKEN", second) in (0, 1)


def test_leases_over_many_leaders(start, figures):
    cluster, over = start(), threading.Event()
    keepers, heirs = [Keeper(cluster, over) for _ in range(KEEPERS)], [Heir(cluster, over) for _ in range(HEIRS)]
    terms = {cluster.leader().status()["term"]}
    for thread in keepers + heirs:
        thread.start()
    try:
        due = time.monotonic()
        for change in range(CHANGES):
            due = max(due + EVERY, time.monotonic())
            time.sleep(due - time.monotonic())
            leader = cluster.leader()
            if change % 2:
                leader.kill9()
                cluster.leader()
                assert leader.launch()
            else:
                cluster.ask("CLUSTER", "TRANSFER")
            terms.add(cluster.leader().status()["term"])
            assert not any(thread.failure for thread in keepers + heirs)
        until(lambda: all(heir.failure or heir.waited for heir in heirs), "all have inherited something")
    finally:
        over.set()
        for thread in keepers + heirs:
            thread.join(4 * PATIENCE)
        for thread in keepers + heirs:
            if thread.failure:
                raise thread.failure
    assert len(terms) > CHANGES * 3 // 4, "that were not many leaders"
    waited = [ms for heir in heirs for ms in heir.waited]
    figures(f"{CHANGES} changes of the leader, {len(terms)} terms: {sum(keeper.renewals for keeper in keepers)} renewals, "
            f"none in vain; {len(waited)} dead holders with a TTL of {TTL} ms gone after {statistics.median(waited):.0f} ms "
            f"(median), {max(waited):.0f} ms (longest)")
