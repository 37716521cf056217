"""Members of two versions: once all are of the newer one, its formats are in use, and an older holdfastd is neither started nor let in.
The newer one is built for this test."""
import os

import pytest
from nodes import Cluster, Node, Process, Refused, argv_of, die_with_parent, environment, until

NEXT = os.environ.get("HF_SERVER_NEXT", "build-check/src/server/holdfastd-next")


class NewerNode(Node):
    """Of the next version, unless `older`."""
    older = False

    def begin(self):
        if self.older:
            super().begin()
            return
        self.log.append(f"---- started, the next version: {' '.join(map(str, self.words()))}")
        self.process = Process([NEXT, *argv_of(*self.words())[1:]], environment(), preexec_fn=die_with_parent)


class NewerCluster(Cluster):
    node_class = NewerNode


@pytest.fixture
def newer():
    cluster = NewerCluster(3)
    yield cluster
    cluster.clean()


def test_one_that_is_too_old_is_not_added(newer):
    """It said so when it was asked, and nothing was changed. The newer program in its place is let in."""
    newer.settled()
    newer.leader().await_line("version 3 of the formats is in use")
    late = newer.node(4, "--join")
    late.older = True
    assert late.launch()
    with pytest.raises(Refused) as refused:
        newer.ask("CLUSTER", "ADD", 4, late.peer)
    assert "node 4 runs a holdfastd that reads formats up to version 2, and this cluster uses version 3: " in str(refused.value)
    assert "run a newer holdfastd there first" in str(refused.value)
    assert 4 not in newer.leader().members() and late.status()["cluster"] == ""
    assert late.stop() == 0
    late.older = False
    assert late.launch()
    assert newer.ask("CLUSTER", "ADD", 4, late.peer) == "OK"
    until(lambda: newer.leader().members()[4]["votes"] == 1, "it votes")
