"""What people use to lock on each store without Holdfast, and Holdfast's library through ctypes for what `holdfast bench` does not measure.

A client takes and gives a name:

    client = make(store)        one for each process; its threads share it, as far as it lets them
    client.take("x"), client.give("x")

`run` lets many of them at it, in processes of few threads: threads of Python take turns. Python itself costs some tens of microseconds for each
request; beside each figure of these there is that of bench-bare (bare.c), which costs next to nothing. Clients that are commands, as flock(1),
are a process for each cycle.
"""
import array
import contextlib
import ctypes
import json
import logging
import math
import multiprocessing
import os
import shutil
import subprocess
import threading
import time

from stores import Missing

THREADS_MAX = 4  # of a process
WAIT_S = 15  # for a lock: nothing here takes so long, unless it is broken
START_S = 30
END_S = 30  # until whoever does not end by itself is killed
RECORDS_MAX = 200000  # of each thread
RETRY_S = 0.01
fork = multiprocessing.get_context("fork")


class RedisPy:
    """redis-py's Lock, with its defaults: who waits asks again every 0.1 s."""
    title, language = "redis-py Lock", "Python"

    def __init__(self, store):
        import redis  # only where it is measured
        self.redis, self.locks = redis.Redis(port=store.port), threading.local()

    def take(self, name):
        self.locks.held = self.redis.lock(name, timeout=30, blocking_timeout=WAIT_S)
        if not self.locks.held.acquire():
            raise OSError("not acquired")

    def give(self, _):
        self.locks.held.release()


class RedisPyOnHoldfastd:
    """holdfastd has no lock class in redis-py: its own commands, by execute_command, as docs/protocol.md has them."""
    title, language = "redis-py, ACQUIRE and RELEASE", "Python"

    def __init__(self, store):
        import redis
        self.redis, self.leases = redis.Redis(port=store.port), threading.local()

    def take(self, name):
        self.leases.held = os.urandom(16).hex()
        if self.redis.execute_command("ACQUIRE", name, self.leases.held, "TTL", 30000, "WAIT", WAIT_S * 1000) is None:
            raise OSError("not acquired")

    def give(self, name):
        self.redis.execute_command("RELEASE", name, self.leases.held)


class Kazoo:
    """One session for the process, as its documentation has it."""
    title, language = "kazoo Lock", "Python"

    def __init__(self, store):
        from kazoo.client import KazooClient
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self.client, self.locks = KazooClient(hosts=store.hosts), threading.local()
        self.client.start(timeout=START_S)

    def take(self, name):
        self.locks.held = self.client.Lock("/kazoo/" + name, "bench")
        if not self.locks.held.acquire(timeout=WAIT_S):
            raise OSError("not acquired")

    def give(self, _):
        self.locks.held.release()


class Psycopg2:
    """A session's advisory lock: a connection for each thread. Nothing is written, and it is gone with the connection."""
    title, language = "psycopg2, advisory lock", "Python"

    def __init__(self, store):
        import psycopg2
        self.connect = lambda: psycopg2.connect(host="127.0.0.1", port=store.port, user="postgres", dbname="postgres")
        self.sessions = threading.local()

    def ask(self, statement, name):
        if not hasattr(self.sessions, "cursor"):
            self.sessions.connection = self.connect()
            self.sessions.connection.autocommit = True
            self.sessions.cursor = self.sessions.connection.cursor()
            self.sessions.cursor.execute("SET lock_timeout = '%ds'" % WAIT_S)
        self.sessions.cursor.execute(statement, (name,))

    def take(self, name):
        self.ask("SELECT pg_advisory_lock(hashtext(%s))", name)

    def give(self, name):
        self.ask("SELECT pg_advisory_unlock(hashtext(%s))", name)


class Command:
    """A process for each cycle: taken and given in one."""
    language = "a process for each"
    words = ()

    def __init__(self, store):
        if not shutil.which(self.words[0]):
            raise Missing("%s is not installed" % self.words[0])
        self.store = store

    def argv(self, name):
        raise NotImplementedError

    def take(self, name):
        done = subprocess.run(self.argv(name), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                              env={**os.environ, "ETCDCTL_API": "3", "ETCD_UNSUPPORTED_ARCH": "arm64"}, timeout=WAIT_S)
        if done.returncode != 0:
            raise OSError("exit status %d" % done.returncode)

    def give(self, _):
        pass


