"""What the tests of Redlock share: five servers, what each of them says, and how to catch a client in the middle."""
import pytest
from conftest import eventually, redlock_url
from resource import Resource

NAME = "job"
KEY = "holdfast:" + NAME
INFO = "holdfast.info:" + KEY
COUNTER = "holdfast.token:holdfast:"
QUORUM = 3
PATIENT = "3s"  # a ?timeout= for tests that are not about it


# ---- what the servers say ----------------------------------------------------------------------------------------------

def lease_on(node):
    return node.cmd("GET", KEY)


def token_on(node):
    """Of whoever holds the name there: 0 where it was voted for and not sealed, None where nobody holds it."""
    entry = node.cmd("EVAL", "local l = redis.call('GET', KEYS[1]) return l and redis.call('HGET', KEYS[2], l)", 2, KEY, INFO)
    return int(entry.split()[0]) if entry else None


def tokens_on(nodes):
    return [token_on(node) for node in nodes]


def has_majority(nodes, token):
    return tokens_on(nodes).count(token) >= QUORUM


def is_free(nodes):
    """No node has anything of anybody's hold."""
    return all(node.cmd("EXISTS", KEY, INFO) == 0 for node in nodes)


def scripts_run(node):
    """How many of our scripts, those it did not know included."""
    stats = node.info("commandstats")
    return sum(int(stats[name].split("calls=")[1].split(",")[0]) for name in ("cmdstat_eval", "cmdstat_evalsha")
               if name in stats)


def await_clients_gone(node):
    """Until it has done all that clients which have ended left for it to do."""
    eventually(lambda: "name=holdfast" not in node.cmd("CLIENT", "LIST"), "the end of all clients")


# ---- what the tests do -------------------------------------------------------------------------------------------------

def check_guard(old, new):
    """Whoever was overtaken writes late, with its own token. Unguarded that is the end of the new holder's work."""
    for guarded, value in ((False, "old"), (True, "new")):
        resource = Resource(guarded=guarded)
        assert resource.write(old.token, "old, in time")
        assert resource.write(new.token, "new")
        assert resource.write(old.token, "old") != guarded
        assert resource.value == value


def one_server_url(node):
    """Three names of one server: whoever uses this has certainly asked it."""
    return f"redlock://127.0.0.1:{node.port},localhost:{node.port},[::ffff:127.0.0.1]:{node.port}?timeout={PATIENT}"


def acquaint(nodes, cli_on):
    """Each of them learns the scripts, so that the next client's vote is its first command."""
    for node in nodes:
        done = cli_on(one_server_url(node))("run", "acquaintance", "--ttl", "5s", "--", "true")
        assert done.status in (0, 76), done.stderr  # the second and third release find it released


def poise(relays, start):
    """Starts a client, and returns it when each server has answered its greeting and none of that has reached it: what
    comes after relay.heal() is its vote."""
    before = [relay.count().down_bytes for relay in relays]
    for relay in relays:
        relay.cut("down")
    client = start()
    for relay, count in zip(relays, before):
        eventually(lambda: relay.count().down_bytes > count + 1000, "an answer to the greeting")
    return client


def start_five(servers, faketime=()):
    """faketime: whose clocks can be moved. They keep nothing, so they are not asked to end, which would take them longer."""
    nodes = [servers.redis(faketime=i in faketime) for i in range(5)]
    for node in nodes:
        servers.stack.callback(node.kill)
    return nodes


@pytest.fixture
def five_redis(servers):
    return start_five(servers)


@pytest.fixture
def five_relays(servers, five_redis):
    return [servers.relay(node) for node in five_redis]


@pytest.fixture
def url(five_redis):
    """Of the servers themselves."""
    return redlock_url(five_redis, timeout=PATIENT)
