"""kill -9 under load, and while it starts: what was acknowledged is there, and nothing is given twice."""
import hashlib
import pathlib
import random
import threading
import time

from conftest import PATIENCE, SLOW_DISK, SOAK, TTL_MAX, Ended, Process, Refused, argv_of, boot_ms, die_with_parent, environment, eventually

KILLS = 200 if SOAK else 20
ACTORS = 24
OWN, HOT = 6, 4  # names that an actor has to itself, and names that all of them queue for
WAITERS_MAX = 10000  # that SHOW can show
OWNER = "o" * 128  # so that there is more to write, and snapshots come sooner


def digest(lease):
    return hashlib.sha256(lease.encode()).hexdigest()[:16]


class Hold:
    def __init__(self, name, lease, token, ttl, sent):
        self.name, self.lease, self.token, self.ttl, self.sent = name, lease, token, ttl, sent

    def ends(self):
        """Not before this moment of CLOCK_BOOTTIME: counted from before it was asked for."""
        return self.sent + self.ttl


class Actor:
    """Takes, renews and releases locks and places in queues over one connection, until that breaks, and knows what it
    was promised. What was under way when it broke is a doubt: it may or may not have happened."""

    def __init__(self, number):
        self.number, self.serial = number, 0
        self.random = random.Random(number)
        self.holds = {}  # lease: Hold
        self.places = {}  # lease: name, in the order in which they were queued
        self.floors = {}  # lease of a place: a token that was given before it came
        self.doubts = set()  # leases
        self.never = []  # leases of what was refused
        self.gone = []  # (name, token) of holds that were released
        self.left = []  # leases of places that were given up
        self.tokens = []  # of what was granted at once
        self.granted_later = []  # and to places, at a moment that nobody here knows
        self.highest = 0
        self.failure = None

    def run(self, server):
        try:
            with server.connect(3) as client:
                self.come_back(client)
                while True:
                    self.step(client)
        except (Ended, OSError):
            pass
        except Refused as refusal:  # by a server that is being stopped
            self.failure = refusal if refusal.code not in ("TRYAGAIN", "UNKNOWN") else None
        except BaseException as failure:  # in a thread: the test has to hear of it
            self.failure = failure

    def come_back(self, client):
        """Places that are told by pushes are found again."""
        for lease, name in list(self.places.items()):
            answer = client.cmd("ACQUIRE", name, lease, "PUSH", "TTL", TTL_MAX)
            if answer != "QUEUED":
                assert isinstance(answer, int), "neither in the queue nor granted"
                self.granted(name, lease, answer)
            self.take_pushes(client)

    def fresh(self):
        self.serial += 1
        return f"actor-{self.number}-{self.serial}"

    def step(self, client):
        choices = [self.acquire, self.acquire, self.queue]
        choices += [self.again, self.release, self.renew] if self.holds else []
        choices += [self.leave] if len(self.places) > 3 else []
        self.random.choice(choices)(client)
        self.take_pushes(client)

    def granted(self, name, lease, token):
        del self.places[lease]
        assert token > self.floors.pop(lease), "a token did not grow"
        self.holds[lease] = Hold(name, lease, token, 0, 0)  # how long is not known
        self.granted_later.append(token)

    def take_pushes(self, client):
        for word, name, lease, token in client.pushes:
            if word == "left":
                assert token == "left" and lease not in self.places, "a place is gone that nobody gave up"
            elif lease in self.places:
                assert word == "granted"
                self.granted(name, lease, token)
        client.pushes = []

    def ask(self, client, name, lease, *words):
        self.doubts.add(lease)
        try:
            answer = client.cmd("ACQUIRE", name, lease, "OWNER", OWNER, *words)
        except Refused as refusal:
            if refusal.code == "TRYAGAIN":  # says that it was not done, and never will be
                self.doubts.remove(lease)
                self.never.append(lease)
            raise
        self.doubts.remove(lease)
        return answer

    def acquire(self, client):
        taken = {hold.name for hold in self.holds.values()}
        free = [name for name in (f"own-{self.number}-{index}" for index in range(OWN)) if name not in taken]
        if not free:
            return
        name, lease, ttl, sent = free[0], self.fresh(), self.random.choice([2000, 10000, TTL_MAX]), boot_ms()
        token = self.ask(client, name, lease, "TTL", ttl)
        if token is None:  # a doubt of before, or one whose time is over for us and not for the server
            return
        self.took(Hold(name, lease, token, ttl, sent))

    def took(self, hold):
        assert hold.token > self.highest, "a token did not grow"
        self.highest = hold.token
        self.holds[hold.lease] = hold
        self.tokens.append(hold.token)

    def again(self, client):
        """The same request once more, as after a lost answer."""
        hold = self.random.choice(list(self.holds.values()))
        if hold.ttl and boot_ms() < hold.ends() - 1000:
            assert client.cmd("ACQUIRE", hold.name, hold.lease, "TTL", 100) == hold.token

    def renew(self, client):
        mine = [hold for hold in self.holds.values() if hold.ttl]
        if not mine:
            return
        sent = boot_ms()
        for hold, left in zip(mine, client.cmd("RENEW", *[hold.lease for hold in mine])):
            if left < 0:
                assert boot_ms() >= hold.ends(), "it ended early"
                del self.holds[hold.lease]
            else:
                assert left >= hold.ttl
                hold.sent = sent

    def release(self, client):
        hold = self.holds.pop(self.random.choice(list(self.holds)))
        self.doubts.add(hold.lease)
        answer = client.cmd("RELEASE", hold.name, hold.lease, "TOKEN", hold.token)
        assert answer == 1 or (hold.ttl and boot_ms() >= hold.ends()), "it ended early"
        self.doubts.remove(hold.lease)
        self.gone.append((hold.name, hold.token))

    def queue(self, client):
        name, lease, floor = f"hot-{self.random.randrange(HOT)}", self.fresh(), self.highest
        answer = self.ask(client, name, lease, "PUSH", "TTL", TTL_MAX)
        if answer == "QUEUED":
            self.places[lease], self.floors[lease] = name, floor
        else:
            self.took(Hold(name, lease, answer, 0, 0))

    def leave(self, client):
        lease = self.random.choice(list(self.places))
        name = self.places.pop(lease)
        self.doubts.add(lease)
        assert client.cmd("RELEASE", name, lease) == 1
        self.doubts.remove(lease)
        self.left.append(lease)


