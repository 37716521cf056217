"""Prints what became of the blocks of each page."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))  # nets.py


def pytest_terminal_summary(terminalreporter):
    module = sys.modules.get("test_blocks")
    if not module or not module.tallies:
        return
    line = "%-24s" + " %9s" * len(module.COUNTS) + "   %s"
    terminalreporter.write_line(line % ("blocks of", *module.COUNTS, ""))
    total = dict.fromkeys(module.COUNTS, 0)
    for name, tally in module.tallies.items():
        reasons = ", ".join(f"{tally['reasons'].count(why)} {why}" for why in dict.fromkeys(tally["reasons"]))
        terminalreporter.write_line(line % (name, *(tally[count] for count in module.COUNTS), reasons))
        for count in module.COUNTS:
            total[count] += tally[count]
    terminalreporter.write_line(line % ("all", *total.values(), "of %d" % sum(total.values())))
