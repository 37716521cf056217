"""What bench-bare (bare.c) sends to each store: the requests that a cycle of Holdfast's library needs there, put together once, and what
connections need before. So bare.c shows what the library adds to them.

Of Redis and Redlock there is also the `recipe`, what most people's locks are: SET key value NX PX, and a script that deletes
the key if the value is still ours.
"""
import base64
import hashlib
import json
import os
import struct

from servers import command

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTS = os.path.join(ROOT, "src/engines/redis/scripts")
TTL_MS = "30000"
OWNER = "somebody@somewhere bench[12345]"
TOKEN = "0" * 16  # bare.c puts that of the grant here
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"
KEYS = ["", "info:", "wait:", "due:", "members:", "turn:", "token:", "ended:"]  # of keys.lua, in its order


def name_of(number):
    return "bare-%04d" % number


def lease_of(number):
    return "0123456789abcdef01234567%08x" % (number + 1)


# ---- Redis -----------------------------------------------------------------------------------------------------------


def script_text(name):
    """As src/engines/redis/scripts.c puts it together."""
    text = ""
    for part in ("keys", name + "_quick", "common", name):
        with open(os.path.join(SCRIPTS, part + ".lua"), encoding="utf-8") as file:
            text += file.read()
    return text


def sha(text):
    return hashlib.sha1(text.encode()).hexdigest()


ACQUIRE, RELEASE = script_text("acquire"), script_text("release")
ACQUIRE_SHA, RELEASE_SHA, UNLOCK_SHA = sha(ACQUIRE), sha(RELEASE), sha(UNLOCK)


def library_keys(name, lease, prefix="bare:"):
    rest = {"token:": "", "ended:": lease}
    return [(("holdfast." + label) if label else "") + prefix + rest.get(label, name) for label in KEYS]


def library_acquire(name, lease, ttl_ms=TTL_MS):
    keys = library_keys(name, lease)
    return ["EVALSHA", ACQUIRE_SHA, len(keys), *keys, lease, ttl_ms, "x", 0, 0, OWNER, ""]


def redis_library(store, number):
    name, lease = name_of(number), lease_of(number)
    keys = library_keys(name, lease)
    return store.ports, [command("SCRIPT", "LOAD", text) for text in (ACQUIRE, RELEASE)], [
        command(*library_acquire(name, lease)), command("EVALSHA", RELEASE_SHA, len(keys), *keys, lease, TOKEN, 0)]


def redis_recipe(store, number):
    name, value = "recipe:" + name_of(number), lease_of(number)
    return store.ports, [command("SCRIPT", "LOAD", UNLOCK)], [
        command("SET", name, value, "NX", "PX", TTL_MS), command("EVALSHA", UNLOCK_SHA, 1, name, value)]


# ---- holdfastd -------------------------------------------------------------------------------------------------------


def holdfastd(store, number):
    name, lease = name_of(number), lease_of(number)
    return store.ports, [], [command("ACQUIRE", name, lease, "TTL", TTL_MS, "OWNER", OWNER), command("RELEASE", name, lease, "TOKEN", TOKEN)]


# ---- etcd, by its JSON gateway: grant a lease, create the key bound to it, and let go of both -------------------------


def text64(text):
    return base64.b64encode(text.encode()).decode()


def post(path, body):
    text = json.dumps(body)
    return ("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        path, len(text), text)).encode()


def etcd(store, number):
    key, lease = text64("bare/%s/1" % name_of(number)), str(1000000 + number)
    look = {"request_range": {"key": text64("bare/%s/" % name_of(number)), "range_end": text64("bare/%s0" % name_of(number))}}
    take = {"compare": [{"target": "CREATE", "key": key, "create_revision": "0"}],
            "success": [{"request_put": {"key": key, "value": text64("hf1 x 0 30000 1794720595875 " + OWNER), "lease": lease}}, look],
            "failure": [look]}
    return [store.ports[number % len(store.ports)]], [], [
        post("/v3/lease/grant", {"ID": lease, "TTL": "30"}), post("/v3/kv/txn", take), *etcd_release(key, lease, look)]


def etcd_release(key, lease, look):
    give = {"compare": [{"target": "CREATE", "result": "GREATER", "key": key, "create_revision": "0"}],
            "success": [{"request_delete_range": {"key": key}}, look], "failure": [look]}
    return [post("/v3/kv/txn", give), post("/v3/lease/revoke", {"ID": lease})]


# ---- ZooKeeper: create, list, delete -----------------------------------------------------------------------------------

CREATE, DELETE, CHILDREN = 1, 2, 8
PERSISTENT, EPHEMERAL = 0, 1
SESSION_MS = 30000


def packet(*parts):
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">i", len(value)) + value


