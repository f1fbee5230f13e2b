"""Directory trees as `tree` draws them: an entry is kept with the folders that hold it."""

import re
from collections.abc import Sequence

from compression.segmentation.cutting.builder import Builder
from compression.segmentation.cutting.lines import Line, is_blank
from compression.segmentation.cutting.settings import SegmentationSettings

_ENTRY = re.compile(
    r"(?P<lead>(?:[│|](?=[ \t\u00a0])|[ \t\u00a0]){0,256}+)(?:├──|└──|\|--|`--|├─|└─|\+--|\\--) ?\S"
)
_ROOT_FOLDER = re.compile(r"\S{1,200}+[ \t]*+\Z")
_DEEPEST = 64


def tree_until(source: str, lines: Sequence[Line], number: int) -> int:
    """The line after the tree whose root or first entry is line `number`; `number` itself where none begins."""
    at = number if _ENTRY.match(source, *lines[number]) else number + 1
    if at > number and (at >= len(lines) or not _ROOT_FOLDER.match(source, *lines[number])):
        return number
    first = at
    while at < len(lines) and _ENTRY.match(source, *lines[at]):
        at += 1
    return at if at - first >= 2 else number


def add_tree(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    depths = [_depth(builder.source, line) for line in lines]
    opened: list[int] = []
    for at, (line, depth) in enumerate(zip(lines, depths, strict=True)):
        while opened and opened[-1] >= depth:
            builder.close_frame()
            opened.pop()
        holds = at + 1 < len(lines) and depths[at + 1] > depth and len(opened) < _DEEPEST
        unit = builder.add_exactly(line.start, line.end, "heading" if holds else "line")
        if holds and unit >= 0:
            builder.open_frame("block", unit)
            opened.append(depth)
    for _ in opened:
        builder.close_frame()
    builder.end_paragraph()


def _depth(source: str, line: Line) -> int:
    """How far an entry is indented, in characters; -1 for a root."""
    found = _ENTRY.match(source, *line)
    return -1 if found is None or is_blank(source, line) else found.end("lead") - line.start
