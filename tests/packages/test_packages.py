"""The packages, on clean Debians: built, used, upgraded, removed and purged. In the order of the file: each case goes on where the
last one has left its machine."""
import hashlib
import os
import re
import shutil

import pytest
from chroots import KEPT, PATIENCE, Builder, Debian, why_not

SUITES = (os.environ.get("HF_SUITES") or "bookworm,trixie").split(",")
BEFORE = "~before"  # the version suffix of what is upgraded
MODULES = ("tls", "http", "etcd", "postgres", "zookeeper", "fence", "sqlite")
RUNNING = "grep -lsx holdfastd /proc/[0-9]*/comm || true"
CLUSTER = "holdfast --on holdfast://127.0.0.1:7501,127.0.0.1:7502,127.0.0.1:7503"

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Place:
    """A suite's packages, of two versions, and the machine that they are used on."""

    def __init__(self, suite):
        self.builder = Builder(suite)
        self.new = self.builder.build("new")
        self.before = self.builder.build("before", BEFORE)
        self.debian = Debian(suite, KEPT / f"{suite}-try")
        for name, files in (("new", self.new), ("before", self.before)):
            (self.debian.folder / "debs" / name).mkdir(parents=True)
            for file in files:
                shutil.copy(file, self.debian.folder / "debs" / name)
        self.debian.apt("update")
        self.debian.apt("install systemd systemd-sysv sqlite3")
        self.run = self.debian.run

    def version(self, package):
        return self.run(f"dpkg-query -W -f '${{Version}}' {package}")

    def token(self, name="nightly"):
        return int(self.run(f"holdfast run {name} -- printenv HOLDFAST_TOKEN"))


@pytest.fixture(scope="module", params=SUITES)
def place(request):
    made = Place(request.param)
    yield made
    made.debian.close()


@pytest.fixture
def booted(place):
    with place.debian.booted():
        yield place


# ---- building ----------------------------------------------------------------------------------------------------


def test_built_elsewhere_they_are_the_same(place):
    again = place.builder.build("again", where="/srv/some/where/else", cached=False)
    assert [file.name for file in again] == [file.name for file in place.new]
    differ = [one.name for one, other in zip(place.new, again)
              if hashlib.sha256(one.read_bytes()).digest() != hashlib.sha256(other.read_bytes()).digest()]
    assert not differ


def test_lintian_finds_nothing(place):
    """tools/deb has asked it, of what is built; here that it is there to be asked."""
    run = place.builder.debian.run
    assert run("command -v lintian")
    assert run("lintian --allow-root --fail-on error,warning /srv/new/*.changes", patience=5 * PATIENCE) == ""


def test_programs_are_built_with_the_library(place):
    """A program of the examples, with what libholdfast-dev brings."""
    debian = place.builder.debian
    debian.apt("install /srv/new/libholdfast*.deb")
    try:
        debian.run("cd /tmp; printf '#include <holdfast/holdfast.h>\\n#include <stdio.h>\\nint main(void) { hf_store *store; "
                   "int result = hf_open(\"file:/tmp/locks\", &store); puts(result == HF_OK ? \"opened\" : hf_error()); "
                   "return result != HF_OK; }\\n' >part.c; cc -Wall -Werror -o part part.c $(pkg-config --cflags --libs holdfast); "
                   "./part | grep -x opened")
    finally:
        debian.apt("purge libholdfast0 libholdfast-dev")


# ---- using -------------------------------------------------------------------------------------------------------


def test_a_module_that_is_not_there_names_its_package(place):
    place.debian.apt("install /debs/before/holdfast_*.deb")
    for store, package in (("postgres://127.0.0.1/x", "postgres"), ("etcd://127.0.0.1", "etcd"), ("zookeeper://127.0.0.1", "zookeeper"),
                           ("rediss://127.0.0.1", "tls")):
        said = place.run(f"holdfast --on {store} run -n x -- true || [ $? = 69 ]")
        assert f"install holdfast-{package}:" in said, said
    assert place.run("holdfast --on file:/srv/locks run nightly -- echo working").endswith("working\n")


