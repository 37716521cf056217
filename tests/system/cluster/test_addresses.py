"""A member has more than one address, and not all of them are right: the log's, its own word, the numbers behind a name. Whatever leads to it is
found, whatever else hangs, is silent, or leads to somebody else."""
import socket
import threading

from helpers import add
from nets import NOWHERE, PEER_PORT, Net, NetCluster
from nodes import Node, free_port, fresh, until
from resolving import Names

SILENT = "10.99.0.250"  # what is sent there gets lost
QUICK = "300ms"  # election timeout: whoever is there says so soon, and with it his own word
SERVES_MAX = 25  # seconds: a name server takes four of them, a silent number some more


def name_of(number):
    return f"db{number}.hf"


def place(request, spots, count, numbers, silent=()):
    """Nodes at their places, not started, and the name servers of all of them. `numbers`: of a node's name."""
    net = Net([*spots, "operator"])
    request.addfinalizer(net.close)
    cluster = NetCluster(net, count, founded=False)
    request.addfinalizer(cluster.clean)
    servers = []
    for node in cluster:
        spot = net[str(node.number)]
        for address in (SILENT, *silent):
            spot.ip(f"neighbour replace {address} lladdr {NOWHERE} dev wire nud permanent")
        node.args += ["--election-timeout", QUICK]
        servers.append(Names(spot, {name_of(number): numbers(number) for number in range(1, count + 1)}))
        request.addfinalizer(servers[-1].close)
        node.prepare = servers[-1].prepare(cluster.directory)
    return cluster, servers


def grow_by_names(cluster):
    """The log has them by their names; what they say of themselves leads nowhere."""
    first = cluster[1]
    first.line = f"1={name_of(1)}:{PEER_PORT}"
    assert first.launch()
    cluster.init(first)
    until(first.leads, "1 leads")
    for node in list(cluster)[1:]:
        node.line = f"{node.number}={SILENT}:{PEER_PORT}"
        node.args += ["--peer-listen", f"{node.host}:{PEER_PORT}"]
        assert node.launch()
        with cluster.session(of=[first]) as session:
            assert session.ask("CLUSTER", "ADD", node.number, f"{name_of(node.number)}:{PEER_PORT}") == "OK"
        until(lambda: first.members()[node.number]["votes"], f"{node} votes")


def all_start_again(cluster, nodes):
    for node in cluster:
        node.kill9()
    for node in nodes:
        node.begin()
    cluster.leader(patience=SERVES_MAX)


def test_a_name_server_that_takes_its_time(request):
    """1 waits for it longer than anybody would wait for one of two addresses; meanwhile 2 has come, and has said the wrong one."""
    cluster, servers = place(request, ["1", "2"], 2, lambda number: [f"10.99.0.{number}"])
    grow_by_names(cluster)
    servers[0].delay = 4
    all_start_again(cluster, list(cluster))


def test_a_name_whose_first_number_is_silent(request):
    """3 is a number that nobody has, and as near to 1 as 2 is: getaddrinfo leaves it where the name server puts it."""
    cluster, servers = place(request, ["1", "2", "gap"], 2, lambda number: [f"10.99.0.{number}"], silent=["10.99.0.3"])
    grow_by_names(cluster)
    servers[0].answers[name_of(2)] = ["10.99.0.3", "10.99.0.2"]
    all_start_again(cluster, list(cluster))


def test_names_that_hang(request):
    """Two of five are gone, and the name server says nothing of them. 1 is there first, and asks for all of them for a while before 2 and 3 are."""
    cluster, servers = place(request, ["1", "2", "3", "4", "5"], 5, lambda number: [f"10.99.0.{number}"])
    cluster.line = ",".join(f"{node.number}={name_of(node.number)}:{PEER_PORT}" for node in cluster)
    for node in cluster:
        node.line = cluster.line
    cluster.begin()
    for node in cluster:
        node.kill9()
    for server in servers:
        server.mute |= {name_of(4), name_of(5)}
    for node in list(cluster)[:3]:
        node.begin()
        until(node.answers, f"{node} answers")
    cluster.leader(patience=SERVES_MAX)
    with cluster.session(of=list(cluster)[:3]) as session:
        assert session.ask("ACQUIRE", fresh("name"), fresh()) > 0


