"""lock, renew and unlock at a real server: what a script is told is what the server keeps."""
import subprocess

import pytest
from conftest import Holdfastd, pairs_of
from holdfast_cli import BIN, Cli

TTL_MS = 300000
LEAST_MS = 280000  # on a machine with other things to do


@pytest.fixture
def server():
    server = Holdfastd()
    yield server
    server.clean()


def sh(server, script):
    env = {**Cli(f"holdfast://127.0.0.1:{server.port}").env, "H": BIN}
    return subprocess.run(["sh", "-ec", script], env=env, capture_output=True, text=True, timeout=60)


def left_ms(server):
    (holder,) = server.show("deploy")["holders"]
    return pairs_of(holder)["left_ms"]


def test_renew_keeps_the_ttl_of_the_lock(server):
    """As the example of `holdfast lock --help` has it."""
    done = sh(server, 'lease=$($H lock deploy --ttl 5m); eval "$lease"; $H renew deploy')
    assert done.returncode == 0, done.stderr
    assert LEAST_MS < int(done.stdout) <= left_ms(server) <= TTL_MS


def test_renew_with_another_ttl(server):
    """A longer one counts from now on; a shorter one takes nothing away of what is left, but no more is promised."""
    done = sh(server, 'lease=$($H lock deploy --ttl 20s); eval "$lease"; $H renew deploy --ttl 5m; $H renew deploy --ttl 10s')
    assert done.returncode == 0, done.stderr
    longer, shorter = map(int, done.stdout.split())
    assert LEAST_MS < longer <= TTL_MS and 0 < shorter <= 10000 and left_ms(server) > LEAST_MS
