"""holdfast user: the users file of a holdfastd. That a server takes what it writes is in holdfastd/test_user_command.py."""
import json
import os
import re
import signal
import subprocess

import pytest
from conftest import BIN, NOBODY
from holdfast_cli import only_line
from test_terminal import Terminal

PASSWORD = "correct horse battery staple"
HASH = "$6$saltsaltsaltsalt$" + "x" * 86

FILE = f"""# Who may do what at the lock server.

# Ann keeps the servers.
user = ann   # since spring
password = {HASH}
allow = look break
  allow = floor admin

user = ci
# its second password is from May
password = {HASH}1
password = {HASH}2
allow = acquire look: build/* deploy/*   # both
connections = 50

# the end
"""


@pytest.fixture
def file(directory):
    path = directory / "users"
    path.touch(0o600)
    path.write_text(FILE)
    return path


@pytest.fixture
def user(cli, directory):
    def run(*words, password=PASSWORD, **kwargs):
        if words[0] in ("add", "password") and not {"--generate", "--password-file", "--drop-old"} & set(words):
            words = (*words, "--password-file", "-")
            kwargs.setdefault("input", password + "\n")
            kwargs["stdin"] = None
        return cli("user", *words, "--file", str(directory / "users"), **kwargs)

    return run


def done(result, status=0):
    assert result.status == status, (result.status, result.stdout, result.stderr)
    return result


