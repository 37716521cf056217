"""What tests of clusters do again and again: locks that stay, and whether they are still there."""
import contextlib
import subprocess
import time

from nodes import PATIENCE, TTL_MAX, NotDone, Refused, Unknown, argv_of, environment, fresh, until

SERVES_MAX = 10  # seconds in which nodes that may serve begin to
LARGE = "r" * 60000  # almost the largest result of a once-record


def content(directory):
    """All but the file that says whose process it is."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


def unchanged(directory, before):
    """Opening a log gives back the room that it has not used, whatever comes then."""
    after = content(directory)
    return all(before.get(name, b"") == data or (name.startswith("log-") and before.get(name, b"").startswith(data))
               for name, data in after.items()) and \
        all(name in after or name.startswith("log-") for name in before) and "log-1" in after


def held(cluster, count=20):
    """(name, token) of locks that stay."""
    with cluster.session() as session:
        names = [fresh("held") for _ in range(count)]
        return [(name, session.ask("ACQUIRE", name, f"lease-of-{name}", "TTL", TTL_MAX)) for name in names]


def all_there(session, holds):
    return [session.ask("CHECK", name, token) for name, token in holds] == [1] * len(holds)


def has_all(cluster, node, holds):
    """This node, by itself, has them: it is made to lead."""
    cluster.lead_by(node)
    with node.connect() as client:
        assert client.pipeline(*[["CHECK", name, token] for name, token in holds]) == [1] * len(holds)


def restore(copy, node):
    """Makes this node's directory from a copy of another: what holdfastd said of it."""
    done = subprocess.run(argv_of("--id", node.number, "--cluster", node.line, "--data", node.data, "--restore-from", copy),
                          env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def add(cluster, number, *args, **kwargs):
    """A new node, added, which votes when this returns."""
    node = cluster.node(number, *args, **kwargs)
    assert node.launch()
    assert cluster.ask("CLUSTER", "ADD", number, node.peer) == "OK"
    until(lambda: cluster.leader().members().get(number, {}).get("votes"), f"{node} votes")
    return node


def granted_within(session, seconds, *words):
    """What is granted to somebody who asks again and again, wherever it is sent; None: nothing."""
    deadline = time.monotonic() + seconds
    token = None
    while token is None and time.monotonic() < deadline:
        with contextlib.suppress(NotDone, Unknown):
            token = session.once("ACQUIRE", *words)
        time.sleep(0.02)
        session.elsewhere()
    return token


def pour(session):
    """A large entry for the log, which leaves nothing behind in the table."""
    key, lease = fresh("key"), fresh()
    _, token = session.ask("ONCE", "CLAIM", key, lease, "TTL", TTL_MAX)
    with contextlib.suppress(Refused):  # an answer that was lost, and the record is gone
        session.ask("ONCE", "FINISH", key, lease, "TOKEN", token, "KEEP", 1, LARGE)
