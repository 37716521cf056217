"""A member is a data directory, not a place: one that was emptied does not count, whoever knows what of it by then; and one that was
not is let in by whoever leads."""
import shutil

import pytest
from helpers import SERVES_MAX, granted_within
from nets import Net, NetCluster
from nodes import TTL_MAX, Disk, Node, free_port, fresh, put_first, until

NEVER = "20s"  # an election timeout of nodes that are not to stand
SOON = "1s"


def place(request, count, **kwargs):
    """That many nodes, and places for all of them, one more, and an operator."""
    net = Net([*(str(number) for number in range(1, count + 2)), "operator"])
    request.addfinalizer(net.close)
    cluster = NetCluster(net, count, founded=False, **kwargs)
    request.addfinalizer(cluster.clean)
    return net, cluster


def start_all(*nodes):
    for node in nodes:
        node.begin()
    for node in nodes:
        until(node.answers, f"{node} answers")


def lead(cluster, node, *others):
    """Among these."""
    with cluster.session(of=[node, *others]) as session:
        until(lambda: node.leads() or session.ask("CLUSTER", "TRANSFER", node.number) is None, f"{node} leads")


def test_an_empty_node_is_not_let_in_by_a_leader_of_before(request):
    """1 adds 5, reaches it no more, and is paused. 2 leads, 5 catches up and votes; 4 has heard that, not that it is agreed on, and is
    cut off. 2, 3 and 5 grant a lock. 5 loses its disk, 2 and 3 are paused, and 1 wakes up: to it 5 is one that is to get the log.
    With an empty 5, which it would make a member, 1 and 4 would be a majority."""
    net, cluster = place(request, 4)
    one, two, three, four = cluster
    for node in cluster:
        node.args += ["--election-timeout", "1500ms"]
    disk = Disk(cluster.directory, "disk-3")
    three.wrapper = disk.wrapper
    start_all(*cluster)
    cluster.init()
    cluster.lead_by(one)
    five = cluster.node_there(5, "--join", "--election-timeout", "1500ms")
    five_disk = Disk(cluster.directory, "disk-5")
    five_disk.hang()
    five.wrapper = five_disk.wrapper
    assert five.launch()
    net.part(["2", "3", "4"], ["5"])
    with cluster.session(of=[one]) as session:
        assert session.ask("CLUSTER", "ADD", 5, five.peer) == "OK"
    net.part(["1"], ["5"])
    until(lambda: all(5 in node.members() for node in (one, two, three, four)), "all know 5")
    net.part(["1"], ["2", "3", "4"])  # so that nothing waits for it when it wakes up
    one.pause()
    until(lambda: any(node.leads() for node in (two, three, four)), "another leads")
    lead(cluster, two, three, four)
    net.heal()
    net.part(["1"], ["2", "3", "4", "5"])
    net.part(["4"], ["5"])
    until(lambda: two.members()[5]["silent"] >= 0, "2 has reached 5")
    net.cut(("4", "2"), ("4", "3"))  # 4 hears, and is not heard
    disk.hang()
    five_disk.go_on()
    until(lambda: four.members()[5]["votes"], "4 has heard that 5 votes")
    net.part(["4"], ["2", "3"])
    disk.go_on()
    until(lambda: two.status()["applied"] > four.status()["applied"], "it is agreed on, and 4 has not heard that")
    name = fresh("held")
    with cluster.session(of=[two, three, five]) as first:
        token = first.ask("ACQUIRE", name, fresh(), "TTL", TTL_MAX)
    five.kill9()
    shutil.rmtree(five.data)
    two.pause()
    three.pause()
    net.heal()
    net.part(["1", "5"], ["4"], ["2", "3"])
    assert five.launch()
    one.resume()
    one.await_line("a node has come back without its data")
    until(lambda: not one.leads(), "1 leads no more")
    net.heal()
    net.part(["1", "4", "5"], ["2", "3"])
    with cluster.session(of=[one, four, five]) as second:
        assert granted_within(second, SERVES_MAX, name, fresh(), "TTL", TTL_MAX) is None, "two holders"
    assert five.status()["cluster"] == "" and four.members()[5]["lost"] == 1
    two.resume()
    three.resume()
    net.heal()
    with cluster.session(of=[one, two, three, four]) as session:
        assert session.ask("CHECK", name, token) == 1


