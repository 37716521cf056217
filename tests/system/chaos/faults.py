"""What can go wrong, as a table: FAULTS. Each fault has a weight, for how long it lasts, how it begins and how it ends, and whether it
needs a majority to be left.

    begin(nemesis, one)     does it, and says what in words; None: it cannot be done now, and nothing was
    end(nemesis, one)       takes it back; False: not yet, ask again

`one` is the fault that goes on: what it took is released by itself when it has ended. Legal faults only: what is left can be a majority
(World.possible), except where a fault means to leave none, and then nothing may be granted.
"""
import contextlib
import dataclasses
import shutil
import time
from typing import Callable, Optional

from changes import begin_change, end_change
from helpers import pour
from nodes import Refused, boot_ms

STOPS_SOON, STOPS_MAX = 8, 90  # seconds until a node that stops is asked again, and until that is a finding
FLAPS_EVERY = 0.2  # seconds
SLOW_MS = ["5", "40", "150"]
LATE_MS = 400
CLOCKS = ["+10d", "-10d", "+1h", "-40m"]


@dataclasses.dataclass
class Fault:
    name: str
    weight: float
    lasts: tuple  # seconds, from and to
    begin: Callable
    end: Optional[Callable] = None
    tick: Optional[Callable] = None  # called all the time while it lasts
    needs: str = ""  # what the machine must have


class Going:
    """A fault that goes on. `slots`: what of whom nobody else may touch; `out`: numbers of nodes that cannot be counted on;
    `cuts`: ways that are closed, unless they are `open` just now."""

    def __init__(self, fault):
        self.fault, self.slots, self.out, self.cuts = fault, set(), set(), set()
        self.node, self.nodes, self.change, self.open = None, [], None, False
        self.text, self.begun, self.until = fault.name, time.monotonic(), 0


# ---- processes -------------------------------------------------------------------------------------------------


def take(nemesis, one, nodes, *parts, out=True):
    """These are free, and can be missed: the fault has one of them now. None: no."""
    for node in nodes:
        slots = {(node.number, part) for part in parts}
        if slots & nemesis.taken() or node.number not in nemesis.world.nodes:
            continue
        if out and not (node.number in nemesis.world.out or nemesis.world.possible(out=[node.number])):
            continue
        one.node, one.slots = node, slots
        if out and node.number not in nemesis.world.out:
            one.out = {node.number}
            nemesis.world.out[node.number] = one.fault.name
        return node
    return None


def running(nemesis, leader_first=0.0):
    """In any order; the leader first, with that chance."""
    nodes = [node for node in nemesis.world.nodes.values() if node.running() and not node.paused and not node.away]
    nemesis.chance.shuffle(nodes)
    leader = nemesis.monitor.leader
    if leader in nodes and nemesis.chance.random() < leader_first:
        nodes.remove(leader)
        nodes.insert(0, leader)
    return nodes


def kill(node):
    node.away = True
    node.kill9()


def kill_leader(nemesis, one):
    """The one that leads now: it says so itself, a moment before."""
    leader = nemesis.monitor.leader
    if not leader or leader not in running(nemesis) or not take(nemesis, one, [leader], "process"):
        return None
    if not leader.leads():
        nemesis.release(one)
        return None
    kill(leader)
    nemesis.did["leader kills"] += 1
    return f"{leader}, which leads, is killed"


def kill_any(nemesis, one):
    node = take(nemesis, one, running(nemesis), "process")
    if not node:
        return None
    kill(node)
    return f"{node} is killed"


def start_again(nemesis, one):
    if one.node.number in nemesis.world.nodes:
        nemesis.tell(f"{one.node} is started again")
        one.node.begin()


def pause(nemesis, one):
    node = take(nemesis, one, running(nemesis, 0.6), "process")
    if not node:
        return None
    node.pause()
    return f"{node} is stopped (SIGSTOP)"


def resume(nemesis, one):
    if one.node.running() and one.node.paused:
        nemesis.tell(f"{one.node} goes on")
        one.node.resume()


def stop(nemesis, one):
    node = take(nemesis, one, running(nemesis, 0.3), "process")
    if not node:
        return None
    node.away, one.asked = True, 1
    node.terminate()
    return f"{node} is told to stop"


