"""The other stores under a small nemesis of the same kind: `make chaos ON=etcd`, zookeeper, postgres, redis.

Jobs of the command `holdfast run` hold three names in turn, while servers are killed, stopped and started again, one at a time or all at once. A
store that says it is strict never has two jobs of a name inside, and its tokens grow. Redis is failed over to a replica that lacks what came
last: there two are inside now and then, and a run that does not see that has not looked.

A job believes that it holds for as long as it lives: `holdfast` ends it in time. What is judged is what somebody saw of it: from when its first
line was read to the last look at which it lived.
"""
import collections
import contextlib
import importlib.util
import os
import random
import shutil
import threading
import time

from holdfast_cli import BIN, Process, is_running
from nodes import HERE, boot_ms, until

NAMES, CLAIMANTS = 3, 7
TTL_S = 6
LOOK = 0.02  # seconds between two looks at a job
SLACK_MS = 500  # a busy machine may be so late to end a job
GAP = 1.5  # seconds between two faults, on average
REST_EVERY = (20, 40)
SERVES_MAX = 90


def conftest_of(folder):
    """That folder's servers."""
    spec = importlib.util.spec_from_file_location(f"{folder}_conftest", HERE.parent / folder / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- stores: count servers, of which `spare` may be missing --------------------------------------------------------


class Store:
    """`lasts`: seconds that a fault lasts; `holds`: and a job."""
    strict, count, spare, lasts, holds = True, 3, 1, (0.3, 4), (0, 2)


class Etcd(Store):
    def __init__(self):
        self.of = conftest_of("etcd").Etcd()
        self.url, self.stop = self.of.url(), self.of.stop

    def do(self, word, number):
        getattr(self.of.nodes[number], {"kill": "kill9"}.get(word, word))()

    def whole(self):
        self.of.await_all()


class Zookeeper(Store):
    def __init__(self):
        self.of = conftest_of("zookeeper").Ensemble()
        self.url, self.stop = self.of.url("/chaos"), self.of.stop

    def do(self, word, number):
        self.of.say(f"{word} {number}")

    def whole(self):
        self.of.say("whole")


class Postgres(Store):
    count = 1

    def __init__(self):
        self.of = conftest_of("postgres").Server("server")
        self.url, self.stop = self.of.url(), self.of.stop

    def do(self, word, number):
        getattr(self.of, {"kill": "kill9"}.get(word, word))()

    def whole(self):
        pass


class Redis(Store):
    """A primary and its replica. What the primary loses when it is killed is what the replica did not get."""
    strict, count, lasts, holds = False, 1, (0.1, 0.6), (1, 6)

    def __init__(self):
        module = conftest_of("redis")
        self.stack = contextlib.ExitStack()
        servers = module.Servers(self.stack)
        self.primary, self.replica = servers.redis(), servers.redis()
        self.relay = servers.relay(self.primary)
        self.replica.replicate(self.relay)
        self.url, self.stop = self.primary.url(), self.stack.close

    def do(self, word, number):
        if word == "kill":
            self.relay.cut()
            time.sleep(2)
            self.replica.cmd("SAVE")
            self.primary.kill()
        elif word == "start":
            shutil.copy(self.replica.directory / "dump.rdb", self.primary.directory / "dump.rdb")
            self.primary.restart(empty=False)
            self.relay.heal()
        else:
            getattr(self.primary, word)()

    def whole(self):
        until(lambda: self.replica.info("replication").get("master_link_status") == "up", "replica in step", SERVES_MAX)


STORES = {"etcd": Etcd, "zookeeper": Zookeeper, "postgres": Postgres, "redis": Redis}


# ---- those who want locks ------------------------------------------------------------------------------------------


class Inside:
    """A job that was seen inside. `last`: the last look at which it lived."""

    def __init__(self, name, token, asked, told):
        self.name, self.token, self.asked, self.told, self.last = name, token, asked, told, told


class Claimant(threading.Thread):
    def __init__(self, store, number, seed, over):
        super().__init__(daemon=True)
        self.chance, self.over, self.failure = random.Random(seed * 100 + number), over, None
        self.env = {**{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
                    **{name: os.environ[name] for name in ("HOLDFAST_MODULE_DIR",) if name in os.environ},
                    "HOLDFAST_URL": store.url, "HOLDFAST_CLIENT_CONF": "/dev/null"}
        self.holds, self.inside, self.statuses = store.holds, [], collections.Counter()

    def run(self):
        try:
            while not self.over.is_set():
                self.claim(f"chaos-{self.chance.randrange(NAMES)}", self.chance.uniform(*self.holds))
        except BaseException as failure:  # in a thread: the run has to hear of it
            self.failure = failure

    def claim(self, name, lasts):
        asked = boot_ms()
        job = Process([BIN, "run", "-q", "--ttl", f"{TTL_S}s", "--grace", "0s", "--on-lost", "kill", "--wait", "8s", name, "--", "sh", "-c",
                       "echo in $HOLDFAST_TOKEN $$; read line"], self.env)
        line = job.queues["out"].get(timeout=SERVES_MAX)
        if line is not None:
            _, token, pid = line.split()
            hold = Inside(name, int(token), asked, boot_ms())
            self.inside.append(hold)
            end = time.monotonic() + lasts
            while time.monotonic() < end and self.lives(int(pid), hold):
                time.sleep(LOOK)
            with contextlib.suppress(OSError):
                job.popen.stdin.close()
        self.statuses[job.wait(SERVES_MAX)] += 1

    @staticmethod
    def lives(pid, hold):
        now = boot_ms()
        if not is_running(pid):
            return False
        hold.last = now
        return True


def judge(holds, strict):
    """How often two were inside; what a strict store must not do is a failure."""
    broken = []
    for name in {hold.name for hold in holds}:
        ordered = sorted((hold for hold in holds if hold.name == name), key=lambda hold: hold.told)
        for at, hold in enumerate(ordered):
            broken += [f"{name}: {hold.token} inside until {hold.last - other.told:.0f} ms after {other.token} came in"
                       for other in ordered[at + 1:at + 20] if hold.last - other.told > SLACK_MS]
            if strict:
                late = [other.token for other in ordered[at + 1:] if other.asked > hold.told and other.token <= hold.token]
                assert not late, f"{name}: tokens {late[:3]} were given after {hold.token} was known"
    assert not strict or not broken, f"two were inside, {len(broken)} times: {broken[:5]}"
    return broken


# ---- the nemesis ---------------------------------------------------------------------------------------------------


class StoreRun:
    def __init__(self, name, seed, tell):
        self.name, self.seed, self.chance, self.tell = name, seed, random.Random(seed), tell
        self.did, self.story, self.out = collections.Counter(), [], {}  # out: number: (when it comes back, the word for that)

    def note(self, text):
        self.story.append(f"{time.strftime('%H:%M:%S')} {text}")

    def begin(self):
        free = [number for number in range(self.store.count) if number not in self.out]
        word = self.chance.choice(["kill", "kill", "pause", "power"])
        if word == "power" and not self.out and self.store.count > 1:
            numbers = free
        elif len(self.out) < self.store.spare:
            word, numbers = word.replace("power", "kill"), [self.chance.choice(free)]
        else:
            return
        for number in numbers:
            self.store.do(word.replace("power", "kill"), number)
            self.out[number] = time.monotonic() + self.chance.uniform(*self.store.lasts), "resume" if word == "pause" else "start"
        self.did[word] += 1
        self.note(f"{word} {numbers}")

    def come_back(self, everybody=False):
        for number, (when, word) in list(self.out.items()):
            if everybody or time.monotonic() >= when:
                self.note(f"{word} {number}")
                self.store.do(word, number)
                del self.out[number]

    def rest(self):
        """All is whole, and every name is had by somebody who did not ask before that."""
        self.come_back(True)
        self.store.whole()
        healed = boot_ms()
        until(lambda: self.failed() or len({hold.name for hold in self.holds() if hold.told > healed}) == NAMES, "all names are given again", SERVES_MAX)
        self.did["rests"] += 1
        return judge(self.holds(), self.store.strict)

    def holds(self):
        return [hold for claimant in self.claimants for hold in claimant.inside]

    def failed(self):
        for claimant in self.claimants:
            if claimant.failure:
                raise claimant.failure

    def run(self, seconds):
        self.store = STORES[self.name]()
        over = threading.Event()
        self.claimants = [Claimant(self.store, number, self.seed, over) for number in range(CLAIMANTS)]
        try:
            for claimant in self.claimants:
                claimant.start()
            broken = self.work(seconds)
            over.set()
            for claimant in self.claimants:
                claimant.join(SERVES_MAX)
        finally:
            over.set()
            self.come_back_quietly()
            self.store.stop()
        if not self.store.strict and self.did["kill"] >= 10:
            assert broken, f"{self.did['kill']} times it was failed over, and nobody saw two inside"
        return self.words(broken)

    def come_back_quietly(self):
        with contextlib.suppress(Exception):
            self.come_back(True)

    def work(self, seconds):
        end, rest, fault = time.monotonic() + seconds, time.monotonic() + self.chance.uniform(*REST_EVERY), 0
        while time.monotonic() < end:
            now = time.monotonic()
            self.failed()
            self.come_back()
            if now >= fault:
                self.begin()
                fault = now + self.chance.expovariate(1 / GAP)
            if now >= rest:
                broken = self.rest()
                rest = time.monotonic() + self.chance.uniform(*REST_EVERY)
                self.tell(self.words(broken))
            time.sleep(LOOK)
        return self.rest()

    def words(self, broken):
        statuses = sum((claimant.statuses for claimant in self.claimants), collections.Counter())
        return (f"{self.name}, seed {self.seed}: {', '.join(f'{count} {word}' for word, count in sorted(self.did.items()))}; {len(self.holds())} holds, "
                f"{statuses[76]} lost; two inside: {len(broken)} times" + (f", as {broken[0]}" if broken else ""))