def test_a_founder_that_never_heard_of_it_is_let_in_by_whoever_leads(request):
    """1, 2 and 3 take the record of the founding. 1 is elected; its first entry reaches 4, which makes 4 a member, but no majority,
    and 1 dies. 4 leads, which never had the record itself; 5 comes, with the directory that the record names."""
    net, cluster = place(request, 5)
    one, two, three, four, five = cluster
    disks = {node: Disk(cluster.directory, f"disk-{node.number}") for node in (two, three)}
    for node, disk in disks.items():
        node.wrapper = disk.wrapper
    for node in cluster:
        node.args += ["--election-timeout", NEVER]
    start_all(*cluster)
    before = {node: (node.data / "node").read_bytes() for node in (four, five)}
    cluster.init()
    for node in cluster:
        node.kill9()
    forget_founding([four, five], before)
    one.args[-1] = SOON
    start_all(two, three)
    for disk in disks.values():
        disk.hang()
    start_all(one)
    until(lambda: one.status()["leader"] == 1, "1 is elected")
    start_all(four)
    until(lambda: four.status()["leader"] == 1, "4 is a member")
    until(lambda: one.members()[4]["behind"] == 0, "4 has what 1 has")
    for node in (one, two, three, four):
        node.kill9()
    for disk in disks.values():
        disk.go_on()
    four.args[-1] = SOON
    start_all(two, three, four)
    until(four.leads, "4 leads")
    start_all(five)
    until(lambda: five.status()["leader"] == 4, "5 is let in")
    assert five.status()["trouble"] == "" and four.members()[5]["lost"] == 0
    with cluster.session(of=[two, three, four, five]) as session:
        assert session.ask("ACQUIRE", fresh("name"), fresh(), "TTL", TTL_MAX) > 0


def forget_founding(nodes, before):
    """As if they had never heard of it. Nobody has stood: they had nothing else to forget."""
    for node in nodes:
        for path in node.data.iterdir():
            path.unlink()
        (node.data / "node").write_bytes(before[node])


def test_a_founder_that_joined_and_has_no_log_yet_votes(start):
    """3 never took the record of the founding. 1 or 2 leads and sends to it, which makes it a member; both are killed before 3 has anything
    of the log on its disk. The other one and 3 are a majority, and each has all that it ever acknowledged."""
    cluster = start(3, "--election-timeout", NEVER, founded=False)
    one, two, three = cluster
    disk = Disk(cluster.directory, "disk-3")
    three.wrapper = disk.wrapper
    start_all(*cluster)
    before = {three: (three.data / "node").read_bytes()}
    cluster.init()
    for node in cluster:
        node.kill9()
    forget_founding([three], before)
    one.args[-1] = two.args[-1] = three.args[-1] = SOON
    start_all(one, two)
    leader = cluster.leader()
    name = fresh("held")
    token = leader.cmd("ACQUIRE", name, fresh(), "TTL", TTL_MAX)
    disk.hang()
    start_all(three)
    until(lambda: "joined" in (three.data / "node").read_text(), "3 is a member")
    disk.hangs()
    three.kill9()
    leader.kill9()
    disk.go_on()
    start_all(three)
    assert three.status()["trouble"].startswith("this node has been added to a cluster, and waits for its leader; if it was removed ") or \
        three.status()["leader"]
    until(lambda: any(node.leads() for node in cluster.running()), "the other and 3 serve")
    with cluster.session() as session:
        assert session.ask("CHECK", name, token) == 1


