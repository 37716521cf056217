"""Other people's clients, as they come: redis-cli, redis-py, ioredis. Each drives every command of one table, one by
one and, where it can, all at once, and gets the same answers."""
import contextlib
import itertools
import json
import os
import re
import pathlib
import pty
import select
import shutil
import subprocess

import pytest
from conftest import PATIENCE, Process, die_with_parent, environment, eventually

try:
    import redis
except ImportError:
    redis = None
CLI = shutil.which("redis-cli")
NODE = pathlib.Path(__file__).parent / "node"
ANY = object()  # some answer, not an error


class Error(str):
    """An error whose text begins like this."""


class Map(dict):
    """In RESP2 a flat array."""


class Token(int):
    """The n-th of a store."""


HOLDER = Map(state="holds", mode="shared", token=Token(6), owner="me", lease=ANY, age_ms=ANY, left_ms=ANY)
LOCK = Map(name="s", permits=0, holds=1, queue=0, holders=[HOLDER])

# On a server that is new, whose tokens begin at any number: Token(1) is its first. What depends on the time, or on the
# client, is ANY.
TABLE = [
    (["PING"], "PONG"),
    (["PING", "a b"], "a b"),
    (["ACQUIRE", "x", "l1"], Token(1)),
    (["acquire", "x", "l1", "ttl", "60000"], Token(1)),
    (["ACQUIRE", "x", "l2"], None),
    (["ACQUIRE", "x", "l2", "WAIT", "100"], None),
    (["CHECK", "x", Token(1)], 1),
    (["CHECK", "x", Token(2)], 0),
    (["CHECK", "x", Token(1), "MODE"], "exclusive"),
    (["CHECK", "x", Token(2), "mode"], None),
    (["RENEW", "l1", "nobody"], [60000, -1]),
    (["RENEW", "l1", "TTL", "70000"], [70000]),
    (["RELEASE", "x", "l1", "TOKEN", Token(2)], 0),
    (["RELEASE", "x", "l1", "TOKEN", Token(1)], 1),
    (["FLOOR", Token(5)], Token(5)),
    (["ACQUIRE", "s", "l3", "SHARED", "OWNER", "me", "DELAY", "10"], Token(6)),
    (["SHOW", "s"], Map(LOCK, waiters=[])),
    (["SHOW", "s", "WAITERS", "3"], Map(LOCK, waiters=[])),
    (["LOCKS"], [0, [LOCK]]),
    (["LOCKS", "MATCH", "t*", "COUNT", "10", "CURSOR", "0"], [0, []]),
    (["ACQUIRE", "s", "l3"], Error("MODE this lease has the name in another mode")),
    (["ACQUIRE", "p", "l3", "PERMITS", "2"], Token(7)),
    (["ACQUIRE", "s"], Error("ERR wrong number of arguments for 'ACQUIRE'")),
    (["ACQUIRE", "s", "l4", "TTL", "1"], Error("ERR TTL is a number from 100")),
    (["BREAK", "nobody"], 0),
    (["BREAK", "p", "NOW"], 1),
    (["ACQUIRE", "p", "l3"], Error("ENDED this lease is over")),
    (["END", "l3"], 0),
    (["ONCE", "CLAIM", "k", "l5"], ["RUN", Token(8)]),
    (["ONCE", "READ", "k"], ["RUNNING", Token(8), "", ANY, ANY]),
    (["ONCE", "CLAIM", "k", "l6", "NOHEIR", "KEEP", "5"], None),
    (["ONCE", "FINISH", "k", "l5", "TOKEN", Token(7), "KEEP", "60000", "r"], Error("STALE this lease")),
    (["ONCE", "FINISH", "k", "l5", "TOKEN", Token(8), "KEEP", "60000", "re sult"], 1),
    (["ONCE", "CLAIM", "k", "l6"], ["DONE", Token(8), "re sult"]),
    (["ONCE", "READ", "k"], ["DONE", Token(8), "re sult", ANY]),
    (["ONCE", "RELEASE", "k", "l5"], 0),
    (["CHECK", "hf1.00.x.1.x"], Error("STORE this sequencer is of another store")),
    (["UNOBSERVE", "x"], 0),
    (["CLIENT", "SETNAME", "somebody"], "OK"),
    (["CLIENT", "GETNAME"], "somebody"),
    (["CLIENT", "SETINFO", "LIB-NAME", "x"], "OK"),
    (["CLIENT", "ID"], ANY),
    (["CLIENT", "INFO"], ANY),
    (["SELECT", "0"], "OK"),
    (["SELECT", "1"], Error("ERR there is only database 0")),
    (["AUTH", "x"], Error("ERR AUTH: this server has no password")),
    (["CLUSTER", "MYID"], "1"),
    (["CLUSTER", "STATUS"], Map(role="leader", id=1, leader=1, term=ANY, commit=ANY, applied=ANY, cluster=ANY, trouble="", advice="", members=ANY)),
    (["CLUSTER", "DIGEST"], Map(applied=ANY, table=ANY, members=ANY, members_index=ANY, broken="")),
    (["CLUSTER", "SLOTS"], [[0, 16383, ["127.0.0.1", ANY, "1"]]]),
    (["COMMAND", "COUNT"], ANY),
    (["COMMAND", "LIST"], ANY),
    (["COMMAND", "INFO", "acquire"], [["acquire", -3, ANY, 1, 1, 1, ANY, [], [], []]]),
    (["COMMAND", "DOCS", "quit"], Map(quit=Map(summary=ANY, since=ANY, group=ANY))),
    (["COMMAND"], ANY),
    (["INFO"], ANY),
    (["INFO", "locks"], ANY),
    (["HELLO"], Map(server="holdfast", version=ANY, proto=ANY, id=ANY, mode="standalone", role="master", cluster=ANY, node=ANY, alone=1, modules=[])),
    (["NOPE", "x"], Error("ERR unknown command 'NOPE'")),
]
COMMANDS = [words for words, _ in TABLE]


