"""Tables in Markdown, CSV and TSV: every row a unit, all of them inside a frame that is the header."""

import re
from collections.abc import Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line
from compression.segmentation.cutting.sentences import split_long
from compression.segmentation.cutting.settings import SegmentationSettings

_RULE = r"[ \t]*+:?-++:?[ \t]*+"
_DELIMITER_ROW = re.compile(rf"[ \t]*+\|?{_RULE}(?:\|{_RULE})*+(?:\|[ \t]*+)?\Z")
_QUOTED = re.compile(r'"[^"\n]*"')
_LONGEST_ROW = 2000


def markdown_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the Markdown table whose header is line `number`; `number` itself where none begins."""
    if number + 1 >= len(lines) or source.find("|", *lines[number]) < 0:
        return number
    if source.find("|", *lines[number + 1]) < 0 or not _DELIMITER_ROW.match(source, *lines[number + 1]):
        return number
    at = number + 2
    while at < len(lines) and source.find("|", *lines[at]) >= 0:
        at += 1
    return at


def separated_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after a run of at least three rows with the same number of tabs, commas, semicolons or bars."""
    for mark in "\t,;|":
        columns = _columns(source, lines[number], mark)
        if columns < (2 if mark != "\t" else 1):
            continue
        # Told by its first rows: to read a long run only to refuse it could be done again from each of its lines.
        first = lines[number : number + 3]
        if len(first) < 3 or any(_columns(source, line, mark) != columns for line in first[1:]):
            continue
        if not _reads_as_prose(source, first, mark):
            at = number + 3
            while at < len(lines) and _columns(source, lines[at], mark) == columns:
                at += 1
            return at
    return number


def _columns(source: str, line: Line, mark: str) -> int:
    if line.end - line.start > _LONGEST_ROW or source.find(mark, *line) < 0:
        return 0
    text = source[line.start : line.end]
    return (_QUOTED.sub("", text) if '"' in text else text).count(mark)


def _reads_as_prose(source: str, lines: Sequence[Line], mark: str) -> bool:
    """In prose a comma is followed by a space, and there are many words to each."""
    if mark in "\t|":
        return False
    text = source[lines[0].start : lines[-1].end]
    marks = text.count(mark)
    return text.count(mark + " ") * 2 > marks and text.count(" ") > 4 * marks


def add_table(builder: Builder, lines: Sequence[Line], header: int, settings: SegmentationSettings) -> None:
    """`header` lines name the columns (two in Markdown, with the rule under them); the rest are rows."""
    opening = builder.add(lines[0].start, lines[header - 1].end, "table_header")
    if opening >= 0:
        builder.open_frame("table", opening)
    for line in lines[header:]:
        for start, end in split_long(builder.source, *line, longest=4 * settings.longest_unit):
            builder.add(start, end, "table_row")
    if opening >= 0:
        builder.close_frame()
    builder.end_paragraph()
