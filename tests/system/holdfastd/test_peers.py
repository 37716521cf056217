"""bench/peers: a short run with two stores brings a table, JSON, and a page of which only the results are new. Figures are not looked at."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

BUILD = pathlib.Path(os.environ["HOLDFAST_BIN"]).resolve().parents[2] if "HOLDFAST_BIN" in os.environ else ROOT / "build-check"
BEGIN, END = "<!-- make bench-peers writes from here -->", "<!-- to here -->"


def run(folder, page, *options):
    if not os.access(BUILD / "bench/bench-bare", os.X_OK):
        pytest.skip("bench-bare is not built")
    return subprocess.run([sys.executable, ROOT / "bench/peers/peers.py", BUILD, "--quick", "--folder", folder, "--json", folder / "json", "--page",
                           page, *options], capture_output=True, text=True, timeout=120)


@pytest.fixture
def page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs/benchmarks.md").read_text())
    return page


def test_two_stores(tmp_path, page):
    before = page.read_text()
    done = run(tmp_path, page, "--stores", "files,holdfastd", "--only", "cycles,clients")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "json").read_text().splitlines()]
    points = [line for line in lines if line["kind"] == "point"]
    assert {(p["measure"], p["store"], p["way"]) for p in points if p["way"] != "own"} == {
        (measure, store, way) for store in ("files", "holdfastd") for measure, way in (
            ("cycle", "bare"), ("cycle", "library"), ("spread", "bare"), ("spread", "library"), ("hot", "library"), ("clients", "library"))}
    assert {p["store"] for p in points if p["way"] == "own"} >= {"files"}
    for point in points:
        assert point["cycles"] > 0 and point["failures"] == 0, point
    assert [line["what"] for line in lines if line["kind"] == "ratio"] == [
        "time of one client's cycle: library : the bare requests, " + store for store in ("files", "one holdfastd")]
    table = done.stdout.split("One client's cycle, µs")[1].split("\n\n")[0].splitlines()
    assert [line.split("  ")[0] for line in table[3:]] == ["files", "one holdfastd"]
    assert all(re.search(r"\s(yes|no)\s+[\d,.]+\s+[\d,.]+\s+\d+\.\d\d\s", line) for line in table[3:]), table
    after = page.read_text()
    assert after.partition(BEGIN)[0] == before.partition(BEGIN)[0] and after.partition(END)[2] == before.partition(END)[2]
    assert "| one holdfastd | yes |" in after and "![Cycles/s, with more and more clients](bench-clients.svg)" in after
    assert (tmp_path / "bench-clients.svg").read_text().startswith("<svg")
    assert not list(tmp_path.glob("holdfast-peers.*"))


def test_a_page_without_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing to be written into\n")
    done = run(tmp_path, page, "--stores", "files", "--only", "clients")
    assert done.returncode == 1 and "marks" in done.stderr and page.read_text() == "nothing to be written into\n"


def test_an_unknown_store_is_told(tmp_path, page):
    done = run(tmp_path, page, "--stores", "files,floppies")
    assert done.returncode == 2 and "floppies" in done.stderr