def test_one_that_was_promoted_and_has_not_heard_of_it_votes(request):
    """1 and 2 add 3, which catches up, and is cut off; it votes from then on, as 1 and 2 know. Both die, and 1 comes back. 1 and 3 are a
    majority; 3 was never stopped, and knows nothing but that 1 leads.

    The leader promotes 3 when it hears from it, and tells it at once. So 3 has answered when the leader stands still and the
    cable is cut; and what made 3 a learner, for which 2's disk is needed, has been agreed on by then as well: 2 has said so."""
    net, cluster = place(request, 2)
    one, two = cluster
    for node in cluster:
        node.args += ["--election-timeout", "4s"]
    disk = Disk(cluster.directory, "disk-2")
    two.wrapper = disk.wrapper
    start_all(*cluster)
    cluster.init()
    cluster.lead_by(one)
    three = cluster.node_there(3, "--join", "--election-timeout", "4s")
    assert three.launch()
    with one.connect() as client:
        disk.hang()
        client.send("CLUSTER", "ADD", 3, three.peer)
        until(lambda: (member := one.members().get(3)) and member["silent"] >= 0 and member["behind"] == 0, "3 has all")
        three.pause()
        until(lambda: one.members()[3]["silent"] > 1000, "3 has something to answer")
        one.pause()
        three.resume()
        disk.go_on()
        for node in (two, three):
            until(node.answers, f"{node} has done what it could")
        net.part(["1", "2"], ["3"])
        one.resume()
        assert client.read() == "OK"
    until(lambda: one.members()[3]["votes"], "3 votes")
    until(lambda: two.members()[3]["votes"] and one.members()[3]["silent"] > 1500, "2 knows it, and 3 is hardly called any more")
    assert not three.members()[3]["votes"], "3 has heard of it"
    one.kill9()
    two.kill9()
    net.heal()
    start_all(one)
    until(lambda: one.leads() or three.leads(), "1 and 3 serve")


def test_a_node_that_does_not_answer_is_not_added(start):
    """Its life is not known, and nothing is changed: whether nobody is there, or somebody with another id."""
    cluster = start(3)
    four = cluster.node(4, "--join")
    words = "NOREPLY node 4 at " + four.peer + " does not answer, and is not added: start it there first, with this id, an empty directory "
    with cluster.leader().connect() as client:
        refusal = client.error("CLUSTER", "ADD", 4, four.peer)
        assert refusal.startswith(words) and refusal.endswith("(connection refused)"), refusal
        four.number, four.line = 5, f"5={four.peer}"
        assert four.launch()
        assert client.error("CLUSTER", "ADD", 4, four.peer).startswith(words)
        assert all(set(node.members()) == {1, 2, 3} for node in list(cluster)[:3])
        assert client.cmd("CLUSTER", "ADD", 5, four.peer) == "OK"


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_an_empty_node_with_the_id_of_a_member_that_runs_disturbs_nobody(request, start, who):
    """Somebody has mistyped an id, and says CLUSTER INIT there. The member's connections stay, it is not said to have lost its data,
    and whoever reads the logs learns where that other one is."""
    cluster = start(3)
    leader = cluster.settled()
    member = leader if who == "leader" else cluster.followers()[0]
    others = [node for node in cluster if node is not member]
    put_first(cluster)
    term = leader.status()["term"]
    peer = f"127.0.0.1:{free_port()}"
    line = ",".join(f"{node.number}={peer if node is member else node.peer}" for node in cluster)
    stray = Node(member.number, cluster.directory, peer=peer, line=line, data=cluster.directory / "stray")
    request.addfinalizer(stray.kill9)
    assert stray.launch()
    with stray.connect() as client:
        for _ in range(3):
            refusal = client.error("CLUSTER", "INIT")
            assert refusal.startswith(f"ERR node {member.number} is a member of a cluster already, and runs"), refusal
    noted = f"another process says that it is node {member.number}, with other data, and is not let in"
    until(lambda: any(noted in line for node in others for line in node.logged()), "it is said")
    assert not any("without its data" in line for node in cluster for line in node.logged())
    assert all(seen["lost"] == 0 and seen["client"] for node in cluster for seen in node.members().values())
    assert leader.leads() and leader.status()["term"] == term
    assert "is a member of a cluster already" in stray.status()["trouble"]