class Check:
    """Compares what the actors were promised with what a restarted server has."""

    def __init__(self, actors):
        self.actors, self.highest, self.every = actors, 0, set()

    def tokens(self):
        """None twice; and those of this round above all that were given before it began."""
        fresh = [token for actor in self.actors for token in actor.tokens]
        every = fresh + [token for actor in self.actors for token in actor.granted_later]
        assert len(set(every)) == len(every) and not self.every & set(every), "a token was given twice"
        assert not fresh or min(fresh) > self.highest, "a token did not grow"
        self.every |= set(every)
        self.highest = max([self.highest, *every])

    def holds(self, client):
        mine = [(actor, hold) for actor in self.actors for hold in actor.holds.values()]
        for (actor, hold), shown in zip(mine, client.pipeline(*[["SHOW", hold.name] for _, hold in mine])):
            alive = [row for row in shown["holders"] if row["token"] == hold.token and row["state"] == "holds"]
            now = boot_ms()
            if alive:
                assert alive[0]["lease"] == digest(hold.lease)
                assert not hold.ttl or alive[0]["left_ms"] >= hold.ends() - now, "less is left than was promised"
            else:
                assert hold.ttl and now >= hold.ends(), f"an acknowledged hold is gone: {hold.name} {shown}"
                del actor.holds[hold.lease]

    def places(self, client):
        queues = {}
        for shown in client.pipeline(*[["SHOW", f"hot-{index}", "WAITERS", WAITERS_MAX] for index in range(HOT)]):
            assert shown["queue"] <= WAITERS_MAX
            queues[shown["name"]] = {row["lease"]: place for place, row in enumerate(shown["holders"] + shown["waiters"])}
        for actor in self.actors:
            for name, queue in queues.items():
                where = [queue.get(digest(lease)) for lease, at in actor.places.items() if at == name]
                assert None not in where, "an acknowledged place is gone"
                assert where == sorted(where), "places have changed their order"
            assert not any(digest(lease) in queue for lease in actor.left for queue in queues.values()), \
                "a place that was given up is back"

    def releases(self, client):
        gone = [["CHECK", *hold] for actor in self.actors for hold in actor.gone]
        assert client.pipeline(*gone) == [0] * len(gone), "an acknowledged release was undone"
        for actor in self.actors:
            actor.gone, actor.left = actor.gone[-100:], actor.left[-100:]

    def settle(self, client):
        """A lease in doubt is ended, and then it is over for certain."""
        doubts = [(actor, lease) for actor in self.actors for lease in actor.doubts]
        assert set(client.pipeline(*[["END", lease] for _, lease in doubts])) <= {0, 1}
        over = [lease for _, lease in doubts] + [lease for actor in self.actors for lease in actor.never]
        assert client.pipeline(*[["RENEW", lease] for lease in over]) == [[-1]] * len(over)
        for actor, lease in doubts:
            actor.left.append(lease)
            actor.doubts.remove(lease)

    def all(self, server):
        with server.connect(3) as client:
            self.tokens()
            self.holds(client)
            self.places(client)
            self.releases(client)
            self.settle(client)
            token = client.cmd("ACQUIRE", "check", f"check-{self.highest}")
            assert token > self.highest, "a token did not grow"
            client.cmd("END", f"check-{self.highest}")
            self.highest = token
            for actor in self.actors:
                actor.highest, actor.tokens, actor.granted_later = token, [], []


