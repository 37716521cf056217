"""Those who see what happens to the cluster: load.py's workers and prober, whose history is written down; heirs, who wait for what somebody
holds who is dead; outposts, who believe whatever node they ask; and one who looks at all nodes all the time, whether two lead in one term, or
have two tables."""
import contextlib
import os
import pathlib
import random
import subprocess
import threading
import time

from load import Load, Worker
from nets import PASSWORD
from nodes import NO_EFFECT, PATIENCE, Client, Ended, Refused, boot_ms, fresh, pack

JUDGE = os.environ.get("HF_JUDGE", str(pathlib.Path(__file__).resolve().parents[3] / "build-check/sim/holdfast-judge"))
HEIRS = 2
LATE_MAX = 8  # seconds: longer than a pause, and than most cuts
AT_ONCE, OUTPOST_EVERY, OUTPOST_TTL = 10, 0.1, 60000  # requests; seconds; ms: what got no answer stays so long
LOOK_EVERY = 0.4  # seconds between two looks at all nodes
DEAD_TTLS = [1000, 2500, 4000]


class History:
    """A file with a line for each request that was answered: sent, answered (ms), who, in doubt (0 or 1), request, '=', answer."""

    def __init__(self, path):
        self.file, self.lock, self.lines = open(path, "w", encoding="utf-8"), threading.Lock(), 0

    def add(self, sent, got, who, doubted, words, answer):
        with self.lock:
            if not self.file.closed:
                self.lines += 1
                self.file.write(f"{sent:.3f} {got:.3f} {who} {int(doubted)} {' '.join(map(str, words))} = {answer}\n")

    def close(self):
        with self.lock:
            self.file.close()

    def judged(self):
        """By the simulator's checkers: (whether all was well, their words)."""
        self.close()
        done = subprocess.run([JUDGE, self.file.name], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10 * PATIENCE)
        return done.returncode == 0, (done.stdout + done.stderr).strip()


class RecordedWorker(Worker):
    history = None

    def ask(self, *words, **kwargs):
        sent = boot_ms()
        answer, doubted = super().ask(*words, **kwargs)
        self.history.add(sent, boot_ms(), self.number, doubted, words, answer)
        return answer, doubted

    def granted(self, place, token):
        super().granted(place, token)
        now = boot_ms()
        self.history.add(now, now, self.number, False, ("GRANTED", place.name, place.lease), token)


class Heir(threading.Thread):
    """Takes a lock and forgets it, as somebody who is dead; then waits for it. Not before the TTL, and not for ever."""

    def __init__(self, session, load, number, seed, history):
        super().__init__()
        self.session, self.load, self.failure, self.history, self.who = session, load, None, history, f"heir-{number}"
        self.ttls = [DEAD_TTLS[(seed + number + turn) % len(DEAD_TTLS)] for turn in range(len(DEAD_TTLS))]
        self.waited = []  # ms beyond the TTL

    def run(self):
        try:
            with self.session:
                while not self.load.over.is_set():
                    self.load.gate.pass_by()
                    self.inherit(self.ttls[len(self.waited) % len(self.ttls)])
        except BaseException as failure:  # in a thread: the run has to hear of it
            self.failure = failure

    def inherit(self, ttl):
        name, dead, mine, sent = fresh("dead"), fresh(), fresh(), boot_ms()
        first = self.session.ask("ACQUIRE", name, dead, "TTL", ttl, patience=2 * PATIENCE)
        known = boot_ms()
        self.history.add(sent, known, self.who, False, ("ACQUIRE", name, dead, "TTL", ttl), first)
        deadline, second = time.monotonic() + 2 * PATIENCE, None
        while second is None:
            assert time.monotonic() < deadline, f"the lease of somebody who is dead lives for ever: {name} {first}, TTL {ttl}"
            second = self.session.ask("ACQUIRE", name, mine, "TTL", 60000, "WAIT", 3000, answer_max=8, patience=2 * PATIENCE)
        now = boot_ms()
        self.history.add(known, now, self.who, False, ("ACQUIRE", name, mine, "TTL", 60000), second)
        assert second > first, f"{name}: token {second} after {first}"
        assert now - sent >= ttl, f"a lease of {ttl} ms ended after {now - sent:.0f} ms: {name} {first}"
        self.waited.append(max(now - known - ttl, 0))
        begin = boot_ms()
        answer = self.session.ask("RELEASE", name, mine, "TOKEN", second, patience=2 * PATIENCE)
        self.history.add(begin, boot_ms(), self.who, False, ("RELEASE", name, mine, "TOKEN", second), answer)


