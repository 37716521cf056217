"""Members are added, removed and restarted at random while clients work, with snapshots all the time: nodes are killed, stopped
and paused, are away during changes and come back to the log or to a snapshot, are replaced, lose their disks and come back empty
under their old ids, before they are removed or after, all lose power at once, and leaders change or die in the middle of it.
After each change all nodes that have applied the same entries agree on the table and on the members. make soak-cluster-members
runs it in full; HF_SEED=N chooses as a run did that printed N."""
import collections
import contextlib
import os
import random
import shutil
import time

from helpers import pour
from load import Load
from nodes import LOOK_MAX, PATIENCE, POLL, SOAK, Ended, Refused, Session, until

CHANGES = 200 if SOAK else 18
SEED = int(os.environ.get("HF_SEED") or (random.randrange(1, 10**6) if SOAK else 7))
FOUNDERS, MEMBERS_MIN, MEMBERS_MAX = 3, 3, 7
POUR_MAX = 12  # large entries between two changes
SETTINGS = ["--snapshot-bytes", "64KiB"]  # the least that there is


class Tables:
    """What every node ever said of its table: it is the same for the same index, whoever says it, and when."""

    def __init__(self):
        self.seen = {}

    def look(self, node):
        """The node's digest, or None if it does not answer."""
        try:
            with node.connect(3, LOOK_MAX) as client:
                digest = client.cmd("CLUSTER", "DIGEST")
        except (OSError, Ended):
            return None
        except Refused as refused:  # it was asked just now, and is another time
            if not str(refused).startswith("TRYAGAIN"):
                raise
            return None
        assert digest["broken"] == "", f"the table of {node}: {digest['broken']}"
        other, table = self.seen.setdefault(digest["applied"], (node, digest["table"]))
        assert table == digest["table"], f"{node} has another table at {digest['applied']} than {other} had"
        return digest


