"""holdfast bench: what it measures, what it reports, what it notices, and what it leaves behind."""
import json
import re
import signal
import xml.etree.ElementTree

import pytest
from holdfast_cli import Cli, eventually, objects, only_line
from once_cli import need_server

QUICK = ("bench", "--seconds", "0.1", "--rounds", "2", "--clients", "3", "--names", "8")


@pytest.fixture(scope="module")
def server():
    made = need_server().Holdfastd()
    yield made
    made.clean()


def no_holds(cli, url):
    done = cli("ls", "--on", url)
    assert done.status == 0, done.stderr
    return "bench/" not in done.stdout


def test_json(cli, server):
    """One object for each work, number of clients, and store; in this order."""
    there = f"holdfast://127.0.0.1:{server.port}"
    done = cli("bench", "--on", there, "--on", cli.url, "--json", "--seconds", "0.05", "--rounds", "2", "--clients", "4,1", "--names", "8")
    assert (done.status, done.stderr) == (0, "")
    rows = objects(done)
    assert [(row["work"], row["clients"], row["store"]) for row in rows] == [
        (work, clients, url) for work in ("spread", "hot", "mix") for clients in (1, 4) for url in (there, cli.url)]
    for row in rows:
        assert row["rounds"] == len(row["cycles_per_s_rounds"]) == 2 and row["round_ms"] == 50
        assert (row["cycles"] > 0) == (max(row["cycles_per_s_rounds"]) > 0)
        for took in filter(None, (row["acquire"], row["handover"])):
            assert took["count"] > 0 and 0 <= took["p50_us"] <= took["p99_us"] <= took["p999_us"] <= took["max_us"], row
        assert (row["cycles"] > 0) == bool(row["fairness"]) == bool(row["cpu_us_per_cycle"])
        if row["cycles"]:
            assert 0 <= row["fairness"]["least"] <= 1 <= row["fairness"]["most"]
            assert 1 / row["clients"] - 0.001 <= row["fairness"]["jain"] <= 1
            assert row["cpu_us_per_cycle"] > row["bench_us_per_cycle"] > 0
        assert row["threads"] == min(2, row["clients"])
        assert not row["handover"] or (row["work"] != "spread" and row["clients"] > 1), "who has it to himself waits for nobody"
        for wrong in ("violations", "failures", "unknown", "lost"):
            assert row[wrong] == 0, row
    for url in (there, cli.url):
        assert sum(row["cycles"] for row in rows if row["store"] == url) > 0
        assert any(row["handover"] for row in rows if row["store"] == url)
    assert no_holds(cli, there) and no_holds(cli, cli.url)


