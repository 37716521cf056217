"""What bash offers after TAB."""
import os
import shutil
import subprocess

import pytest

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tools", "completion", "holdfast.bash")
pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")


def offered(*words):
    """For the last of the words, which may be empty."""
    script = ('. "$FILE"; COMP_WORDS=(holdfast "$@"); COMP_CWORD=$#; _holdfast; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", *words], env=dict(os.environ, FILE=FILE, HOLDFAST_URL=""),
                          capture_output=True, text=True, timeout=30, check=True)
    return set(done.stdout.split())


def test_actions():
    assert offered("guard", "") == {"sql", "redis", "marks", "reset"}
    assert offered("cluster", "") == {"status", "init", "add", "remove", "transfer", "backup"}
    assert offered("user", "") == {"add", "password", "allow", "deny", "remove", "list", "check"}
    assert offered("gu") == {"guard"}


def test_options_are_those_of_the_action():
    assert {"--dialect", "--table", "--undo"} < offered("guard", "sql", "-")
    assert "--fence" not in offered("guard", "sql", "-")
    assert {"--fence", "--to", "--why"} < offered("guard", "reset", "-")
    assert offered("guard", "sql", "--dialect", "") == {"postgres", "sqlite"}


def test_schemes():
    assert {"file:", "holdfast://", "redis://", "redlock://"} <= offered("--on", "")
    assert offered("--on", "redl") == {"redlock://"}


def test_every_option_of_help_is_offered(cli):
    """So that a new one is not forgotten."""
    for words in (["run"], ["lock"], ["once"], ["elect"], ["cluster"], ["user"], ["break"], ["ls"], ["top"], ["bench"], ["progress"], ["renew"], ["unlock"], ["leader"],
                  ["guard", "sql"], ["guard", "redis"], ["guard", "marks"], ["guard", "reset"]):
        text = cli(*words, "--help").stdout
        listed = {word.rstrip(",") for line in text.split("\nOptions:\n")[1].split("\n\n")[0].splitlines()
                  for word in line.split()[:2] if word.startswith("--")}
        assert listed, words
        assert listed <= offered(*words, "-"), (words, listed - offered(*words, "-"))