def stopped(nemesis, one):
    """True when it has ended, as it should. It may wait for an heir: told twice, it does not."""
    if one.node.running():
        waited = time.monotonic() - one.begun
        assert waited < STOPS_MAX, f"{one.node} does not stop"
        if waited > STOPS_SOON and one.asked == 1:
            one.asked = 2
            one.node.terminate()
        return False
    status = one.node.process.wait()
    killed = status == 128 + 15 and (one.asked == 2 or one.node.begins())  # it has almost ended, or hardly begun
    assert status == 0 or killed, f"{one.node} did not end well: {status}, {one.node.logged()[-3:]}"
    return True


def stopped_and_again(nemesis, one):
    if one.node.number in nemesis.world.nodes:
        if not stopped(nemesis, one):
            return False
        start_again(nemesis, one)
    return True


def other_version(nemesis, one):
    """One node after the other, to the next version and back. When nothing else is left there is no way back."""
    world = nemesis.world
    nodes = [node for node in running(nemesis) if node.number in world.members and (not world.final or not node.newer)]
    if not nemesis.may_be_final() and not world.final:
        nodes = [node for node in nodes if node.newer or not world.would_be_final(newer=node)]
    node = take(nemesis, one, nodes, "process")
    if not node:
        return None
    world.final = world.final or (not node.newer and world.would_be_final(newer=node))
    node.newer = not node.newer
    node.away, one.asked = True, 1
    node.terminate()
    return f"{node} is stopped for the {'next' if node.newer else 'older'} version" + (", the last one" * (node.newer and world.final))


def lose_power(nemesis, one):
    """All that run, at once; they start again with what they have."""
    nodes = running(nemesis)
    for node in nodes:
        kill(node)
    for node in nodes:
        node.begin()
    return f"all lose power: {nodes}"


def lose_directory(nemesis, one):
    """A member's: it is not counted on again, whatever it says, until it has been removed."""
    world = nemesis.world
    nodes = [node for node in running(nemesis) if node.number in world.members and node is not world.leaving and not world.empty()]
    node = take(nemesis, one, nodes, "process")
    if not node:
        return None
    kill(node)
    shutil.rmtree(node.data, ignore_errors=True)
    one.out = set()
    world.out[node.number] = "empty"
    if nemesis.chance.random() < 0.7:
        node.begin()
        return f"{node} loses its directory, and is started with nothing"
    return f"{node} loses its directory"


def transfer(nemesis, one):
    leader = nemesis.monitor.leader
    if not leader or leader.paused:
        return None

    def ask():
        with contextlib.suppress(Refused, AssertionError), nemesis.world.session() as session:
            session.ask("CLUSTER", "TRANSFER", patience=3)

    nemesis.errand(ask)
    return "another one is to lead"


def pour_in(nemesis, one):
    count = nemesis.chance.randrange(1, 8)

    def ask():
        with contextlib.suppress(AssertionError), nemesis.world.session() as session:
            for _ in range(count):
                if nemesis.resting:
                    return
                pour(session)

    nemesis.errand(ask)
    return f"{count} large entries"


# ---- the network -----------------------------------------------------------------------------------------------


def both(one, other):
    return {(one, other), (other, one)}


def close(nemesis, one, cuts):
    """Unless too much would be closed."""
    if not cuts or not nemesis.world.possible(cuts=cuts):
        return False
    one.cuts = cuts
    nemesis.apply_cuts()
    return True


def spots(nemesis):
    """Of members, in any order."""
    found = [node.spot for node in nemesis.world.members.values()]
    nemesis.chance.shuffle(found)
    return found


