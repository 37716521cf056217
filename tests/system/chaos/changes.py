"""Changes of members: one is added, or removed, while everything else goes wrong. A thread asks until it has come about, however long that
takes; when everything has healed it must."""
import shutil
import threading
import time

from nodes import NotDone, Refused, Unknown

ASK_MAX = 12  # seconds of one try: `CLUSTER ADD` waits 10 s for the new one
AGAIN = 0.1  # seconds until the next
IN_VAIN = "has the data of a member: start it with an empty directory"
LOST = "has come back without its data"


class Change(threading.Thread):
    def __init__(self, nemesis, verb, node):
        super().__init__(daemon=True)
        self.world, self.monitor, self.verb, self.node = nemesis.world, nemesis.monitor, verb, node
        self.over, self.done, self.failure, self.last = threading.Event(), False, None, "not asked yet"
        self.wants_empty, self.lost = threading.Event(), False  # it has to begin anew; it did, and was a member by then

    def run(self):
        try:
            with self.world.session(answer_max=ASK_MAX) as session:
                while not self.over.wait(AGAIN) and not self.done:
                    self.done = self.add(session) if self.verb == "ADD" else self.remove(session)
        except BaseException as failure:  # in a thread: the run has to hear of it
            self.failure = failure

    def ask(self, session, *words):
        """True: it was done."""
        try:
            self.last = session.once("CLUSTER", *words)
        except (NotDone, Unknown, Refused) as reason:
            self.last = reason
        return self.last == "OK"

    def seen(self, condition):
        """In two looks that began after this one, of who leads."""
        for _ in range(2):
            looks = self.monitor.looks
            while self.monitor.looks < looks + 2 and not self.over.wait(0.05):
                pass
            if not self.monitor.view or not condition(self.monitor.view):
                return False
        return True

    def add(self, session):
        if self.ask(session, "ADD", self.node.number, self.node.peer):
            return self.seen(lambda view: view.get(self.node.number))
        if IN_VAIN in str(self.last) and not self.wants_empty.is_set():  # it was told, and then the leader died: it begins anew
            if self.seen(lambda view: self.node.number not in view):
                self.wants_empty.set()
        self.lost = LOST in str(self.last)
        return self.lost

    def remove(self, session):
        if self.monitor.leader is self.node:
            self.ask(session, "TRANSFER")
            time.sleep(AGAIN)
            return False
        done = self.ask(session, "REMOVE", self.node.number)
        return (done or isinstance(self.last, Refused)) and self.seen(lambda view: self.node.number not in view)

    def end(self):
        self.over.set()
        self.join(2 * ASK_MAX)


def choose(nemesis):
    """("ADD", None) or ("REMOVE", whom); None: nothing can be changed now."""
    world, chance, count = nemesis.world, nemesis.chance, len(nemesis.world.members)
    empty = world.empty()
    if empty and count > nemesis.members_min:
        return "REMOVE", empty[0]
    if empty or count <= nemesis.members_min or (count < nemesis.members_max and chance.random() < 0.5):
        return "ADD", None
    nodes = [node for node in world.members.values() if nemesis.may_be_final() or world.final or not world.would_be_final(leaving=node)]
    return ("REMOVE", chance.choice(nodes)) if nodes else None


def begin_change(nemesis, one):
    world = nemesis.world
    chosen = choose(nemesis) if not world.joining and not world.leaving else None
    if not chosen or nemesis.blackout:
        return None
    verb, node = chosen
    if verb == "ADD":
        node = prepare(nemesis)
        if not node:
            return None
    else:
        if not world.possible(voters=set(world.members) - {node.number}):
            return None
        world.leaving = node
        world.final = world.final or world.would_be_final()
    one.node, one.change = node, Change(nemesis, verb, node)
    one.change.start()
    return f"{node} is to be {'added' if verb == 'ADD' else 'removed'}"


def prepare(nemesis):
    """A new node, empty, that waits to be added; None: there would be no majority with it."""
    world = nemesis.world
    if not world.room() and world.gone:
        world.bury(world.gone[0])
    if not world.room() or not world.possible():
        return None
    node = world.node_there(world.next_number(), "--join")
    node.newer = world.final or nemesis.chance.random() < 0.5
    world.joining = node
    if not world.possible():
        world.joining = None
        del world.nodes[node.number]
        world.everybody.remove(node)
        return None
    node.begin()
    return node


def end_change(nemesis, one):
    """False: not yet."""
    world, change, node = nemesis.world, one.change, one.node
    if change.failure:
        raise change.failure
    if change.wants_empty.is_set():
        empty(nemesis, change)
    if not change.done:
        return False
    change.join()
    if change.verb == "ADD":
        world.members[node.number], world.joining = node, None
        nemesis.did["added"] += 1
        if change.lost:
            world.out[node.number] = "empty"
    else:
        world.leaving = None
        del world.members[node.number], world.nodes[node.number]
        world.out.pop(node.number, None)
        world.gone.append(node)
        nemesis.did["removed"] += 1
        if nemesis.chance.random() < 0.5:
            world.bury(node)
    nemesis.tell(f"{node} {'is added, and votes' if change.verb == 'ADD' else 'is removed'}")
    return True


def empty(nemesis, change):
    """As the leader says that one should. Whatever else happens to that node just now comes first."""
    if (change.node.number, "process") in nemesis.taken():
        return
    nemesis.tell(f"{change.node} begins anew: {change.last}")
    change.node.away = True
    change.node.kill9()
    shutil.rmtree(change.node.data, ignore_errors=True)
    change.node.begin()
    nemesis.did["begun anew"] += 1
    change.wants_empty.clear()
