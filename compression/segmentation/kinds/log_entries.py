"""Entries of a log: a line that begins like one, with the lines under it, often a stack trace."""

import re
from collections.abc import Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line, is_blank
from compression.segmentation.cutting.log_lines import LOG_LINE
from compression.segmentation.cutting.settings import SegmentationSettings
from compression.segmentation.kinds.prose import add_sentences
from compression.segmentation.kinds.stack_traces import add_trace_lines

_UNDER = re.compile(
    r"[ \t]+\S|Caused by:|Traceback \(most|\.\.\. \d+ more|(?:[\w$]{1,80}\.){0,12}[A-Z][\w$]{0,80}(?:Error|Exception)\b"
)


def is_log_line(source: str, line: Line) -> bool:
    return LOG_LINE.match(source, *line) is not None


def is_mostly_log(source: str, lines: Sequence[Line]) -> bool:
    """At least half of the lines begin entries: lines between two entries belong to the first."""
    begins = sum(is_log_line(source, line) for line in lines)
    return begins >= 3 and begins * 2 >= sum(not is_blank(source, line) for line in lines)


def entry_until(source: str, lines: Sequence[Line], number: int, *, in_log: bool) -> int:
    """The line after the entry that begins at `number`; with `in_log` all up to the next entry belongs to it."""
    at = number + 1
    while at < len(lines) and not is_blank(source, lines[at]) and not is_log_line(source, lines[at]):
        if not in_log and not _UNDER.match(source, *lines[at]):
            break
        at += 1
    return at


def add_entry(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """One unit where it is short; else the first lines are one, and what is left is cut as a trace is."""
    if len(lines) == 1:
        add_sentences(builder, *lines[0], settings, "line", whole=True)
        return
    start, head = lines[0].start, 1
    while head < len(lines) and lines[head].end - start <= settings.longest_block:
        head += 1
    add_sentences(builder, start, lines[head - 1].end, settings, "line", whole=True)
    if head < len(lines):
        add_trace_lines(builder, lines[head:], settings)