def test_with_all_of_them_every_store_is_there(place):
    place.debian.apt("install /debs/before/*.deb")
    assert "cannot be used here" not in place.run("holdfast stores")
    for module in MODULES:
        assert place.version(f"holdfast-{module}") == place.version("holdfast")
    assert place.run("ls /usr/lib/*/holdfast | wc -l").strip() == str(len(MODULES))
    # They are looked for where they are: the store is asked, and is not there.
    for store in ("postgres://127.0.0.1:1/x", "etcd://127.0.0.1:1", "zookeeper://127.0.0.1:1"):
        assert "module" not in place.run(f"holdfast --on {store} run --wait 1s x -- true || [ $? = 69 ]")


def test_a_guard_refuses_a_stale_token(place):
    place.run(r"""
        cd /srv; rm -f shop.db; sqlite3 -bail shop.db 'CREATE TABLE batches (id INTEGER PRIMARY KEY, state TEXT); INSERT INTO batches (id) VALUES (1)'
        holdfast guard sql --dialect sqlite --table batches --key-column id --add-column --setting | sqlite3 -bail shop.db
        write() {
            sqlite3 -bail shop.db ".load $(ls /usr/lib/*/holdfast/holdfast-sqlite.so)" \
                "BEGIN IMMEDIATE; SELECT holdfast_token($1); UPDATE batches SET state = '$2' WHERE id = 1; COMMIT"
        }
        write 35 paid
        ! write 34 unpaid
        sqlite3 shop.db 'SELECT state FROM batches' | grep -x paid""")


def test_the_manuals_are_there(place):
    pages = place.run("dpkg -L holdfast holdfastd libholdfast-dev | grep '/man/man' || true")
    for page in ("holdfast.1.gz", "holdfast-run.1.gz", "holdfastd.8.gz", "holdfastd.conf.5.gz", "holdfast.3.gz"):
        assert f"/{page}" in pages


# ---- the server, under systemd -----------------------------------------------------------------------------------


def test_the_server_is_not_started_by_the_installation(booted):
    assert booted.run("systemctl is-enabled holdfastd || true").strip() == "disabled"
    assert booted.run("systemctl is-active holdfastd || true").strip() == "inactive"
    assert booted.run("ls -d /var/lib/holdfastd || true").startswith("ls:")
    assert booted.run("getent passwd holdfast").startswith("holdfast:")


def test_a_cluster_is_founded_and_outlives_its_leader(booted):
    """Three of them as the package's user."""
    members = ",".join(f"{n}=127.0.0.1:751{n}" for n in (1, 2, 3))
    for n in (1, 2, 3):
        booted.run(f"systemd-run --quiet --unit=node{n} -p Type=notify -p DynamicUser=yes -p User=holdfast -p StateDirectory=node{n} "
                   f"/usr/sbin/holdfastd --id {n} --listen 127.0.0.1:750{n} --data /var/lib/node{n} --cluster {members}")
    said = booted.run(f"{CLUSTER} cluster init")
    assert "with 3 members" in said
    leader = re.search(r"node (\d) leads", said)[1]
    first = int(booted.run(f"{CLUSTER} run nightly -- printenv HOLDFAST_TOKEN"))
    booted.run(f"systemctl kill --signal=KILL node{leader}; until [ $(systemctl is-active node{leader}) = failed ]; do sleep 0.1; done")
    assert int(booted.run(f"{CLUSTER} run nightly -- printenv HOLDFAST_TOKEN")) > first
    booted.run("systemctl stop node1 node2 node3; rm -rf /var/lib/node? /var/lib/private/node?")


