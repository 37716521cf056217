"""Several holdfastd that are one cluster, and a client that finds its way among them.

    cluster = Cluster(3)             three nodes that serve, on free ports and in a directory of their own
    cluster.leader()                 the Node that leads; waits until there is one
    cluster[2].kill9()               what Holdfastd can: .kill9(), .stop(), .pause(), .resume(), .restart(), .cmd(...)
    cluster.session()                a Session: follows MOVED, waits out TRYAGAIN, comes again to another node
    session.ask("ACQUIRE", ...)      the answer; or Refused, or Unknown if nobody can say whether it happened

A single try has one of three outcomes: an answer; NotDone, which certainly had and will have no effect; Unknown.
"""
import contextlib
import importlib.util
import itertools
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("holdfastd_conftest", HERE.parent / "holdfastd" / "conftest.py")
holdfastd_conftest = sys.modules.setdefault("holdfastd_conftest", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(holdfastd_conftest)
from holdfastd_conftest import (PATIENCE, PORT_TRIES, SLOW_DISK, SOAK, STOP_MAX, TTL_MAX, Client, Disk, Ended, Holdfastd,  # noqa: E402,F401
                                Process, Refused, argv_of, boot_ms, die_with_parent, environment, free_port, pack,
                                put_first, run_refused)

HURRY = 0.3  # seconds that one is given to hand over before it is asked again
POLL = 0.005  # seconds between two looks at what nothing announces
LOOK_MAX = 2  # seconds that a node may take to say what it is
ANSWER_MAX = 2  # seconds until a node that does not answer is given up
ROUNDS_MAX = 100000  # tries of one request: the deadline comes first
LOG_SHOWN = 200  # lines of a node's log in the report of a test that failed
NO_EFFECT = ("MOVED", "TRYAGAIN", "STOPPED", "NOREPLY")  # says that it was not done, and never will be

living = []  # clusters that are there, for the report of a test that failed


class NotDone(Exception):
    """It certainly had no effect and never will."""


class Unknown(Exception):
    """It may or may not have taken effect, now or later."""


def until(condition, what, patience=PATIENCE):
    """Like eventually, with a shorter step: most of what is awaited here takes some milliseconds."""
    deadline = time.monotonic() + patience
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, "did not happen: " + what
        time.sleep(POLL)


# ---- a node ------------------------------------------------------------------------------------------------------


class Node(Holdfastd):
    """One member. `line`: what it is told of the cluster; `args`: further settings."""

    def __init__(self, number, directory, *args, peer=None, line=None, host="127.0.0.1", wrapper=(), data=None, port=None,
                 prepare=None, password=None, enter=contextlib.nullcontext):
        # Not Holdfastd's: a node serves when others do, too, so that nothing is awaited here.
        self.number, self.host, self.wrapper, self.password, self.enter = number, host, wrapper, password, enter
        self.port, self.peer = port or free_port(), peer or f"{host}:{free_port()}"
        self.line = line or f"{number}={self.peer}"
        self.directory, self.args = directory, list(args)
        self.data = pathlib.Path(data) if data else directory / f"data-{number}"
        self.process, self.log, self.listen = None, [], None
        self.prepare = prepare  # called in the child, before its exec
        self.paused = False

    def __repr__(self):
        return f"node {self.number}"

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def words(self):
        """Its command line, without the program."""
        cluster = ["--cluster", self.line] if self.line else []
        return ["--id", self.number, *cluster, "--listen", self.listen or self.address, "--data", self.data, *self.args]

    def _in_child(self):
        die_with_parent()
        if self.prepare:
            self.prepare()

    def begin(self):
        """Starts it, without waiting for anything."""
        if self.process:
            self.logged()
        self.log.append(f"---- started: {' '.join(map(str, self.words()))}")
        self.paused = False
        self.process = Process([*self.wrapper, *argv_of(*self.words())], environment(), preexec_fn=self._in_child)

    def launch(self):
        """True when it answers, False if it ended instead."""
        self.begin()
        return until(lambda: self.answers() or not self.running(), f"{self} answers") and self.running()

    def await_line(self, word, or_ended="", patience=PATIENCE):
        """The next line of its log with this word in it, or None if it ended."""
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self.process.queues["err"].get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise AssertionError(f"no line with '{word}' from {self}") from None
            if line is None:
                assert or_ended, f"{self} ended without a line with '{word}'"
                return None
            self.log.append(line)
            if word in line:
                return line

    def connect(self, protocol=2, patience=PATIENCE):
        with self.enter():
            return Client((self.host, self.port), protocol, patience, self.password)

    def answers(self):
        return self.status() is not None

    def status(self):
        """What it says of the cluster, as dicts; None if it says nothing."""
        if not self.running() or self.paused:
            return None
        try:
            with self.connect(3, LOOK_MAX) as client:
                return client.cmd("CLUSTER", "STATUS")
        except (OSError, Ended):
            return None

    def members(self):
        """By number, as it sees them."""
        status = self.status()
        return {member["id"]: member for member in status["members"]} if status else {}

    def leads(self):
        status = self.status()
        return status is not None and status["role"] == "leader"

    def pause(self):
        self.paused = True
        super().pause()

    def resume(self):
        super().resume()
        self.paused = False

    def kill9(self):
        if self.process:
            super().kill9()

    def terminate(self):
        """Asks it to end, and does not wait for that."""
        self.process.popen.terminate()

    def ended(self):
        """Waits for its end; the exit status."""
        return self.process.wait()

    def hurry(self):
        """Asks it to end, and soon a second time: then it does not wait until another one leads. That may come when it
        has almost ended, and does not listen to signals any more."""
        self.terminate()
        try:
            return self.process.wait(HURRY)
        except subprocess.TimeoutExpired:
            self.terminate()
        status = self.process.wait(STOP_MAX)
        return 0 if status == 128 + signal.SIGTERM else status


# ---- a cluster ---------------------------------------------------------------------------------------------------


class Cluster:
    """Members founded together. `args`: settings of all of them; `founded`: False starts none of them."""

    node_class = Node

    def __init__(self, count, *args, founded=True, **kwargs):
        base = os.environ.get("HF_TEST_TMP") or "/tmp"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cluster-", dir=base))
        self.nodes, self.args, self.extra = {}, args, kwargs
        living.append(self)
        try:
            self.found(count)
            if founded:
                self.begin()
        except BaseException:
            self.clean()
            raise

    def found(self, count):
        for number in range(1, count + 1):
            self.node(number)
        self.line = ",".join(f"{node.number}={node.peer}" for node in self.nodes.values())
        for node in self.nodes.values():
            node.line = self.line

    def node(self, number, *args, **kwargs):
        """Another one that belongs here, not started."""
        made = self.node_class(number, self.directory, *self.args, *args, **{**self.extra, **kwargs})
        self.nodes[number] = made
        return made

    def begin(self):
        """Starts them all, and returns when one leads and knows where clients find the others."""
        for attempt in range(PORT_TRIES):
            for node in self.nodes.values():
                node.begin()
            if all(until(lambda: node.answers() or not node.running(), f"{node} answers") and node.running()
                   for node in self.nodes.values()):
                self.init()
                return self.settled()
            taken = [node for node in self.nodes.values() if not node.running()]
            assert all("in use" in "".join(node.logged()) for node in taken), f"{taken} did not start: {[node.logged()[-3:] for node in taken]}"
            for node in self.nodes.values():
                node.kill9()
                node.port, node.peer = free_port(), f"{node.host}:{free_port()}"
                shutil.rmtree(node.data, ignore_errors=True)
            self.line = ",".join(f"{node.number}={node.peer}" for node in self.nodes.values())
            for node in self.nodes.values():
                node.line = self.line
        raise AssertionError("no free ports")

    def init(self, node=None):
        """Founds the cluster: all members run, and wait. A node alone does not."""
        node = node or min(self.nodes.values(), key=lambda node: node.number)
        if not node.line:
            return
        with node.connect() as client:
            client.send("CLUSTER", "INIT")
            answer = client.read_any()  # on a busy machine some may hear of it a little later
            assert answer == "OK" or "is founded, but not all of its members know" in str(answer), answer

    def __getitem__(self, number):
        return self.nodes[number]

    def __iter__(self):
        return iter(list(self.nodes.values()))

    def running(self):
        return [node for node in self if node.running() and not node.paused]

    # -- who leads

    def look(self):
        """The one that leads now, or None."""
        seen = [(status["term"], node) for node in self if (status := node.status()) and status["role"] == "leader"]
        return max(seen, key=lambda pair: pair[0])[1] if seen else None

    def leader(self, other_than=None, patience=PATIENCE):
        def found():
            node = self.look()
            return node if node is not other_than else None

        return until(found, f"a leader other than {other_than}" if other_than else "a leader", patience)

    def followers(self):
        leader = self.leader()
        return [node for node in self.running() if node is not leader]

    def settled(self, patience=PATIENCE):
        """The leader, when all that run follow it, have all it has, and each knows where clients find the others."""
        def is_settled():
            leader = self.look()
            if not leader:
                return None
            mine = leader.status()
            if not mine:
                return None
            for node in self.running():
                status = node.status()
                if not status or status["leader"] != leader.number or status["applied"] < mine["commit"]:
                    return None
                if any(not member["client"] for member in status["members"]):
                    return None
            return leader

        return until(is_settled, "all nodes know each other", patience)

    def transfer(self, to=0):
        """Another one leads afterwards; returns it."""
        before = self.leader()
        answer = self.session().ask("CLUSTER", "TRANSFER", *([to.number] if to else []))
        assert answer == "OK", answer
        return self.leader(other_than=before)

    def lead_by(self, node):
        """This one leads afterwards."""
        for _ in range(10):
            if node.leads():
                return
            self.settled()
            with contextlib.suppress(AssertionError):  # another one was faster
                self.ask("CLUSTER", "TRANSFER", node.number)
            self.leader()
        raise AssertionError(f"{node} cannot be made to lead")

    # -- clients

    def session(self, **kwargs):
        return Session([(node.host, node.port) for node in self], **kwargs)

    def ask(self, *words, **kwargs):
        with self.session() as session:
            return session.ask(*words, **kwargs)

    # -- the end

    def shown(self):
        """The logs, for the report of a test that failed."""
        for node in self:
            if node.process:
                yield f"log of {node}", "\n".join(node.logged()[-LOG_SHOWN:])

    def clean(self):
        """Ends all, whatever state they are in. Those that a test has left running must be able to end well."""
        wrong = []
        try:
            left = [node for node in self if node.process and node.running()]
            for node in left:
                node.resume()
            leader = self.look() if left else None
            for node in sorted(left, key=lambda node: node is leader):  # the last one has no heir
                if (status := node.hurry()) != 0:
                    wrong.append((node, status))
        finally:
            for node in self:
                node.kill9()
            if self in living:
                living.remove(self)
            shutil.rmtree(self.directory, ignore_errors=True)
        assert not wrong, f"they did not end well: {wrong}"


# ---- a client that finds its way ---------------------------------------------------------------------------------


class Session:
    """One connection at a time, to one of these addresses. Not for two threads at once. `enter`: a context in which
    connections are made (a network namespace)."""

    def __init__(self, addresses, protocol=2, answer_max=ANSWER_MAX, password=None, enter=contextlib.nullcontext):
        self.addresses, self.protocol, self.answer_max = list(addresses), protocol, answer_max
        self.password, self.enter = password, enter
        self.client, self.at = None, None
        self.next = random.randrange(len(self.addresses))
        self.doubts = 0  # tries whose outcome was unknown

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        if self.client:
            self.client.close()
        self.client = None

    def go_to(self, address):
        if address != self.at or not self.client:
            self.close()
        self.at = address

    def elsewhere(self):
        """The next address, in turn."""
        self.next = (self.next + 1) % len(self.addresses)
        self.go_to(self.addresses[self.next])

    def _connect(self):
        if self.client:
            return
        if self.at is None:
            self.at = self.addresses[self.next]
        try:
            with self.enter():
                self.client = Client(self.at, self.protocol, self.answer_max, self.password)
        except (OSError, Ended) as error:
            self.elsewhere()
            raise NotDone(f"not reached: {error}") from None

    def once(self, *words, answer_max=None):
        """One try: the answer, or Refused (by the lock table), NotDone or Unknown. Afterwards it is where it should
        try next."""
        self._connect()
        self.client.socket.settimeout(answer_max or self.answer_max)
        try:
            self.client.send(*words)
            answer = self.client.read_any()
        except (OSError, Ended) as error:
            self.elsewhere()
            self.close()
            raise Unknown(f"no answer: {error}") from None
        if not isinstance(answer, Refused):
            return answer
        if answer.code == "MOVED":
            host, port = str(answer).split()[2].rsplit(":", 1)
            self.go_to((host, int(port)))
        elif answer.code in NO_EFFECT or answer.code == "UNKNOWN":
            self.elsewhere()
        if answer.code in NO_EFFECT:
            raise NotDone(str(answer))
        if answer.code == "UNKNOWN":
            raise Unknown(str(answer))
        raise answer

    def ask(self, *words, patience=PATIENCE, again=True, answer_max=None):
        """Tries until there is an answer. `again`: also after Unknown, for what may be asked twice."""
        deadline = time.monotonic() + patience
        for _ in range(ROUNDS_MAX):
            try:
                return self.once(*words, answer_max=answer_max)
            except NotDone as reason:
                why = reason
            except Unknown as reason:
                self.doubts += 1
                if not again:
                    raise
                why = reason
            if time.monotonic() >= deadline:
                raise AssertionError(f"{words[0]} got no answer in {patience} s; last: {why}")
            time.sleep(POLL)
        raise AssertionError("too many tries")


numbers = itertools.count(1)


def fresh(word="lease"):
    """What no other test uses."""
    return f"{word}-{os.getpid()}-{next(numbers)}"
