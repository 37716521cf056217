"""What can be done with a block. Each kind names the beginning of its block, so that a block that changes is looked at again.

    Run("holdfast ls")                      a shell runs it; with prompts ($, #, db1#) command by command, and what the page shows
                                            below a command is compared with what is printed
    File("listen =", "x.conf", "...")       it is written to a file, and these commands try that
    Shown("ERR no", "...")                  these commands print it
    Excused("time    0 s", DRAWING)         not run, for one of the reasons of EXCUSES
"""
import dataclasses
import re

DRAWING, SYNTAX, SYSTEMD, TOOL, ELSEWHERE, ROTATION, PACKAGES = "drawing", "syntax", "systemd", "tool", "elsewhere", "rotation", "packages"
EXCUSES = {
    DRAWING: "a drawing or a formula, nothing that is typed or printed",
    SYNTAX: "the syntax of a URL, with brackets",
    SYSTEMD: "as on docs/systemd.md, where it is run",
    TOOL: "a tool that is not ours, and not installed",
    ROTATION: "run, with a holder that lives through it, by tests/system/holdfastd/test_rotation.py",
    PACKAGES: "run by make check-packages",
    ELSEWHERE: "builds, or runs all tests: the tests first-minute and make check itself",
}
PROMPT = re.compile(r"(\w*)[$#] (.*)")
# What differs from run to run: as a page shows it, and what it may be instead.
TOKEN = r"\b\d{16}\b"
DIFFERS = [(TOKEN, TOKEN), (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"),
           (r"\b\d+(?:\.\d+)?(?= s (?:left|ago))", r"\d+(?:\.\d+)?"), (r"(?<=node )\d(?= leads)", r"\d")]


def pattern(shown):
    """Of what a page shows, for what is printed, with what differs as groups; whatever stands between words counts as a space."""
    either = re.compile("|".join(f"({here})" for here, _ in DIFFERS))
    parts, found, at = [], [], 0
    for match in either.finditer(shown):
        again = match[0] in found and re.fullmatch(TOKEN, match[0])  # the same token is the same number
        meant = r"\%d" % (found.index(match[0]) + 1) if again else DIFFERS[match.lastindex - 1][1]
        parts += [re.escape(shown[at:match.start()]), f"({meant})"]
        found.append(match[0])
        at = match.end()
    parts.append(re.escape(shown[at:]))
    return re.sub(r"(?:\\?\s)+", r"\\s+", "".join(parts)), found


def commands(text):
    """Of a block with prompts: machine, command, what is shown below it."""
    found = []
    for line in text.splitlines():
        prompt = PROMPT.match(line)
        if prompt:
            found.append([prompt[1], prompt[2], []])
        elif found[-1][1].endswith("\\") and not found[-1][2]:
            found[-1][1] += "\n" + line
        else:
            found[-1][2].append(line)
    return [(machine, command, "\n".join(shown)) for machine, command, shown in found]


@dataclasses.dataclass
class Kind:
    begins: str
    # Commands, or a function of the place. What the reader has done, or what goes on elsewhere; and what shows that it worked.
    before: object = dataclasses.field(default="", kw_only=True)
    after: object = dataclasses.field(default="", kw_only=True)
    says: tuple = dataclasses.field(default=(), kw_only=True)  # what is printed, by it or after it
    never: tuple = dataclasses.field(default=(), kw_only=True)  # and what is not
    stands_for: dict = dataclasses.field(default_factory=dict, kw_only=True)  # words like DIR, which a reader replaces

    def do(self, block, place):
        """Returns under what it is counted. place: the page's machines, see pages.py."""
        place.do(self.before)
        text = block.text
        for word, meant in self.stands_for.items():
            assert word in text, f"it has no {word}"
            text = text.replace(word, meant)
        counted, printed = self.act(text, place)
        printed += place.do(self.after)
        for wanted in self.says:
            assert re.search(wanted, printed, re.M), f"'{wanted}' was not printed:\n{printed}"
        for unwanted in self.never:
            assert not re.search(unwanted, printed, re.M), f"'{unwanted}' was printed:\n{printed}"
        return counted

    def excuses(self):
        return []


@dataclasses.dataclass
class Run(Kind):
    ends: tuple = ()  # the statuses of commands that fail, and should
    # The beginning of a command for another terminal: what it prints when it is ready.
    asides: dict = dataclasses.field(default_factory=dict)
    without: dict = dataclasses.field(default_factory=dict)  # beginning of a line that is not run: its excuse

    def act(self, text, place):
        lines = [line for line in text.splitlines() if not line.startswith(tuple(self.without) or "\0")]
        if PROMPT.match(text):
            return self.talk(commands("\n".join(lines)), place)
        printed, here = "", []
        for line in lines:
            ready = self.ready(line)
            if ready is not None:
                printed += place.here.aside(line, ready)
            else:
                here.append(line)
        return "run", printed + place.here.run("\n".join(here), self.ends)

    def ready(self, command):
        return next((ready for start, ready in self.asides.items() if command.startswith(start)), None)

    def talk(self, commands_of_it, place):
        everything, compared = "", False
        for machine, command, shown in commands_of_it:
            for there, real in place.tokens.items():
                command = command.replace(there, real)
            ready = self.ready(command)
            at = place.machine(machine)
            printed = at.aside(command, ready) if ready is not None else at.run(command, self.ends)
            everything += printed
            if shown:
                compare(shown, printed, place)
                compared = True
        return "compared" if compared else "run", everything

    def excuses(self):
        return list(self.without.values())


def compare(shown, printed, place):
    wanted, numbers = pattern(shown)
    match = re.search(wanted, printed)
    assert match, f"the page shows\n{shown}\n---- and this was printed:\n{printed}"
    place.tokens.update({number: real for number, real in zip(numbers, match.groups()) if re.fullmatch(TOKEN, number)})


@dataclasses.dataclass
class File(Kind):
    name: str
    then: str  # commands
    counts: str = "checked"
    top: str = ""  # lines around the block
    bottom: str = ""
    at: tuple = ("",)  # machines
    each: object = lambda text, machine: text  # what it is on that machine

    def act(self, text, place):
        printed = ""
        for machine in self.at:
            whole, end = f"{self.top}{self.each(text, machine)}\n{self.bottom}", "end of the block"
            printed += place.machine(machine).run(f"cat >{self.name} <<'{end}'\n{whole}\n{end}\n{self.then}")
        return self.counts, printed


@dataclasses.dataclass
class Shown(Kind):
    by: object  # commands, or a function of the place

    def act(self, text, place):
        printed = place.do(self.by)
        compare(text, printed, place)
        return "compared", printed


@dataclasses.dataclass
class Excused(Kind):
    why: str

    def act(self, text, place):
        return "excused", ""

    def excuses(self):
        return [self.why]