class Flock(Command):
    title, words = "flock(1)", ("flock",)

    def argv(self, name):
        return ["flock", os.path.join(self.store.folder, name.replace("/", "-")), "true"]


class Etcdctl(Command):
    title, words = "etcdctl lock", ("etcdctl",)

    def argv(self, name):
        return ["etcdctl", "--endpoints", self.store.endpoints, "lock", name, "true"]


class Library:
    """Holdfast's library, as a program in C calls it."""
    title, language = "Holdfast's library", "C, called from Python"

    def __init__(self, store):
        library = os.path.join(store.build, "src/client/libholdfast.so")
        os.environ["HOLDFAST_MODULE_DIR"] = os.path.join(store.build, "src/engines")
        self.code, self.handle, self.locks = ctypes.CDLL(library), ctypes.c_void_p(), threading.local()
        for name in ("hf_acquire", "hf_release", "hf_open"):
            getattr(self.code, name).restype = ctypes.c_int
        self.code.hf_error.restype = ctypes.c_char_p
        self.must(self.code.hf_open(store.url.encode(), ctypes.byref(self.handle)))

    def must(self, result):
        if result != 0:
            raise OSError((self.code.hf_error() or b"").decode())

    def take(self, name):
        held = ctypes.c_void_p()
        self.must(self.code.hf_acquire(self.handle, name.encode(), None, ctypes.byref(held)))
        self.locks.held = held

    def give(self, _):
        self.must(self.code.hf_release(self.locks.held))


PYTHON = {"redis-py": RedisPy, "redis-py-holdfastd": RedisPyOnHoldfastd, "kazoo": Kazoo, "psycopg2": Psycopg2, "flock": Flock,
          "etcdctl": Etcdctl, "library": Library}
MODULES = {"redis-py": "redis", "redis-py-holdfastd": "redis", "kazoo": "kazoo", "psycopg2": "psycopg2"}
NODE_TITLE = "redlock of npm"


def title_of(kind):
    return NODE_TITLE if kind == "node-redlock" else PYTHON[kind].title


def why_not(kind, modules):
    """Why a client cannot be measured here, in words; None if it can. Imports it, so that every process need not."""
    if kind == "node-redlock":
        if not shutil.which("node"):
            return "node is not installed"
        return None if os.path.isdir(os.path.join(modules, "redlock")) else "npm's packages redlock and ioredis are not installed"
    if kind in MODULES:
        try:
            __import__(MODULES[kind])
        except ImportError:
            return "Python's module %s is not installed" % MODULES[kind]
    elif PYTHON[kind].__base__ is Command and not shutil.which(PYTHON[kind].words[0]):
        return "%s is not installed" % PYTHON[kind].words[0]
    return None


# ---- one process -----------------------------------------------------------------------------------------------------


def cycles(client, name, until, times, failed, last=None):
    """Until that time. `times` grows by two for each cycle: when it asked, and when it had the lock, which it gives back at once. `last` is
    when anybody had one."""
    while time.monotonic() < until():
        try:
            asked = time.monotonic()
            client.take(name)
            had = time.monotonic()
            if last is not None:
                last.value = had
            client.give(name)
        except Exception as why:  # whatever these libraries throw: it is counted, and said
            failed.append(str(why) or type(why).__name__)
            time.sleep(RETRY_S)
            continue
        if len(times) < 2 * RECORDS_MAX:
            times.extend((asked, had))


def process(kind, store, names, go, until, last, path):
    """Threads that share a client, one for each name."""
    records, failed, threads = [array.array("d") for _ in names], [], []
    try:
        client = PYTHON[kind](store)
        threads = [threading.Thread(target=cycles, args=(client, name, lambda: until.value, record, failed, last), daemon=True)
                   for name, record in zip(names, records)]
    except Exception as why:  # as in cycles()
        failed.append(str(why) or type(why).__name__)
    go.wait(START_S)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until.value + END_S:
        time.sleep(0.01)
    with open(path, "wb") as file:
        for record in records:
            record.tofile(file)
    with open(path + ".failed", "w", encoding="utf-8") as file:
        json.dump([len(failed), failed[-1:]], file)
    os._exit(0)  # without waiting for threads of these libraries


