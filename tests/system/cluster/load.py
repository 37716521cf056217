"""Clients that take, renew, await and give back locks while a cluster is maltreated, and a record of all they were told.

    load = Load(cluster)             six workers, each a thread with a Session of its own
    with load:                       they work until this ends; it fails if one of them was told something wrong
        ...
    load.pause(), load.resume()      nobody asks for anything in between
    load.verdict()                   looks through the record: what nobody could see alone

What a worker checks by itself, all the time:
    a hold that was acknowledged is there until it was given back or its TTL may have run out;
    the same lease gets the same token; what was given back is not there any more, and cannot be given back again.
What the record shows:
    [tokens]     none twice, and of two grants, one of which was known before the other was asked for, the later is higher;
    [exclusion]  no hold of a name begins before the one before it can have ended;
    [order]      who was told that it is in the queue before somebody else came gets the lock before them.

All tries of a request use the same lease. One that was in doubt is ended, not given back: a late try of it may still be on
its way.
"""
import bisect
import random
import threading
import time

from nodes import PATIENCE, POLL, TTL_MAX, NotDone, Unknown, boot_ms, fresh

WORKERS = 6
OWN, COMMON, HOT = 4, 3, 2  # names of one worker, names of all, names with a queue
PLACES_MAX = 2  # in queues, of one worker
TTLS = [3000, 10000, TTL_MAX]
COMMON_TTLS = [1000, 3000]
WAIT_MS = 400  # of a blocked ACQUIRE
BLOCKED_MAX = 6  # seconds until a blocked one gives up on its node: longer than WAIT_MS, and than any pause here
PROBE_MAX = 0.4  # seconds that a node has for the answer to a probe
PACE = 0.001  # seconds between two probes
JOIN_MAX = 3 * PATIENCE


class Gate:
    """Where workers wait while the load is paused."""

    def __init__(self):
        self.changed, self.open, self.waiting = threading.Condition(), True, 0

    def pass_by(self):
        with self.changed:
            self.waiting += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.open)
            self.waiting -= 1

    def shut(self, everybody):
        """Returns when all wait here that are alive."""
        deadline = time.monotonic() + JOIN_MAX
        with self.changed:
            self.open = False
            while self.waiting < everybody():
                assert time.monotonic() < deadline, "a worker hangs"
                self.changed.wait(0.1)  # nobody says that it has died

    def unlock(self):
        with self.changed:
            self.open = True
            self.changed.notify_all()


class Hold:
    """One that was acknowledged. `ends`: not before this moment of CLOCK_BOOTTIME, unless it is given back."""

    def __init__(self, name, lease, token, ttl, sent, got):
        self.name, self.lease, self.token, self.ttl = name, lease, token, ttl
        self.sent, self.got = sent, got
        self.ends = sent + ttl
        self.released = None  # when that was asked for

    def must_live(self):
        return boot_ms() < self.ends

    def __str__(self):
        now = boot_ms()
        return (f"{self.name} {self.token}, TTL {self.ttl}, asked for {now - self.sent} ms and got {now - self.got} ms ago, "
                f"may end in {self.ends - now} ms")


class Place:
    """In a queue. `acked`: since then it was known to be there."""

    def __init__(self, name, lease, sent, acked):
        self.name, self.lease, self.sent, self.acked, self.token = name, lease, sent, acked, None


