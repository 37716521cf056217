"""docs/cluster.md, on machines called db1 to db4 and the one of an operator; and the three servers of the README's client.conf."""
import shutil

from kinds import File, Run, Shown

MACHINES = ("db1", "db2", "db3", "db4")
FOUNDERS = MACHINES[:3]
DATA = "/var/lib/holdfastd"
SERVES = "belongs to no cluster yet|serving"
LOCK, LOCKED = "holdfast run nightly -- echo under the lock", "^under the lock$"
STOP = """
servers() { grep -lx holdfastd /proc/[0-9]*/comm 2>/dev/null | cut -d / -f 3; }
kill -TERM $(servers)
while [ "$(servers)" ]; do sleep 0.01; done
"""


def three_at_10_0_0(place):
    """A cluster with a password, of nodes on this one machine."""
    peers = ",".join(f"{node}=10.0.0.{node}:7431" for node in (1, 2, 3))
    place.do(f"""
install -d /etc/holdfast
(umask 077; openssl rand -hex 32 >/etc/holdfast/password; openssl rand -hex 32 >/etc/holdfast/secret)
three=
for i in 1 2 3; do
    ip address add 10.0.0.$i/32 dev lo
    holdfastd --id $i --cluster {peers} --listen 10.0.0.$i:7420 --data "$PWD/three-$i" --password-file /etc/holdfast/password \\
        --secret-file /etc/holdfast/secret 2>/dev/null &
    three="$three $!"
done
until holdfast --on "holdfast://default:$(cat /etc/holdfast/password)@10.0.0.1,10.0.0.2,10.0.0.3" cluster init; do sleep 0.01; done
""")


def none_at_10_0_0(place):
    return place.do("kill -KILL $three; wait $three || true; rm /etc/holdfast/client.conf")


def each(text, machine):
    """The page's configuration of node 1, on that machine."""
    assert "id = 1\n" in text and "advertise = db1:" in text
    return text.replace("id = 1\n", f"id = {machine[2:]}\n").replace("advertise = db1:", f"advertise = {machine}:")


def secrets(place):
    """The same files on all of them, and the password on the operator's machine."""
    lines = place.do("openssl rand -hex 32; openssl rand -hex 32").split()
    for name in ("", *MACHINES):
        place.machine(name).run("install -d /etc/holdfast; umask 077\n" + "".join(
            f"echo {line} >/etc/holdfast/{file}\n" for line, file in zip(lines, ("password", "secret"))) + "umask 022")
    place.do("mv /etc/holdfast/password /etc/holdfast/client-password; unset HOLDFAST_URL")


def two_of_three(place):
    """Two are not enough to found a cluster: what is said then is shown further below."""
    for name in FOUNDERS[:2]:
        place.machine(name).aside("holdfastd", SERVES)
    place.here.run("holdfast cluster init 2>refused", ends=[69])
    place.machine("db3").aside("holdfastd", SERVES)


def removed(place):
    """Its process is stopped then."""
    place.machine("db2").run(STOP)
    return place.do("holdfast cluster status")


def move(place, file, target):
    """From the operator's machine to another one."""
    place.do(f"cp {file} /mnt/moved")
    shutil.copy(place.here.folder / "shared/moved", place.machine(target).folder / "shared/moved")
    place.machine(target).run(f"mkdir -p $(dirname {file}); mv /mnt/moved {file}")


KEPT = DATA + ".kept"
NEWCOMER = "holdfastd --id 4 --cluster 4=db4:7431 --join --listen 0.0.0.0:7420 --advertise db4:7420 " \
           "--password-file /etc/holdfast/password --secret-file /etc/holdfast/secret"


def one_alone(place):
    """Another store, of one node without a cluster, which has given a lock; the cluster's data is put aside for it."""
    for name in MACHINES:
        place.machine(name).run(("" if name == "db2" else STOP) + f"mv {DATA} {KEPT}; mv /etc/holdfast/holdfastd.conf /etc/holdfast/kept || true")
    place.machine("db1").aside(f"holdfastd --listen 0.0.0.0:7420 --password-file /etc/holdfast/password --data {DATA}", "serving")
    place.do("holdfast --on 'holdfast://db1?password-file=/etc/holdfast/client-password' run nightly -- true")
    place.machine("db1").run(STOP)


def the_cluster_again(place):
    said = place.do("holdfast cluster status\n" + LOCK)
    for name in MACHINES:
        place.machine(name).run(("" if name == "db4" else STOP) + f"rm -rf {DATA}; mv {KEPT} {DATA}; mv /etc/holdfast/kept /etc/holdfast/holdfastd.conf || true")
    for name in ("db1", "db3"):
        place.machine(name).aside("holdfastd", "")
    place.machine("db4").aside(NEWCOMER, "")
    return said


def all_is_lost(place):
    """But for the backup, which is taken to db1; db2 comes back empty."""
    for name in ("db1", "db3", "db4"):
        place.machine(name).run(STOP)
    move(place, "/backup/locks.hfb", "db1")
    place.machine("db1").run(f"rm -r {DATA}")
    place.machine("db2").run(f"rm -r {DATA}")
    place.machine("db2").aside("holdfastd --cluster 2=db2:7431 --join", SERVES)


BLOCKS = [
    Run("$ make cluster", asides={"make cluster": "holdfast://127.0.0.1:7421,"}),
    Run("$ export HOLDFAST_URL", asides={"holdfast run nightly": ""}, says=("leader",),
        after="until holdfast show nightly | grep held; do sleep 0.01; done"),
    File("id = 1\n", "/etc/holdfast/holdfastd.conf", "holdfastd --check-config", at=FOUNDERS, each=each, before=secrets,
         says=("advertise = db1:7420", "advertise = db3:7420")),
    File("url = holdfast://db1", "/etc/holdfast/client.conf", "holdfast stores", says=("client.conf",)),
    Run("$ holdfast cluster init", before=two_of_three, after=LOCK, says=(LOCKED,)),
    Shown("the cluster is not founded", "cat refused"),
    Run("db4# holdfastd --id 4", asides={"holdfastd --id 4": SERVES}, after="holdfast cluster status", says=("db4:7431",)),
    Run("$ holdfast cluster remove 2", after=removed, never=("db2:7431",)),
    Run("db1# holdfastd --id 1 --cluster 1=db1:7431 --listen", before=one_alone,
        asides={"holdfastd --id 1": "serving", "holdfastd --id 2": SERVES, "holdfastd --id 3": SERVES}, after=the_cluster_again,
        says=("db1:7431", "db2:7431", "db3:7431", LOCKED), never=("db4:7431",)),
    Run("$ holdfast cluster backup /backup/locks.hfb", before="mkdir -p /backup; " + LOCK, says=("a backup of cluster [0-9a-f]{32} as of entry",)),
    Run("db1# holdfastd --restore-from /backup/locks.hfb", before=all_is_lost, asides={"holdfastd --id 1": "serving"},
        after="holdfast cluster status\n" + LOCK, says=("db1:7431", "db2:7431", LOCKED)),
    File("# Nagios, Icinga\n", "monitoring", """
mkdir -p /usr/bin; ln -sf "$(command -v holdfast)" /usr/bin/holdfast
sed -n 's/^command_line //p' monitoring | sh
sed -n 's/^[*]\\/5 [* ]*//p' monitoring | sh
sed -n 's/^[*]\\/5 [* ]*//p' monitoring | HOLDFAST_URL=holdfast://127.0.0.1:1 sh
""", says=(r"\A(?:OK|WARNING): node \d.*\n(?:WARNING: .*\n)?UNKNOWN: .*\n\Z",)),
]