def create(path, data, flags):
    everybody = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
    return packet(struct.pack(">ii", 1, CREATE), text(path), text(data), everybody, struct.pack(">i", flags))


def zookeeper(store, number):
    folder = "/bare/" + name_of(number)
    path = folder + "/ours-0123456789abcdef0123456789abcdef"
    hello = packet(struct.pack(">iqiq", 0, 0, SESSION_MS, 0), text(bytes(16)))
    return [store.ports[number % len(store.ports)]], [hello, create("/bare", b"", PERSISTENT), create(folder, b"", PERSISTENT)], [
        create(path, "hf1 30000 " + OWNER, EPHEMERAL),
        packet(struct.pack(">ii", 2, CHILDREN), text(folder), b"\0"),
        packet(struct.pack(">ii", 3, DELETE), text(path), struct.pack(">i", -1))]


# ---- PostgreSQL: the counter of a name and who has it, in two prepared statements, each its own transaction --------------

TABLES = ["CREATE TABLE IF NOT EXISTS bare (name bytea PRIMARY KEY, token bigint NOT NULL, incarnation text NOT NULL) WITH (fillfactor = 70)",
          "CREATE TABLE IF NOT EXISTS bare_claims (id bigint GENERATED ALWAYS AS IDENTITY, name bytea NOT NULL, lease bytea NOT NULL, owner "
          "bytea NOT NULL, token bigint, ttl_ms bigint NOT NULL, beat bigint NOT NULL DEFAULT 1, since timestamptz NOT NULL DEFAULT "
          "clock_timestamp(), PRIMARY KEY (name, id)) WITH (fillfactor = 70)"]
TAKE = ("WITH taken AS (UPDATE bare SET token = token + 1 WHERE name = $1 AND NOT EXISTS (SELECT FROM bare_claims AS c WHERE c.name = $1) "
        "RETURNING token) INSERT INTO bare_claims (name, lease, owner, token, ttl_ms) SELECT $1, $2, '" + OWNER + "', token, 30000 FROM taken "
        "RETURNING token")
GIVE = "DELETE FROM bare_claims WHERE name = $1 AND lease = $2 RETURNING id"


def message(kind, *parts):
    body = b"".join(parts)
    return kind + struct.pack(">i", len(body) + 4) + body


def zero(value):
    return value.encode() + b"\0"


SYNC = message(b"S")


def query(statement):
    return message(b"Q", zero(statement))


def prepare(name, statement):
    return message(b"P", zero(name), zero(statement), struct.pack(">h", 0)) + SYNC


def execute(name, *values):
    parameters = b"".join(text(value) for value in values)
    return (message(b"B", zero(""), zero(name), struct.pack(">hh", 0, len(values)), parameters, struct.pack(">h", 0)) +
            message(b"E", zero(""), struct.pack(">i", 0)) + SYNC)


def postgres(store, number):
    name, lease = name_of(number), lease_of(number)
    hello = message(b"", struct.pack(">i", 196608), zero("user"), zero("postgres"), zero("database"), zero("postgres"), b"\0")
    row = "INSERT INTO bare VALUES ('%s', 1, 'a server and its timeline, 41 bytes or so') ON CONFLICT DO NOTHING" % name
    clear = "DELETE FROM bare_claims WHERE name = '%s'" % name
    return store.ports, [hello, *map(query, TABLES), query(row), query(clear), prepare("take", TAKE), prepare("give", GIVE)], [
        execute("take", name, lease), execute("give", name, lease)]


# ---- the script --------------------------------------------------------------------------------------------------------

WAYS = {"redis": ("resp", redis_library), "redis-always": ("resp", redis_library), "redlock": ("resp", redis_recipe), "etcd": ("http", etcd),
        "zookeeper": ("zookeeper", zookeeper), "postgres": ("postgres", postgres), "holdfastd": ("resp", holdfastd),
        "holdfastd3": ("resp", holdfastd)}


def script(store, clients, recipe=False):
    """For the input of bench-bare."""
    if store.key == "files":
        lines = ["framing files"]
        for number in range(clients):
            lines += ["client", "path %s" % os.path.join(store.folder, name_of(number))]
        return "\n".join(lines) + "\n"
    framing, make = WAYS[store.key]
    lines = ["framing " + framing]
    for number in range(clients):
        ports, setup, cycle = (redis_recipe if recipe else make)(store, number)
        lines.append("client")
        lines += ["connect %d" % port for port in ports]
        lines += ["setup " + said.hex() for said in setup]
        lines += ["cycle " + said.hex() for said in cycle]
    return "\n".join(lines) + "\n"
