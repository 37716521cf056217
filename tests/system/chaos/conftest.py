"""The short form's figures are printed at the end of the run, also when all is well."""
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE), str(HERE.parent / "cluster")]

figures_said = []


def pytest_terminal_summary(terminalreporter):
    for line in figures_said:
        terminalreporter.write_line(line)


@pytest.fixture
def figures():
    return figures_said.append
