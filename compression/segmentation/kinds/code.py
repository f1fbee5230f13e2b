"""Code blocks and stack traces: one unit where they are short, else groups of lines inside their fences."""

import re
from collections.abc import Iterator, Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import FENCE, Line, is_blank
from compression.segmentation.cutting.sentences import split_long
from compression.segmentation.cutting.settings import SegmentationSettings

_INDENTED = re.compile(r"(?: {4}|\t)[ \t]*\S")
_TRACE_HEAD = re.compile(
    r"[ \t]*(?:Traceback \(most recent call last\)|Exception in thread|Caused by:"
    r"|goroutine \d+ \[|panic:|thread '[^'\n]{0,80}' panicked)"
)
_TRACE_FRAME = re.compile(r"[ \t]++(?:at\s++\S|File \"|\.\.\. \d++ more|\d++: 0x|in [\w.<>]++ )")
_FAILURE = r"(?:Error|Exception|Interrupt|Exit|Warning|Fault)(?!\w)"
# Anywhere in a line: from each capital no further than to the next one, or a line of capitals would cost its square.
_ERROR_NAME = re.compile(rf"[A-Z](?:[^\WA-Z]|\$)*+{_FAILURE}")
_NAME_OF_ERROR = rf"[A-Z](?:(?!{_FAILURE})[\w$])*+{_FAILURE}"
# At a line's start, after the modules that hold it: requests.exceptions.ConnectionError.
_TRACE_END = re.compile(rf"(?:(?!{_NAME_OF_ERROR})[\w$]++\.)*+{_NAME_OF_ERROR}")


def fenced_lines(source: str, lines: Sequence[Line]) -> dict[int, int]:
    """First and last line of every fenced block. A fence that nothing closes is a line like any other."""
    found: dict[int, int] = {}
    if "```" not in source and "~~~" not in source:
        return found
    opened: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        fence = FENCE.match(source, line.start, line.end)
        if fence is None:
            continue
        mark, info = fence.group(1), fence.group(2).strip()
        if not opened:
            opened = [(number, mark)]
        elif not info and mark[0] == opened[0][1][0] and len(mark) >= len(opened[0][1]):
            found[opened[0][0]] = number
            opened = []
        elif info and mark[0] == opened[0][1][0]:
            # Another block begins: the one before was never closed.
            opened = [(number, mark)]
    return found


def add_fenced(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """`lines` run from fence to fence."""
    if lines[-1].end - lines[0].start <= settings.longest_block or len(lines) < 4:
        builder.add(lines[0].start, lines[-1].end, "code_block")
    else:
        builder.open_frame("code", builder.add(*lines[0], "fence"))
        add_code(builder, lines[1:-1], settings)
        builder.close_frame(*lines[-1], "fence")
    builder.end_paragraph()


def add_code(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """Code without its fences, cut at blank lines and before lines that are indented least."""
    for first, last in _groups(builder.source, lines, settings.longest_block):
        start, end = lines[first].start, lines[last].end
        # The indentation of the first line is part of the code, and `add` trims it: no unit may begin in it.
        for begin, stop in split_long(builder.source, start, end, longest=4 * settings.longest_block):
            builder.add_exactly(begin, stop, "code_block")


def _groups(source: str, lines: Sequence[Line], longest: int) -> Iterator[tuple[int, int]]:
    first = 0
    for number in range(1, len(lines)):
        size = lines[number].end - lines[first].start
        is_break = is_blank(source, lines[number - 1]) and not is_blank(source, lines[number])
        if size > longest or (is_break and size * 2 > longest):
            yield first, number - 1
            first = number
    if lines:
        yield first, len(lines) - 1


def indented_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the indented code block that begins at `number`; `number` itself where none does."""
    last = number
    for at in range(number, len(lines)):
        if _INDENTED.match(source, *lines[at]):
            last = at + 1
        elif not is_blank(source, lines[at]):
            break
    return last if last - number >= 2 else number


def trace_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the stack trace that begins at `number`; `number` itself where none does."""
    is_head = _TRACE_HEAD.match(source, *lines[number]) is not None
    follows = number + 1 < len(lines) and _TRACE_FRAME.match(source, *lines[number + 1]) is not None
    if not follows or not (is_head or _ERROR_NAME.search(source, *lines[number])):
        return number
    at = number + 1
    while (
        at < len(lines)
        and source[lines[at].start : lines[at].start + 1].isspace()
        and not is_blank(source, lines[at])
    ):
        at += 1
    ends = at < len(lines) and _TRACE_END.match(source, *lines[at]) is not None
    return at + 1 if is_head and ends else at
