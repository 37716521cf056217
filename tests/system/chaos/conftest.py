"""The short form's figures are printed at the end of the run, also when all is well."""
import os
import pathlib
import sys

import pytest

os.environ.setdefault("HF_PATIENCE", "60")  # as chaos.py has it: before anything else is imported
HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE), str(HERE.parent / "cluster"), str(HERE.parent / "cli")]

figures_said = []


def pytest_terminal_summary(terminalreporter):
    for line in figures_said:
        terminalreporter.write_line(line)


@pytest.fixture
def figures():
    return figures_said.append
