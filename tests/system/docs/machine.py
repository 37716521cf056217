"""A machine of a page's own: its own network, its own processes, and a file system that is the real one until something is
written, which nobody else sees. So a page may say port 7420, /etc/holdfast and /var/lib/holdfast, and be run as it is written.

    machine = Machine(folder, "db1")          gone, with all that runs there, after .close()
    machine.run("holdfast ls")                what it prints; the shell stays, with its variables and its jobs
    machine.run("false; false", ends=[1, 1])  the statuses of the commands that fail
    machine.aside("holdfastd", "serving")     in another terminal; returns when it has printed that

A machine that is booted has systemd as its first process, and the shell beside it.
"""
import ctypes
import functools
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE = 60
POLL = 0.01  # seconds between two looks at what a command has printed
PR_SET_PDEATHSIG = 1
SYSTEMD = "/lib/systemd/systemd"
LIBC = ctypes.CDLL(None)

# Arguments: the machine's folder, the repository, the build directory. Both are mounted again because the lower layer has nothing
# of other file systems. Where the folder is no place for an upper layer (it is on an overlay itself), memory is one.
BOOT = r"""
cd "$1"
over() { mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root; }
over "$1" 2>/dev/null || {
    mount -t tmpfs tmpfs memory
    mkdir memory/upper memory/work
    over "$1/memory"
}
mount -t proc proc root/proc
for place in /dev /sys "$2" "$3"; do
    mkdir -p "root$place"
    mount --rbind "$place" "root$place"
done
mount --bind shared root/mnt
ip link set lo up
shift 3
exec chroot root "$@"
"""

# The same, with systemd. It gets a tree of control groups of its own, of which it sees nothing above; /sys and /proc/sys are read-only,
# so that it leaves the kernel's settings alone, which are everybody's. What a machine does at its start but for that is not wanted here.
# Arguments: as above, and the name of the control group.
BOOT_SYSTEMD = BOOT.split("shift 3")[0] + r"""
umount -l root/sys
mount -t sysfs -o ro sysfs root/sys
mount --bind root/proc/sys root/proc/sys
mount -o remount,bind,ro root/proc/sys
mount -t tmpfs -o mode=755 tmpfs root/run
for unit in systemd-tmpfiles-setup-dev.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount getty.target; do
    ln -sf /dev/null "root/etc/systemd/system/$unit"
done
mount -t cgroup2 cgroup2 groups
mkdir "groups/$4"
echo 0 >"groups/$4/cgroup.procs"
umount groups
exec unshare --cgroup sh -euc '
    mount -t cgroup2 cgroup2 root/sys/fs/cgroup
    mount --make-rshared root  # what systemd mounts for a service (credentials) is made elsewhere, and has to arrive
    exec chroot root env -i container=other /lib/systemd/systemd --unit=basic.target --log-target=null --show-status=no'
"""
# Arguments: a folder, the name of a control group, which is removed with all below, as soon as the last process is gone.
REMOVE_GROUP = 'mount -t cgroup2 cgroup2 "$1"; until find "$1/$2" -depth -type d -exec rmdir {} + 2>/dev/null; do sleep 0.01; done'

# Arguments: the descriptors of orders and of answers. What a background job of a block does is not told here: ERR is the shell's own.
SHELL = r"""
set -o pipefail
cd "$HOME/page"
trap 'echo $? >>"$order.ends"' ERR
while IFS=' ' read -r -u "$1" how order; do
    if [ "$how" = aside ]; then
        (trap - ERR; . "$order"; echo $? >"$order.ended") >"$order.out" 2>&1 </dev/null &
    else
        . "$order" >"$order.out" 2>&1 </dev/null
    fi
    echo >&"$2"
done
"""
HOME = "/srv/reader"


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def boot(folder, root, build, *command, flags=("--net",), script=BOOT):
    """The words that run a command in a machine made there."""
    for part in ("upper", "work", "root", "memory", "shared", "groups"):
        (pathlib.Path(folder) / part).mkdir(parents=True)
    return ["unshare", *flags, "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", script, "-",
            str(folder), str(root), str(build), *command]