class Campaign:
    """`members`: by number, also those that are away; `away`: killed or stopped; `empty`: lost their disks, and run again; `gone`:
    removed, and may still run."""

    def __init__(self, cluster, chance):
        self.cluster, self.chance, self.tables = cluster, chance, Tables()
        self.members = dict(cluster.nodes)
        self.away, self.paused, self.empty, self.gone = {}, {}, {}, []
        self.next_number = FOUNDERS + 1
        # Where clients look for the cluster: a new member takes the place of one that is none any more.
        self.listed = ([*self.members] * MEMBERS_MAX)[:MEMBERS_MAX]
        self.addresses = [(cluster[number].host, cluster[number].port) for number in self.listed]
        self.did, self.first_term = collections.Counter(), cluster.leader().status()["term"]
        self.story = []

    def tell(self, text):
        self.story.append(text)

    def session(self, **kwargs):
        session = Session(self.addresses, **kwargs)
        session.addresses = self.addresses  # as they change
        return session

    def ask(self, *words):
        with self.session() as session:
            return session.ask(*words)

    # -- who is there

    def up(self):
        return [node for number, node in self.members.items() if number not in {**self.away, **self.paused, **self.empty}]

    def leader(self):
        return self.cluster.leader()

    def may_miss(self, members):
        """How many of so many members can be away."""
        return (members - 1) // 2 - len(self.away) - len(self.paused) - len(self.empty)

    def count_snapshots(self, node):
        """Before its end: they are counted from its start."""
        with contextlib.suppress(OSError, Ended):
            info = node.info("Raft")
            self.did["snapshots"] += int(info["snapshots"])
            self.did["installed"] += int(info["snapshots_installed"])

    # -- what happens to them

    def leave(self, node):
        """One goes away, and stays away for a while."""
        how = self.chance.choice(["killed", "stopped", "paused"])
        self.tell(f"{node} is {how}")
        self.did[how] += 1
        if how == "paused":
            node.pause()
            self.paused[node.number] = node
            return
        self.count_snapshots(node)
        if how == "killed":
            node.kill9()
        else:
            node.terminate()
            assert node.ended() == 0, f"{node} did not end well"
        self.away[node.number] = node

    def come_back(self, number):
        if node := self.paused.pop(number, None):
            self.tell(f"{node} wakes up")
            node.resume()
        else:
            node = self.away.pop(number)
            self.tell(f"{node} is started again")
            assert node.launch(), f"{node} does not start again"
            self.did["restarts"] += 1

    def restart(self, node):
        """Killed, and there again at once."""
        self.tell(f"{node} is restarted")
        self.count_snapshots(node)
        node.kill9()
        assert node.launch(), f"{node} does not start again"
        self.did["killed"] += 1
        self.did["restarts"] += 1

    def empty_out(self, node):
        """It is started as ever, with nothing of what it had."""
        node.kill9()
        shutil.rmtree(node.data)
        assert node.launch(), f"{node} does not start"

    def lose_disk(self, node):
        """A member's, which nobody must count from now on."""
        self.tell(f"{node} loses its disk")
        self.count_snapshots(node)
        self.empty_out(node)
        self.empty[node.number] = node
        self.did["emptied"] += 1

    def lose_power(self):
        """All at once; those that are up come back, with what they have on disk."""
        nodes = self.up()
        self.tell("all lose power")
        for node in nodes:
            node.kill9()
        for node in nodes:
            node.begin()
        for node in nodes:
            until(node.answers, f"{node} answers")
        self.did["power"] += 1
        self.did["killed"] += len(nodes)
        self.did["restarts"] += len(nodes)

    def transfer(self):
        with contextlib.suppress(OSError, Ended, Refused):  # there may be nobody who could
            assert self.leader().cmd("CLUSTER", "TRANSFER") == "OK"
            self.tell("another one leads")
            self.did["transfers"] += 1

    def pour(self):
        count = self.chance.randrange(1, POUR_MAX)
        self.tell(f"{count} large entries")
        with self.session() as session:
            for _ in range(count):
                pour(session)

    def disturb(self):
        """Something of that, or nothing."""
        absent = [*self.away, *self.paused]
        choices = [self.transfer, self.pour, self.pour, self.lose_power, lambda: self.restart(self.chance.choice(self.up()))]
        if self.may_miss(len(self.members)) > 0:
            choices += [lambda: self.leave(self.chance.choice(self.up()))] * 3
            choices += [lambda: self.lose_disk(self.chance.choice(self.up()))]
        if absent:
            choices += [lambda: self.come_back(self.chance.choice(absent))] * 3
        self.chance.choice(choices)()

    # -- changes

    def change(self):
        grow = self.chance.random() < 0.5
        if self.empty and len(self.members) > MEMBERS_MIN:
            self.remove()
        elif self.empty or self.chance.random() < 0.2:
            self.replace()
        elif grow and len(self.members) < MEMBERS_MAX or len(self.members) == MEMBERS_MIN:
            self.add()
        else:
            self.remove()

    def make_room(self, members):
        """With so many members there is a majority of those that are up."""
        while self.may_miss(members) < 0 and (absent := [*self.away, *self.paused]):
            self.come_back(self.chance.choice(absent))

    def asked(self, *words):
        """Done when this returns, whoever was leading. The leader may die while it does it."""
        leader = self.leader()
        if self.chance.random() < 0.1:
            with leader.connect() as client:
                client.send("CLUSTER", *words)
                time.sleep(self.chance.uniform(0, 0.2))
                self.lose_power()
            leader = self.leader()
        dies = leader.number in self.members and self.may_miss(len(self.members) - 1) > 0 and self.chance.random() < 0.25
        if dies:
            self.tell(f"{leader} dies while it does this")
            self.count_snapshots(leader)
            with leader.connect() as client:
                client.send("CLUSTER", *words)
                time.sleep(self.chance.uniform(0, 0.01))
                leader.kill9()
            self.did["killed"] += 1
            self.away[leader.number] = leader
        with contextlib.suppress(Refused):
            with self.session() as session:
                return session.ask("CLUSTER", *words)

    def replace(self):
        """Removed, and at once there is another; perhaps with some away who do not know it yet."""
        self.remove()
        self.clean_up(True)
        self.add()
        self.did["replaced"] += 1

    def add(self):
        self.make_room(len(self.members) + 1)
        node = self.cluster.node(self.next_number, "--join")
        self.next_number += 1
        self.tell(f"{node} is added")
        assert node.launch()
        self.asked("ADD", node.number, node.peer)
        self.list(node)
        self.members[node.number] = node
        self.did["added"] += 1
        if self.chance.random() < 0.3:
            self.restart(node)  # it has perhaps not learnt everything
        until(lambda: self.leader().members().get(node.number, {}).get("votes"), f"{node} votes")

    def list(self, node):
        place = next(place for place, number in enumerate(self.listed)
                     if number not in self.members or number in self.listed[:place])
        self.listed[place] = node.number
        self.addresses[place] = (node.host, node.port)

    def remove(self):
        self.make_room(len(self.members) - 1)
        node = self.chance.choice(list((self.empty or self.members).values()))
        if node is self.leader():
            self.transfer()
        self.tell(f"{node} is removed")
        deadline = time.monotonic() + PATIENCE
        while node.number in self.leader().members():
            assert time.monotonic() < deadline, f"{node} cannot be removed"
            if node is self.leader():
                self.transfer()
            else:
                self.asked("REMOVE", node.number)
        self.forget(node)
        self.did["removed"] += 1
        return node

    def forget(self, node):
        """It may still run for a while, and must not disturb the others."""
        for group in (self.members, self.away, self.paused, self.empty):
            group.pop(node.number, None)
        del self.cluster.nodes[node.number]
        self.gone.append(node)
        if self.chance.random() < 0.3 and node.running() and not node.paused:
            self.tell(f"{node} loses its disk afterwards")
            self.empty_out(node)
            self.did["emptied"] += 1

    def clean_up(self, all_of_them=False):
        while self.gone and (all_of_them or len(self.gone) > 1):
            node = self.gone.pop(0)
            if node.running():
                if node.paused:
                    node.resume()
                self.count_snapshots(node)
            node.kill9()
            shutil.rmtree(node.data, ignore_errors=True)

    # -- what must be true

    def agree(self):
        """All that are up have applied the same, and are the same. Nobody works meanwhile."""
        deadline = time.monotonic() + 2 * PATIENCE
        while True:
            leader = self.leader()
            commit = leader.status()["commit"]
            digests = {node: self.tables.look(node) for node in self.up()}
            if all(digest and digest["applied"] >= commit for digest in digests.values()) and \
               len({digest["applied"] for digest in digests.values()}) == 1:
                break
            assert time.monotonic() < deadline, f"they do not catch up to {commit} of {leader}: {digests}"
            time.sleep(POLL)
        same = {(digest["members"], digest["members_index"]) for digest in digests.values()}
        assert len(same) == 1, f"they do not agree on the members: {digests}"
        for node in digests:
            seen = {number: bool(member["votes"]) for number, member in node.members().items()}
            assert seen == dict.fromkeys(self.members, True), f"{node} knows {seen}, the members are {sorted(self.members)}"
        self.did["comparisons"] += len(digests)

    def figures(self):
        for node in self.cluster:
            if node.running() and not node.paused:
                self.count_snapshots(node)
        return (f"seed {SEED}: {self.did['added']} added, {self.did['removed']} removed, {self.did['replaced']} of them replaced, {self.did['emptied']} came back empty, {self.did['power']} times without power, {self.did['restarts']} restarts, "
                f"{self.did['killed']} killed, {self.did['stopped']} stopped, {self.did['paused']} paused, "
                f"{self.did['transfers']} transfers, {self.leader().status()['term'] - self.first_term} elections, "
                f"{self.did['snapshots']} snapshots taken and {self.did['installed']} installed, "
                f"{self.did['comparisons']} tables compared")


def test_members_come_and_go(start, figures):
    cluster = start(FOUNDERS, *SETTINGS)
    campaign = Campaign(cluster, random.Random(SEED))
    load = Load(cluster, seed=SEED, sessions=[campaign.session])
    try:
        with load:
            for _ in range(CHANGES):
                for _ in range(campaign.chance.randrange(3)):
                    campaign.disturb()
                campaign.change()
                load.pause()
                campaign.agree()
                load.resume()
                campaign.clean_up()
            for number in [*campaign.away, *campaign.paused]:
                campaign.come_back(number)
            load.pause()
            campaign.agree()
        load.verdict()
        figures(f"{campaign.figures()}; {load.figures()}")
    except BaseException:
        print(f"HF_SEED={SEED} was the seed; what happened:", *campaign.story, sep="\n    ")
        raise
    finally:
        campaign.clean_up(True)
