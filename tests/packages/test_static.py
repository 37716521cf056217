"""The command as one file, in a root directory that has nothing else."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from chroots import ROOT, why_not

SIZE_MAX = 4 << 20
PATIENCE = 60

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture
def empty(tmp_path):
    shutil.copy(ROOT / "build-static/holdfast", tmp_path)
    return tmp_path


def run(root, *words):
    done = subprocess.run([shutil.which("chroot"), root, "/holdfast", *words], env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def port(tmp_path_factory):
    """Of a server beside it."""
    folder = tmp_path_factory.mktemp("server")
    program = pathlib.Path(os.environ.get("HF_SERVER", ROOT / "build/src/server/holdfastd"))
    server = subprocess.Popen([program, "--config", os.devnull, "--listen", "127.0.0.1:0", "--data", folder / "data", "--allow", "tmpfs"],
                              stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if " serving " in line:
                break
        yield re.search(r"listen=127\.0\.0\.1:(\d+)", line)[1]
    finally:
        server.kill()
        server.communicate()


def test_it_is_one_file(empty):
    said = subprocess.run(["readelf", "-ld", empty / "holdfast"], capture_output=True, text=True, check=True).stdout
    assert "INTERP" not in said and "NEEDED" not in said and re.search(r"FLAGS_1.*PIE", said)
    assert (empty / "holdfast").stat().st_size < SIZE_MAX
    assert run(empty, "--version")[0] == 0


def test_it_locks_with_nothing_beside_it(empty, port):
    url = f"holdfast://127.0.0.1:{port}"
    status, said, _ = run(empty, "--on", url, "run", "nightly", "--", "/holdfast", "--version")
    assert status == 0 and said.startswith("holdfast ")
    status, said, _ = run(empty, "--on", url, "lock", "nightly")
    assert status == 0 and "HOLDFAST_TOKEN=" in said
    assert run(empty, "--on", url, "run", "--no-wait", "nightly", "--", "/holdfast")[0] == 75
    assert [path.name for path in empty.iterdir()] == ["holdfast"]


def test_names_are_looked_up_in_a_file_of_hosts(empty, port):
    (empty / "etc").mkdir()
    (empty / "etc/hosts").write_text("127.0.0.1 db1\n")
    assert run(empty, "--on", f"holdfast://db1:{port}", "run", "nightly", "--", "/holdfast", "--version")[0] == 0


@pytest.mark.parametrize("url, package", [("postgres://127.0.0.1/x", "postgres"), ("etcd://127.0.0.1", "etcd"),
                                          ("zookeeper://127.0.0.1", "zookeeper"), ("rediss://127.0.0.1", "tls")])
def test_what_needs_a_module_says_so(empty, url, package):
    status, _, why = run(empty, "--on", url, "run", "nightly", "--", "/holdfast")
    assert status == 69 and "a single file without modules" in why and f"holdfast-{package}" in why
