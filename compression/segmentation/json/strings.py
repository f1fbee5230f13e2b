"""Cuts the text inside a long JSON string into sentences, never inside an escape."""

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001

import re
from collections.abc import Iterator

# Escaped line ends and marks that end a sentence; any other escape is matched so that it is passed over whole.
# A run of marks is tried from its first one only, or a line of dots would cost the square of its length.
_PART = re.compile(
    r"(?P<cut>(?:\\[nr])+(?:\\t|[ \t])*+"
    r"|(?P<mark>(?<![.!?…])[.!?…]++(?:\\[\"']|[\"'”’)\]*_])*+)(?=[ \t]|\\[nr])(?:[ \t]|\\[nr])*+"
    r"|(?P<wide>[。！？]++[”’」』）】》]*+))|\\u[0-9a-fA-F]{4}|\\."
)


def split_string(source: str, start: int, end: int, *, longest: int) -> Iterator[tuple[int, int]]:
    """Spans of the sentences and lines of the string content `source[start:end]`; escaped line ends lie between.

    A span of more than `longest` characters is cut at a space, if it has one.
    """
    begin = start
    for found in _PART.finditer(source, start, end):
        if found.group("cut") is None or _goes_on(source, found, end):
            continue
        stop = max(found.end("mark"), found.end("wide"), found.start())
        if stop > begin:
            yield from _shortened(source, begin, stop, longest)
        begin = found.end()
    if begin < end:
        yield from _shortened(source, begin, end, longest)


def _goes_on(source: str, found: re.Match[str], end: int) -> bool:
    """After a mark and a space, a small letter says that the sentence has not ended."""
    if found.group("mark") is None or found.end() >= end:
        return False
    return source[found.end()].islower() and source[found.end() - 1] in " \t"


def _shortened(source: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    while end - start > longest:
        cut = source.rfind(" ", start + 1, start + longest)
        if cut < 0:
            cut = source.find(" ", start + longest, end)
        if cut < 0:
            break
        yield start, cut
        start = cut + 1
    if start < end:
        yield start, end