def commands_of(server):
    """The same, with the tokens of this server, which is new."""
    last = server.last_token()
    return [[str(last + word) if isinstance(word, Token) else word for word in words] for words in COMMANDS], last


def flat(value):
    """Maps as RESP2 has them."""
    if isinstance(value, dict):
        return [item for pair in value.items() for item in (pair[0], flat(pair[1]))]
    return [flat(item) for item in value] if isinstance(value, list) else value


def fits(value, expected, last):
    if expected is ANY:
        return value is not None and not isinstance(value, Error)
    if isinstance(expected, Token):
        return type(value) is int and value == last + expected
    if isinstance(expected, Error):
        return isinstance(value, Error) and value.startswith(expected)
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(fits, value, expected, itertools.repeat(last)))
    return type(value) is type(expected) and value == expected


def check_table(answers, last, resp3=False):
    """last: the last token before them. resp3: maps must come as such."""
    assert len(answers) == len(TABLE)
    for (words, expected), value in zip(TABLE, answers):
        assert not (resp3 and isinstance(expected, Map)) or isinstance(value, dict), words
        assert fits(flat(value), flat(expected), last), f"{words}: {value!r}"


def test_the_table_has_every_command(start):
    """But those that end a connection or change what it is for: they have tests of their own."""
    every = {name.upper() for name in start().cmd("COMMAND", "LIST")}
    assert every - {words[0].upper() for words in COMMANDS} == {"OBSERVE", "SUBSCRIBE", "UNSUBSCRIBE", "QUIT"}


# ---- redis-cli ---------------------------------------------------------------------------------------------------


needs_cli = pytest.mark.skipif(not CLI, reason="redis-cli is not installed")


def run_cli(server, *args, **kwargs):
    return subprocess.run([CLI, "-p", str(server.port), *args], capture_output=True, text=True, timeout=PATIENCE, **kwargs)