def test_an_upgrade_keeps_locks_and_settings_and_restarts(booted):
    booted.run("printf 'log-level = debug\\npassword-file = /etc/holdfast/password\\n' >>/etc/holdfast/holdfastd.conf; "
               "(umask 077; echo a password of this test >/etc/holdfast/password); chown root:holdfast /etc/holdfast/password; "
               "chmod 0640 /etc/holdfast/password; printf 'url = holdfast://127.0.0.1\\npassword-file = /etc/holdfast/password\\n' "
               ">/etc/holdfast/client.conf; systemctl enable --now holdfastd")
    first = booted.token()
    kept = int(re.search(r"HOLDFAST_TOKEN=(\d+)", booted.run("holdfast lock kept --ttl 1h"))[1])
    assert kept > first and booted.version("holdfastd").endswith(BEFORE)
    before = booted.run("systemctl show -P MainPID holdfastd")
    booted.debian.apt("install /debs/new/*.deb")
    assert not booted.version("holdfastd").endswith(BEFORE)
    assert booted.run("systemctl is-active holdfastd").strip() == "active"
    assert booted.run("systemctl show -P MainPID holdfastd") != before
    assert booted.run("grep -c ^log-level /etc/holdfast/holdfastd.conf").strip() == "1"
    booted.run(f"holdfast check kept {kept}")
    assert booted.token() > kept
    booted.run("systemctl restart holdfastd")
    booted.run(f"holdfast check kept {kept}")


def test_a_password_of_the_users_group_is_reloaded(booted):
    """After a boot, to which the server came by itself."""
    booted.token()
    booted.run("echo another password >>/etc/holdfast/password; systemctl reload holdfastd; "
               "until journalctl -u holdfastd | grep 'has changed.*valid=2'; do sleep 0.1; done")
    booted.run("sed -i 1d /etc/holdfast/password")
    booted.token()


def test_the_socket_stays_open_while_the_server_is_restarted(booted):
    booted.run("systemctl stop holdfastd; systemctl enable --now holdfastd.socket")
    booted.token()
    assert "inactive" not in booted.run("systemctl is-active holdfastd holdfastd.socket")
    booted.run("systemctl disable --now holdfastd.socket; systemctl restart holdfastd")


def test_the_unit_exposes_little(booted):
    exposed = re.search(r"Overall exposure level for holdfastd.service: ([\d.]+)", booted.run("systemd-analyze security holdfastd"))
    assert float(exposed[1]) <= 1.5


# ---- the end -----------------------------------------------------------------------------------------------------


def test_what_is_removed_comes_back_with_its_locks(booted):
    last = booted.token()
    booted.debian.apt("remove holdfastd")
    assert booted.run(RUNNING) == ""
    assert booted.run("systemctl is-active holdfastd || true").strip() != "active"
    booted.run("test -e /etc/holdfast/holdfastd.conf; test -e /var/lib/holdfastd/; ! test -e /usr/sbin/holdfastd")
    booted.debian.apt("install /debs/new/holdfastd_*.deb")
    booted.run("systemctl start holdfastd")
    assert booted.token() > last
    assert "kept: held" in booted.run("holdfast show kept")


def test_a_purge_leaves_nothing(booted):
    """But for the user, files of the operator's own, and the locks in files that other programs may hold."""
    booted.run("holdfast --on file:/var/lib/holdfast run nightly -- true")
    booted.debian.apt("purge $(dpkg-query -W -f '${Package} ' '*holdfast*')")
    left = booted.run("find / -xdev -path /debs -prune -o -path /srv -prune -o -path /proc -prune -o -path /sys -prune -o -path /var/log/journal "
                      "-prune -o -name '*holdfast*' -print -prune").split()
    assert sorted(left) == ["/etc/holdfast", "/var/lib/holdfast"]
    assert sorted(booted.run("ls /etc/holdfast").split()) == ["client.conf", "password"]
    assert booted.run(RUNNING) == ""
    assert booted.run("getent passwd holdfast")
    assert "holdfast" not in booted.run("systemctl list-units --all --no-legend '*holdfast*'; systemctl list-unit-files --no-legend '*holdfast*' || true")