class Crowd:
    """Processes of clients that go on until they are told to end."""

    def __init__(self, kind, store, names, folder, threads_max=THREADS_MAX):
        count = math.ceil(len(names) / threads_max)
        self.until, self.last = fork.Value("d", math.inf, lock=False), fork.Value("d", 0.0, lock=False)
        self.go = fork.Barrier(count + 1)
        self.paths = [os.path.join(folder, "records-%d" % i) for i in range(count)]
        self.processes = [fork.Process(target=process, args=(kind, store, names[i::count], self.go, self.until, self.last, path), daemon=True)
                          for i, path in enumerate(self.paths)]
        for one in self.processes:
            one.start()
        try:
            self.go.wait(START_S)
        except threading.BrokenBarrierError:
            self.kill()
            raise

    def kill(self):
        for one in self.processes:
            if one.is_alive():
                one.kill()
            one.join()

    def end(self):
        """All that was had, as (asked, had) by time; how many failures there were, and the last of them in words."""
        if self.until.value == math.inf:
            self.until.value = time.monotonic()
        for one in self.processes:
            one.join(max(0.0, self.until.value - time.monotonic()) + 2 * WAIT_S)
        self.kill()
        times, failures, words = array.array("d"), 0, ""
        for path in self.paths:
            with contextlib.suppress(OSError):
                with open(path, "rb") as file:
                    times.frombytes(file.read())
                with open(path + ".failed", encoding="utf-8") as file:
                    count, last = json.load(file)
                failures, words = failures + count, last[0] if last else words
                os.unlink(path)
                os.unlink(path + ".failed")
        found = sorted(zip(times[0::2], times[1::2]), key=lambda record: record[1])
        return found, failures, words


def run(kind, store, names, seconds, warm, folder, modules):
    """A client for each name, for so long. As bench-bare prints it."""
    if kind == "node-redlock":
        return run_node(store, names, seconds, warm, modules)
    try:
        crowd = Crowd(kind, store, names, folder)
    except threading.BrokenBarrierError:
        return {"cycles": 0, "cycles_per_s": 0.0, "failures": 1, "last_failure": "the clients do not start"}
    begin = time.monotonic() + warm
    crowd.until.value = begin + seconds
    times, failures, words = crowd.end()
    found = sum_up([record for record in times if begin <= record[1] < begin + seconds], seconds, failures, words)
    if issubclass(PYTHON[kind], Command):
        found.pop("handover_us", None)  # it has given the lock back before we know that it had it
    return found


def sum_up(times, seconds, failures, words):
    took = sorted(had - asked for asked, had in times)
    # From one's giving it back, at once, to the next one's having it, if that one had asked before. Of many names it means nothing.
    turns = sorted(later[1] - earlier[1] for earlier, later in zip(times, times[1:]) if later[0] < earlier[1])
    found = {"cycles": len(times), "cycles_per_s": len(times) / seconds, "failures": failures}
    if took:
        found.update(p50_us=1e6 * took[len(took) // 2], p99_us=1e6 * took[len(took) * 99 // 100])
    if turns:
        found["handover_us"] = 1e6 * turns[len(turns) // 2]
    if words:
        found["last_failure"] = words
    return found


def run_node(store, names, seconds, warm, modules):
    """All in one process, which waits for many at once as programs for node do."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "redlock.js")
    told = json.dumps({"ports": store.ports, "names": names, "seconds": seconds, "warm": warm, "modules": modules})
    said = ""
    try:
        done = subprocess.run(["node", script, told], capture_output=True, text=True, timeout=seconds + warm + END_S, check=False)
        said = done.stderr.strip()[-200:]
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return {"cycles": 0, "cycles_per_s": 0.0, "failures": 1, "last_failure": said or "node did not end"}
    times = sorted(map(tuple, answer["times"]), key=lambda record: record[1])
    return sum_up(times, seconds, answer["failures"], answer["last"])