@needs_cli
@pytest.mark.parametrize("protocol", ["-2", "-3"])
def test_redis_cli(start, protocol):
    """Its JSON, a line for each answer. INFO and CLIENT INFO it prints as they are, so they come by themselves."""
    server = start()
    commands, last = commands_of(server)
    apart = [words for words in commands if "INFO" in (words[0], words[-1])]
    lines = "".join(" ".join(f'"{word}"' for word in words) + "\n" for words in commands if words not in apart)
    done = run_cli(server, "--json", protocol, input=lines)
    assert done.returncode == 0 and done.stderr == ""
    answers = [Error(json.loads(line[6:])) if line.startswith("error:") else json.loads(line)
               for line in done.stdout.splitlines()]
    for place, words in enumerate(commands):
        if words in apart:
            answers.insert(place, run_cli(server, protocol, *words).stdout)
            assert ("store_id:" if words[0] == "INFO" else "addr=127.0.0.1:") in answers[place]
    check_table(answers, last, resp3=protocol == "-3")


@needs_cli
def test_redis_cli_in_a_shell(server, name):
    """As the documentation shows it: one command per call, the answer on stdout."""
    assert run_cli(server, "ACQUIRE", name, "cli-1").stdout.strip().isdigit()
    assert run_cli(server, "ACQUIRE", name, "cli-2").stdout == "\n"
    done = run_cli(server, "-e", "ACQUIRE", name)
    assert done.returncode == 1 and "wrong number of arguments" in done.stdout + done.stderr
    assert run_cli(server, "-c", "RELEASE", name, "cli-1").stdout == "1\n", "as one of a cluster, too"
    url = f"redis://127.0.0.1:{server.port}/0"
    assert subprocess.run([CLI, "-u", url, "PING"], capture_output=True, text=True, timeout=PATIENCE).stdout == "PONG\n"


@needs_cli
def test_redis_cli_with_a_password(start):
    server = start(password="s3cret")
    assert "NOAUTH" in run_cli(server, "PING").stdout
    for words in (["-a", "s3cret", "--no-auth-warning"], ["--user", "default", "--pass", "s3cret", "--no-auth-warning"],
                  ["-3", "-a", "s3cret", "--no-auth-warning"]):
        done = run_cli(server, *words, "PING")
        assert (done.stdout, done.stderr) == ("PONG\n", "")
    assert "WRONGPASS" in run_cli(server, "-a", "wrong", "PING").stderr


class Terminal:
    """redis-cli at a terminal."""

    def __init__(self, server):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            die_with_parent()
            os.execve(CLI, [CLI, "-p", str(server.port)], {**environment(), "TERM": "dumb", "HOME": str(server.directory)})
        self.shown = ""

    def until(self, text):
        """Returns what was shown since the last call."""
        while text not in self.shown:
            assert select.select([self.fd], [], [], PATIENCE)[0], self.shown
            self.shown += os.read(self.fd, 65536).decode(errors="replace")
        before, self.shown = self.shown.split(text, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode() + b"\n")

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@needs_cli
def test_redis_cli_at_a_terminal(server, name):
    """It asks for COMMAND DOCS when it starts, and knows our commands from then on."""
    prompt = f"127.0.0.1:{server.port}> "
    with contextlib.closing(Terminal(server)) as terminal:
        terminal.until(prompt)
        terminal.type("help acquire")
        assert "Takes a lock, or a place in its queue" in terminal.until("group:")
        terminal.until(prompt)
        terminal.type(f"ACQUIRE {name} terminal TTL 60000")
        assert "(integer) " in terminal.until(prompt)
        terminal.type(f"acquire {name} other")
        assert "(nil)" in terminal.until(prompt)
        terminal.type("nope")
        assert "(error) ERR unknown command 'nope'" in terminal.until(prompt)
        terminal.type("HELLO 3")
        terminal.until(prompt)
        terminal.type(f"OBSERVE {name}")
        terminal.until("OK")
        terminal.until(prompt)
        server.cmd("RELEASE", name, "terminal")
        terminal.type("PING")
        assert "released" in terminal.until("PONG")
        terminal.type("quit")


