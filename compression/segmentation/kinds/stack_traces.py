"""Stack traces: the exception with the frames nearest to it is one unit, the frames further off are others."""

import re
from collections.abc import Iterator, Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line
from compression.segmentation.cutting.sentences import split_long
from compression.segmentation.cutting.settings import SegmentationSettings

_CAUSE = re.compile(r"[ \t]{0,8}(?:Caused by|Suppressed):")
_TRACEBACK = re.compile(r"[ \t]*+Traceback \(most recent call last\)")


def add_trace_lines(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    source = builder.source
    for group in _groups(source, lines, settings.longest_block):
        for start, end in split_long(
            source, group[0].start, group[-1].end, longest=4 * settings.longest_block
        ):
            builder.add_exactly(start, end, "code_block")


def _groups(source: str, lines: Sequence[Line], longest: int) -> Iterator[Sequence[Line]]:
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