def play(server, actors, seconds, end):
    """They act for so long; then comes the end, whatever they are doing."""
    threads = [threading.Thread(target=actor.run, args=(server,)) for actor in actors]
    for thread in threads:
        thread.start()
    time.sleep(seconds)  # the moment of the end is up to chance
    end()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    for actor in actors:
        if actor.failure:
            raise actor.failure


def test_kill_under_load(start):
    """Snapshots are taken all the while, and killed in the middle like everything else."""
    server = start("--snapshot-bytes", "64KiB")
    actors = [Actor(number) for number in range(ACTORS)]
    check, chance, snapshots, first = Check(actors), random.Random(1), set(), server.last_token()
    for kill in range(KILLS):
        play(server, actors, chance.uniform(0.01, 0.15), server.kill9)
        server.restart()
        check.all(server)
        snapshots |= {path.name for path in server.data.glob("snapshot-*")}
    play(server, actors, 0.2, server.stop)
    server.restart()
    check.all(server)
    given = check.highest - first
    assert given > KILLS * 10 and snapshots
    print(f"{KILLS} kills, {given} tokens, {len(snapshots)} snapshots, {sum(len(actor.places) for actor in actors)} "
          f"places and {sum(len(actor.holds) for actor in actors)} holds at the end")


def test_kill_while_it_starts(start, tmp_path):
    """At any moment of its very first start, or of later ones."""
    chance = random.Random(2)
    for turn in range(60 if SOAK else 12):
        data = tmp_path / str(turn // 3)
        before = time.time_ns() // 1000 if turn % 3 == 0 else before
        process = Process(argv_of("--data", data, "--listen", "127.0.0.1:0"), environment(), preexec_fn=die_with_parent)
        time.sleep(chance.uniform(0, 0.06))  # up to chance
        process.popen.kill()
        process.wait()
        if turn % 3 == 2:
            server = start(data=data)
            first = server.cmd("ACQUIRE", "x", "l")
            assert before < first <= time.time_ns() // 1000 + 1 and server.cmd("ACQUIRE", "y", "l") == first + 1
            server.kill9()


def test_a_founding_that_was_interrupted(start, tmp_path):
    """Term 1 is stored before the first entry: after a kill between the two the directory is still new."""
    data, hang, before = tmp_path / "data", tmp_path / "hang", time.time_ns() // 1000
    hang.write_text("2")  # the salt of the first segment is written, the first entry is not
    process = Process(["env", f"LD_PRELOAD={SLOW_DISK}", f"HF_HANG={hang}", *argv_of("--data", data, "--listen", "127.0.0.1:0")],
                      environment(), preexec_fn=die_with_parent)
    eventually(pathlib.Path(f"{hang}.hit").exists, "the first entry is on its way to the disk")
    process.popen.kill()
    process.wait()
    assert (data / "term").exists()
    server = start(data=data)
    assert before < server.cmd("ACQUIRE", "x", "l") <= time.time_ns() // 1000 + 1


def test_who_was_blocked_when_it_was_killed(start):
    """Its connection keeps its lease alive no more: it comes back with the same lease in time, or its place ends."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "holder", "TTL", TTL_MAX)
    with server.connect() as one, server.connect() as two:
        for index, client in enumerate((one, two)):
            client.send("ACQUIRE", "x", f"l{index}", "WAIT", 600000, "TTL", 1000)
            eventually(lambda: server.show("x")["queue"] == index + 1, "a place in the queue")
        server.kill9()
    server.restart()
    with server.connect() as one:
        one.send("ACQUIRE", "x", "l1", "WAIT", 600000, "TTL", 1000)
        eventually(lambda: server.show("x")["queue"] == 1, "the place of the one that did not come back is gone")
        assert server.cmd("RELEASE", "x", "holder") == 1
        assert one.read() == token + 1
