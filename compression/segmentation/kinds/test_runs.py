"""What test runners print: a failed test's name frames its assertion and location; results are lines."""

import re
from collections.abc import Iterator, Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line, is_blank
from compression.segmentation.cutting.settings import SegmentationSettings

# pytest; cargo; unittest; jest; go
_SECTION = re.compile(
    r"_{3,}+ [^\n]{1,200} _{3,}\Z|---- \S[^\n]{0,200} stdout ----\Z|(?:FAIL|ERROR): \w+ \([\w.]+\)"
)
_INDENTED_SECTION = re.compile(r" {0,4}● \S|[ \t]{0,8}--- FAIL: \S")
_NEXT = re.compile(
    r"={5,}|-{5,} |failures:\Z|test result:|Ran \d+ tests?|Test Suites?:|Tests:|FAIL\Z|PASS\b|ok\b"
)
_RAISING = re.compile(r">|Traceback |thread '|(?:_ ){4,}")
_RULE_OF_FRAMES = re.compile(r"(?:_ ){4,}")
_MOST = 2_000


def failure_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the report of a failed test that begins at `number`; `number` itself where none does."""
    if _SECTION.match(source, *lines[number]):
        return _section_until(source, lines, number)
    if _INDENTED_SECTION.match(source, *lines[number]):
        return _indented_until(source, lines, number)
    return number


def _section_until(source: str, lines: Sequence[Line], number: int) -> int:
    at = number + 1
    if at < len(lines) and source.startswith("-----", lines[at].start):
        at += 1
    while at < len(lines) and at - number < _MOST:
        if _SECTION.match(source, *lines[at]) or _NEXT.match(source, *lines[at]):
            break
        at += 1
    return at


def _indented_until(source: str, lines: Sequence[Line], number: int) -> int:
    at = number + 1
    while at < len(lines) and at - number < _MOST:
        line = lines[at]
        if not is_blank(source, line) and (
            not source[line.start].isspace() or _INDENTED_SECTION.match(source, *line)
        ):
            break
        at += 1
    return at


def add_failure(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    builder.open_frame("block", builder.add(*lines[0], "heading"))
    for first, last in _parts(builder.source, lines[1:], settings.longest_block):
        builder.add_exactly(first.start, last.end, "line")
    builder.close_frame()
    builder.end_paragraph()


def _parts(source: str, lines: Sequence[Line], longest: int) -> Iterator[tuple[Line, Line]]:
    """Cut at blank lines and where something is raised, so that an assertion stays with what it found."""
    first = 0
    for at in range(1, len(lines) + 1):
        if at < len(lines) and lines[at].end - lines[first].start <= longest:
            is_break = is_blank(source, lines[at - 1]) and not _is_location(source, lines[at])
            is_break |= _RULE_OF_FRAMES.match(source, *lines[at - 1]) is not None
            if not is_break and _RAISING.match(source, *lines[at]) is None:
                continue
        yield lines[first], lines[at - 1]
        first = at


_LOCATION = re.compile(r"\S{1,200}:\d+: \w|\S{1,200}:\d+:\d+\Z")


def _is_location(source: str, line: Line) -> bool:
    return _LOCATION.match(source, *line) is not None
