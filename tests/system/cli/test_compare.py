"""The blocks of docs/compare.md that come from flock(1), run as they are written: free, they do their work; while the lock is held,
they leave it."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import BIN, PATIENCE
from holdfast_cli import ROOT

SECTION = re.search(r"^### Coming from flock\n(.*?)^## ", (ROOT / "docs/compare.md").read_text(), re.M | re.S).group(1)
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", SECTION, flags=re.M | re.S)
SELF = [block for block in BLOCKS if '"$0"' in block]
WORK = [block for block in BLOCKS if block not in SELF]


@pytest.fixture
def sh(cli, directory):
    env = {**cli.env, "PATH": f"{pathlib.Path(BIN).parent}:{os.environ['PATH']}"}

    def run(*words):
        return subprocess.run(words, cwd=directory, env=env, capture_output=True, text=True, timeout=PATIENCE)
    return run


pytestmark = pytest.mark.skipif(not shutil.which("flock"), reason="needs flock")


def test_there_are_such_blocks():
    assert len(WORK) == 4 and len(SELF) == 1


@pytest.mark.parametrize("block", WORK)
def test_a_block(sh, block):
    done = sh("sh", "-ec", block)
    assert done.returncode == 0 and done.stderr == "", done
    assert "working" in done.stdout or "step one\nstep two\n" in done.stdout


@pytest.mark.parametrize("block", WORK)
def test_a_block_leaves_what_is_held(sh, directory, block):
    """By somebody with flock and by somebody with holdfast: each block minds at least the one it is about."""
    holder = ["flock", "nightly.lock"] if "holdfast" not in block else ["holdfast", "run", "nightly", "--"]
    (directory / "block").write_text(block.splitlines(keepends=True)[-1] if "before" in block else block)
    if "before" in block:
        holder = ["holdfast", "run", "nightly", "--"]
    done = sh(*holder, "sh", "-c", "unset HOLDFAST_HELD HOLDFAST_NAME; exec sh -e block")
    assert done.returncode in (1, 75) and "working" not in done.stdout and "step" not in done.stdout, done


def test_a_new_job_minds_those_of_before(sh, directory):
    block, = [block for block in WORK if re.match("holdfast run -n nightly -- flock", block)]
    (directory / "block").write_text(block)
    done = sh("flock", "nightly.lock", "sh", "block")
    assert done.returncode == 1 and done.stdout == "", done


def test_a_script_that_locks_itself(sh, directory):
    (directory / "job").write_text("#!/bin/sh\n" + SELF[0] + 'echo working "$@" with "${HOLDFAST_TOKEN:?}"\n')
    (directory / "job").chmod(0o755)
    done = sh("./job", "hard")
    assert done.returncode == 0 and done.stdout.startswith("working hard with "), done
    done = sh("holdfast", "run", "nightly", "--", "sh", "-c", "unset HOLDFAST_HELD HOLDFAST_NAME; ./job")
    assert done.returncode == 75 and done.stdout == "", done