def changed(before, after):
    """The lines that are gone, and those that are new."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


# ---- changes ---------------------------------------------------------------------------------------------------------------------------


def test_a_new_file_is_its_makers_alone(user, directory):
    done(user("add", "ann", "--allow", "look", "--allow", "acquire: a/*", "--connections", "3"))
    path = directory / "users"
    assert path.stat().st_mode & 0o7777 == 0o600
    assert re.fullmatch(r"user = ann\npassword = \$y\$\S+\nallow = look\nallow = acquire: a/\*\nconnections = 3\n", path.read_text())
    assert os.listdir(directory) != [] and not [name for name in os.listdir(directory) if name.startswith("users.")]


def test_add_comes_last_and_all_else_stays(user, file):
    out = done(user("add", "bob")).stdout
    assert "may do nothing yet" in out and "kill -HUP" in out
    assert file.read_text().startswith(FILE)
    assert re.fullmatch(r"\nuser = bob\npassword = \S+\n", file.read_text()[len(FILE):])


def test_remove_takes_his_lines_and_no_others(user, file):
    done(user("remove", "ci"))
    assert file.read_text() == FILE[:FILE.index("user = ci")] + "# the end\n"
    done(user("remove", "ann"))
    assert file.read_text() == "# Who may do what at the lock server.\n\n# Ann keeps the servers.\n\n# the end\n"


def test_a_password_takes_the_place_of_all(user, file):
    done(user("password", "ci"))
    gone, new = changed(FILE, file.read_text())
    assert gone == [f"password = {HASH}1", f"password = {HASH}2"]
    assert len(new) == 1 and re.fullmatch(r"password = \$y\$\S+", new[0])


def test_a_password_beside_the_old_one(user, file):
    done(user("password", "ci", "--keep-old"))
    gone, new = changed(FILE, file.read_text())
    assert gone == [f"password = {HASH}1"] and len(new) == 1
    assert file.read_text().index(f"{HASH}2") < file.read_text().index(new[0]), "the newest is the last"
    done(user("password", "ci", "--drop-old"))
    assert f"{HASH}2" not in file.read_text() and new[0] in file.read_text()
    assert "no older password" in done(user("password", "ci", "--drop-old"), 1).stderr


def test_salts_differ(user, file):
    done(user("password", "ann"))
    done(user("password", "ci"))
    hashes = re.findall(r"\$y\$\S+", file.read_text())
    assert len(set(hashes)) == 2 and len({one.split("$")[3] for one in hashes}) == 2


def test_generate_prints_it_alone_and_once(user, file):
    made = done(user("password", "ci", "--generate"))
    assert re.fullmatch(r"[a-z2-9]{26}\n", made.stdout) and "kill -HUP" in made.stderr and made.stdout.strip() not in made.stderr
    assert made.stdout.strip() not in file.read_text()
    other = json.loads(done(user("password", "ci", "--generate", "--json")).stdout)
    assert other["changed"] and len(other["password"]) == 26 and other["password"] != made.stdout.strip()


def test_allow(user, file):
    done(user("allow", "ann", "acquire: ops/*"))
    assert changed(FILE, file.read_text()) == ([], ["allow = acquire: ops/*"])
    assert "  allow = floor admin\nallow = acquire: ops/*\n" in file.read_text()
    assert "already" in done(user("allow", "ann", "acquire: ops/*"), 1).stderr


@pytest.mark.parametrize("name, rights, gone, new", [
    ("ann", "break", ["allow = look break"], ["allow = look"]),
    ("ann", "look break floor", ["allow = look break", "  allow = floor admin"], ["allow = admin"]),
    ("ci", "acquire", ["allow = acquire look: build/* deploy/*   # both"], ["allow = look: build/* deploy/*  # both"]),
    ("ci", "acquire: deploy/*", ["allow = acquire look: build/* deploy/*   # both"],
     ["allow = look: build/* deploy/*  # both", "allow = acquire: build/*"]),
    ("ci", "acquire look: deploy/* build/*", ["allow = acquire look: build/* deploy/*   # both"], []),
    ("ci", "look acquire", ["allow = acquire look: build/* deploy/*   # both"], [])])
def test_deny(user, file, name, rights, gone, new):
    done(user("deny", name, rights))
    assert changed(FILE, file.read_text()) == (gone, new)


@pytest.mark.parametrize("name, rights, why", [
    ("ann", "acquire", "no such line"), ("ci", "look: other/*", "no such line"), ("ann", "look: a/*", "this allows all names")])
def test_deny_what_is_not_there(user, file, name, rights, why):
    assert why in only_line(done(user("deny", name, rights), 1).stderr)
    assert file.read_text() == FILE


# ---- what is refused -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, status, why", [
    (["add", "ann"], 1, "there is a user ann"), (["password", "bob"], 1, "there is no user bob"), (["remove", "bob"], 1, "there is no user bob"),
    (["allow", "bob", "look"], 1, "there is no user bob"), (["add", "a b"], 64, "is no user's name"), (["add", "ä"], 64, "is no user's name"),
    (["add", ""], 64, "not empty"), (["add", "x" * 65], 64, "at most 64"), (["add", "x", "--allow", "fly"], 64, "unknown verb 'fly'"),
    (["add", "x\npassword = y"], 64, "is no user's name"), (["allow", "ann", "look: a\nallow = admin"], 64, "control character"),
    (["allow", "ann", "floor: a"], 64, "floor has no names"), (["allow", "ann", "look: #a"], 64, "cannot begin with #"),
    (["allow", "ann", "look", "a/*"], 64, "in quotes"), (["add", "x", "--connections", "0"], 64, "from 1 to"),
    (["add", "x", "--holds", "0"], 64, "holds is a number from 1 to 16000000"), (["allow", "ann", "look", "--leases", "4"], 64, "are for add"),
    (["allow", "ann"], 64, "usage: holdfast user allow NAME RIGHTS"), (["list", "--generate"], 64, "are for add and password"),
    (["password", "ann", "--generate", "--drop-old"], 64, "takes no new password"), (["rename", "ann"], 64, "unknown action"),
    (["ad", "ann"], 64, "did you mean 'add'"), (["add", "x", "--password-file", "/nowhere"], 1, "password-file /nowhere"),
    (["check", "/nowhere/users"], 64, "named twice")])
def test_a_wrong_word_is_one_line_and_changes_nothing(user, file, words, status, why):
    assert why in only_line(done(user(*words), status).stderr)
    assert file.read_text() == FILE


@pytest.mark.parametrize("password, why", [("", "line is empty"), ("x" * 1025, "longer than 1024"), ("a\0b", "NUL")])
def test_passwords_that_cannot_be(user, file, password, why):
    assert why in only_line(done(user("password", "ann", password=password), 1).stderr)
    assert file.read_text() == FILE


def test_a_short_password_is_taken_with_a_word(user, file):
    assert "can be guessed" in only_line(done(user("password", "ann", password="x")).stderr)


def test_what_others_may_read_is_refused(user, file):
    for mode in (0o604, 0o620, 0o602):
        file.chmod(mode)
        assert "chmod" in only_line(done(user("allow", "ann", "acquire"), 77).stderr)
        assert "chmod" in only_line(done(user("check"), 77).stderr)
    assert file.read_text() == FILE


def test_a_file_with_a_mistake_is_not_touched(user, file):
    file.write_text(FILE + "user = ann\n")
    for words in (["allow", "ann", "acquire"], ["check"], ["list"], ["remove", "ci"], ["add", "x"]):
        assert re.search(r"users:17: the user ann is there twice", only_line(done(user(*words), 1).stderr))
    assert file.read_text() == FILE + "user = ann\n"


def test_limits_of_the_file_hold(user, file):
    file.write_text("".join(f"user = u{i}\n" for i in range(1000)))
    assert "more than 1000 users" in only_line(done(user("add", "one-more"), 1).stderr)
    file.write_text("user = a\n" + "allow = look: a\n" * 256)
    assert "more than 256 patterns" in only_line(done(user("allow", "a", "look: b"), 1).stderr)


def test_not_a_regular_file(user, directory):
    os.mkfifo(directory / "users", 0o600)
    assert "not a regular file" in only_line(done(user("list"), 77).stderr)
    (directory / "users").unlink()
    (directory / "users").mkdir(0o700)
    assert only_line(done(user("allow", "ann", "look"), 77).stderr)


# ---- the file itself -------------------------------------------------------------------------------------------------------------------


def test_mode_owner_and_a_link_stay(user, file, directory):
    real = directory / "elsewhere"
    real.mkdir()
    file.rename(real / "real")
    (real / "real").chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real / "real", NOBODY, NOBODY)
    before = (real / "real").stat()
    file.symlink_to("elsewhere/real")
    done(user("allow", "ann", "acquire"))
    after = (real / "real").stat()
    assert file.is_symlink() and "allow = acquire\n" in (real / "real").read_text()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino, "exchanged, not written over"
    assert os.listdir(real) == ["real"]


def test_a_directory_that_is_not_there(cli, directory):
    said = only_line(done(cli("user", "add", "ann", "--generate", "--file", str(directory / "no" / "users")), 77).stderr)
    assert "the directory it would be in is not there: make it with 'mkdir -p'" in said


def test_a_link_that_leads_nowhere(user, directory):
    (directory / "users").symlink_to("nowhere")
    assert "leads nowhere" in only_line(done(user("add", "ann"), 77).stderr)


def test_another_name_of_the_file_is_not_left_behind(user, file, directory):
    os.link(file, directory / "other")
    assert "hard links" in only_line(done(user("allow", "ann", "acquire"), 77).stderr)


def test_many_at_once_lose_nothing(cli, file):
    each = [cli.start("user", "allow", "ann", f"look: n{i}", "--file", str(file)) for i in range(40)]
    assert [one.wait() for one in each] == [0] * 40
    text = file.read_text()
    assert all(f"allow = look: n{i}\n" in text for i in range(40))
    assert changed(FILE, text)[0] == []


def test_a_full_disk_changes_nothing(user, file):
    """As far as files may grow: 10 bytes."""
    import resource

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

    result = user("allow", "ann", "acquire", preexec_fn=limit)
    assert result.status in (69, 77) and only_line(result.stderr)
    assert file.read_text() == FILE
    assert not [name for name in os.listdir(file.parent) if name.startswith("users.")]


@pytest.mark.parametrize("before", ["user = a", "user = a\r\n", "\ufeffuser = a\n", "user = a\n\n\n"])
def test_ends_of_lines(user, file, before):
    """Without one at the end, those of another system, and a byte order mark."""
    file.write_bytes(before.encode())
    done(user("allow", "a", "look"))
    done(user("add", "b", "--allow", "look"))
    done(user("check"))
    names = [json.loads(line) for line in done(user("list", "--json")).stdout.splitlines()]
    assert [(one["user"], one["allow"]) for one in names] == [("a", ["look"]), ("b", ["look"])]
    done(user("remove", "b"))
    assert file.read_bytes().startswith(before.encode().rstrip(b"\n"))


# ---- what is shown ---------------------------------------------------------------------------------------------------------------------


def test_list(user, file):
    rows = [line.split() for line in done(user("list")).stdout.splitlines()]
    assert rows == [["USER", "PASSWORDS", "CONNECTIONS", "MAY"], ["ann", "1", "no", "limit", "look", "break"], ["floor", "admin"],
                    ["ci", "2", "50", "acquire", "look:", "build/*", "deploy/*"]]
    shown = [json.loads(line) for line in done(user("list", "--json")).stdout.splitlines()]
    assert shown == [{"user": "ann", "passwords": 1, "connections": None, "leases": None, "holds": None, "places": None, "allow": ["look break", "floor admin"]},
                     {"user": "ci", "passwords": 2, "connections": 50, "leases": None, "holds": None, "places": None,
                      "allow": ["acquire look: build/* deploy/*"]}]


def test_limits_are_kept_shown_and_checked(user, directory, file):
    """Columns for what all nodes share are there if somebody has such a limit."""
    done(user("add", "bob", "--holds", "20", "--places", "30", "--leases", "5", "--allow", "acquire"))
    assert file.read_text().endswith("allow = acquire\nleases = 5\nholds = 20\nplaces = 30\n")
    rows = [line.split() for line in done(user("list")).stdout.splitlines()]
    assert rows[0] == ["USER", "PASSWORDS", "CONNECTIONS", "LEASES", "HOLDS", "PLACES", "MAY"]
    assert rows[-1] == ["bob", "1", "no", "limit", "5", "20", "30", "acquire"]
    bob = json.loads(done(user("list", "--json")).stdout.splitlines()[-1])
    assert bob == {"user": "bob", "passwords": 1, "connections": None, "leases": 5, "holds": 20, "places": 30, "allow": ["acquire"]}
    assert "bob has places = 30, of which holds = 20 leaves no more than that" in done(user("check")).stderr
    done(user("allow", "bob", "look"))
    done(user("password", "bob"))
    assert "holds = 20\nplaces = 30\n" in file.read_text(), "they stay"
    file.write_text("user = a\nholds = 5\nholds = 6\n")
    assert "users:3: holds is there twice" in done(user("check"), 1).stderr
    file.write_text("user = a\nhold = 5\n")
    assert "unknown name 'hold': did you mean 'holds'?" in done(user("check"), 1).stderr


def test_check(user, file, cli):
    assert "2 users" in done(user("check")).stdout
    assert "2 users" in done(cli("user", "check", str(file))).stdout
    file.write_text("user = a\nuser = b\npassword = $nosuch$x$y\nallow = look\npassword = $1$saltsalt$xxxxxxxxxxxxxxxxxxxxxx\n")
    said = done(user("check")).stderr
    assert "a has no password and no certificate" in said and "a may do nothing" in said
    assert re.search(r"users:3: the password of b .*does not know", said) and re.search(r"users:5: the password of b .*weak form", said)
    assert "/nowhere/users: the directory it would be in is not there" in done(cli("user", "check", "/nowhere/users"), 77).stderr
    file.write_text("user = a\ncertificate = CN=a\nallow = look\n")
    assert done(user("check")).stderr == ""
    file.write_text("")
    assert "has no users" in done(user("check")).stderr


def test_the_variable_of_the_server_names_it(cli, file):
    assert "ann" in done(cli("user", "list", env={"HOLDFASTD_USERS_FILE": str(file)})).stdout
    assert "/etc/holdfast/users" in cli("user", "--help").stdout


# ---- asking ----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ask(cli, file):
    def start(*words):
        return Terminal([BIN, "user", *words, "--file", str(file)], cli.env)

    return start


def test_a_password_is_asked_for_twice_and_not_shown(ask, file):
    terminal = ask("password", "ann")
    terminal.expect("new password of ann: ")
    terminal.type(PASSWORD + "\n")
    terminal.expect("the same again: ")
    terminal.type(PASSWORD + "\n")
    seen = terminal.expect("ann has a new password").string
    assert "horse" not in seen
    assert terminal.wait() == 0
    assert f"password = {HASH}\n" not in file.read_text()


@pytest.mark.parametrize("first, second, why", [
    (PASSWORD, PASSWORD + "x", "not the same"), ("", None, "an empty password is none"), ("\x04", None, "no password was given")])
def test_what_is_typed_wrong_changes_nothing(ask, file, first, second, why):
    terminal = ask("password", "ann")
    terminal.expect("new password of ann: ")
    terminal.type(first + ("" if first == "\x04" else "\n"))
    if second:
        terminal.expect("again: ")
        terminal.type(second + "\n")
    terminal.expect(why)
    assert terminal.wait() == 1
    assert file.read_text() == FILE


def test_a_mistake_is_told_before_a_password_is_asked_for(ask):
    terminal = ask("password", "nobody-there")
    terminal.expect("there is no user nobody-there")
    assert terminal.wait() == 1


def test_an_interrupt_leaves_the_terminal_as_it_was(cli, file):
    """The shell of the terminal would show nothing of what is typed."""
    command = f"'{BIN}' user password ann --file '{file}'; echo ended $?; stty -a; cat"
    terminal = Terminal(["/bin/bash", "-c", f"trap 'echo caught' INT; {command}"], cli.env)
    terminal.expect("new password of ann: ")
    terminal.type("half\x03")
    terminal.expect("ended 130")
    assert terminal.expect(r"\s(-?echo)\s").group(1) == "echo"
    os.kill(terminal.pid, signal.SIGHUP)
    terminal.type("\x04")
    terminal.wait()
    assert file.read_text() == FILE


def test_without_a_terminal_it_says_how(user, cli, file):
    result = cli("user", "password", "ann", "--file", str(file), start_new_session=True)
    assert "--password-file" in only_line(done(result, 1).stderr) and "--generate" in result.stderr


def test_a_password_is_in_no_argument_and_no_output(user, file):
    result = done(user("password", "ann"))
    assert "horse" not in result.stdout + result.stderr + file.read_text()


def test_without_yescrypt_it_is_sha512(cli, file, directory):
    """As on an old system, whose libcrypt has crypt_r alone."""
    (directory / "crypt.c").write_text("""
        #include <stdio.h>
        #include <string.h>
        char *crypt_r(const char *key, const char *setting, void *data)
        {
            if (strncmp(setting, "$6$", 3) != 0)
                return NULL;
            snprintf(data, 256, "%s%s", setting, "hash");
            return data;
        }
    """)
    built = subprocess.run(["cc", "-shared", "-fPIC", "-o", directory / "libcrypt.so.1", directory / "crypt.c"], capture_output=True)
    if built.returncode:
        pytest.skip("no compiler here")
    done(cli("user", "password", "ann", "--file", str(file), "--generate", env={"LD_LIBRARY_PATH": str(directory)}))
    assert re.search(r"password = \$6\$[./0-9A-Za-z]{16}\$hash\n", file.read_text())