def minority_cuts(nemesis):
    found = spots(nemesis)
    if nemesis.monitor.leader and nemesis.chance.random() < 0.7 and nemesis.monitor.leader.spot in found:
        found.remove(nemesis.monitor.leader.spot)
        found.insert(0, nemesis.monitor.leader.spot)
    count = nemesis.chance.randint(1, max((len(found) - 1) // 2, 1))
    few, rest = found[:count], [node.spot for node in nemesis.world.nodes.values() if node.spot not in found[:count]]
    return few, {pair for here in [*few, "a"] for there in [*rest, "b"] for pair in both(here, there)}


def minority(nemesis, one):
    few, cuts = minority_cuts(nemesis)
    return f"cut off, at places {few} and a: a minority" if close(nemesis, one, cuts) else None


def bridge(nemesis, one):
    """One node sees both sides, which do not see each other."""
    found = spots(nemesis)
    middle, half = found[0], (len(found) + 1) // 2
    cuts = {pair for here in found[1:half] for there in found[half:] for pair in both(here, there)}
    return f"only place {middle} sees both {found[1:half]} and {found[half:]}" if close(nemesis, one, cuts) else None


def ring(nemesis, one):
    found = spots(nemesis)
    cuts = {(here, there) for i, here in enumerate(found) for j, there in enumerate(found)
            if i != j and (i - j) % len(found) not in (1, len(found) - 1)}
    return f"each sees its neighbours only: {found}" if close(nemesis, one, cuts) else None


def one_way(nemesis, one):
    few, cuts = minority_cuts(nemesis)
    mute = nemesis.chance.random() < 0.5
    cuts = {(here, there) for here, there in cuts if ((here in few) == mute) and not {here, there} & {"a", "b"}}
    return f"places {few} are {'mute' if mute else 'deaf'}" if close(nemesis, one, cuts) else None


def flap(nemesis, one):
    """Closed and open, again and again. What is closed at times does not count as open."""
    few, cuts = minority_cuts(nemesis)
    one.open, one.turns = False, 0
    return f"places {few} and a are cut off at times" if close(nemesis, one, cuts) else None


def flap_on(nemesis, one):
    if time.monotonic() > one.begun + FLAPS_EVERY * (one.turns + 1):
        one.turns, one.open = one.turns + 1, not one.open
        nemesis.apply_cuts()


def heal(nemesis, one):
    one.cuts = set()
    nemesis.apply_cuts()
    nemesis.tell(f"healed: {one.text}")


# ---- clocks and disks ------------------------------------------------------------------------------------------


def clock(nemesis, one):
    node = take(nemesis, one, [node for node in running(nemesis) if node.has_clock], "clock", out=False)
    if not node:
        return None
    offset = nemesis.chance.choice(CLOCKS)
    node.set_clock(offset)
    return f"the clock of {node} is set to {offset}"


def clock_back(nemesis, one):
    if nemesis.chance.random() < 0.7:
        one.node.set_clock("+0")


def bad_disk(word):
    def begin(nemesis, one):
        node = take(nemesis, one, running(nemesis, 0.4), "process", "disk")
        if not node:
            return None
        node.ill_at = time.monotonic()
        node.set_disk(word)
        return f"the disk of {node} is {word}"

    return begin


def disk_well(nemesis, one):
    """A node that ended, and said why, is started again; World.check_stopped does so with one that stays and says it."""
    node = one.node
    node.set_disk(None)
    nemesis.world.check_ended(nemesis.tell)
    node.ill_at = time.monotonic()
    if node.number in nemesis.world.nodes and node.away:
        start_again(nemesis, one)


def odd_disk(word):
    """It only takes longer, or more calls."""
    def begin(nemesis, one):
        node = take(nemesis, one, running(nemesis, 0.4), "disk", out=False)
        if not node:
            return None
        text = word + (" " + nemesis.chance.choice(SLOW_MS) if word == "slow" else "")
        node.set_disk(text)
        return f"the disk of {node} is {text}"

    return begin


def odd_disk_well(nemesis, one):
    one.node.set_disk(None)


def all_slow(nemesis, one):
    """For a while much is acknowledged late: whoever ends then shows what was acknowledged too early."""
    one.nodes = [node for node in running(nemesis) if (node.number, "disk") not in nemesis.taken()]
    if not one.nodes:
        return None
    one.slots = {(node.number, "disk") for node in one.nodes}
    for node in one.nodes:
        node.set_disk("slow " + nemesis.chance.choice(SLOW_MS))
    return f"the disks of {one.nodes} are slow"


def all_well(nemesis, one):
    for node in one.nodes:
        node.set_disk(None)


def late_followers(nemesis, one):
    """Only who leads writes in time; then all lose power: what a follower acknowledges before it has it is gone, with a majority."""
    leader = nemesis.monitor.leader
    nodes = [node for node in running(nemesis) if node is not leader and (node.number, "disk") not in nemesis.taken()]
    if not leader or leader not in running(nemesis) or not nodes:
        return None
    one.nodes, one.slots = nodes, {(node.number, "disk") for node in nodes}
    for node in nodes:
        node.set_disk(f"slow {LATE_MS}")
    return f"only {leader} writes in time"


def power_while_late(nemesis, one):
    nodes = running(nemesis)
    for node in nodes:
        kill(node)
    all_well(nemesis, one)
    for node in nodes:
        node.begin()
    nemesis.tell(f"all lose power meanwhile: {nodes}")


# ---- nobody serves ---------------------------------------------------------------------------------------------


def blackout(nemesis, one):
    """No majority is left, on purpose: whatever is asked for from now on is not granted before it ends."""
    world, how = nemesis.world, nemesis.chance.choice(["cut", "paused", "dark"])
    if nemesis.blackout:
        return None
    nodes = [node for node in world.nodes.values() if node.running() and not node.away]
    if how == "cut":
        one.cuts = {pair for here in world.nodes.values() for there in world.nodes.values() if here is not there
                    for pair in both(here.spot, there.spot)}
        nemesis.apply_cuts()
    else:
        one.nodes = [node for node in nodes if not node.paused][how == "paused":]  # all but one
        slots = {(node.number, "process") for node in nodes}
        ending = any(node.away and node.running() for node in world.nodes.values())
        if slots & nemesis.taken() or ending:
            one.nodes = []
            return None
        one.slots = slots
        for node in one.nodes:
            kill(node) if how == "dark" else node.pause()
    one.how, one.since = how, (boot_ms(), time.monotonic())
    nemesis.blackout = one
    return f"no majority is left: {how}"


def blackout_ends(nemesis, one):
    late = nemesis.load.granted_between(one.since, (boot_ms(), time.monotonic()))
    assert not late, f"granted, and there was no majority ({one.how}): {late[:5]}"
    nemesis.blackout = None
    one.cuts = set()
    nemesis.apply_cuts()
    for node in one.nodes:
        if node.number in nemesis.world.nodes:
            node.begin() if one.how == "dark" else node.resume()
    nemesis.tell("a majority is possible again")


FAULTS = [
    Fault("kill-leader", 40, (0.05, 2), kill_leader, start_again),
    Fault("kill", 6, (0.1, 5), kill_any, start_again),
    Fault("pause", 8, (0.3, 4), pause, resume),
    Fault("restart", 5, (0, 1), stop, stopped_and_again),
    Fault("version", 5, (0, 1), other_version, stopped_and_again),
    Fault("power", 3, (0, 0), lose_power),
    Fault("directory", 2.5, (0, 0), lose_directory),
    Fault("transfer", 5, (0, 0), transfer),
    Fault("pour", 3, (0, 0), pour_in),
    Fault("members", 14, (0, 0), begin_change, end_change),
    Fault("minority", 4, (1, 6), minority, heal, needs="net"),
    Fault("bridge", 3, (1, 6), bridge, heal, needs="net"),
    Fault("ring", 3, (1, 6), ring, heal, needs="net"),
    Fault("one-way", 7, (1, 6), one_way, heal, needs="net"),
    Fault("flap", 3, (1, 5), flap, heal, tick=flap_on, needs="net"),
    Fault("clock", 5, (1, 10), clock, clock_back, needs="faketime"),
    Fault("disk-full", 2, (1, 4), bad_disk("full"), disk_well),
    Fault("disk-failing", 2, (0.5, 3), bad_disk("failing"), disk_well),
    Fault("disk-torn", 2, (0.5, 3), bad_disk("torn"), disk_well),
    Fault("disk-unsynced", 2, (0.5, 3), bad_disk("unsynced"), disk_well),
    Fault("disk-short", 2, (1, 6), odd_disk("short"), odd_disk_well),
    Fault("disk-slow", 4, (1, 6), odd_disk("slow"), odd_disk_well),
    Fault("disks-slow", 3, (1, 4), all_slow, all_well),
    Fault("power-late", 3, (0.5, 1.5), late_followers, power_while_late),
    Fault("blackout", 1.5, (1, 5), blackout, blackout_ends),
]