@needs_cli
def test_redis_cli_subscribe(server, name):
    process = Process(["stdbuf", "-oL", CLI, "-p", str(server.port), "SUBSCRIBE", name], environment(),
                      preexec_fn=die_with_parent)
    try:
        assert [process.line() for _ in range(3)] == ["subscribe", name, "1"]
        token = server.cmd("ACQUIRE", name, "watched", "OWNER", "me")
        assert [process.line() for _ in range(3)] == ["message", name, f"granted {token} me"]
    finally:
        process.popen.kill()
        process.wait()
    eventually(lambda: server.count("observed_names") == 0, "its end")


# ---- redis-py ----------------------------------------------------------------------------------------------------


needs_py = pytest.mark.skipif(not redis, reason="redis-py (python3-redis) is not installed")


@pytest.fixture
def py(server):
    """As anybody would make one."""
    with redis.Redis(port=server.port, decode_responses=True) as client:
        yield client


@needs_py
def test_the_lock_of_redis_py_is_told_the_way(server, name):
    """It locks with SET NX PX, as most do; others with scripts."""
    said = ("unknown command '{}': this is holdfastd, which keeps locks, and no keys or scripts: take a lock with ACQUIRE name lease TTL ms, "
            "and give it back with RELEASE name lease")
    with redis.Redis(port=server.port) as client:
        with pytest.raises(redis.ResponseError, match="^" + re.escape(said.format("SET")) + "$"):
            client.lock(name, timeout=10).acquire(blocking=False)
        with pytest.raises(redis.ResponseError, match="^" + re.escape(said.format("EVALSHA")) + "$"):
            client.register_script("return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 10000)")(keys=[name], args=["x"])


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "all at once"])
@needs_py
def test_redis_py(start, at_once):
    server = start()
    commands, last = commands_of(server)
    with redis.Redis(port=server.port, decode_responses=True) as client:
        client.response_callbacks.clear()  # the answers as they come; with these it is the next test
        if at_once:
            pipe = client.pipeline(transaction=False)
            for words in commands:
                pipe.execute_command(*words)
            answers = pipe.execute(raise_on_error=False)
        else:
            answers = [ask(client, words) for words in commands]
    check_table([with_code(answer) for answer in answers], last)


def ask(client, words):
    try:
        return client.execute_command(*words)
    except redis.RedisError as error:
        return error


def with_code(answer):
    """redis-py takes the ERR away from errors. And says in a pipeline which command it was."""
    if not isinstance(answer, redis.RedisError):
        return answer
    text = str(answer)
    if text.startswith("Command # "):
        text = text.split(" of pipeline caused error: ", 1)[1]
    return Error(text if text.split()[0] in ("MODE", "ENDED", "STALE", "STORE") else "ERR " + text)


@needs_py
def test_redis_py_knows_the_answers(py):
    assert py.ping() is True
    assert py.client_setname("py") is True and py.client_getname() == "py"
    assert py.client_id() > 0
    assert py.info("server")["process_id"] > 0 and py.info()["connected_clients"] >= 1
    assert py.command_count() == len(py.command()) == len(py.command_list())
    assert py.command()["acquire"]["arity"] == -3
    with pytest.raises(redis.ResponseError, match="there is only database 0"):
        py.select(1)


@needs_py
def test_redis_py_knows_client_info(py):
    """It looks for most of the fields that Redis has."""
    py.client_setname("py")
    info = py.client_info()
    assert (info["name"], info["id"], info["db"]) == ("py", py.client_id(), 0)


