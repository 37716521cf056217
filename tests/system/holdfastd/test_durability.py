"""What was acknowledged is there after every kind of end: kill -9 under load, a clean stop, a full disk, damage."""
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import threading
import time

import pytest
from conftest import (PATIENCE, SLOW_DISK, SOAK, TTL_MAX, Ended, Process, Refused, argv_of, boot_ms, die_with_parent, environment,
                      eventually, run_refused)
from holdfast_cli import Cli

KILLS = 200 if SOAK else 20
ACTORS = 24
OWN, HOT = 6, 4  # names that an actor has to itself, and names that all of them queue for
WAITERS_MAX = 10000  # that SHOW can show
AFTER_DISK = "; make room on its disk, or repair it, then restart this node: it does not recover by itself"
OWNER = "o" * 128  # so that there is more to write, and snapshots come sooner


def digest(lease):
    return hashlib.sha256(lease.encode()).hexdigest()[:16]


# ---- kill -9 under load ------------------------------------------------------------------------------------------


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


# ---- clean ends --------------------------------------------------------------------------------------------------


def test_a_clean_restart_keeps_everything(start):
    server = start()
    with server.connect(3) as client:
        store = client.info("Locks")["store_id"]
        client.cmd("ACQUIRE", "x", "l1", "OWNER", "me", "TTL", 60000, "DELAY", 5)
        client.cmd("ACQUIRE", "x", "l2", "PUSH", "OWNER", "you")
        client.cmd("ACQUIRE", "s", "l1", "SHARED")
        client.cmd("ACQUIRE", "p", "l3", "PERMITS", 3)
        client.cmd("ACQUIRE", b"\xff\r\n", "l3")
        client.cmd("ONCE", "CLAIM", "k", "l4")
        client.cmd("ONCE", "CLAIM", "done", "l5")
        token = client.info("Locks")["last_token"]
        client.cmd("ONCE", "FINISH", "done", "l5", "TOKEN", token, "KEEP", 60000, b"\0result")
        client.cmd("END", "l6")
        client.cmd("ACQUIRE", "b", "l7", "TTL", 60000)
        client.cmd("BREAK", "b")
        floor = client.cmd("FLOOR", int(token) + 1000)
        everything(client)
        began = time.monotonic()
        before = everything(client)
    for end in (server.stop, server.kill9):
        end()
        ran_ms = 1000 * (time.monotonic() - began)
        time.sleep(1)  # nobody can see this pass
        began = time.monotonic()
        server.restart()
        with server.connect(3) as client:
            after = everything(client)
            ran_ms += 1000 * (time.monotonic() - began)
            assert after[0] == before[0]
            assert all(now >= then - ran_ms - 1 for now, then in zip(after[1], before[1])), "its clock stood still meanwhile"
            assert client.info("Locks")["store_id"] == store
            assert client.cmd("ONCE", "READ", "done")[:3] == ["DONE", int(token), "\0result"]
            assert client.cmd("ONCE", "READ", "k")[0] == "RUNNING"
            assert client.error("ACQUIRE", "x", "l6").startswith("ENDED ")
            began = time.monotonic()
            before = everything(client)
    assert server.cmd("ACQUIRE", "new", "new") == floor + 1 == int(token) + 1001


def everything(client):
    """All that LOCKS and SHOW tell, and apart from it how much time is left."""
    _, rows = client.cmd("LOCKS", "COUNT", 1000)
    rows = sorted((client.show(row["name"]) for row in rows), key=lambda row: row["name"])
    left = []
    for row in rows:
        for claim in row["holders"] + row["waiters"]:
            left.append(claim.pop("left_ms"))
            claim.pop("age_ms")
    return rows, left


def test_the_clock_stands_still_while_it_is_down(start):
    server = start()
    server.cmd("ACQUIRE", "x", "l", "TTL", 1000)
    before = boot_ms()
    server.kill9()
    while boot_ms() - before < 1200:
        time.sleep(0.05)
    server.restart()
    assert server.show("x")["holds"] == 1, "late, never early"
    eventually(lambda: server.show("x")["holds"] == 0, "and then it ends")


