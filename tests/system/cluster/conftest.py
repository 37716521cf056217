"""What the tests of clusters share: see nodes.py. A test that fails shows the logs of its nodes; whatever it started is
ended, by its pid. The figures of campaigns are printed at the end of the run, also when all is well."""
import contextlib
import pathlib
import sys

import pytest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent))
pytest.register_assert_rewrite("nodes", "helpers", "load", "nets", "resolving")
import nodes  # noqa: E402

figures_said = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for cluster in nodes.living:
            report.sections += list(cluster.shown())


def pytest_terminal_summary(terminalreporter):
    for line in figures_said:
        terminalreporter.write_line(line)


@pytest.fixture
def figures(request):
    """Says a line of figures at the end of the run."""
    return lambda text: figures_said.append(f"{request.node.name}: {text}")


@pytest.fixture
def start():
    """Starts clusters, and ends them in the reverse order."""
    with contextlib.ExitStack() as stack:
        def make(count=3, *args, **kwargs):
            cluster = nodes.Cluster(count, *args, **kwargs)
            stack.callback(cluster.clean)
            return cluster

        yield make


@pytest.fixture(scope="module")
def shared_cluster():
    cluster = nodes.Cluster(3)
    yield cluster
    cluster.clean()


@pytest.fixture
def cluster(shared_cluster):
    """One that the tests of a file share. Whatever a test does to it, all three nodes run and agree afterwards."""
    for node in shared_cluster:
        if node.paused:
            node.resume()
        if not node.running():
            assert node.launch()
    shared_cluster.settled()
    yield shared_cluster


@pytest.fixture
def name():
    return nodes.fresh("name")


@pytest.fixture
def lease():
    return lambda: nodes.fresh("lease")
