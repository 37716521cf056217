"""Draws faults from the table by a seed, several at once, takes them back when their time is over, and every so often all of them: then
all must serve again, and agree.

The main thread does this: a node dies with the thread that started it.
"""
import collections
import random
import threading
import time

from faults import FAULTS, Going
from nodes import POLL, until
from world import clock_library

GAP = 0.8  # seconds between two faults, on average
ACTIVE_MAX = 7  # at once
TRIES = 6  # faults that are drawn, until one can be done now
REST_EVERY = (20, 45)  # seconds
SERVES_MAX = 90  # seconds until all serve again, when everything has healed: far more than it takes, for a machine that is busy


class Nemesis:
    """`active`: faults that go on; `did`: how often each was done; `story`: what happened, with times; `may_be_final()`: now and then all
    nodes become of the next version, for good."""

    def __init__(self, world, load, monitor, seed, only=(), founders=3):
        self.world, self.load, self.monitor, self.chance = world, load, monitor, random.Random(seed)
        self.members_min, self.members_max = founders, founders + 2
        self.faults = [fault for fault in FAULTS if (not only or fault.name in only) and (fault.needs != "faketime" or clock_library())]
        self.active, self.did, self.story, self.began = [], collections.Counter(), [], time.monotonic()
        self.blackout, self.resting, self.errands, self.rests = None, False, [], []
        self.final_after, self.looked = None, 0

    def tell(self, text):
        self.story.append(f"{time.strftime('%H:%M:%S')} +{time.monotonic() - self.began:8.3f} {text}")

    def may_be_final(self):
        return self.final_after is not None and time.monotonic() - self.began > self.final_after

    def taken(self):
        return {slot for one in self.active for slot in one.slots}

    def apply_cuts(self):
        closed = [one.cuts for one in self.active if not one.open]
        self.world.net.set(set().union(*closed))

    def errand(self, ask):
        """Something that may take a while, and whose outcome does not matter."""
        thread = threading.Thread(target=ask, daemon=True)
        self.errands = [one for one in self.errands if one.is_alive()] + [thread]
        thread.start()

    # -- one fault

    def begin(self):
        if len(self.active) >= ACTIVE_MAX:
            return
        for _ in range(TRIES):
            fault, = self.chance.choices(self.faults, [fault.weight for fault in self.faults])
            if self.begin_one(fault):
                return

    def begin_one(self, fault):
        one = Going(fault)
        lasts = self.chance.uniform(*fault.lasts)
        self.active.append(one)  # what it closes counts from now on
        text = fault.begin(self, one)
        if text is None:
            self.active.remove(one)
            self.release(one)
            return False
        one.text, one.until = text, time.monotonic() + lasts
        self.tell(text)
        self.did["faults"] += fault.name not in ("members", "pour")  # the one counts when it is done, the other is no fault
        self.did[fault.name] += 1
        return True

    def release(self, one):
        for number in one.out:
            if self.world.out.get(number) == one.fault.name:
                del self.world.out[number]
        one.slots, one.out, one.cuts = set(), set(), set()

    def tick(self):
        now = time.monotonic()
        for one in list(self.active):
            if one.fault.tick and one.until > now:
                one.fault.tick(self, one)
            if self.blackout not in (None, one):
                continue  # nobody comes back before that is over
            if one.until <= now and (not one.fault.end or one.fault.end(self, one) is not False):
                self.active.remove(one)
                self.release(one)
                self.did["faults"] += one.fault.name == "members"
        if not self.blackout:
            self.world.check_ended(self.tell)
        if self.monitor.looks > self.looked and not self.blackout:
            self.looked = self.monitor.looks
            self.world.check_stopped(self.monitor.seen, self.tell)
        self.load.failed()
        if self.monitor.failure:
            raise self.monitor.failure

    # -- for a while

    def run(self, until_when, progress):
        """Faults until then; rests in between, and one at the end."""
        next_fault, next_rest = 0, time.monotonic() + self.chance.uniform(*REST_EVERY)
        while time.monotonic() < until_when:
            self.tick()
            now = time.monotonic()
            if now >= next_fault:
                self.begin()
                next_fault = now + self.chance.expovariate(1 / GAP)
            progress(self)
            if now >= next_rest:
                self.rest(progress)
                next_rest = time.monotonic() + self.chance.uniform(*REST_EVERY)
            time.sleep(0.02)
        self.rest(progress)

    # -- rests

    def rest(self, progress):
        self.tell("everything heals")
        self.resting, begin = True, time.monotonic()
        for one in self.active:
            one.until = 0
        for one in sorted(self.active, key=lambda one: one.fault.name == "members"):  # what a change waits for ends first
            while one in self.active:
                assert time.monotonic() < begin + SERVES_MAX, f"all has healed, and this does not end: {one.text}{why(one)}"
                self.tick()
                progress(self)
                time.sleep(POLL)
        healed = time.monotonic()
        self.served(healed, progress)
        self.rests.append(time.monotonic() - begin)
        self.tell(f"all serve again after {self.rests[-1]:.1f} s")
        for thread in self.errands:
            thread.join(SERVES_MAX)
        self.load.pause()
        self.agree()
        self.load.verdict()
        self.tick()
        self.load.resume()
        while self.world.gone:
            self.world.bury(self.world.gone[0])
        self.did["rests"] += 1
        self.resting = False

    def served(self, healed, progress):
        """All that can be counted on follow one leader, and have what it has; clients are served."""
        while True:
            self.tick()
            progress(self)
            seen, leader = self.monitor.seen, self.monitor.leader
            counted = [node.number for node in self.world.counted()]
            if leader and leader.number in seen and all(
                    number in seen and seen[number][0]["leader"] == leader.number and
                    seen[number][0]["applied"] >= seen[leader.number][0]["commit"] - 1000 for number in counted) and \
               self.load.prober.after(healed):
                return
            assert time.monotonic() < healed + SERVES_MAX, \
                f"all has healed, and they do not serve after {SERVES_MAX} s: {[*self.world.statuses()]}"
            time.sleep(POLL)

    def agree(self):
        """All that are counted on have applied the same, and have the same table and the same members. Nobody works meanwhile."""
        def same():
            looks = {node: node.look() for node in self.world.counted()}
            if not all(looks.values()):
                return None
            digests = [digest for _, digest in looks.values()]
            commit = max(status["commit"] for status, _ in looks.values())
            if {digest["applied"] for digest in digests} != {commit}:
                return None
            assert len({digest["table"] for digest in digests}) == 1, f"they do not agree on the table: {digests}"
            assert len({(digest["members"], digest["members_index"]) for digest in digests}) == 1, f"they do not agree on the members: {digests}"
            for node, (status, _) in looks.items():
                known = {member["id"]: bool(member["votes"]) for member in status["members"]}
                assert known == dict.fromkeys(self.world.members, True), f"{node} knows {known}, the members are {sorted(self.world.members)}"
            self.did["comparisons"] += len(looks)
            return True

        until(same, "all have applied the same", SERVES_MAX)

    # -- words

    def figures(self):
        seconds = time.monotonic() - self.began
        return (f"{self.did['faults']} faults ({self.did['faults'] * 60 / max(seconds, 1):.0f} a minute), {self.did['leader kills']} leader kills, "
                f"{self.did['added'] + self.did['removed']} changes of members")

    def wrong_now(self):
        return "; ".join(one.text for one in self.active) or "all is well"


def why(one):
    return f" ({one.change.last})" if one.change else ""
