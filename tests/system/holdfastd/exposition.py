"""Reads the text in which Prometheus is told metrics, as strictly as its format is meant: whoever writes something that is only nearly right
finds out here, and not on the day when somebody upgrades what reads it."""
import math
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
TYPES = ("counter", "gauge", "histogram")
UNITS = ("_seconds", "_bytes", "_entries")


class Family:
    def __init__(self, name, help_text):
        self.name, self.help, self.type = name, help_text, None
        self.samples = {}  # (name, labels as sorted pairs): value

    def value(self, **labels):
        return self.samples[self.name, tuple(sorted(labels.items()))]

    def values(self, label):
        """Of a family with this one label."""
        return {dict(labels)[label]: value for (_, labels), value in self.samples.items()}

    def count(self):
        return self.samples[self.name + "_count", ()]


def unescape(text):
    return re.sub(r"\\(.)", lambda found: {"n": "\n", '"': '"', "\\": "\\"}[found[1]], text)


def labels_of(text):
    """What is between the braces, as pairs in their order."""
    pairs, at = [], 0
    while at < len(text):
        found = LABEL.match(text, at)
        assert found, f"not a label: {text[at:]!r}"
        pairs.append((found[1], unescape(found[2])))
        at = found.end()
        if at < len(text):
            assert text[at] == "," and at + 1 < len(text), f"after a label: {text[at:]!r}"
            at += 1
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names) and not any(name.startswith("__") for name in names), names
    return pairs


def sample_of(line):
    name = NAME.match(line)
    assert name, f"not a name: {line!r}"
    rest, labels = line[name.end():], []
    if rest.startswith("{"):
        # A brace in a value is none: the last one ends them, as a number has none.
        end = rest.rindex("} ")
        labels, rest = labels_of(rest[1:end]), rest[end + 1:]
        assert labels, f"empty braces: {line!r}"
    assert rest.startswith(" ") and NUMBER.fullmatch(rest[1:]), f"not a value: {line!r}"
    return name[0], labels, float(rest[1:])


def check_histogram(family):
    buckets = [(dict(labels)["le"], value) for (name, labels), value in family.samples.items() if name == family.name + "_bucket"]
    bounds = [math.inf if bound == "+Inf" else float(bound) for bound, _ in buckets]
    counts = [value for _, value in buckets]
    assert bounds == sorted(set(bounds)) and bounds[-1] == math.inf, f"bounds of {family.name}: {bounds}"
    assert counts == sorted(counts), f"{family.name} is not cumulative: {counts}"
    assert counts[-1] == family.count(), f"{family.name}: +Inf is {counts[-1]}, the count {family.count()}"
    assert (family.samples[family.name + "_sum", ()] > 0) <= (family.count() > 0)
    assert len(family.samples) == len(buckets) + 2


def check(family):
    assert family.type, f"{family.name} has no type"
    if family.type == "histogram":
        assert family.name.endswith("_seconds")
        check_histogram(family)
        return
    assert {name for name, _ in family.samples} <= {family.name}
    assert len({tuple(label for label, _ in labels) for _, labels in family.samples}) <= 1, f"{family.name}: not all have the same labels"
    assert family.name.endswith("_total") == (family.type == "counter"), family.name
    assert "_usec" not in family.name and "_ms" not in family.name, "times are in seconds"


def families_of(text):
    """By their names, in their order. Asserts that all of it is as it should be."""
    assert text.endswith("\n") and "\r" not in text and "\n\n" not in text
    families, now = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert NAME.fullmatch(name) and name not in families, f"{name} is there twice"
            assert words.strip() == words and words and "\\" not in words
            now = families[name] = Family(name, words)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert now and name == now.name and not now.type and not now.samples and kind in TYPES, line
            now.type = kind
        else:
            assert not line.startswith("#"), line
            name, labels, value = sample_of(line)
            suffixes = ("_bucket", "_sum", "_count") if now.type == "histogram" else ("",)
            assert name in [now.name + suffix for suffix in suffixes], f"{name} in the family {now.name}"
            key = (name, tuple(sorted(labels)))
            assert key not in now.samples, f"twice: {line}"
            now.samples[key] = value
    for family in families.values():
        check(family)
    return families
