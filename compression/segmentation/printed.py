"""A printed log as its reader sees it: without colours, and with the time before each line as a part of the line.

The view differs from the input as `Origin` says. Codes of colours are left out of it and of what is kept of it; the
time that a CI system writes before a line is one with the line's first character, and stays with that.
"""

import re
from collections.abc import Iterator

from compression.segmentation.outputs import OUTPUT_LINE, PRINTED_HEADS
from compression.source.origin import Origin

_COLOUR = r"\x1b\[[0-9;:?]{0,40}[A-Za-z]"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_TIMED = re.compile(rf"(?m)^{_TIME}(?: |$)")
_HIDDEN = re.compile(_COLOUR)
_HIDDEN_WITH_TIMES = re.compile(
    rf"(?m)^(?P<time>{_TIME} (?:{_COLOUR})*+)(?=[^\r\n\x1b])|^{_TIME} ?(?:{_COLOUR})*+(?=\r?$)|{_COLOUR}"
)
_COLOURS = re.compile(_COLOUR)
_MOST_UNTIMED = 0.1
_FEWEST = 3


def printed_view(source: str) -> tuple[str, Origin] | None:
    """The view and how it maps to the input; None where it would be the same."""
    has_times = _has_times(source)
    if not has_times and "\x1b[" not in source:
        return None
    origin = Origin(source, is_markup=True)
    pieces: list[str] = []
    at = length = skipped = escaped = 0
    for found in (_HIDDEN_WITH_TIMES if has_times else _HIDDEN).finditer(source):
        pieces.append(source[at : found.start()])
        length += found.start() - at
        at = found.end()
        if has_times and found["time"] is not None:
            # One with the character after it.
            escaped += at - found.start()
            origin.escapes.append(length)
            origin.escaped.append(escaped)
        else:
            skipped += at - found.start()
            if origin.gaps and origin.gaps[-1] == length:
                origin.skipped[-1] = skipped
            else:
                origin.gaps.append(length)
                origin.skipped.append(skipped)
    pieces.append(source[at:])
    return ("".join(pieces), origin) if at else None


def _has_times(source: str) -> bool:
    """True where nearly every line begins with a time, and what follows is what builds and tests print."""
    if _TIMED.match(source) is None:
        return False
    lines = source.count("\n") + 1
    if len(_TIMED.findall(source)) < (1 - _MOST_UNTIMED) * lines:
        return False
    return sum(1 for _ in _printed_lines(source)) >= _FEWEST


def _printed_lines(source: str) -> Iterator[int]:
    found = 0
    for match in _TIMED.finditer(source):
        end = source.find("\n", match.end())
        rest = _COLOURS.sub(
            "", source[match.end() : min(match.end() + 300, end if end >= 0 else len(source))]
        )
        if rest.startswith(PRINTED_HEADS) or OUTPUT_LINE.match(rest):
            yield match.start()
            found += 1
            if found >= _FEWEST:
                return