def test_a_server_that_was_stopped_for_a_while(start):
    """SIGSTOP, as a machine without CPU time would have it. What is renewed in time stays, what is not ends."""
    server = start()
    with server.connect(3) as client:
        client.cmd("ACQUIRE", "x", "l1", "TTL", 1000)
        client.cmd("ACQUIRE", "x", "l2", "PUSH", "TTL", 60000)
        server.pause()
        renewed = boot_ms()
        client.send("RENEW", "l1", "TTL", 1500)
        time.sleep(0.3)
        server.resume()
        assert client.read() == [1500]
        assert client.push()[:3] == ("granted", "x", "l2")
        assert boot_ms() - renewed >= 1500


def test_sigint_is_a_clean_end_too(start):
    server = start()
    server.cmd("ACQUIRE", "x", "l")
    server.process.kill(2)
    assert server.process.wait() == 0
    server.restart()
    assert server.show("x")["holds"] == 1


def restore(server, copy, data):
    """Makes `data` from the copy; what it said."""
    done = subprocess.run(argv_of("--data", data, "--restore-from", copy), env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def next_above(said):
    """What the tokens of a restored store are greater than."""
    return int(re.search(r"the next ones are above (\d+),", said)[1])


@pytest.mark.parametrize("ahead", [False, True])
def test_one_backup_restored_twice_gives_no_token_twice(start, ahead):
    """A disaster, a restore, some work, and another disaster before the next backup. ahead: the backup's tokens are ahead of the
    clock, as after an earlier restore."""
    server = start()
    server.cmd("ACQUIRE", "x", "l")
    if ahead:
        server.cmd("FLOOR", time.time_ns() // 1000 + 10**12)
        server.cmd("ACQUIRE", "y", "l")
    assert server.stop() == 0
    copy, given = server.data, []
    for place in ("first", "second"):
        server.data = server.directory / place
        assert restore(server, copy, server.data)[0] == 0
        server.restart()
        given += [server.cmd("ACQUIRE", f"{place}{number}", "l") for number in range(5)]
        assert server.stop() == 0
    assert given == sorted(set(given))


def test_a_restored_backup_is_another_store(start):
    """An old copy: no token that may have been given since is given again, sequencers of before are refused, and every later
    start says so."""
    server = start()
    store = server.info("Locks")["store_id"]
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    status, _, said = restore(server, server.data, server.directory / "new")
    assert status == 69 and "in use by a server" in said, "not from one that runs"
    assert server.stop() == 0
    status, _, said = restore(server, server.data, server.data)
    assert status == 69 and "is not to be written to" in said, "not into the backup itself"
    other = server.directory / "other"
    other.mkdir()
    (other / "node").write_text("node 1\n")
    status, _, said = restore(server, server.data, other)
    assert status == 69 and "is not empty" in said, "not over what is there"
    status, out, said = restore(server, server.data, server.directory / "new")
    assert (status, said) == (0, "") and f"its last token was {token}" in out and ", and 1 lock is held.\n" in out
    above = next_above(out)
    assert above >= token + 2**40
    server.data = server.directory / "new"
    for attempt in range(3):
        server.restart()
        assert above < server.cmd("ACQUIRE", f"y{attempt}", "l") < above + 10, "once"
        assert server.cmd("CHECK", "x", token) == 1, "what was held is held"
        with server.connect() as client:
            assert client.error("CHECK", f"hf1.{store}.x.1.x").startswith("STORE ")
        assert any("was restored from a backup" in line and f"after token {token}" in line for line in server.logged())
        server.kill9()
        server.log.clear()


def test_a_restore_that_was_killed_is_begun_again(start):
    """At any moment: then nobody can start in that directory, or it is done."""
    server = start()
    token = server.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
    assert server.stop() == 0
    new = server.directory / "new"
    for after_ms in range(0, 60, 4):
        process = subprocess.Popen(argv_of("--data", new, "--restore-from", server.data), env=environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(after_ms / 1000)
        process.kill()
        process.wait()
        if not new.exists():
            continue
        files = set(os.listdir(new))
        if "restoring" in files:
            status, said = run_refused("--data", new, "--listen", f"127.0.0.1:{server.port}")
            assert status == 69 and "did not come to its end" in said, said
            assert restore(server, server.data, new)[0] == 0
        elif "node" not in files:
            assert restore(server, server.data, new)[0] == 0
        before, server.data = server.data, new
        server.restart()
        clock = time.time_ns() // 1000
        assert max(token, clock - 3600 * 10**6) + 2**40 < server.cmd("ACQUIRE", "y", "l") < clock + 2**40 + 10, "once"
        server.kill9()
        server.data = before
        shutil.rmtree(new)


def test_a_restore_says_how_it_is_started(start):
    """The copy was of node 2: started with the flags of before, it would be refused."""
    server = start("--id", "2")
    assert server.stop() == 0
    new = server.directory / "new"
    status, out, said = restore(server, server.data, new)
    assert (status, said) == (0, "")
    assert out.splitlines()[1:] == [
        f"The copy was of node 2, and is node 1 now. Start it with --data {new} --id 1, without --cluster; else as before. To make it a cluster, "
        "start it with --cluster 1=HOST:PORT, and add others, empty, with 'holdfast cluster add'."], out
    assert start("--id", "1", data=new).cmd("PING") == "PONG"


def test_a_restore_names_its_directory(start, tmp_path):
    """The usual one may be a server's."""
    server = start()
    assert server.stop() == 0
    done = subprocess.run(argv_of("--restore-from", server.data), env={**environment(), "XDG_STATE_HOME": tmp_path, "STATE_DIRECTORY": f"{tmp_path}/state"},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "holdfastd: not restored: into which directory? Name a new one with --data DIR\n"
    assert list(tmp_path.iterdir()) == []


def test_a_restore_is_no_setting(tmp_path):
    file = tmp_path / "conf"
    file.write_text("restore-from = /backup\n")
    done = subprocess.run([argv_of()[0], "--config", file], env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode == 78 and "restore-from is no setting: it is done once" in done.stderr, done.stderr


@pytest.mark.parametrize("where", ["flag", "variable", "file"])
def test_the_restored_of_before_is_an_error_that_says_what_to_do(tmp_path, where):
    """Left in a unit, it made another cluster with each start."""
    file, variables, words = tmp_path / "conf", {}, []
    file.write_text("restored = yes\n" if where == "file" else "")
    if where == "variable":
        variables = {"HOLDFASTD_RESTORED": "yes"}
    elif where == "flag":
        words = ["--restored"]
    done = subprocess.run([argv_of()[0], "--config", file, "--data", tmp_path / "data", *words],
                          env={**environment(), **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == (64 if where == "flag" else 78)
    assert "--restore-from" in done.stderr and not (tmp_path / "data").exists()


# ---- what cannot be ----------------------------------------------------------------------------------------------


def test_the_parents_of_the_data_directory(tmp_path):
    """Of the default place they are made, of another they are asked for."""
    argv = [argv_of()[0], "--config", "/dev/null", "--listen", "127.0.0.1:0"]
    done = subprocess.run([*argv, "--data", tmp_path / "no" / "data"], env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 69 and "make it with 'mkdir -p'" in done.stderr and not (tmp_path / "no").exists()
    process = Process(argv, {**environment(), "STATE_DIRECTORY": str(tmp_path / "a" / "b")})
    try:
        while " serving " not in process.line("err"):
            pass
        assert (tmp_path / "a" / "b" / "log-1").exists()
    finally:
        process.kill(15)
        process.wait()


def test_two_on_one_directory(start):
    server = start()
    token = server.cmd("ACQUIRE", "x", "l")
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69
    assert f"{server.data} is in use by process {server.pid}" in line
    assert server.cmd("CHECK", "x", token) == 1
    server.restart()
    assert server.cmd("CHECK", "x", token) == 1


BLOCK = 4096  # of the log: no two appends have one in common


def filled(server, count=100):
    """A log with something in it."""
    with server.connect() as client:
        for index in range(count):
            client.cmd("ACQUIRE", f"n-{index}", f"l-{index}", "TTL", TTL_MAX)
    assert server.stop() == 0


def content(directory):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir() if path.name != "lock"}


@pytest.mark.parametrize("what", ["a byte of an entry", "a byte of the last one", "its beginning", "cut short", "removed"])
def test_a_damaged_segment(start, what):
    """It is refused in words, nothing is made worse, and with the segment put right all is there."""
    server = start()
    filled(server)
    if what != "a byte of the last one":
        server.restart()
        assert server.stop() == 0
    segment = server.data / "log-1"
    whole = segment.read_bytes()
    if what.startswith("a byte"):
        at = 50 * BLOCK + 20
        segment.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
    elif what == "its beginning":
        segment.write_bytes(bytes(64) + whole[64:])
    elif what == "cut short":
        segment.write_bytes(whole[:50 * BLOCK])
    else:
        segment.unlink()
    before = content(server.data)
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69 and " error " in line
    assert ("missing" if what in ("removed", "cut short") else segment.name) in line, "it says where"
    assert content(server.data) == before, "it is left as it is"
    segment.write_bytes(whole)
    server.restart()
    assert server.count("holds") == 100


@pytest.mark.parametrize("what", ["content", "description"])
def test_a_damaged_snapshot(start, what):
    server = start("--snapshot-bytes", "64KiB")
    with server.connect() as client:
        index = 0
        while not list(server.data.glob("snapshot-[0-9]*")):
            client.pipeline(*[["ACQUIRE", f"n-{index + i}", "l", "OWNER", OWNER, "TTL", TTL_MAX] for i in range(100)])
            index += 100
    assert server.stop() == 0
    (damaged,) = server.data.glob("snapshot-*")
    whole = damaged.read_bytes()
    at = 16 if what == "description" else len(whole) // 2
    damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    before = content(server.data)
    status, line = run_refused("--data", server.data, "--listen", "127.0.0.1:0")
    assert status == 69 and " error " in line and "snapshot" in line
    assert content(server.data) == before, "it is left as it is"
    damaged.write_bytes(whole)
    server.restart()
    assert server.count("holds") == index


def test_a_slow_disk_is_told_of(start):
    """Once, for each that was slower than all before; and INFO knows it."""
    server = start(wrapper=["env", f"LD_PRELOAD={SLOW_DISK}", "HF_SLOW_AT=20", "HF_SLOW_MS=600"])
    with server.connect() as client:
        for index in range(30):
            client.cmd("ACQUIRE", f"n-{index}", "l", "TTL", TTL_MAX)
        assert int(re.search(r"ms=(\d+)", server.await_line("the disk was slow"))[1]) >= 600
        info = client.info()
        assert int(info["log_write_usec_max"]) >= 600000 > int(info["log_write_usec_mean"])
        assert int(info["log_writes"]) >= 30 and int(info["log_bytes_written"]) >= 30 * BLOCK


def test_a_system_without_durable_writes(start):
    """pwritev2 with RWF_DSYNC is refused: it writes and syncs instead, says so once, and loses nothing."""
    server = start(wrapper=["env", f"LD_PRELOAD={SLOW_DISK}", "HF_NO_DSYNC=1"])
    with server.connect() as client:
        tokens = [client.cmd("ACQUIRE", f"n-{index}", "l", "TTL", TTL_MAX) for index in range(20)]
    server.kill9()
    assert [" warning " in line for line in server.logged() if "fdatasync" in line] == [True]
    server.restart()
    with server.connect() as client:
        assert client.pipeline(*[["CHECK", f"n-{index}", token] for index, token in enumerate(tokens)]) == [1] * 20


@pytest.mark.parametrize("what", ["a file", "not ours", "missing parent"])
def test_a_data_directory_that_cannot_be_used(tmp_path, what):
    path = tmp_path / "data"
    if what == "a file":
        path.write_text("mine")
    elif what == "not ours":
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        path.mkdir(mode=0o500)
    else:
        path = tmp_path / "no" / "data"
    status, line = run_refused("--data", path, "--listen", "127.0.0.1:0")
    assert status == 69 and str(path) in line


# ---- a full disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs that can be made larger."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "holdfast-test", str(place)], capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill_disk(client):
    """Once-records until the server refuses one. Those that were acknowledged, and the refusal."""
    done, result = {}, "r" * 60000
    for index in range(1000):
        key, lease = f"k-{index}", f"l-{index}"
        try:
            _, token = client.cmd("ONCE", "CLAIM", key, lease, "TTL", TTL_MAX)
            done[key] = ["RUNNING"]
            client.cmd("ONCE", "FINISH", key, lease, "TOKEN", token, "KEEP", TTL_MAX, result)
            done[key] = ["DONE", token, result]
        except Refused as refusal:
            doubt = key if refusal.code == "UNKNOWN" else None
            return done, doubt, refusal
    raise AssertionError("the disk is not full")


def says_what_to_do(server):
    """To whoever looks at the node, and to clients: who waits for the node says what would end that."""
    cli = Cli(f"holdfast://127.0.0.1:{server.port}")
    waiters = [cli.start(word, "y", "--", "true") for word in ("run", "once")]
    for words in (("--health",), ()):
        done = cli("cluster", "status", *words)
        assert done.status != 0 and AFTER_DISK in done.stdout + done.stderr, done
    for waiter in waiters:
        line = waiter.line("err")
        assert line.startswith("holdfast: waiting for 'y': ") and line.endswith(f"{AFTER_DISK}; still trying"), line
    cli.clean()


def test_a_full_disk(start, small_disk):
    server = start(data=small_disk / "data")
    with server.connect() as client, server.connect() as other:
        token = other.cmd("ACQUIRE", "x", "l", "TTL", TTL_MAX)
        other.send("ACQUIRE", "x", "waits", "WAIT", 600000)
        done, doubt, refusal = fill_disk(client)
        assert refusal.code in ("UNKNOWN", "STOPPED")
        text = client.error("ACQUIRE", "y", "l")
        assert text.startswith("STOPPED ") and "No space left on device" in text
        assert client.error("SHOW", "x") == text and client.error("RELEASE", "x", "l") == text
        with pytest.raises(Refused, match="^STOPPED "):
            other.read()
        assert client.cmd("PING") == "PONG" and "No space left" in client.info("Server")["stopped"]
        assert client.info("Raft")["role"] == "stopped"
        line = server.await_line("cannot go on")
        assert "No space left on device" in line and AFTER_DISK in line and text.endswith(AFTER_DISK)
    says_what_to_do(server)
    assert server.stop() == 0
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    server.restart()
    with server.connect() as client:
        assert client.cmd("CHECK", "x", token) == 1
        assert len(done) > 20
        for key, expected in done.items():
            answer = client.cmd("ONCE", "READ", key)
            assert answer[:len(expected)] == expected or key == doubt, "an acknowledgement is gone"
        assert client.cmd("ACQUIRE", "y", "l2") > 0


@pytest.mark.skipif(not SOAK, reason="a disk that takes nothing is given five seconds")
def test_no_room_to_begin(start, small_disk):
    """It says so, and starts when there is room."""
    (small_disk / "ballast").write_bytes(b"x" * (19 << 20))
    process = Process(argv_of("--data", small_disk / "data", "--listen", "127.0.0.1:0"), environment(),
                      preexec_fn=die_with_parent)
    while "cannot go on" not in (line := process.line("err")):
        assert " serving " not in line
    assert "No space left on device" in line
    process.kill(15)
    assert process.wait() == 0
    (small_disk / "ballast").unlink()
    server = start(data=small_disk / "data")
    first = server.last_token()
    assert first > 10**15 - 1, "it is new, and begins at the wall clock"
    assert server.cmd("ACQUIRE", "x", "l") == first + 1
