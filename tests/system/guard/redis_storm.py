"""Many connections that write with stale tokens, while others write with fresh ones, for test_redis_stories.py.

Each key has one fresh writer, whose tokens rise. What it was told to be done is in `acked`, which all processes share;
so a token below that is stale for certain, whatever else is under way. A stale call must be refused, a fresh one not,
and in the end each key must hold what its fresh writer left there.
"""
import multiprocessing
import random

from redis_server import Connection, RedisError, printed

KEYS = 16
FRESH_PROCESSES, STALE_PROCESSES, CONNECTIONS = 2, 4, 8  # connections of each process
PIPELINE = 50
FRESH_MIN = 1000  # of each process, however fast the others are
FIRST = 100  # the first token
WRAPPED = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])"
OPERATIONS = ["enter", "set", "del", "hset", "storm"]


def encode(words):
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Caller:
    """Makes commands, each at random a function or a script."""

    def __init__(self, connection, seed):
        self.random = random.Random(seed)
        self.shas = {name: connection.cmd("SCRIPT", "LOAD", printed("--eval", name)) for name in OPERATIONS[:-1]}
        self.shas["storm"] = connection.cmd("SCRIPT", "LOAD", printed("--eval", "wrap", script=WRAPPED))

    def words(self, operation, number, token, mode, value):
        mark, text, table = f"holdfast.mark:{{{number}}}", f"{{{number}}}:text", f"{{{number}}}:table"
        keys, args = {
            "enter": ([mark], []), "set": ([mark, text], [value]), "del": ([mark, text, table], []),
            "hset": ([mark, table], ["field", value]), "storm": ([mark, text, table], [value, "field", value]),
        }[operation]
        if self.random.random() < 0.5:
            name = "storm" if operation == "storm" else "holdfast_" + operation
            return ["FCALL", name, len(keys), *keys, token, mode, *args]
        return ["EVALSHA", self.shas[operation], len(keys), *keys, token, mode, *args]


def write_stale(address, acked, count, seed, results):
    """Tells how many were refused, and the first few answers that were something else."""
    connections = [Connection(address) for _ in range(CONNECTIONS)]
    caller = Caller(connections[0], seed)
    draw = caller.random
    refused, others = 0, []
    while count > 0:
        sent = []
        for connection in connections:
            batch, tokens = [], []
            for _ in range(min(PIPELINE, count)):
                number = draw.randrange(KEYS)
                seen = acked[number]
                mode = draw.choice(["not-older", "newer"])
                least = 0 if mode == "newer" else 1  # the mark itself is not newer than the mark
                token = seen - draw.choice([least, 1, 2, draw.randrange(1, seen)])
                batch.append(encode(caller.words(draw.choice(OPERATIONS), number, token, mode, "stale")))
                tokens.append((token, seen))
            count -= len(batch)
            connection.socket.sendall(b"".join(batch))
            sent.append((connection, tokens))
        for connection, tokens in sent:
            for token, seen in tokens:
                answer = connection.file.readline()  # all of them answer with one line
                words = answer.split()
                if words[0] == b"-STALE" and int(words[1]) == token and int(words[2]) >= seen:
                    refused += 1
                elif len(others) < 5:
                    others.append((token, seen, answer))
    results.put(("stale", refused, others))


def write_fresh(address, acked, numbers, seed, stop, results):
    """Tells how many were taken, the first few that were not, and what each key must hold now."""
    connections = [Connection(address) for _ in range(CONNECTIONS)]
    caller = Caller(connections[0], seed)
    draw = caller.random
    expected = {number: [None, None] for number in numbers}
    taken, others = 0, []
    while (not stop.is_set() or taken < FRESH_MIN) and len(others) < 5:
        connection, sent = draw.choice(connections), []
        for number in numbers:
            operation, again = draw.choice(OPERATIONS), draw.random() < 0.3
            token = acked[number] + (0 if again else draw.randrange(1, 4))
            value = f"fresh-{token}-{taken}"
            mode = "not-older" if again else draw.choice(["not-older", "newer"])
            connection.send(*caller.words(operation, number, token, mode, value))
            connection.send("GET", f"{{{number}}}:text")  # nobody else may have written since
            connection.send("HGET", f"{{{number}}}:table", "field")
            sent.append((operation, number, token, value))
        for operation, number, token, value in sent:
            try:
                connection.read()
                acked[number] = token
                taken += 1
            except RedisError as error:
                others.append((token, acked[number], str(error)))
                operation = "refused"
            if operation == "del":
                expected[number] = [None, None]
            if operation in ("set", "storm"):
                expected[number][0] = value
            if operation in ("hset", "storm"):
                expected[number][1] = value
            held = [connection.read(), connection.read()]
            if held != expected[number]:
                others.append((number, held, expected[number][:]))
    results.put(("fresh", taken, others, expected))


def differences(redis, expected, acked):
    """Between what the fresh writers left and what Redis has."""
    assert sorted(expected) == list(range(KEYS))
    for number, (text, field) in expected.items():
        found = (redis.cmd("GET", f"{{{number}}}:text"), redis.cmd("HGET", f"{{{number}}}:table", "field"),
                 int(redis.cmd("GET", f"holdfast.mark:{{{number}}}")))
        if found != (text, field, acked[number]):
            yield number, found, (text, field, acked[number])


def storm(redis, count, seed):
    """Returns (how many stale calls were refused, how many fresh ones taken, every answer that should not be)."""
    redis.cmd("FUNCTION", "LOAD", "REPLACE", printed())
    redis.cmd("FUNCTION", "LOAD", "REPLACE", printed("--wrap", "storm", script=WRAPPED))
    for number in range(KEYS):
        redis.cmd("FCALL", "holdfast_enter", 1, f"holdfast.mark:{{{number}}}", FIRST, "newer")
    fork = multiprocessing.get_context("fork")
    acked, stop, results = fork.Array("Q", [FIRST] * KEYS, lock=False), fork.Event(), fork.Queue()
    shares = [len(range(i, count, STALE_PROCESSES)) for i in range(STALE_PROCESSES)]
    writers = [fork.Process(target=write_stale, daemon=True, args=(redis.socket, acked, share, f"{seed} stale {i}", results))
               for i, share in enumerate(shares)]
    writers += [fork.Process(target=write_fresh, daemon=True,
                             args=(redis.socket, acked, range(i, KEYS, FRESH_PROCESSES), f"{seed} fresh {i}", stop, results))
                for i in range(FRESH_PROCESSES)]
    told = []
    try:
        for process in writers:
            process.start()
        while len(told) < len(writers):
            told.append(results.get(timeout=60 + count / 1000))
            if sum(words[0] == "stale" for words in told) == STALE_PROCESSES:
                stop.set()
    finally:
        for process in writers:
            if len(told) < len(writers):
                process.kill()
            process.join()
    wrong = [other for words in told for other in words[2]]
    expected = {number: held for words in told if words[0] == "fresh" for number, held in words[3].items()}
    wrong += differences(redis, expected, acked)
    return (*(sum(words[1] for words in told if words[0] == kind) for kind in ("stale", "fresh")), wrong)
