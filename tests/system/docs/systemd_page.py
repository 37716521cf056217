"""docs/systemd.md, on machines that systemd has booted: the reader's, and db1 to db3."""
from cluster_page import FOUNDERS, each
from kinds import File, Run

MACHINES = FOUNDERS
UNIT = "/etc/systemd/system/holdfastd.service.d"
# The unit's user may not read what is at home, where the build directory may be.
INSTALL = """
rm -f /usr/local/bin/holdfast /usr/local/sbin/holdfastd
meson install --no-rebuild --quiet -C build/
mkdir -p /etc/holdfast %s
""" % UNIT
WORKS = "holdfast run nightly -- echo working"
ALL_THERE = "until holdfast cluster status --health | grep '^OK: .*3 members'; do sleep 0.05; done"
JOURNAL = "journalctl -u holdfastd --no-pager -o cat"


def setting(place):
    """Root has used the file store before: its directory is nobody else's."""
    for machine in place.machines.values():
        machine.run(INSTALL + "holdfast run nightly -- true; stat -c %a /var/lib/holdfast | grep -x 700")


def copied(place):
    """Password and secret are on the other machines, too, and the password on the reader's."""
    password, secret = place.machine("db1").run("cat /etc/holdfast/password /etc/holdfast/secret").split()
    for name in FOUNDERS[1:]:
        place.machine(name).run(f"(umask 077; echo {password} >/etc/holdfast/password; echo {secret} >/etc/holdfast/secret)")
    place.do(f"(umask 077; echo {password} >/etc/holdfast/client-password); systemctl disable --now holdfastd")


def as_db1(place):
    """The other two do as db1 did."""
    printed = ""
    for name in FOUNDERS[1:]:
        printed += place.machine(name).run("systemctl daemon-reload; systemctl enable --now holdfastd")
    return printed


def holder(place):
    """Lives through the restart."""
    place.do("holdfast run kept -- sh -c 'until [ -e done ]; do sleep 0.01; done; echo kept to its end' >kept & kept=$!")


def kept_to_its_end(place):
    return place.do(ALL_THERE + "; touch done; wait $kept; cat kept")


BLOCKS = [
    Run("# systemctl enable --now holdfastd", says=(" serving ",), after="stat -Lc '%a %U' /var/lib/holdfastd; ls -ld /var/lib/holdfastd/"),
    Run("# systemctl stop holdfastd", after="systemctl show -p TriggeredBy holdfastd; systemctl disable --now holdfastd.socket; systemctl stop holdfastd",
        says=("^working$", "^TriggeredBy=holdfastd.socket$")),
    File("id = 1\n", "/etc/holdfast/holdfastd.conf", "", at=FOUNDERS, each=each),
    Run("db1# (umask 077; openssl rand", after=copied),
    File("[Service]\nLoadCredential", UNIT + "/secrets.conf", "", at=FOUNDERS),
    Run("db1# cd /etc/holdfast", after=as_db1, says=("^id = 1 ",)),
    File("url = holdfast://db1", "/etc/holdfast/client.conf", "holdfast stores", says=("client.conf",)),
    Run("$ holdfast cluster init", says=("db3:7431",)),
    Run("db1# systemctl kill", says=("3 members",), after=ALL_THERE),
    Run("db2# systemctl restart", before=holder, after=kept_to_its_end, says=("^kept to its end$",)),
    Run("# useradd --system"),
    File("[Service]\nDynamicUser=no", UNIT + "/user.conf", ""),
    File("data = /srv/locks", "/etc/holdfast/holdfastd.conf", "holdfastd --check-config", says=("^data = /srv/locks ",)),
    Run("# systemctl daemon-reload", after="rm /etc/holdfast/client.conf\n" + JOURNAL + f"""
HOLDFAST_URL="holdfast://default:$(cat /etc/holdfast/password)@127.0.0.1" {WORKS}; ls -l /srv/locks""",
        says=("^working$", "holdfast .* node$", "password.*read again|read again.*password")),
]