class Outpost(threading.Thread):
    """Asks one node or another, the leader more often, for a lot at once, and believes what it is told there: what was granted is held, whoever
    leads; and what is said not to be done is not, ever."""

    def __init__(self, world, at, load, seed):
        super().__init__()
        self.world, self.at, self.load, self.chance, self.failure = world, at, load, random.Random(f"{seed} {at}"), None
        self.session, self.granted, self.denied = world.session(at), [], 0  # granted: (asked for, answered, token), as a prober's

    def run(self):
        try:
            with self.session:
                while not self.load.over.wait(OUTPOST_EVERY):
                    self.load.gate.pass_by()
                    self.ask_one()
        except BaseException as failure:  # in a thread: the run has to hear of it
            self.failure = failure

    def ask_one(self):
        leader, nodes = self.load.monitor.leader, list(self.world.nodes.values())
        node = leader if leader and self.chance.random() < 0.7 else self.chance.choice(nodes)
        asked = [(fresh("outpost"), fresh()) for _ in range(AT_ONCE)]
        begin, sent = boot_ms(), time.monotonic()
        answers = []
        with contextlib.suppress(OSError, Ended), self.connect(node) as client:
            client.raw(b"".join(pack("ACQUIRE", name, lease, "TTL", OUTPOST_TTL) for name, lease in asked))
            for _ in asked:
                answers.append(client.read_any())
                if isinstance(answers[-1], int):
                    self.granted.append((sent, time.monotonic(), answers[-1]))
        self.verify(node, asked, answers, begin)

    def connect(self, node):
        with self.world.net[self.at].inside():
            return Client((node.host, node.port), 2, LATE_MAX, PASSWORD)

    def verify(self, node, asked, answers, begin):
        denied = []
        for (name, lease), answer in zip(asked, answers):
            if isinstance(answer, Refused):
                assert answer.code in (*NO_EFFECT, "UNKNOWN"), f"{node} said {answer}"
                denied += [lease] if answer.code in NO_EFFECT else []
                continue
            assert isinstance(answer, int), f"{node} said {answer!r}, and nobody else asks for {name}"
            alive = self.session.ask("CHECK", name, answer, patience=2 * PATIENCE)
            assert alive or boot_ms() >= begin + OUTPOST_TTL, f"what {node} granted is not held: {name} {answer}"
            self.session.ask("RELEASE", name, lease, "TOKEN", answer, patience=2 * PATIENCE)
        if denied:
            left = self.session.ask("RENEW", *denied, patience=2 * PATIENCE)
            assert set(left) == {-1}, f"{node} said that it was not done, and it was: {[lease for lease, ms in zip(denied, left) if ms >= 0]}"
            self.denied += len(denied)


class ChaosLoad(Load):
    worker_class = RecordedWorker

    def __init__(self, world, seed, history, monitor):
        # Those at one place wait for late answers, also of somebody who has been deposed meanwhile; the others soon ask elsewhere.
        sessions = [lambda **kwargs: world.session("a", **{"answer_max": LATE_MAX, **kwargs}), lambda **kwargs: world.session("b", **kwargs)]
        super().__init__(world, seed=seed, sessions=sessions)
        for worker in self.workers:
            worker.history = history
        self.heirs = [Heir(sessions[number % 2](), self, number, seed, history) for number in range(HEIRS)]
        self.monitor, self.outposts = monitor, [Outpost(world, at, self, seed) for at in ("a", "b")]
        self.others += [*self.heirs, *self.outposts]
        for thread in self.threads():
            thread.daemon = True

    def __exit__(self, kind, *exception):
        """After a finding nobody waits for those who may never get an answer."""
        if kind is None:
            super().__exit__(kind, *exception)
        self.over.set()
        self.gate.unlock()

    def grants(self):
        return len(self.record.holds) + len(self.prober.granted) + sum(len(outpost.granted) for outpost in self.outposts)

    def granted_between(self, begin, end):
        """What was asked for after `begin` and granted before `end`, on CLOCK_BOOTTIME in ms; on time.monotonic() of the prober."""
        late = [f"{hold.name} {hold.token}" for hold in self.record.holds[-2000:] if hold.sent > begin[0] and hold.got < end[0]]
        return late + [f"token {token}" for who in [self.prober, *self.outposts] for sent, got, token in who.granted[-2000:]
                       if sent > begin[1] and got < end[1]]

    def verdict(self):
        super().verdict()
        tokens = [token for who in [self.prober, *self.outposts] for _, _, token in who.granted]
        assert len(set(tokens)) == len(tokens), "a token was given twice"


class Monitor(threading.Thread):
    """Looks at all nodes, all the time. `view`: what the one that leads says; `served`: numbers of those that answer."""

    def __init__(self, world):
        super().__init__()
        self.world, self.over, self.failure = world, threading.Event(), None
        self.leaders, self.tables, self.elections = {}, {}, 0
        self.leader, self.view, self.looks, self.seen = None, {}, 0, {}

    def run(self):
        try:
            while not self.over.wait(LOOK_EVERY):
                self.look()
        except BaseException as failure:  # in a thread: the run has to hear of it
            self.failure = failure

    def look(self):
        leading, seen = [], {}
        for node in list(self.world.nodes.values()):
            try:
                answer = node.look()
            except Refused:  # it stops, or has just begun
                answer = None
            if not answer:
                continue
            status, digest = seen[node.number] = answer
            self.compare(node, digest)
            if status["role"] == "leader":
                self.lead(node, status["term"])
                leading.append((status["term"], node.number, status))
        self.seen, self.looks = seen, self.looks + 1
        term, number, status = max(leading, key=lambda one: one[:2], default=(0, None, None))
        self.leader = self.world.nodes.get(number)
        self.view = {member["id"]: bool(member["votes"]) for member in status["members"]} if status else {}

    def lead(self, node, term):
        if term not in self.leaders:
            self.elections += 1
        other = self.leaders.setdefault(term, node.number)
        assert other == node.number, f"two lead in term {term}: node {other} and {node}"

    def compare(self, node, digest):
        assert digest["broken"] == "", f"the table of {node}: {digest['broken']}"
        what = (digest["table"], digest["members"], digest["members_index"])
        other, known = self.tables.setdefault(digest["applied"], (node, what))
        assert known[0] == what[0], f"{node} has another table at {digest['applied']} than {other} had"
        if len(self.tables) > 100000:
            self.tables.pop(next(iter(self.tables)))

    def end(self):
        self.over.set()
        self.join()