def test_table(cli):
    """The same store twice has two names; a hold makes cycles longer."""
    done = cli(*QUICK, "--work", "hot", "--hold", "20ms", "--on", cli.url, "--on", cli.url)
    assert (done.status, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["WORK", "CLIENTS", "CYCLES/S"] and len(lines) == 5
    assert [line.split()[0] for line in lines[1:3]] == ["hot", "hot"]
    assert lines[1].endswith(cli.url) and lines[2].endswith(cli.url + " #2")
    assert all(0 <= float(line.split()[2]) <= 60 for line in lines[1:3]), "at most one each 20 ms, and one at each end"
    assert lines[4].startswith("medians of 2 rounds of 0.1 s")


def test_blocking(cli):
    """Clients that are threads; who has it to himself does not wait, and is not interrupted in what he holds."""
    done = cli(*QUICK, "--blocking", "--threads", "1", "--json")
    assert (done.status, done.stderr) == (0, "")
    rows = objects(done)
    assert [row["work"] for row in rows] == ["spread", "hot", "mix"] and sum(row["cycles"] for row in rows) > 0
    assert all(row["blocking"] and row["threads"] == 3 for row in rows)
    assert no_holds(cli, cli.url)


def test_report(cli, directory):
    """One page that parses, with its plots, and nothing that is fetched from elsewhere."""
    page = directory / "page.html"
    page.write_text("what was there before")
    done = cli("bench", "--seconds", "0.05", "--rounds", "1", "--clients", "1,2,3", "--names", "4", "--report", page, "--on", cli.url, "--on",
               cli.url)
    assert (done.status, done.stderr) == (0, "")
    text = page.read_text()
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag == "html" and root.find("head/meta[@name='viewport']") is not None
    captions = [figure.find("figcaption").text for figure in root.iter("figure")]
    assert captions.count("Cycles per second, over clients") == 3 and captions.count("Hand-over, over waiters") == 1
    assert captions.count("Acquiring, with 3 clients") == 3 and captions.count("Acquiring, with 1 client") == 3
    for figure in root.iter("figure"):
        lines = figure.findall("svg//path[@class='l']")
        assert len(lines) == 2 or "Cycles" not in figure.find("figcaption").text, "a line for each store"
        assert "nan" not in "".join(" ".join(part.attrib.values()) for part in figure.iter()), "every place is a number"
    assert len(root.findall(".//tbody/tr")) == 3 * 3 * 2
    for word in ("src=", "href=", "url(", "@import", "<script", "<link", "xmlns"):
        assert word not in text, word
    assert "prefers-color-scheme:dark" in text and "@media print" in text


def test_report_of_one_number_of_clients_has_bars(cli, directory):
    page = directory / "page.html"
    assert cli(*QUICK, "--work", "hot", "--report", page).status == 0
    root = xml.etree.ElementTree.fromstring(page.read_text())
    assert len(root.findall(".//div[@class='bar s0']")) == 2, "cycles, and hand-over"


def test_report_that_cannot_be_written_is_told_first(cli, directory):
    done = cli("bench", "--report", directory / "no" / "page.html")
    assert done.status == 77 and "cannot write" in only_line(done.stderr) and done.stdout == ""


@pytest.mark.parametrize("how", [(), ("--blocking",)])
def test_two_holders_are_told(ttl_cli, how):
    """Whatever else: a store that grants twice must not get away with it."""
    ttl_cli.faults("grant-twice", "on")
    done = ttl_cli(*QUICK, "--work", "hot", "--json", "--hold", "5ms", *how)
    assert done.status == 1
    assert re.search(r"^holdfast: VIOLATION on test:.*: bench/[0-9a-f]{8}/0/hot/0: TWO HOLDERS at once, tokens \d+ and \d+$", done.stderr, re.M)
    assert re.search(r"^holdfast: test:.* BROKE ITS PROMISE \d+ times", done.stderr, re.M)
    assert objects(done)[0]["violations"] > 0


def test_failures_are_counted(ttl_cli, directory):
    """And shown, with the last of them in words, beside what was measured. What gives nothing in a whole round is left out."""
    page = directory / "page.html"
    bench = ttl_cli.start("bench", "--seconds", "0.2", "--rounds", "100", "--clients", "2", "--work", "spread", "--names", "4", "--json",
                          "--report", page)
    eventually(lambda: int(re.search(r"^acquire (\d+)$", ttl_cli.faults("counts"), re.M)[1]) > 2, "it has begun")
    ttl_cli.faults("refuse", "release", 3)
    ttl_cli.faults("refuse", "acquire", "on")
    assert bench.wait() == 69
    row = json.loads(bench.line())
    assert row["failures"] > 3 and row["last_failure"] == "test store: told to refuse"
    assert (row["unknown"], row["lost"], row["violations"]) == (0, 0, 0) and row["rounds"] < 100
    assert [line.split(": ", 1)[1] for line in bench.rest("err")] == [
        f"{ttl_cli.url} gave nothing in a whole round, and is left out from here on: test store: told to refuse",
        f"{ttl_cli.url}: {row['failures']} failed, 0 outcomes unknown, 0 lost; the last: test store: told to refuse"]
    assert f"<strong>{row['failures']} failed</strong>" in page.read_text()


def test_no_store(ttl_cli, directory):
    ttl_cli.faults("unreachable", "acquire", "on")
    done = ttl_cli("bench", "--report", directory / "page.html")
    assert done.status == 69 and "told to be unreachable" in only_line(done.stderr) and done.stdout == ""
    assert not (directory / "page.html").exists(), "nothing was measured"


@pytest.mark.parametrize("how, number", [((), signal.SIGINT), (("--blocking",), signal.SIGTERM)])
def test_a_signal_leaves_nothing_behind(ttl_cli, how, number):
    """On a store with a TTL, where a hold would outlive its process. What was measured is printed."""
    bench = ttl_cli.start("bench", "--seconds", "1h", "--clients", "5", "--work", "hot", "--hold", "1h", "--names", "5", *how)
    eventually(lambda: any("/hot/" in row["name"] for row in objects(ttl_cli("ls", "--json"))), "a lock is held")
    bench.kill(number)
    assert bench.wait() == 128 + number
    assert ttl_cli("ls").stdout == "" and bench.rest() == [], "no round has ended"


def test_values(cli):
    for words in (["--clients", "0"], ["--clients", "1,,2"], ["--clients", "20001"], ["--clients", ""], ["--work", "cold"], ["--work", ""],
                  ["--seconds", "0"], ["--rounds", "0"], ["--rounds", "101"], ["--threads", "0"], ["--blocking", "--clients", "5000"], ["--names", "0"], ["--hold", "x"], ["word"],
                  ["--on", "nowhere:x"], ["--on", cli.url] * 9):
        done = cli("bench", *words)
        assert done.status == 64 and only_line(done.stderr), words