@needs_py
def test_redis_py_with_a_password(start):
    server = start(password="s3cret")
    for extra in ({"password": "s3cret"}, {"password": "s3cret", "username": "default"}):
        with redis.Redis(port=server.port, **extra) as client:
            assert client.ping()
    with redis.Redis(port=server.port) as client, pytest.raises(redis.AuthenticationError, match="say the password"):
        client.ping()
    with redis.Redis(port=server.port, password="x") as client, pytest.raises(redis.RedisError, match="WRONGPASS"):
        client.ping()


@needs_py
def test_redis_py_pubsub(server, py, name):
    with py.pubsub() as pubsub:
        pubsub.subscribe(name, name + "-too")
        heard = [pubsub.get_message(timeout=PATIENCE) for _ in range(2)]
        assert [(message["type"], message["channel"], message["data"]) for message in heard] == \
            [("subscribe", name, 1), ("subscribe", name + "-too", 2)]
        token = py.execute_command("ACQUIRE", name, "py-1", "OWNER", "me")
        py.execute_command("RELEASE", name, "py-1")
        for why in ("granted", "released"):
            message = pubsub.get_message(timeout=PATIENCE)
            assert (message["type"], message["channel"], message["data"]) == ("message", name, f"{why} {token} me")
        pubsub.ping()
        assert pubsub.get_message(timeout=PATIENCE)["type"] == "pong"
        pubsub.unsubscribe()
        assert {pubsub.get_message(timeout=PATIENCE)["type"] for _ in range(2)} == {"unsubscribe"}


@needs_py
def test_redis_py_waits(server, py, name):
    """A blocked command on one connection of its pool, the others on another."""
    py.execute_command("ACQUIRE", name, "py-1")
    with redis.Redis(port=server.port, socket_timeout=0.2) as hasty, pytest.raises(redis.TimeoutError):
        hasty.execute_command("ACQUIRE", name, "py-2", "WAIT", 60000)
    eventually(lambda: server.show(name)["queue"] == 0, "it hung up, and its place is gone")
    pipe = py.pipeline(transaction=False)
    pipe.execute_command("RELEASE", name, "py-1")
    pipe.execute_command("ACQUIRE", name, "py-3", "WAIT", 60000)
    pipe.ping()
    released, token, pong = pipe.execute()
    assert released == 1 and token > 0 and pong is True


# ---- ioredis -----------------------------------------------------------------------------------------------------


IOREDIS = [("ioredis", "2"), ("ioredis-6", "3")]


def node_argv(server, package, protocol, *what):
    if not shutil.which("node") or not (NODE / "node_modules" / package).exists():
        pytest.skip(f"{package} is not installed: npm ci in tests/system/holdfastd/node")
    return ["node", str(NODE / "drive.js"), package, protocol, str(server.port), *what]


def node_value(line):
    answer = json.loads(line)
    return Error(answer["error"]) if "error" in answer else answer["value"]


@pytest.mark.parametrize("how", ["ask", "pipeline"])
@pytest.mark.parametrize("package, protocol", IOREDIS)
def test_ioredis(start, package, protocol, how):
    """It begins with its ready check, which reads INFO, and tells us the library's name by CLIENT SETINFO."""
    server = start()
    commands, last = commands_of(server)
    done = subprocess.run(node_argv(server, package, protocol, how), input=json.dumps(commands), capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    check_table([node_value(line) for line in done.stdout.splitlines()], last, resp3=protocol == "3")


@pytest.mark.parametrize("package, protocol", IOREDIS)
def test_ioredis_subscribe(server, name, package, protocol):
    process = Process(node_argv(server, package, protocol, "subscribe", name), environment(), preexec_fn=die_with_parent)
    try:
        assert node_value(process.line()) == 1
        token = server.cmd("ACQUIRE", name, "watched", "OWNER", "me")
        assert node_value(process.line()) == [name, f"granted {token} me"]
        server.cmd("RELEASE", name, "watched")
        assert node_value(process.line()) == [name, f"released {token} me"]
        process.popen.stdin.close()
        assert node_value(process.line()) == 0
        assert process.wait() == 0
    finally:
        process.popen.kill()
        process.wait()
