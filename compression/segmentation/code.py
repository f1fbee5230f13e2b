"""Code blocks, stack traces and entries of logs, which often hold a trace: groups of lines where they are long."""

import re
from collections.abc import Iterator, Sequence

from compression.segmentation.definitions import add_code
from compression.segmentation.lines import FENCE, LOG_LINE, Line, is_blank
from compression.segmentation.prose import add_sentences, split_long
from compression.source.units import Builder, SegmentationSettings

_CAUSE = re.compile(r"[ \t]{0,8}(?:Caused by|Suppressed):")
_TRACEBACK = re.compile(r"[ \t]*+Traceback \(most recent call last\)")


def add_trace_lines(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    source = builder.source
    for group in _trace_groups(source, lines, settings.longest_block):
        for start, end in split_long(
            source, group[0].start, group[-1].end, longest=4 * settings.longest_block
        ):
            builder.add_exactly(start, end, "code_block")


def _trace_groups(source: str, lines: Sequence[Line], longest: int) -> Iterator[Sequence[Line]]:
    """Python says last what was raised, most others first; where one is the cause of another both are kept apart."""
    starts = [n for n, line in enumerate(lines) if not n or _CAUSE.match(source, *line)]
    for first, last in zip(starts, [*starts[1:], len(lines)], strict=True):
        part = lines[first:last]
        if _TRACEBACK.match(source, *part[0]) or source[part[-1].start : part[-1].start + 1].strip():
            yield from reversed(list(_from_end(part, longest)))
        else:
            yield from _from_start(part, longest)


def _from_start(lines: Sequence[Line], longest: int) -> Iterator[Sequence[Line]]:
    first = 0
    for at in range(1, len(lines) + 1):
        if at == len(lines) or lines[at].end - lines[first].start > longest:
            yield lines[first:at]
            first = at


def _from_end(lines: Sequence[Line], longest: int) -> Iterator[Sequence[Line]]:
    last = len(lines)
    for at in range(len(lines) - 1, -1, -1):
        if not at or lines[last - 1].end - lines[at - 1].start > longest:
            yield lines[at:last]
            last = at


_INDENTED = re.compile(r"(?: {4}|\t)[ \t]*\S")
_TRACE_HEAD = re.compile(
    r"[ \t]*(?:Traceback \(most recent call last\)|Exception in thread|Caused by:"
    r"|goroutine \d+ \[|panic:|thread '[^'\n]{0,80}' panicked)"
)
TRACE_FRAME = re.compile(r"[ \t]++(?:at\s++\S|File \"|\.\.\. \d++ more|\d++: 0x|in [\w.<>]++ )")
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
    follows = number + 1 < len(lines) and TRACE_FRAME.match(source, *lines[number + 1]) is not None
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
