"""The release archive: of a commit, the same each time, and enough to build from."""
import hashlib
import re
import subprocess

import pytest
from chroots import ROOT, why_not

BUILD_MAX = 900

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def dist(folder):
    return (ROOT / subprocess.run([ROOT / "tools/dist", folder], capture_output=True, text=True, check=True).stdout.strip()).resolve()


def test_the_archive_is_the_commit_and_always_the_same(tmp_path):
    one, other = dist(tmp_path / "one"), dist(tmp_path / "other")
    assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest()
    subprocess.run(["sha256sum", "--check", "--quiet", one.name + ".sha256"], cwd=one.parent, check=True)
    version = re.search(r"(?m)^  version: '(.*)',$", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    assert one.name == f"holdfast-{version}.tar.gz"
    there = subprocess.run(["tar", "-tzf", one], capture_output=True, text=True, check=True).stdout.split("\n")
    tracked = subprocess.run(["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {path for path in there if path and not path.endswith("/")} == {f"holdfast-{version}/{path}" for path in tracked.split("\n") if path}


def test_it_is_built_from_without_git(tmp_path):
    archive = dist(tmp_path)
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    tree = tmp_path / archive.name.removesuffix(".tar.gz")
    subprocess.run(["make", "--no-print-directory", "SETUP=:"], cwd=tree, check=True, timeout=BUILD_MAX, capture_output=True)
    said = subprocess.run([tree / "build/src/cli/holdfast", "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] in archive.name
    assert subprocess.run([tree / "build/src/server/holdfastd", "--version"], check=True, capture_output=True).returncode == 0