class Record:
    """Of all workers. Lists only grow, and an append is atomic."""

    def __init__(self):
        self.holds, self.places = [], []

    def check_tokens(self):
        tokens = [hold.token for hold in self.holds]
        assert len(set(tokens)) == len(tokens), \
            f"a token was given twice: {sorted(t for t in set(tokens) if tokens.count(t) > 1)[:5]}"
        by_answer, highest, index = sorted(self.holds, key=lambda hold: hold.got), 0, 0
        for hold in sorted(self.holds, key=lambda hold: hold.sent):
            while index < len(by_answer) and by_answer[index].got < hold.sent:
                highest = max(highest, by_answer[index].token)
                index += 1
            assert hold.token > highest, f"token {hold.token} was given after {highest} was known"

    def check_exclusion(self):
        names = {}
        for hold in sorted(self.holds, key=lambda hold: hold.token):
            before = names.get(hold.name)
            if before:
                assert hold.got >= min(before.released or before.ends, before.ends), \
                    f"{hold.name}: {hold.token} was granted while {before.token} was held"
            names[hold.name] = hold

    def check_order(self):
        names = {}
        for place in self.places:
            names.setdefault(place.name, []).append(place)
        for name, places in names.items():
            by_ack, highest, waiting, index = sorted(places, key=lambda place: place.acked), 0, None, 0
            for place in sorted(places, key=lambda place: place.sent):
                while index < len(by_ack) and by_ack[index].acked < place.sent:
                    earlier = by_ack[index]
                    highest = max(highest, earlier.token or 0)
                    waiting = waiting or (earlier if earlier.token is None else None)
                    index += 1
                if place.token:
                    assert place.token > highest, f"{name}: {place.lease} came later and was granted first"
                    assert not waiting, f"{name}: {place.lease} was granted, {waiting.lease} came before it and waits"