def test_a_name_that_led_to_somebody_else(request):
    """While 2 is down its name leads to an empty node with its id, which 1 and 3 meet; then to 2 again. That the other one still runs keeps nobody from 2.
    3 goes, so that nothing is served without 2."""
    cluster, servers = place(request, ["1", "2", "3", "other"], 3, lambda number: [f"10.99.0.{number}"])
    cluster.line = ",".join(f"{node.number}={name_of(node.number)}:{PEER_PORT}" for node in cluster)
    for node in cluster:
        node.line = cluster.line
    cluster.begin()
    one, two, three = cluster
    two.kill9()
    spot = cluster.net["other"]
    for server in servers:
        server.answers[name_of(2)] = [spot.address]
    names = Names(spot, {name_of(number): [f"10.99.0.{number}"] for number in (1, 2, 3)})
    request.addfinalizer(names.close)
    other = Node(2, cluster.directory, *cluster.args, "--election-timeout", QUICK, peer=f"{spot.address}:{PEER_PORT}", line=cluster.line,
                 data=cluster.directory / "other", host=spot.address, port=7420, password=two.password, enter=two.enter, prepare=names.prepare(cluster.directory))
    request.addfinalizer(other.kill9)
    assert other.launch()
    until(lambda: one.members()[2]["lost"] == 1, "1 has met the other one")
    for server in servers:
        server.answers[name_of(2)] = ["10.99.0.2"]
    three.kill9()
    assert two.launch()
    with cluster.session(of=[one, two]) as session:
        assert session.ask("ACQUIRE", fresh("name"), fresh(), patience=SERVES_MAX) > 0


# ---- two addresses ------------------------------------------------------------------------------------------------


class Relay:
    """What comes to one port goes to another, until it is closed."""

    def __init__(self, to):
        self.to, self.ends = to, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                one = self.listener.accept()[0]
            except OSError:
                return
            host, port = self.to.rsplit(":", 1)
            other = socket.create_connection((host, int(port)))
            self.ends += [one, other]
            for source, sink in ((one, other), (other, one)):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        for end in (self.listener, *self.ends):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


def added_elsewhere(cluster):
    """Node 2, which votes, and the relay at which it was added. Its own word is where it is."""
    two = cluster.node(2, "--join")
    relay = Relay(two.peer)
    assert two.launch()
    assert cluster.ask("CLUSTER", "ADD", 2, relay.address) == "OK"
    until(lambda: cluster[1].members()[2]["votes"], "2 votes")
    return two, relay


def test_another_one_at_the_address_of_the_log(request, start):
    """2 was added at an address that is another machine's now, with an empty node that has the same id. 1 starts, and meets that one first. Where 2 really
    is, it says itself: both serve, and nobody is told that 2 has lost its data."""
    cluster = start(1)
    one = cluster[1]
    two, relay = added_elsewhere(cluster)
    one.kill9()
    two.kill9()
    relay.close()
    other = Node(2, cluster.directory, peer=relay.address, line=f"2={relay.address}", data=cluster.directory / "other")
    request.addfinalizer(other.kill9)
    assert other.launch()
    for node in (two, one):
        assert node.launch()
    assert cluster.ask("ACQUIRE", fresh("name"), fresh()) > 0
    assert one.members()[2]["lost"] == 0
    for node in (one, two):
        assert node.stop() == 0
    assert not [line for line in one.logged() if "without its data" in line]


def test_a_member_is_asked_where_it_is(start):
    """CLUSTER INIT asks those that are listed. One that there is a connection with is asked by that, and it is left alone."""
    cluster = start(1)
    one = cluster[1]
    two, relay = added_elsewhere(cluster)
    assert one.stop() == 0
    relay.close()
    one.line = f"1={one.peer},2={relay.address}"
    assert one.launch()
    cluster.settled()
    with one.connect() as client:
        for _ in range(3):
            assert client.error("CLUSTER", "INIT") == "ERR this cluster is founded already, with all its members: nothing was changed"


def test_a_newcomer_of_a_leader_whose_own_word_leads_nowhere(start):
    """The others reach that leader where the log has it, and so does a newcomer, which knows nothing but what it is told."""
    cluster = start(1)
    two = cluster.node(2, "--join")
    two.line = f"2=127.0.0.1:{free_port()}"
    two.args += ["--peer-listen", two.peer]
    assert two.launch()
    assert cluster.ask("CLUSTER", "ADD", 2, two.peer) == "OK"
    until(lambda: cluster.leader().members()[2]["votes"], "2 votes")
    cluster.lead_by(two)
    add(cluster, 3, "--join")
    cluster.settled()


def test_a_leader_that_nobody_reaches_is_named(start):
    """Alone, with an address that leads nowhere: whoever is to be added is there, and cannot answer. That is said."""
    cluster = start(1, founded=False)
    one = cluster[1]
    one.args += ["--peer-listen", one.peer]
    nowhere = f"127.0.0.1:{free_port()}"
    one.line = f"1={nowhere}"
    assert one.launch()
    cluster.init(one)
    two = cluster.node(2, "--join")
    assert two.launch()
    with one.connect() as client:
        refusal = client.error("CLUSTER", "ADD", 2, two.peer)
    assert refusal.startswith(f"NOREPLY node 2 at {two.peer} does not answer, and is not added: "), refusal
    assert refusal.endswith(f"; or it cannot reach this node at {nowhere}: see its log"), refusal
    two.await_line("a node cannot be reached")
