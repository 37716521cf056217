"""The unit, the recipe of an image and the manifests for Kubernetes: what can be said of them without running them there."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-check"
SERVER = os.environ.get("HF_SERVER", str(BUILD / "src/server/holdfastd"))
COMMAND = os.environ.get("HOLDFAST_BIN", str(BUILD / "src/cli/holdfast"))
UNIT = os.environ.get("HF_UNIT", str(BUILD / "src/server/holdfastd.service"))
EXPOSURE_MAX = 1.5
PATIENCE = 60
MEMBERS = 3


def run(*words, **options):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE, **options)


# ---- the unit ----------------------------------------------------------------------------------------------------


def analyze(*words):
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    return run("systemd-analyze", *words)


def test_the_unit_exposes_little():
    done = analyze("security", "--offline=true", UNIT)
    if "offline" in done.stderr:
        pytest.skip("needs systemd 250")
    found = re.search(r"Overall exposure level for holdfastd\.service: ([\d.]+)", done.stdout)
    assert found and float(found[1]) <= EXPOSURE_MAX, done.stdout + done.stderr


def test_the_units_are_understood(tmp_path):
    """Every line, by systemd itself; with a program that is there."""
    text = pathlib.Path(UNIT).read_text(encoding="utf-8")
    (tmp_path / "holdfastd.service").write_text(re.sub("(?m)^ExecStart=.*$", "ExecStart=/bin/true", text), encoding="utf-8")
    shutil.copy(ROOT / "dist/holdfastd.socket", tmp_path)
    done = analyze("verify", "--man=no", tmp_path / "holdfastd.service", tmp_path / "holdfastd.socket")
    said = [line for line in done.stderr.splitlines() if "holdfastd." in line]
    assert not said, said


def test_the_socket_is_where_the_server_listens():
    """By default: one elsewhere would be refused."""
    socket = (ROOT / "dist/holdfastd.socket").read_text(encoding="utf-8")
    defaults = re.search(r"--listen .*\[(.*)\]", run(SERVER, "--help").stdout)[1]
    assert re.findall("(?m)^ListenStream=(.*)$", socket) == [defaults]


# ---- Kubernetes --------------------------------------------------------------------------------------------------


def manifests(name):
    yaml = pytest.importorskip("yaml")
    with open(ROOT / "dist/kubernetes" / name, encoding="utf-8") as file:
        return {document["kind"]: document for document in yaml.safe_load_all(file) if document}


@pytest.fixture
def cluster():
    return manifests("holdfastd.yaml")


def container(workload):
    [one] = workload["spec"]["template"]["spec"]["containers"]
    return one


def script(cluster):
    [text] = container(cluster["StatefulSet"])["args"]
    return text


def flags_of_help(program, *words):
    return set(re.findall(r"(?m)^ +(?:-\w, )?(--[a-z-]+)", run(program, *words, "--help").stdout))


def test_the_manifests_fit_together(cluster):
    labels = cluster["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert set(cluster) == {"Secret", "ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"}
    assert cluster["StatefulSet"]["spec"]["replicas"] == MEMBERS
    assert cluster["Service"]["spec"]["selector"] == labels
    assert cluster["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert cluster["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert cluster["Service"]["metadata"]["name"] == cluster["StatefulSet"]["spec"]["serviceName"]
    assert cluster["Service"]["spec"]["clusterIP"] == "None"
    for workload in (cluster["StatefulSet"], manifests("init.yaml")["Job"]):
        spec, mounts = workload["spec"]["template"]["spec"], container(workload)["volumeMounts"]
        claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        assert {mount["name"] for mount in mounts} == {volume["name"] for volume in spec["volumes"]} | set(claims)
        named = {volume["name"]: volume.get("secret", {}).get("secretName") or volume["configMap"]["name"] for volume in spec["volumes"]}
        assert named == {"secrets": cluster["Secret"]["metadata"]["name"], "client": cluster["ConfigMap"]["metadata"]["name"]}


def test_the_flags_of_the_manifests_exist(cluster):
    named = set(re.findall(r"--[a-z][a-z-]*", script(cluster)))
    assert len(named) > 5 and named <= flags_of_help(SERVER)
    commands = [container(cluster["StatefulSet"])["readinessProbe"]["exec"]["command"], container(manifests("init.yaml")["Job"])["command"]]
    for words in commands:
        assert words[:2] == ["holdfast", "cluster"]
        usage = run(COMMAND, "cluster", "--help").stdout
        assert re.search(r"(?m)^%s +\w" % words[2], usage)
        assert {word for word in words if word.startswith("--")} <= flags_of_help(COMMAND, "cluster")


def check_config(cluster, folder, pod, password, secret):
    """What a pod of this name would start with, by the server itself."""
    for name, text in (("password", password), ("secret", secret)):
        (folder / name).write_text(text + "\n")
        (folder / name).chmod(0o600)
    text = script(cluster).replace("exec holdfastd", f"exec {SERVER} --check-config --config {os.devnull}")
    text = text.replace("/etc/holdfast/secrets", str(folder)).replace("/var/lib/holdfastd", str(folder / "data"))
    return run("sh", "-ec", text, env={"PATH": os.environ["PATH"], "HOSTNAME": pod, "HOLDFASTD_ALLOW": "tmpfs"})


@pytest.mark.parametrize("number", range(MEMBERS))
def test_each_pod_is_a_member_of_its_own(cluster, tmp_path, number):
    """Its settings are right, and its peers reach it where the others look for it."""
    name = f"{cluster['StatefulSet']['metadata']['name']}-{number}"
    done = check_config(cluster, tmp_path, name, "p" * 32, "s" * 32)
    assert done.returncode == 0, done.stderr
    said = dict(re.findall(r"(?m)^([a-z-]+) = (\S+)", done.stdout))
    members = dict(member.split("=") for member in said["cluster"].split(","))
    host = f"{name}.{cluster['Service']['metadata']['name']}"
    assert said["id"] == str(number + 1) and len(members) == MEMBERS
    assert members[said["id"]] == f"{host}:7431" and said["advertise"] == f"{host}:7420"
    ports = {port["name"]: port["port"] for port in cluster["Service"]["spec"]["ports"]}
    assert ports == {"clients": 7420, "peers": 7431}
    assert f"holdfast://{','.join(f'holdfastd-{n}.holdfastd' for n in range(MEMBERS))}" in cluster["ConfigMap"]["data"]["client.conf"]


def test_the_secrets_as_shipped_are_refused(cluster, tmp_path):
    """Who forgets to put in his own has no server that the whole world knows the password of."""
    shipped = cluster["Secret"]["stringData"]
    assert check_config(cluster, tmp_path, "holdfastd-0", shipped["password"], "s" * 32).returncode == 78
    assert check_config(cluster, tmp_path, "holdfastd-0", "p" * 32, shipped["secret"]).returncode == 78


# ---- the image ---------------------------------------------------------------------------------------------------


def test_the_recipe_of_an_image_names_what_there_is(cluster):
    text = (ROOT / "dist/Containerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"(?m)^FROM (\S+)", text)) == {"debian:12-slim"}
    packages = set(re.findall(r"(?m)^Package: (\S+)$", (ROOT / "debian/control").read_text(encoding="utf-8")))
    assert set(re.findall(r"/packages/([a-z-]+)_", text)) <= packages
    entry = re.search(r"(?m)^ENTRYPOINT (.*)$", text)[1]
    assert set(re.findall(r"--[a-z-]+", entry)) <= flags_of_help(SERVER)
    user = re.search(r"(?m)^USER (\d+):(\d+)$", text)
    security = cluster["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]
    assert [int(user[1]), int(user[2])] == [security["runAsUser"], security["runAsGroup"]] and security["fsGroup"] == int(user[2])
    for number in (user[1], user[2]):
        assert f"id {number}" in text
    assert (ROOT / "tools/deb").exists() and "tools/deb /packages" in text
