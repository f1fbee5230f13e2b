"""Diffs: changed lines of a hunk are a unit, context lines another, inside frames of its head and its file's."""

import re
from collections.abc import Iterator, Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line
from compression.segmentation.cutting.settings import SegmentationSettings

_FILE = re.compile(r"diff (?:--git |-\w|--cc )|Index: \S")
_OF_FILE = re.compile(
    r"index [0-9a-f]{6,40}|(?:new|deleted) file mode |(?:old|new) mode |(?:dis)?similarity index "
    r"|(?:rename|copy) (?:from|to) |Binary files |GIT binary patch|={10,}\Z|\+\+\+ \S"
)
_OLD_FILE = re.compile(r"--- \S")
_NEW_FILE = re.compile(r"\+\+\+ \S")
_HUNK = re.compile(r"@@@? -(?:\d+)(?:,(\d+))? (?:-\d+,\d+ )?\+(?:\d+)(?:,(\d+))? @@")
_HEAD = 6


def diff_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the diff that begins at `number`; `number` itself where none does."""
    # A file name by itself, or prose that begins like one, is not a diff.
    near = lines[number : number + _HEAD]
    if not any(_HUNK.match(source, *line) or _OF_FILE.match(source, *line) for line in near):
        return number
    at = number
    while at < len(lines):
        after = _head_until(source, lines, at)
        after = _hunk_until(source, lines, after) if after < len(lines) else after
        if after == at:
            break
        at = after
    return at


def _head_until(source: str, lines: Sequence[Line], number: int) -> int:
    at = number
    if _FILE.match(source, *lines[at]):
        at += 1
    while at < len(lines) and (
        (at > number and _OF_FILE.match(source, *lines[at])) or _names_files(source, lines, at)
    ):
        at += 2 if _names_files(source, lines, at) else 1
    return at


def _names_files(source: str, lines: Sequence[Line], at: int) -> bool:
    return (
        _OLD_FILE.match(source, *lines[at]) is not None
        and at + 1 < len(lines)
        and _NEW_FILE.match(source, *lines[at + 1]) is not None
    )


def _hunk_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after a hunk, as many lines as its head says at most."""
    found = _HUNK.match(source, *lines[number])
    if found is None:
        return number
    old, new = (int((count or "1")[:9]) for count in found.groups())
    at = number + 1
    while at < len(lines) and (old > 0 or new > 0):
        mark = source[lines[at].start : lines[at].start + 1]
        if mark not in ("", " ", "+", "-", "\\") and lines[at].start < lines[at].end:
            break
        old -= mark != "+" and mark != "\\"
        new -= mark != "-" and mark != "\\"
        at += 1
    if at < len(lines) and source.startswith("\\ No newline", lines[at].start):
        at += 1
    return at


def add_diff(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    source, at, depth = builder.source, 0, 0
    while at < len(lines):
        after = _head_until(source, lines, at)
        if after > at:
            depth = _close(builder, depth)
            builder.open_frame("block", builder.add(lines[at].start, lines[after - 1].end, "heading"))
            depth, at = 1, after
            continue
        after = _hunk_until(source, lines, at)
        builder.open_frame("block", builder.add(*lines[at], "heading"))
        for first, last in _runs(source, lines[at + 1 : after], settings.longest_block):
            builder.add_exactly(first.start, last.end, "line")
        builder.close_frame()
        builder.end_paragraph()
        at = after
    _close(builder, depth)


def _close(builder: Builder, depth: int) -> int:
    if depth:
        builder.close_frame()
        builder.end_paragraph()
    return 0


def _runs(source: str, lines: Sequence[Line], longest: int) -> Iterator[tuple[Line, Line]]:
    """Lines that change something, and lines that do not, in turns; long runs in parts."""
    first = 0
    for at in range(1, len(lines) + 1):
        if (
            at == len(lines)
            or lines[at].end - lines[first].start > longest
            or _changes(source, lines[at]) != _changes(source, lines[at - 1])
        ):
            yield lines[first], lines[at - 1]
            first = at


def _changes(source: str, line: Line) -> bool:
    return source[line.start : line.start + 1] in ("+", "-", "\\")
