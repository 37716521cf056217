"""A URL with several servers means one cluster: servers that share nothing would each give the lock."""
import pytest
from conftest import pairs_of
from holdfast_cli import Cli

ANOTHER = "0" * 32


@pytest.fixture
def cli():
    cli = Cli("file:")
    yield cli
    cli.clean()


def url_of(*servers, options=""):
    return "holdfast://" + ",".join(f"127.0.0.1:{server.port}" for server in servers) + options


def cluster_of(server):
    return pairs_of(server.cmd("CLUSTER", "STATUS"))["cluster"]


def test_servers_by_themselves_are_no_cluster(start, cli):
    one, two = start(), start()
    for servers in ((one, two), (two, one)):
        done = cli("--on", url_of(*servers), "run", "-n", "job", "--", "echo", "in")
        assert (done.status, done.stdout) == (77, ""), done
        assert any(done.stderr.startswith(f"holdfast: 127.0.0.1:{server.port} is a server by itself, started without 'cluster', and the URL "
                                          "names 2 servers: they do not share their locks.") for server in servers), done.stderr
        assert "Name one of them only, or found a cluster of them" in done.stderr
        for words in (("cluster", "status"), ("cluster", "init"), ("show", "job")):
            done = cli("--on", url_of(*servers), *words)
            assert done.status == 77 and "is a server by itself" in done.stderr, (words, done)
    assert cli("--on", url_of(one), "run", "-n", "job", "--", "echo", "in").stdout == "in\n"


def test_one_that_died_is_not_replaced_by_another_store(start, cli):
    """The first holds the lock, and is killed: the second does not give it to somebody else."""
    one, two = start(), start()
    cli.env["HOLDFAST_URL"] = url_of(one)
    cli.hold("job")
    one.kill9()
    done = cli("--on", url_of(one, two), "run", "-n", "job", "--", "echo", "in")
    assert done.status == 77 and done.stdout == "" and "is a server by itself" in done.stderr, done


def test_the_cluster_that_is_meant_can_be_named(start, cli):
    server = start()
    meant = url_of(server, options=f"?cluster={cluster_of(server)}")
    assert cli("--on", meant, "run", "-n", "job", "--", "echo", "in").stdout == "in\n"
    done = cli("--on", url_of(server, options=f"?cluster={ANOTHER}"), "run", "-n", "job", "--", "echo", "in")
    assert (done.status, done.stdout) == (77, "")
    assert done.stderr == (f"holdfast: 127.0.0.1:{server.port} belongs to cluster {cluster_of(server)}, and the URL says "
                           f"cluster={ANOTHER}: 'holdfast cluster status' shows the id of a cluster\n")


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "G" * 32])
def test_what_is_no_id(cli, text):
    done = cli("--on", f"holdfast://127.0.0.1:1?cluster={text}", "run", "-n", "job", "true")
    assert done.status == 64 and "32 characters of 0-9 and a-f" in done.stderr, done


def test_what_hello_says(start):
    server = start()
    with server.connect() as client:
        said = pairs_of(client.cmd("HELLO", 2))
    assert said["cluster"] == cluster_of(server) and said["alone"] == 1
