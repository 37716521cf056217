"""HOLDFAST_URL as the job sees it: it names the same store, wherever the job goes."""
import shutil
import urllib.parse

import pytest
from conftest import BIN
from once_cli import need_server

AGAIN = f"{BIN} run -n build -- echo RAN AGAIN"
SEEN = 'printf "%s\\n" "$HOLDFAST_URL"'


@pytest.fixture
def sub(directory):
    (directory / "sub").mkdir()
    return directory / "sub"


def is_refused(done):
    return done.status == 64 and "already runs under the lock 'build'" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("url", ["file:locks", "file:./locks", "file:sub/../locks"])
def test_a_job_in_another_directory_is_in_the_same_store(cli, directory, sub, url):
    done = cli("run", "build", "--", "sh", "-c", f"cd sub && {AGAIN}", env={"HOLDFAST_URL": url}, cwd=directory)
    assert is_refused(done), done
    assert list(sub.iterdir()) == []
    done = cli("--on", url, "run", "build", "--", "sh", "-c", f"cd sub && {AGAIN}", env={"HOLDFAST_URL": "none:"}, cwd=directory)
    assert is_refused(done), done


def test_once_within_itself_in_another_directory(cli, directory, sub):
    """Else it would wait for itself."""
    again = f"cd sub && {BIN} once -n build -- echo RAN AGAIN"
    done = cli("once", "build", "--", "sh", "-c", again, env={"HOLDFAST_URL": "file:locks"}, cwd=directory)
    assert done.status == 64 and "would wait for itself" in done.stderr and done.stdout == "", done
    done = cli("once", "here", "--", BIN, "once", "-n", "here", "true", env={"HOLDFAST_URL": "file:locks"}, cwd=directory)
    assert done.status == 64 and "would wait for itself" in done.stderr, done


@pytest.mark.parametrize("url", [None, "file:"])
def test_a_job_with_another_home_is_in_the_same_default_store(somebody, url):
    somebody.env |= {"HOLDFAST_URL": url} if url else {}
    done = somebody.run("run", "build", "--", "sh", "-c", f"{SEEN}; HOME=$HOME/other {AGAIN}")
    assert done.returncode == 64 and "already runs under the lock" in done.stderr, done
    assert done.stdout == f"file:{somebody.home}/.local/state/holdfast\n"


def test_options_stay(cli, directory):
    done = cli("run", "build", "--", "sh", "-c", SEEN, env={"HOLDFAST_URL": "file:locks?allow=tmpfs,writable"}, cwd=directory)
    assert done.stdout == f"file:{directory}/locks?allow=tmpfs,writable\n"


@pytest.mark.parametrize("url", ["file:{}/locks", "file://{}/locks", "file:{}/./locks?allow=tmpfs"])
def test_an_absolute_url_stays_as_it_is(cli, directory, url):
    url = url.format(directory)
    assert cli("run", "build", "--", "sh", "-c", SEEN, env={"HOLDFAST_URL": url}).stdout == url + "\n"


def test_odd_characters(cli, directory, sub):
    """Such as would begin the options, end a password, or be taken for encoded ones."""
    name = "a b?c=d&e%2f@x:ü\n~"
    (directory / name).mkdir()
    script = f"cd .. && {SEEN}; {AGAIN}"
    done = cli("run", "build", "--", "sh", "-c", script, env={"HOLDFAST_URL": "file:./locks"}, cwd=directory / name)
    assert done.status == 64 and "already runs" in done.stderr
    assert "RAN" not in done.stdout
    assert urllib.parse.unquote(done.stdout.removesuffix("\n")) == f"file:{directory}/{name}/./locks"


def test_from_the_root_directory(cli, directory, sub):
    """Not file://..., which would be a host."""
    url = f"file:{str(directory).lstrip('/')}/locks"
    done = cli("run", "build", "--", "sh", "-c", f"cd {sub} && {AGAIN}", env={"HOLDFAST_URL": url}, cwd="/")
    assert is_refused(done), done


def test_a_path_too_long_for_a_url_is_refused(cli, directory):
    """Before the job begins; and nothing stays held."""
    name = "ü" * 100
    deep = directory / name / name / name / name
    deep.mkdir(parents=True)
    done = cli("run", "x", "--", "echo", "ran", env={"HOLDFAST_URL": "file:locks"}, cwd=deep)
    assert done.status == 69 and "HOLDFAST_URL" in done.stderr and done.stdout == "", done
    assert cli("--on", "file:locks", "show", "x", cwd=deep).stdout.startswith("x: nobody holds it")


def test_a_relative_password_file_is_found_from_another_directory(cli, directory, sub):
    server = need_server().Holdfastd(password="a long enough s3cret")
    try:
        shutil.copy(server.directory / "password", directory / "the password")
        (directory / "the password").chmod(0o600)
        url = f"holdfast://127.0.0.1:{server.port}?prefix=jobs/&password-file=the%20password&ttl=10s"
        done = cli("--on", url, "run", "build", "--", "sh", "-c", f"cd sub; {SEEN}; {AGAIN}", cwd=directory)
        assert done.status == 64 and "already runs under the lock" in done.stderr, done
        where = urllib.parse.quote(f"{directory}/the password")
        assert done.stdout == f"holdfast://127.0.0.1:{server.port}?prefix=jobs/&password-file={where}&ttl=10s\n"
    finally:
        server.clean()
