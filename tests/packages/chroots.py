"""Debians of a test's own, as folders: one to build packages in, and clean ones to use them in, booted by systemd.

Everything is fetched from where this machine's apt fetches, by its own settings, mirror and proxy alike. What takes long, the clean
Debian and the one with what is needed for building, is kept in build-packages/ for the next time.

    debian = Debian(suite, folder)       a clean one; .close() removes it
    debian.run("apt-get update")         in it, with this machine's network; what it prints
    with debian.booted():                systemd is its first process, and it has a network of its own with nothing but loopback
        debian.run("systemctl ...")
"""
import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "build-packages"
PATIENCE = 60
FETCH_MAX = 900  # seconds for what fetches or builds
POLL = 0.1
APT = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Options::=--force-confold"
# Arguments: the folder, then the command. Its processes end with it.
ENTER = 'mount -t proc proc "$1/proc"; exec chroot "$@"'
NEEDED = ("unshare", "nsenter", "chroot", "mmdebstrap", "systemd-nspawn", "dpkg-deb", "apt-get")


def why_not():
    if not os.environ.get("HF_PACKAGES"):
        return "takes half an hour: make check-packages"
    if os.geteuid() != 0:
        return "needs root, for a Debian of its own"
    missing = [program for program in NEEDED if not shutil.which(program)]
    return f"needs {', '.join(missing)}: tools/setup packages" if missing else ""


def output(*words, **options):
    done = subprocess.run(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", **options)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def mirror():
    """Where this machine has its own Debian from."""
    suite = re.search(r"(?m)^VERSION_CODENAME=(\w+)$", pathlib.Path("/etc/os-release").read_text(encoding="utf-8"))[1]
    found = output("apt-get", "indextargets", "--format", "$(CODENAME) $(LABEL) $(REPO_URI)", "Created-By: Packages").splitlines()
    places = [line.split()[2] for line in found if line.startswith(f"{suite} Debian ")]
    assert places, "apt does not say where it has Debian from: is this one, and was apt-get update run?"
    return places[0]


def proxies():
    return [word for line in output("apt-config", "dump", "Acquire").splitlines() if re.search("proxy", line, re.I)
            for word in ("--aptopt", line.rstrip(";"))]


def clean(suite):
    """The archive of a minimal Debian."""
    path = KEPT / f"{suite}.tar"
    if not path.exists():
        KEPT.mkdir(exist_ok=True)
        new = KEPT / f"{suite}.new.tar"
        output("mmdebstrap", "--variant=minbase", "--quiet", *proxies(), suite, new, mirror(), timeout=FETCH_MAX)
        new.rename(path)
    return path


class Debian:
    def __init__(self, suite, folder):
        self.suite, self.folder, self.process, self.leader = suite, pathlib.Path(folder), None, None
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        output("tar", "-xf", clean(suite), "-C", self.folder)
        shutil.copy("/etc/resolv.conf", self.folder / "etc/resolv.conf")

    def words(self):
        if self.leader:
            return ["nsenter", "--target", self.leader, "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "-", str(self.folder)]

    def ask(self, text, patience=PATIENCE):
        """The exit status, and what was printed."""
        done = subprocess.run([*self.words(), "env", "-i", "HOME=/root", "LANG=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                               "sh", "-ec", text], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=patience)
        return done.returncode, done.stdout

    def run(self, text, ends=0, patience=PATIENCE):
        status, printed = self.ask(text, patience)
        assert status == ends, f"{self.suite}: ended with {status}:\n{text}\n----\n{printed}"
        return printed

    def apt(self, text, patience=FETCH_MAX):
        return self.run(f"{APT} {text}", patience=patience)

    @contextlib.contextmanager
    def booted(self):
        self.process = subprocess.Popen(["systemd-nspawn", "--quiet", "--boot", "--directory", str(self.folder), "--register=no",
                                         "--keep-unit", "--private-network", "--link-journal=no", "--console=pipe", "--machine",
                                         f"holdfast-{self.suite}-{os.getpid()}"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env={"PATH": os.environ["PATH"]})
        try:
            self.await_boot()
            yield self
        finally:
            self.leader = None
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()

    def await_boot(self):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            self.leader = children[0] if children else None
            if self.leader and self.ask("systemctl is-active multi-user.target")[1].strip() == "active":
                return
            time.sleep(POLL)
        self.leader = None
        self.process.kill()
        raise AssertionError(f"{self.suite}: systemd does not start: {self.process.communicate()[0]}")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Builder:
    """A Debian with what is needed for building: kept as long as that stays the same."""

    def __init__(self, suite):
        control = (ROOT / "debian/control").read_text(encoding="utf-8").split("\n\n")[0]
        key = hashlib.sha256(control.encode()).hexdigest()
        folder, self.suite = KEPT / f"{suite}-build", suite
        if (folder / "holdfast-key").exists() and (folder / "holdfast-key").read_text() == key:
            self.debian = Debian.__new__(Debian)
            self.debian.suite, self.debian.folder, self.debian.process, self.debian.leader = suite, folder, None, None
            return
        self.debian = Debian(suite, folder)
        (folder / "srv/debian").mkdir()
        shutil.copy(ROOT / "debian/control", folder / "srv/debian/control")
        shutil.copy(ROOT / "debian/changelog", folder / "srv/debian/changelog")
        self.debian.apt("update")
        self.debian.apt("install build-essential ccache dpkg-dev lintian")
        self.debian.apt("build-dep /srv")
        (folder / "holdfast-key").write_text(key)

    def build(self, name, suffix="", where="/srv/out", cached=True):
        """The packages of the last commit, by their file names, in a folder of this name. Two versions are compiled once."""
        folder, source = self.debian.folder / "srv" / name, self.debian.folder / "srv/source"
        for old in (folder, source):
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir(parents=True)
        output("tar", "-xzf", output(ROOT / "tools/dist", source).splitlines()[-1], "-C", source, "--strip-components=1")
        self.debian.run(f"cd /srv/source; export CCACHE_DIR=/srv/ccache DEB_BUILD_OPTIONS=noautodbgsym {'' if cached else 'CCACHE_DISABLE=1'}; "
                        f"tools/deb {f'--suffix {suffix}' if suffix else ''} {where}; mv {where}/*.* /srv/{name}", patience=FETCH_MAX)
        return sorted(folder.glob("*.deb"))