@functools.lru_cache(maxsize=None)
def why_not(root, build):
    """Why there can be no such machine here; nothing if there can."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        return "a machine of its own needs root, unshare and ip"
    with tempfile.TemporaryDirectory(dir=os.environ.get("HF_TEST_TMP") or "/tmp") as folder:
        tried = subprocess.run(boot(folder + "/probe", root, build, "true"), capture_output=True, text=True, timeout=PATIENCE)
        return "no machine of its own can be made: " + tried.stderr.strip() if tried.returncode else ""


@functools.lru_cache(maxsize=None)
def why_not_booted(root, build):
    """Why systemd cannot be the first process of such a machine."""
    if why_not(root, build):
        return why_not(root, build)
    if not os.access(SYSTEMD, os.X_OK) or not shutil.which("nsenter"):
        return "a machine with systemd needs systemd and nsenter"
    with tempfile.TemporaryDirectory(dir=os.environ.get("HF_TEST_TMP") or "/tmp") as folder:
        machine = Machine(folder, root, build, "probe", booted=True, probe=True)
        try:
            return machine.why_not
        finally:
            machine.close()


class Machine:
    def __init__(self, folder, root, build, name="here", enter=None, env=None, booted=False, probe=False):
        """enter: called in the child, goes to a network that is there; otherwise it has one of its own."""
        self.name, self.folder, self.count = name, pathlib.Path(folder) / name, 0
        self.group = f"holdfast-docs-{os.getpid()}-{name}" if booted else None
        orders, self.orders = os.pipe()
        self.answers, answers = os.pipe()

        def prepare():
            die_with_parent()
            if enter:
                enter()

        clean = ["env", "-i", f"HOME={HOME}", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
                 *[f"{key}={value}" for key, value in (env or {}).items()]]
        shell = ["sh", "-c", f'rm -rf {HOME}; mkdir -p {HOME}/page; exec bash -c "$@"', "-", SHELL, "bash", str(orders), str(answers)]
        flags = () if enter else ("--net",)
        self.processes, self.why_not = [], ""
        if booted:
            self.start(boot(self.folder, root, build, self.group, flags=(*flags, "--uts", "--ipc"), script=BOOT_SYSTEMD), prepare)
            inside = self.inside_booted()
            if inside and not probe:
                self.start([*inside, *clean, *shell], die_with_parent, (orders, answers))
        else:
            self.start(boot(self.folder, root, build, *clean, *shell, flags=flags), prepare, (orders, answers))
        os.close(orders)
        os.close(answers)

    def start(self, words, prepare, descriptors=()):
        self.processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=descriptors, preexec_fn=prepare))

    def inside_booted(self):
        """The words that run something there, once systemd has started what a machine starts first; nothing if it cannot."""
        unshare, deadline, inside = self.processes[0], time.monotonic() + PATIENCE, None
        asked = None
        while unshare.poll() is None and time.monotonic() < deadline:
            children = pathlib.Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
            if children:
                inside = ["nsenter", "--target", children[0], "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
                asked = subprocess.run([*inside, "systemctl", "is-active", "basic.target"], capture_output=True, text=True)
                if asked.stdout.strip() == "active":
                    return inside
            time.sleep(POLL)
        self.why_not = "systemd does not start here: " + (asked.stdout + asked.stderr if asked else "no process").strip()
        return None

    def order(self, how, text):
        self.count += 1
        path = self.folder / "shared" / str(self.count)
        path.write_text(text + "\n:\n")  # or a last line that fails would be told of twice
        pathlib.Path(f"{path}.out").touch()
        os.write(self.orders, f"{how} /mnt/{path.name}\n".encode())
        ready, _, _ = select.select([self.answers], [], [], PATIENCE)
        printed = pathlib.Path(f"{path}.out").read_text(errors="replace")
        assert ready and os.read(self.answers, 1), f"{self.name}: did not end, or ended the shell:\n{text}\n----\n{printed}"
        return path, printed

    def run(self, text, ends=()):
        path, printed = self.order("here", text)
        failed = pathlib.Path(f"{path}.ends")
        statuses = [int(line) for line in failed.read_text().split()] if failed.exists() else []
        assert statuses == list(ends), \
            f"{self.name}: commands ended with {statuses}, not with {list(ends)}:\n{text}\n----\n{printed}"
        return printed

    def aside(self, text, until):
        """What it has printed until there was that."""
        path, _ = self.order("aside", text)
        deadline = time.monotonic() + PATIENCE
        while True:
            ended = pathlib.Path(f"{path}.ended").exists()
            printed = pathlib.Path(f"{path}.out").read_text(errors="replace")
            if re.search(until, printed, re.M):
                return printed
            assert not ended and time.monotonic() < deadline, f"{self.name}: did not print '{until}':\n{text}\n----\n{printed}"
            time.sleep(POLL)

    def close(self):
        """Its first process dies, and all others with it."""
        for process in self.processes:
            process.kill()
            process.wait()
        os.close(self.orders)
        os.close(self.answers)
        if self.group:
            subprocess.run(["unshare", "--mount", "sh", "-euc", REMOVE_GROUP, "-", str(self.folder / "groups"), self.group],
                           timeout=PATIENCE, check=not self.why_not)
        shutil.rmtree(self.folder, ignore_errors=True)
