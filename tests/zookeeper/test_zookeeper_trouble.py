"""What goes wrong with ZooKeeper is said in one clear line, and leaves nothing behind."""
import time

from conftest import children
from holdfast_cli import eventually
from kazoo.security import make_digest_acl

CONFIGURATION = ("maxSessionTimeout=40000",)  # ZooKeeper's default, of 20 ticks of 2 s


def refused(done, status, words):
    assert done.status == status, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and words in lines[0]


def test_the_default_ttl_fits_into_the_longest_session_of_the_defaults(ensemble, cli_on):
    cli = cli_on(ensemble.url("/ttl"))
    assert cli("run", "one", "--", "true").status == 0
    refused(cli("run", "--ttl", "60s", "one", "--", "true"), 64, "maxSessionTimeout")


def test_credentials_keep_others_out(ensemble, cli_on):
    ours, theirs, nobody = (cli_on(ensemble.url("/secret", access)) for access in ("me:pw@", "me:hunter2@", ""))
    assert ours("run", "one", "--", "true").status == 0
    refused(theirs("run", "one", "--", "true"), 77, "ACL")
    refused(nobody("run", "one", "--", "true"), 77, "no user and password were given")
    # None of them hangs, or shows a password.
    assert "hunter2" not in theirs("run", "one", "--", "true").stderr
    acls, _ = ensemble.kazoo(auth_data=[("digest", "me:pw")]).get_acls("/secret")
    assert acls == [make_digest_acl("me", "pw", all=True)]


def test_what_others_put_at_the_path_is_refused_in_words(ensemble, cli_on):
    kazoo = ensemble.kazoo()
    kazoo.ensure_path("/shape")
    kazoo.create("/shape/ephemeral", ephemeral=True)
    cli = cli_on(ensemble.url("/shape"))
    refused(cli("run", "ephemeral", "--", "true"), 77, "ephemeral")
    kazoo.ensure_path("/shape/parent/child")
    refused(cli("run", "parent", "--", "true"), 77, "/shape/parent/child")
    assert children(kazoo, "/shape/parent") == ["child"]


def test_nothing_stays_of_a_lock_but_its_container(ensemble, cli_on):
    kazoo = ensemble.kazoo()
    cli = cli_on(ensemble.url("/left"))
    holder = cli.hold("a/b %.. \u00e9")
    waiter = cli.start("run", "--wait", "100ms", "a/b %.. \u00e9", "--", "true")
    assert waiter.wait() == 75
    assert holder.end() == 0
    names = [name for name in children(kazoo, "/left") if name != "%id"]
    assert len(names) == 1
    assert children(kazoo, "/left/" + names[0]) == []
    # ZooKeeper deletes it a minute later, and may do so any time. Tokens go on.
    kazoo.delete("/left/" + names[0])
    again = cli.hold("a/b %.. \u00e9")
    assert again.token > holder.token
    assert again.end() == 0


def test_a_job_inherits_no_descriptors(ensemble, cli_on):
    """The library makes its own without close-on-exec."""
    cli = cli_on(ensemble.url("/descriptors"))
    done = cli("run", "one", "--", "ls", "-l", "/proc/self/fd")
    others = [line.rpartition(" -> ")[::2] for line in done.stdout.splitlines() if " -> " in line]
    assert [end for start, end in others if int(start.split()[-1]) > 2 and end.startswith(("socket:", "pipe:"))] == []


def test_a_job_ends_when_the_node_of_its_lock_is_gone(ensemble, cli_on):
    """Whoever deleted it: the job does not run on."""
    kazoo = ensemble.kazoo()
    cli = cli_on(ensemble.url("/lost"))
    holder = cli.hold("one", "--ttl", "30s")  # renewed after 10 s: before that only the watch on its node tells it
    (node,) = children(kazoo, "/lost/one")
    began = time.monotonic()
    kazoo.delete("/lost/one/" + node)
    assert holder.wait() == 76
    assert time.monotonic() - began < 8
    eventually(lambda: children(kazoo, "/lost/one") == [], "nothing left")


def test_no_majority_is_said_and_sat_out(ensemble, cli_on):
    cli = cli_on(ensemble.url("/majority"))
    assert cli("run", "one", "--", "true").status == 0
    for node in (0, 1):
        ensemble.say(f"kill {node}")
    done = cli("run", "--wait", "3s", "one", "--", "true")
    assert done.status == 69
    assert "have no majority" in done.stderr
    waiter = cli.start("run", "one", "--", "echo", "in")
    assert "have no majority" in waiter.line("err")
    for node in (0, 1):
        ensemble.say(f"start {node}")
    assert waiter.line() == "in"
    assert waiter.wait() == 0
    ensemble.say("whole")