class Worker(threading.Thread):
    def __init__(self, session, record, number, over, seed, gate):
        super().__init__()
        self.gate = gate
        self.session, self.record, self.number, self.over = session, record, number, over
        self.random = random.Random(seed * 1000 + number)
        self.holds, self.places, self.gone = [], [], []
        self.connection = None  # where its places were last made known
        self.steps, self.doubts, self.failure = 0, 0, None

    def run(self):
        try:
            with self.session:
                while not self.over.is_set():
                    self.gate.pass_by()
                    self.step()
                    self.steps += 1
                self.settle()
        except BaseException as failure:  # in a thread: the test has to hear of it
            self.failure = failure

    def ask(self, *words, **kwargs):
        """The answer, and whether one of its tries was in doubt."""
        before = self.session.doubts
        answer = self.session.ask(*words, patience=2 * PATIENCE, **kwargs)
        return answer, self.session.doubts > before

    # -- what it does

    def step(self):
        choices = [self.take_own, self.take_own, self.take_own, self.take_common, self.wait_blocked]
        choices += [self.queue] * 2 if len(self.places) < PLACES_MAX else []
        choices += [self.again, self.check, self.renew, self.release, self.release, self.release] if self.holds else []
        choices += [self.check_gone] if self.gone else []
        self.random.choice(choices)()
        self.look_at_places()

    def took(self, name, lease, token, ttl, sent):
        hold = Hold(name, lease, token, ttl, sent, boot_ms())
        self.holds.append(hold)
        self.record.holds.append(hold)
        return hold

    def free(self, names):
        taken = {hold.name for hold in self.holds}
        return [name for name in names if name not in taken]

    def take_own(self):
        if names := self.free(f"own-{self.number}-{index}" for index in range(OWN)):
            self.take(names[0], self.random.choice(TTLS))

    def take_common(self):
        if names := self.free([f"common-{self.random.randrange(COMMON)}"]):
            self.take(names[0], self.random.choice(COMMON_TTLS))

    def wait_blocked(self):
        if names := self.free([f"common-{self.random.randrange(COMMON)}"]):
            self.take(names[0], self.random.choice(COMMON_TTLS), "WAIT", WAIT_MS, answer_max=BLOCKED_MAX)

    def take(self, name, ttl, *words, **kwargs):
        lease, sent = fresh(), boot_ms()
        token, doubted = self.ask("ACQUIRE", name, lease, "TTL", ttl, *words, **kwargs)
        if token is not None:
            self.took(name, lease, token, ttl, sent)
        elif doubted:
            self.ask("END", lease)
        else:
            assert self.ask("RENEW", lease)[0] == [-1], "refused, and the lease lives"

    def again(self):
        """The same request once more, as after a lost answer."""
        hold = self.random.choice(self.holds)
        if boot_ms() > hold.ends - 2000:
            return
        token, _ = self.ask("ACQUIRE", hold.name, hold.lease, "TTL", 100)
        if token == hold.token:
            return
        assert not hold.must_live(), f"another token for the same lease, {token}: {hold}"
        self.holds.remove(hold)  # it came so late that the lease was over: this is another one, for 100 ms
        self.ask("END", hold.lease)

    def check(self):
        hold = self.random.choice(self.holds)
        alive, _ = self.ask("CHECK", hold.name, hold.token)
        assert alive == 1 or not hold.must_live(), f"an acknowledged hold is gone: {hold.name} {hold.token}"
        if not alive:
            self.holds.remove(hold)

    def renew(self):
        sent = boot_ms()
        left, _ = self.ask("RENEW", *[hold.lease for hold in self.holds])
        for hold, ms in zip(list(self.holds), left):
            if ms < 0:
                assert not hold.must_live(), f"a lease ended early: {hold}"
                self.holds.remove(hold)
            else:
                assert ms >= hold.ttl, f"renewed for {ms} ms: {hold}"
                hold.ends = max(hold.ends, sent + hold.ttl)

    def release(self):
        self.give_back(self.random.choice(self.holds))

    def give_back(self, hold):
        self.holds.remove(hold)
        hold.released = boot_ms()
        answer, doubted = self.ask("RELEASE", hold.name, hold.lease, "TOKEN", hold.token)
        assert answer == 1 or doubted or not hold.must_live(), f"an acknowledged hold is gone: {hold.name} {hold.token}"
        self.gone = self.gone[-50:] + [hold]

    def check_gone(self):
        hold = self.random.choice(self.gone)
        assert self.ask("CHECK", hold.name, hold.token)[0] == 0, f"an acknowledged release was undone: {hold.name}"
        assert self.ask("RELEASE", hold.name, hold.lease, "TOKEN", hold.token)[0] == 0, f"released twice: {hold.name}"

    # -- queues

    def queue(self):
        name, lease, sent = f"hot-{self.random.randrange(HOT)}", fresh(), boot_ms()
        answer, _ = self.ask("ACQUIRE", name, lease, "PUSH", "TTL", TTL_MAX)
        place = Place(name, lease, sent, boot_ms())
        if answer == "QUEUED":
            self.record.places.append(place)
            self.places.append(place)
        else:
            place.token = answer
            self.record.places.append(place)
            self.took(name, lease, answer, TTL_MAX, sent)

    def granted(self, place, token):
        assert place.token is None
        place.token = token
        self.places.remove(place)
        self.took(place.name, place.lease, token, TTL_MAX, place.sent)

    def look_at_places(self):
        """Pushes; and, over another connection than before, its places are found again."""
        client = self.session.client
        if client is None or client is not self.connection:
            for place in list(self.places):
                answer, _ = self.ask("ACQUIRE", place.name, place.lease, "PUSH", "TTL", TTL_MAX)
                if answer != "QUEUED":
                    self.granted(place, answer)
            self.connection = self.session.client
        elif client.pushes:
            pushes, client.pushes = client.pushes, []
            for word, name, lease, token in pushes:
                place = next((place for place in self.places if place.lease == lease), None)
                if place:
                    assert word == "granted", f"a place is gone that nobody gave up: {name} {token}"
                    self.granted(place, token)
        if self.session.client is not self.connection:
            self.connection = None  # it broke meanwhile: once more after the next step
        for hold in list(self.holds):
            if hold.name.startswith("hot-"):  # the queue moves on
                self.give_back(hold)

    def settle(self):
        """At the end all it believes to hold is there."""
        for hold in list(self.holds):
            alive, _ = self.ask("CHECK", hold.name, hold.token)
            assert alive == 1 or not hold.must_live(), f"an acknowledged hold is gone: {hold.name} {hold.token}"
        for hold in self.gone:
            assert self.ask("CHECK", hold.name, hold.token)[0] == 0, f"an acknowledged release was undone: {hold.name}"


