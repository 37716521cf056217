"""client.conf: the store of who names none. And that no directory is made by a typing error."""
import os
import shutil
import subprocess
import sys

import pytest
from holdfast_cli import BIN, Cli


@pytest.fixture
def home(directory):
    """A home with a client.conf, and a command that knows nothing but that home."""
    path = directory / "home"
    (path / ".config/holdfast").mkdir(parents=True)
    conf = path / ".config/holdfast/client.conf"
    cli = Cli("file:")
    for name in ("HOLDFAST_URL", "HOLDFAST_CLIENT_CONF", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        cli.env.pop(name, None)
    cli.env["HOME"] = str(path)
    cli.conf = conf
    cli.store = directory / "named"
    cli.store.mkdir(mode=0o700)

    def write(*lines):
        conf.write_text("".join(line + "\n" for line in lines))
        conf.chmod(0o600)

    cli.write = write
    yield cli
    cli.clean()


def let_others_through(directory):
    directory.chmod(0o711)
    for place in directory.parents:
        if not place.stat().st_mode & 0o001:
            pytest.skip(f"others do not get through {place}")


def job(cli, *words, **kwargs):
    return cli("run", "-n", *words, "x", "--", "sh", "-c", "echo $HOLDFAST_URL", **kwargs)


def test_the_url_is_used_and_told(home):
    home.write("# of all jobs", f"url = file:{home.store}   # here")
    done = job(home)
    assert (done.status, done.stdout, done.stderr) == (0, f"file:{home.store}\n", "")
    assert (home.store / "locks/x").exists()
    assert f"In effect: file:{home.store} ({home.store}), named by {home.conf}\n" in home("stores").stdout
    assert f'"named_by":"{home.conf}"' in home("stores", "--json").stdout.replace('": ', '":')


def test_a_byte_order_mark_is_no_part_of_the_first_line(home):
    home.write(f"\ufeffurl = file:{home.store}")
    done = job(home)
    assert (done.status, done.stdout) == (0, f"file:{home.store}\n"), done.stderr


def test_the_variable_and_the_option_outweigh_it(home, directory):
    home.write("url = redis://127.0.0.1:1")
    done = job(home, env={"HOLDFAST_URL": f"file:{home.store}"})
    assert (done.status, done.stdout) == (0, f"file:{home.store}\n"), done.stderr
    assert "named by HOLDFAST_URL" in home("stores", env={"HOLDFAST_URL": f"file:{home.store}"}).stdout
    other = directory / "other"
    other.mkdir(mode=0o700)
    assert job(home, "--on", f"file:{other}", env={"HOLDFAST_URL": f"file:{home.store}"}).stdout == f"file:{other}\n"
    assert job(home).status == 69


def test_the_variable_names_another_file(home, directory):
    home.write("url = redis://127.0.0.1:1")
    other = directory / "other.conf"
    env = {"HOLDFAST_CLIENT_CONF": str(other)}
    done = job(home, env=env)
    assert done.status == 77 and f"cannot read {other}: No such file" in done.stderr, done.stderr
    other.write_text(f"url = file:{home.store}\n")
    assert job(home, env=env).stdout == f"file:{home.store}\n"
    config = directory / "xdg"
    (config / "holdfast").mkdir(parents=True)
    shutil.copy(other, config / "holdfast/client.conf")
    assert job(home, env={"XDG_CONFIG_HOME": str(config)}).stdout == f"file:{home.store}\n"


@pytest.mark.parametrize("lines, said", [
    (["ulr = file:/x"], ":1: unknown setting 'ulr': did you mean 'url'?"),
    (["", "colour = red"], ":2: unknown setting 'colour': there are url, ttl, password-file and need"),
    (["url = file:/x", "url = file:/y"], ":2: url was set on line 1 already"),
    (["url ="], ":1: url has no value: give one, or remove the line"),
    (["url = 'file:/x'"], ":1: url: write the value without quotes"),
    (["file:/x"], ":1: not of the form 'name = value'"),
    (["need = fast"], ":1: need is strict or best-effort"),
    (["url = file:/x", "ttl = 1ms"], ":2: ttl is a duration from 100ms to 24h, such as 30s"),
    (["ttl = 10s"], ":1: ttl belongs to the url of the same file, and there is none"),
    (["url = redis://h", "password-file = secret"], ":2: password-file is a path that begins with '/'"),
    (["url = nowhere"], ": store URL: it does not begin with a scheme such as file: (see 'holdfast stores')"),
    (["url = file:/tmp", "ttl = 10s"], ": a file store has no TTL; use a maximum hold"),
    (["url = redis://h?ttl=5s", "ttl = 10s"], ": store URL: option 'ttl' given twice"),
])
def test_what_is_wrong_is_told_with_its_line(home, lines, said):
    home.write(*lines)
    done = job(home)
    assert done.status == 64 and done.stdout == "" and f"holdfast: {home.conf}{said}\n" == done.stderr, done.stderr


def test_one_that_others_could_have_written_is_refused(home):
    home.write(f"url = file:{home.store}")
    home.conf.chmod(0o664)
    done = job(home)
    assert done.status == 77 and f"others can write to {home.conf} (mode 0664)" in done.stderr, done.stderr
    home.conf.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(home.conf, 65534, -1)
        done = job(home)
        assert done.status == 77 and f"{home.conf} belongs to another user" in done.stderr, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_home_that_is_not_ours_need_not_be_looked_into(home, directory):
    """A daemon that gave up root, but kept root's HOME, and names its store."""
    home.write("url = redis://127.0.0.1:1")
    (directory / "home").chmod(0o700)
    let_others_through(directory)
    home.store.chmod(0o700)
    os.chown(home.store, 65534, -1)
    done = job(home, "--on", f"file:{home.store}", user=65534, extra_groups=[])
    assert (done.status, done.stdout) == (0, f"file:{home.store}\n"), done.stderr


@pytest.fixture
def of_root(home, directory):
    """root's home and client.conf, whose store a user cannot know; but that user may make a file store there."""
    home.write(f"url = file:{home.store}")
    let_others_through(directory)
    state = directory / "home/.local"
    state.mkdir()
    os.chown(state, 65534, -1)
    return home


NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("closed", [".config/holdfast/client.conf", ".config/holdfast", ".config", "."])
@pytest.mark.parametrize("variable", ["HOME", "XDG_CONFIG_HOME"])
def test_what_another_user_hides_may_name_the_store(of_root, directory, closed, variable):
    """Root holds x in the store of that file; whoever cannot read it does not get x among the files of this machine."""
    base = directory / "home" / (".config" if variable == "XDG_CONFIG_HOME" else "")
    env = {variable: str(base), "XDG_STATE_HOME": str(directory / "home/.local")}
    place = directory / "home" / closed
    place.chmod(0o600 if place.is_file() else 0o700)
    if variable == "XDG_CONFIG_HOME" and closed == ".":
        pytest.skip("that variable names what is below")
    holder = of_root.start("run", "x", "--", "sh", "-c", "echo held; read line", env=env)
    assert holder.line() == "held"
    done = job(of_root, env=env, **NOBODY)
    assert (done.status, done.stdout) == (77, ""), done
    assert done.stderr == (f"holdfast: cannot read {of_root.conf}, which may name the store, and {base} belongs to another user: "
                           f"set {variable} to your own, or name the store with --on or HOLDFAST_URL\n")
    assert list((directory / "home/.local").iterdir()) == []
    for words in (["stores"], ["ls"]):
        assert of_root(*words, env=env, **NOBODY).status == 77
    assert holder.end() == 0


OPENING = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.hf_error.restype = ctypes.c_char_p
store = ctypes.c_void_p()
print(library.hf_open(None, ctypes.byref(store)), library.hf_error().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_program_is_not_given_other_locks_either(of_root, directory):
    """The same through the library."""
    done = subprocess.run([sys.executable, "-c", OPENING, os.environ["HF_LIBRARY"]], env=of_root.env,
                          capture_output=True, text=True, timeout=60, **NOBODY)
    assert done.stdout.startswith(f"-9 cannot read {of_root.conf}, which may name the store"), done
    assert list((directory / "home/.local").iterdir()) == []


def test_strictness_can_be_demanded_for_all(home):
    """Also of a store that was named; and the one who knows better says so."""
    home.write("need = strict")
    done = job(home, "--on", "redis://127.0.0.1:1")
    overrides = f"({home.conf} says need = strict); --need best-effort overrides that\n"
    assert done.status == 78 and done.stderr.endswith(overrides), done.stderr
    done = home("once", "--on", "redis://127.0.0.1:1", "key", "--", "true")
    assert done.status == 78 and done.stderr.endswith(overrides), done.stderr
    done = job(home, "--on", "redis://127.0.0.1:1", "--need", "strict")
    assert done.status == 78 and "overrides" not in done.stderr, done.stderr
    done = job(home, "--on", "redis://127.0.0.1:1", "--need", "best-effort")
    assert done.status == 69, done.stderr
    assert job(home, "--on", f"file:{home.store}").status == 0
    home.write("need = best-effort")
    assert job(home, "--on", "redis://127.0.0.1:1").status == 69
    assert job(home, "--on", "redis://127.0.0.1:1", "--need", "strict").status == 78
    done = job(home, "--need", "any")
    assert done.status == 64 and "must be 'strict' or 'best-effort'" in done.stderr, done.stderr


def in_etc(directory, conf, cli, *words):
    """With an /etc of its own that has no more than this file."""
    etc = directory / "etc"
    (etc / "holdfast").mkdir(parents=True, exist_ok=True)
    (etc / "holdfast/client.conf").write_text(conf)
    shutil.copy("/etc/ld.so.cache", etc)
    (etc / "passwd").write_text(f"root:x:0:0:root:{cli.conf.parents[2]}:/bin/sh\n")
    return subprocess.run(["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc), BIN, *words],
                          env=cli.env, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for an /etc of its own")
def test_the_system_has_one_which_the_users_outweighs(home, directory):
    words = ["run", "-n", "x", "--", "sh", "-c", "echo $HOLDFAST_URL"]
    system = directory / "system"
    system.mkdir(mode=0o700)
    done = in_etc(directory, f"url = file:{system}\n", home, *words)
    assert (done.returncode, done.stdout) == (0, f"file:{system}\n"), done.stderr
    home.write(f"url = file:{home.store}")
    done = in_etc(directory, f"url = file:{system}\n", home, *words)
    assert (done.returncode, done.stdout) == (0, f"file:{home.store}\n"), done.stderr
    # Setting by setting: the system's need stays. But its password goes to its own server alone.
    home.write("url = redis://127.0.0.1:1")
    done = in_etc(directory, f"url = redis://h\npassword-file = {directory}/password\nneed = strict\n", home, "stores", "--json")
    assert '"redis://127.0.0.1:1"' in done.stdout and "password" not in done.stdout, done.stdout
    assert in_etc(directory, "need = strict\n", home, *words).returncode == 78
    home.write("need = best-effort")
    done = in_etc(directory, "url = redis://127.0.0.1:1\nneed = strict\n", home, *words)
    assert done.returncode == 69, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for an /etc of its own")
@pytest.mark.parametrize("variable", [None, "", "home"])
def test_without_a_home_in_the_environment(home, directory, variable):
    """As in a service of systemd, and in some cron daemons: the user's own home is meant."""
    home.write(f"url = file:{home.store}")
    home.env.pop("HOME")
    if variable is not None:
        home.env["HOME"] = variable
    done = in_etc(directory, "", home, "run", "-n", "x", "--", "sh", "-c", "echo $HOLDFAST_URL")
    assert (done.returncode, done.stdout) == (0, f"file:{home.store}\n"), done.stderr


def test_a_link_to_nothing_is_no_missing_file(home):
    home.conf.symlink_to(home.conf.with_name("gone"))
    done = job(home)
    assert (done.status, done.stdout) == (77, "")
    assert f"{home.conf} is a symbolic link to a file that is not there" in done.stderr


def test_a_variable_set_to_nothing_is_an_error(home):
    home.write(f"url = file:{home.store}")
    done = job(home, env={"HOLDFAST_CLIENT_CONF": ""})
    assert (done.status, done.stdout) == (64, "")
    assert "HOLDFAST_CLIENT_CONF is set to nothing: name a file, or unset it" in done.stderr


def test_a_place_is_made_if_its_parent_is_there_and_says_so_once(home, directory):
    where = directory / "fresh"
    said = f"holdfast: made a file store in {where}, for locks on this machine only\n"
    first = job(home, "--on", f"file:{where}")
    assert (first.status, first.stderr) == (0, said)
    assert job(home, "--on", f"file:{where}").stderr == ""
    done = job(home, "--on", f"file:{directory}/no/such/place")
    assert done.status == 77 and not (directory / "no").exists()
    assert f"there is no directory {directory}/no/such, so no file store is made in it" in done.stderr, done.stderr
    assert f"mkdir -p {directory}/no/such/place" in done.stderr
    done = job(home, "--on", f"file:{directory}/slash///")
    assert done.status == 0 and (directory / "slash/locks").exists(), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_the_usual_place_is_made_with_all_above_it(home, directory):
    base = directory / "home"
    os.chown(base, 65534, -1)
    shutil.rmtree(base / ".config")
    let_others_through(directory)
    done = home("run", "x", "--", "true", user=65534, extra_groups=[])
    where = base / ".local/state/holdfast"
    assert done.status == 0 and done.stderr == f"holdfast: made a file store in {where}, for locks on this machine only\n"


@pytest.mark.parametrize("url", ["file:locks", "file:./locks", "file:../locks?allow=tmpfs"])
def test_a_relative_url_would_be_many_stores(home, directory, url):
    home.write(f"url = {url}")
    done = job(home, cwd=directory)
    assert (done.status, done.stdout) == (64, ""), done
    assert done.stderr == (f"holdfast: {home.conf}:1: url would be another store for each working directory: "
                           "write file:/ and the whole path\n")
    assert not (directory / "locks").exists()


@pytest.mark.parametrize("url", ["file:", "file:?allow=writable"])
def test_the_default_place_may_be_named(home, url):
    home.write(f"url = {url}")
    assert job(home).status == 0


@pytest.mark.parametrize("end", [" ", "\t", "\r", "\r\n"])
def test_a_blank_at_the_end_is_no_other_store(home, end):
    done = job(home, env={"HOLDFAST_URL": f"file:{home.store}{end}"})
    assert (done.status, done.stdout) == (64, "") and "it ends with a blank or a line end" in done.stderr, done
    assert [p.name for p in home.store.parent.iterdir() if p.name.startswith("named")] == ["named"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_home_that_cannot_be_written_to(home, directory):
    """The first directory that cannot be made is named, and why."""
    let_others_through(directory)
    place = directory / "of_root"
    place.mkdir(mode=0o755)
    done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", BIN, "run", "x", "true"],
                          env={**home.env, "HOME": str(place)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 77
    assert done.stderr == f"holdfast: cannot make the file store's directory {place}/.local: Permission denied\n"


def test_a_directory_of_something_else_is_no_store(home):
    """Nothing is made among its files. What is hidden is not in the way."""
    (home.store / ".keep").touch()
    assert job(home, "--on", f"file:{home.store}").status == 0
    other = home.store.with_name("documents")
    other.mkdir(mode=0o700)
    (other / "letter.txt").touch()
    done = job(home, "--on", f"file:{other}")
    assert (done.status, done.stdout) == (77, "")
    assert f"{other} is no file store, and not empty (there is letter.txt): name an empty directory, or one that is not there yet" in done.stderr
    assert [path.name for path in other.iterdir()] == ["letter.txt"]
