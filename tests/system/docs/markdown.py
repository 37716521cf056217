"""The blocks of a page of Markdown, fenced and indented."""
import dataclasses
import re

FENCE = re.compile(r"( *)(`{3,}|~{3,})\s*([^`\s]*)[^`]*$")  # also in a list
INDENT = "    "


@dataclasses.dataclass
class Block:
    page: str
    line: int  # of the page, from 1: that of its text
    language: str  # of a fence; empty where none is said
    text: str  # without indentation

    @property
    def where(self):
        return f"{self.page}:{self.line}"


def fenced(page, lines, at, fence):
    """Up to the next such fence; where there is none, to the end of the page."""
    indent, marks, language = fence.groups()
    text = []
    for line in lines[at + 1:]:
        if re.fullmatch(rf" *{re.escape(marks)}{marks[0]}*\s*", line):
            break
        text.append(line.removeprefix(indent))
    return Block(page, at + 2, language, "\n".join(text)), at + len(text) + 2


def indented(page, lines, at):
    """Up to the next line that is not; empty ones belong to it."""
    end = at
    while end < len(lines) and (lines[end].startswith(INDENT) or not lines[end].strip()):
        end += 1
    return Block(page, at + 1, "", "\n".join(line.removeprefix(INDENT) for line in lines[at:end]).rstrip()), end


def blocks(page, text):
    """In order. What is indented by four after an empty line counts as a block, also in a list."""
    found, lines, at = [], text.expandtabs(4).splitlines(), 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence:
            block, at = fenced(page, lines, at, fence)
            found.append(block)
        elif lines[at].startswith(INDENT) and lines[at].strip() and (at == 0 or not lines[at - 1].strip()):
            block, at = indented(page, lines, at)
            found.append(block)
        else:
            at += 1
    return found