class Prober(threading.Thread):
    """Takes and gives back a lock over and over, and knows when it was granted one: how long is nobody served?"""

    def __init__(self, session, over, gate=None):
        super().__init__()
        self.session, self.over, self.failure, self.gate = session, over, None, gate or Gate()
        self.granted = []  # (when its last try was sent, when it was answered, token)

    def run(self):
        try:
            with self.session:
                while not self.over.is_set():
                    self.gate.pass_by()
                    mine = fresh("probe")
                    token = self.take(mine)
                    self.session.ask("RELEASE", mine, mine, "TOKEN", token, patience=2 * PATIENCE)
                    time.sleep(PACE)
        except BaseException as failure:
            self.failure = failure

    def take(self, mine):
        deadline = time.monotonic() + 2 * PATIENCE
        while True:
            sent = time.monotonic()
            try:
                token = self.session.once("ACQUIRE", mine, mine, "TTL", 5000)
                self.granted.append((sent, time.monotonic(), token))
                return token
            except (NotDone, Unknown):
                assert sent < deadline, "nobody serves"
                time.sleep(POLL)

    def after(self, moment):
        """When the first grant came that was asked for after that moment; None: not yet."""
        index = bisect.bisect_right(self.granted, (moment,))
        return self.granted[index][1] if index < len(self.granted) else None

    def longest(self, begin, end):
        """The longest time without a grant, between these moments."""
        times = [begin] + [got for _, got, _ in self.granted if begin < got < end] + [end]
        return max(later - earlier for earlier, later in zip(times, times[1:]))


class Load:
    """`sessions`: make a Session each, in turn, for the workers and then for the prober. `others`: threads that whoever has
    the load adds; they pass by its gate, end when it is over, and have a `failure`."""

    worker_class = Worker

    def __init__(self, cluster, workers=WORKERS, seed=1, sessions=None):
        sessions = sessions or [cluster.session]
        self.record, self.over, self.gate = Record(), threading.Event(), Gate()
        self.workers = [self.worker_class(sessions[number % len(sessions)](protocol=3), self.record, number, self.over, seed,
                                          self.gate)
                        for number in range(workers)]
        self.prober, self.others = Prober(sessions[-1](answer_max=PROBE_MAX), self.over, self.gate), []

    def threads(self):
        return [*self.workers, self.prober, *self.others]

    def __enter__(self):
        for thread in self.threads():
            thread.start()
        return self

    def pause(self):
        """Returns when nothing is under way."""
        self.gate.shut(lambda: sum(thread.is_alive() for thread in self.threads()))
        self.failed()

    def resume(self):
        self.gate.unlock()

    def failed(self):
        for thread in self.threads():
            if thread.failure:
                raise thread.failure

    def __exit__(self, kind, *exception):
        self.over.set()
        self.gate.unlock()
        for thread in self.threads():
            thread.join(JOIN_MAX)
        if kind is None:
            assert not any(thread.is_alive() for thread in self.threads()), "a worker hangs"
        self.failed()

    def verdict(self):
        self.record.check_tokens()
        self.record.check_exclusion()
        self.record.check_order()
        assert self.prober.granted == sorted(self.prober.granted, key=lambda grant: grant[2]), "a token went back"
        probed = {token for _, _, token in self.prober.granted}
        assert not probed & {hold.token for hold in self.record.holds}, "a token was given twice"

    def figures(self):
        placed = [place for place in self.record.places if place.token]
        return (f"{len(self.record.holds)} holds, {len(placed)} of {len(self.record.places)} places granted, "
                f"{sum(worker.session.doubts for worker in self.workers)} doubts, "
                f"{sum(worker.steps for worker in self.workers)} steps")

