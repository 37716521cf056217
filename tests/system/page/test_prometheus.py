"""What is given to Prometheus and Grafana: alerts and a dashboard that ask for what a server really says, in words that Prometheus understands."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "holdfastd"))
from conftest import PATIENCE, Holdfastd  # noqa: E402
from exposition import families_of  # noqa: E402

DIST = pathlib.Path(os.environ.get("HF_SOURCE_ROOT", pathlib.Path(__file__).parents[3])) / "dist"
ALERTS, DASHBOARD = DIST / "prometheus-alerts.yml", DIST / "grafana-dashboard.json"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="there is no promtool")
METRIC = re.compile(r"\b((?:holdfast|process)_[a-z_]+)\b")
VARIABLES = {"$__rate_interval": "1m", "$job": "holdfast", "${datasource}": "x"}


@pytest.fixture(scope="module")
def exposition():
    server = Holdfastd()
    try:
        with server.connect() as client:
            for name in ("orders:1", 'odd"\\:1', "plain"):
                client.cmd("ACQUIRE", name, "l")
            yield client.cmd("INFO", "prometheus")
    finally:
        server.clean()


def promtool(*words, text=None):
    done = subprocess.run([PROMTOOL, *map(str, words)], input=text, stdin=None if text else subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def expressions():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def samples(exposition):
    """All names that can be asked for."""
    names = set()
    for family in families_of(exposition).values():
        names |= {family.name + suffix for suffix in (("_bucket", "_sum", "_count") if family.type == "histogram" else ("",))}
    return names


@needs_promtool
def test_promtool_has_nothing_to_say_about_the_metrics(exposition):
    assert promtool("check", "metrics", text=exposition) == ""


@needs_promtool
def test_alerts(tmp_path):
    assert "SUCCESS" in promtool("check", "rules", ALERTS)
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    (tmp_path / "test.yml").write_text(TEST)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "test.yml")


@needs_promtool
def test_what_the_dashboard_asks_is_understood(tmp_path):
    def whole(expression):
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        return expression

    rules = [{"record": f"panel:{i}", "expr": whole(expression)} for i, expression in enumerate(expressions())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert "SUCCESS" in promtool("check", "rules", tmp_path / "rules.yml")


def test_they_ask_for_what_there_is(exposition):
    asked = set(METRIC.findall("\n".join(expressions()))) | set(METRIC.findall("\n".join(re.findall(r"^ +expr: (.*)$", ALERTS.read_text(), re.M))))
    assert len(asked) >= 20 and asked <= samples(exposition), asked - samples(exposition)


def test_the_dashboard_can_be_imported():
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 15
    places = [(panel["gridPos"]["x"] + dx, panel["gridPos"]["y"] + dy) for panel in panels for dx in range(panel["gridPos"]["w"])
              for dy in range(panel["gridPos"]["h"])]
    assert len(set(places)) == len(places) and max(x for x, _ in places) == 23, "no panel lies over another"
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels)


# Nodes of which none leads; that are all down; of which a member is away; one that has stopped.
TEST = """
rule_files: [alerts.yml]
evaluation_interval: 10s
tests:
  - interval: 10s
    input_series:
      - {series: 'holdfast_leads{job="holdfast", instance="a"}', values: '1x6 0x30'}
      - {series: 'holdfast_leads{job="holdfast", instance="b"}', values: '0x36'}
    alert_rule_test:
      - {eval_time: 50s, alertname: HoldfastNoLeader}
      - eval_time: 3m
        alertname: HoldfastNoLeader
        exp_alerts:
          - exp_labels: {severity: critical, job: holdfast}
            exp_annotations:
              summary: "no node of holdfast leads: nobody gets a lock"
              description: "A majority of the members has to run and to reach each other: holdfast cluster status says which do not"
  - interval: 10s
    input_series:
      - {series: 'up{job="holdfast", instance="a"}', values: '1x6 0x30'}
      - {series: 'up{job="holdfast", instance="b"}', values: '0x36'}
      - {series: 'holdfast_leads{job="holdfast", instance="a"}', values: '1x6 stale'}
    alert_rule_test:
      - {eval_time: 1m, alertname: HoldfastNoLeader}
      - eval_time: 3m
        alertname: HoldfastNoLeader
        exp_alerts:
          - exp_labels: {severity: critical, job: holdfast}
            exp_annotations:
              summary: "no node of holdfast leads: nobody gets a lock"
              description: "A majority of the members has to run and to reach each other: holdfast cluster status says which do not"
  - interval: 10s
    input_series:
      - {series: 'holdfast_tls_certificate_ends_timestamp_seconds{job="holdfast", instance="a"}', values: '1209700x60'}
      - {series: 'holdfast_tls_certificate_ends_timestamp_seconds{job="holdfast", instance="b"}', values: '0x60'}
      - {series: 'holdfast_peer_tls_certificate_ends_timestamp_seconds{job="holdfast", instance="b"}', values: '9999999x60'}
    alert_rule_test:
      - {eval_time: 1m, alertname: HoldfastCertificateEnds}
      - eval_time: 2m
        alertname: HoldfastCertificateEnds
        exp_alerts:
          - exp_labels: {severity: warning, job: holdfast, instance: a}
            exp_annotations:
              summary: "a certificate of a ends on 1970-01-15 00:01:40 +0000 UTC"
              description: "Renew it, then systemctl reload holdfastd: nobody is dropped"
  - interval: 10s
    input_series:
      - {series: 'holdfast_leads{job="holdfast", instance="a"}', values: '1x60'}
      - {series: 'holdfast_leads{job="holdfast", instance="b"}', values: '0x60'}
      - {series: 'holdfast_member_connected{job="holdfast", instance="a", member="2"}', values: '0x60'}
      - {series: 'holdfast_member_connected{job="holdfast", instance="b", member="3"}', values: '0x60'}
      - {series: 'holdfast_stopped{job="holdfast", instance="b"}', values: '0x60'}
    alert_rule_test:
      - {eval_time: 5m, alertname: HoldfastStopped}
      - {eval_time: 5m, alertname: HoldfastNoLeader}
      - eval_time: 5m
        alertname: HoldfastMemberAway
        exp_alerts:
          - exp_labels: {severity: warning, job: holdfast, instance: a, member: "2"}
            exp_annotations:
              summary: "the leader has no connection with member 2"
              description: "holdfast cluster status says since when, and why"
"""
