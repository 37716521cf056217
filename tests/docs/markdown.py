"""The blocks of a page of Markdown, fenced and indented."""
import dataclasses
import re


@dataclasses.dataclass
class Block:
    page: str
    line: int  # of the page, from 1
    language: str  # of a fence; empty where none is said
    text: str  # without indentation

    @property
    def where(self):
        return f"{self.page}:{self.line}"


def blocks(page, text):
    """In order. A block that is indented by four begins after an empty line, and lines of a list do not count: ours are not
    indented so far."""
    found, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        fence = re.match(r"(`{3,}|~{3,})\s*(\S*)", lines[at])
        first = at + 1 if fence else at
        if fence:
            at = first
            while not lines[at].startswith(fence[1]):
                at += 1
            found.append(Block(page, first, fence[2], "\n".join(lines[first:at])))
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            found.append(Block(page, first + 1, "", "\n".join(line[4:] for line in lines[first:at]).rstrip()))
            continue
        at += 1
    return found
