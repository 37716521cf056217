"""A password is exchanged while locks are held, as Redis does that: a user may have several. And what a holder says that cannot
renew: one test for each cause."""
import re

import pytest
from conftest import eventually, free_port, is_running

OLD, NEW = "the-old-password", "the-new-password"
TTL = ["--ttl", "3s", "--grace", "500ms"]
LONG = ["--ttl", "10s"]  # for what must not be lost, also on a busy machine


def write(path, text):
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text(text + "\n")
    new.replace(path)


class Locked:
    """Redis servers with a password, and the file that clients read theirs from."""

    def __init__(self, servers, directory, count):
        self.servers = [servers.redis("--requirepass", OLD) for _ in range(count)]
        self.file = directory / "password"
        self.password = OLD
        write(self.file, OLD)
        hosts = ",".join(redis.address for redis in self.servers)
        self.url = f"{'redis' if count == 1 else 'redlock'}://{hosts}?password-file={self.file}&prefix="

    def cmd(self, redis, *words):
        with redis.connect() as connection:
            connection.cmd("AUTH", self.password)
            return connection.cmd(*words)

    def cmd_all(self, *words):
        return [self.cmd(redis, *words) for redis in self.servers]

    def come_anew(self):
        """All connections are lost, and have to be made again."""
        for kind in ("normal", "pubsub"):
            self.cmd_all("CLIENT", "KILL", "TYPE", kind)


@pytest.fixture(params=[1, 3], ids=["redis", "redlock"])
def locked(request, servers, directory):
    return Locked(servers, directory, request.param)


def asking(clients):
    """How many connections have asked for a lock, or renewed one."""
    return sum("name=holdfast " in line and "cmd=eval" in line for line in clients.splitlines())


def renewed(locked, holder):
    """On each server: what was left of the lock's key has grown."""
    least = [locked.cmd(redis, "PTTL", "x") for redis in locked.servers]
    grown = set()

    def have_grown():
        for i, redis in enumerate(locked.servers):
            left = locked.cmd(redis, "PTTL", "x")
            if left > least[i]:
                grown.add(i)
            least[i] = min(left, least[i])
        return len(grown) == len(least)
    eventually(have_grown, "it is renewed")
    assert is_running(holder.job)


def test_a_holder_and_a_waiter_live_through_it(locked, cli_on):
    cli = cli_on(locked.url)
    holder = cli.hold("x", *LONG)
    waiter = cli.start("run", *LONG, "x", "--", "sh", "-c", "echo in $HOLDFAST_TOKEN")
    eventually(lambda: all(asking(text) >= 2 for text in locked.cmd_all("CLIENT", "LIST")), "both have been answered")
    locked.cmd_all("ACL", "SETUSER", "default", ">" + NEW)
    locked.come_anew()
    renewed(locked, holder)
    write(locked.file, NEW)
    locked.password = NEW
    locked.come_anew()
    renewed(locked, holder)
    locked.cmd_all("ACL", "SETUSER", "default", "<" + OLD)
    locked.come_anew()
    renewed(locked, holder)
    assert holder.end() == 0
    assert int(waiter.line().split()[1]) > holder.token
    assert waiter.wait() == 0


# ---- why it was lost ---------------------------------------------------------------------------------------------


def last_words(holder):
    assert holder.wait() == 76
    lines = [line for line in holder.rest("err") if " lost '" in line]
    assert len(lines) == 1, lines
    found = re.fullmatch(r"holdfast: lost 'x' \(token \d+\): it could not be renewed(?:, and [\d.]+ m?s are left| in time): "
                         r"(.*); stopping the job", lines[0])
    assert found, lines[0]
    return found.group(1)


@pytest.fixture
def one(servers, directory):
    return Locked(servers, directory, 1)


def test_the_password_is_wrong(one, cli_on):
    at = one.servers[0].address
    holder = cli_on(one.url).hold("x", *TTL)
    one.cmd_all("CONFIG", "SET", "requirepass", NEW)
    one.password = NEW
    one.come_anew()
    assert last_words(holder) == f"{at} does not accept this user and password (from password-file {one.file})"


def test_the_connection_is_refused(redis, cli_on):
    holder = cli_on(redis.url()).hold("x", *TTL)
    redis.kill()
    assert last_words(holder) == f"{redis.address}: Connection refused; is the server running there?"


def test_the_server_does_not_answer(redis, cli_on):
    holder = cli_on(redis.url()).hold("x", *TTL)
    redis.pause()
    assert last_words(holder) == "the server did not answer in time"


def test_it_became_a_replica(redis, cli_on):
    """Of a primary that is not there: it keeps what it has."""
    holder = cli_on(redis.url()).hold("x", *TTL)
    redis.cmd("REPLICAOF", "127.0.0.1", free_port())
    assert last_words(holder) == f"{redis.address} is a read-only replica: use the address of its primary"


def test_it_has_too_few_replicas(redis, cli_on):
    holder = cli_on(redis.url()).hold("x", *TTL)
    redis.cmd("CONFIG", "SET", "min-replicas-to-write", "1")
    assert last_words(holder) == f"{redis.address} refuses writes because it has too few replicas"


def test_it_cannot_save(servers, cli_on):
    redis = servers.redis("--save", "900 1000000")
    holder = cli_on(redis.url()).hold("x", *TTL)
    (redis.directory / "dump.rdb").mkdir()  # which a file cannot replace
    redis.cmd("BGSAVE")
    eventually(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err", "it cannot save")
    assert last_words(holder) == f"{redis.address} refuses writes because it cannot save to its disk"


def test_the_majority_is_gone(servers, directory, cli_on):
    locked = Locked(servers, directory, 3)
    holder = cli_on(locked.url).hold("x", *TTL)
    gone = locked.servers[:2]
    for redis in gone:
        redis.kill()
    assert last_words(holder) in {f"only 1 of 3 servers answered, 2 are needed ({redis.address}: Connection refused; is the "
                                  "server running there?)" for redis in gone}
