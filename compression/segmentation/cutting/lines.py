"""Lines of the source and what a line looks like: the cheap tests that every other part of segmentation asks."""

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

import re
from collections.abc import Sequence
from typing import NamedTuple

from compression.segmentation.cutting.log_lines import LOG_LINE

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_TERMINAL = re.compile(r"[.!?…。！？｡।؟۔:;：；,，、][\"'”’」』）)\]»*_]*\s*\Z")
FENCE = re.compile(r"[ \t]{0,8}(`{3,}+|~{3,}+)([^`\n]{0,80})\Z")
HEADING = re.compile(r"[ \t]{0,3}#{1,6}[ \t]+\S")
LIST_ITEM = re.compile(r"[ \t]*(?:[-*+•‣▪●–]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])[ \t]+\S")
SPEAKER = re.compile(
    r"[ \t]*(?:\[[^\]\n]{1,20}\][ \t]*)?(?:\*\*)?[^\W\d_][\w.'’\- ]{0,40}(?:[ \t]?\([^)\n]{1,40}\))?"
    r"(?:\*\*)?[ \t]?[:：](?:\*\*)?(?=\s|\Z|[^\x00-\x7f])"
)


# How sentences begin: three words of letters alone, which no rule takes for the beginning of anything unless the next
# line says so. What apt, pip and logs print may begin so, and bars of progress.
PROSE = re.compile(
    r"(?!Unpack|Setting up|Preparing|Selecting|Process|Collecting|Download|Requirement|Install"
    r"|(?:Trace|Debug|Info|Notice|Warn|Warning|Error|Err|Severe|Fatal|Critical|Crit|Emerg) )"
    r"[A-Z][a-z]{0,30}(?: [A-Za-z][a-z]{0,30}){2}[ ,.;](?![^%\n]{0,90}%)"
)


class Line(NamedTuple):
    """`source[start:end]`, without its line end."""

    start: int
    end: int


def split_lines(source: str, *, most: int) -> list[Line]:
    """Lines ended by LF, CRLF or CR; what other characters Unicode calls line ends stay inside.

    Where there are more than about `most`, which no person writes, several are joined into one.
    """
    if source.count("\n") + source.count("\r") - source.count("\r\n") <= most:
        return [Line(*found.span(1)) for found in _LINE.finditer(source)]
    width = 2 * len(source) // most
    lines: list[Line] = []
    start = end = 0
    for found in _LINE.finditer(source):
        if end > start and found.end(1) - start > width:
            lines.append(Line(start, end))
            start = found.start(1)
        end = found.end(1)
    return [*lines, Line(start, end)]


def trimmed(lines: Sequence[Line], start: int) -> list[Line]:
    """The lines without what is before `start`; those that end before it become empty."""
    return [Line(min(max(line.start, start), line.end), line.end) for line in lines]


def is_blank(source: str, line: Line) -> bool:
    return not source[line.start : line.end].strip()


def ends_sentence(text: str) -> bool:
    """True where `text` ends in a mark that no title ends in."""
    return _TERMINAL.search(text[-12:]) is not None


def looks_like_title(text: str) -> bool:
    """A short line without a mark at its end that is not a list item, a heading mark, a bracket or a row."""
    text = text.strip()
    if not 1 < len(text) <= 120 or ends_sentence(text) or LIST_ITEM.match(text) or LOG_LINE.match(text):
        return False
    if "   " in text:
        # The head of columns.
        return False
    return text[0] not in "{[|<`>" and any(character.isalnum() for character in text[:40])
