"""What a schema costs to compile into a grammar, where that cost grows faster than the schema does.

`python -m benchmarks.limits` prints what xgrammar takes at each of these bounds. What the bounds do not know
ends at the deadline of `models.grammar`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Each optional property may follow each other one: 1,000 take seconds, 4,000 took two minutes.
MAX_OPTIONAL = 256
# Of the squares, over all objects of a request.
MAX_OPTIONAL_SQUARES = MAX_OPTIONAL**2
MAX_PATTERNS = 100
# Quantifiers without an upper end, or that let a piece be absent: ".*" fifty times takes four seconds.
MAX_QUANTIFIERS = 20
MAX_FORMATS = 50
MAX_RANGES = 100

_MARK = re.compile(r"\\.|[\[\]*+?{]", re.DOTALL)
_RANGE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

Cost = tuple[str, int, str]


def costs_of(node: Mapping[str, Any]) -> Iterator[Cost]:
    """What one schema adds to each of a request's bounds: the bound's name, how much, and the key that causes it."""
    if optional := _optional(node):
        yield "optional", optional**2, "properties"
    for key, text in _patterns(node):
        yield "patterns", 1, key
        if _quantifiers(text) > MAX_QUANTIFIERS:
            yield "quantifiers", 1, key
    if isinstance(node.get("format"), str):
        yield "formats", 1, "format"
    if ranged := next((key for key in _RANGE if key in node), None):
        yield "ranges", 1, ranged


BOUNDS: Mapping[str, tuple[int, str]] = {
    "optional": (
        MAX_OPTIONAL_SQUARES,
        f"at most {MAX_OPTIONAL} optional properties in an object, and fewer where several objects have many; name "
        "them in required",
    ),
    "patterns": (MAX_PATTERNS, f"at most {MAX_PATTERNS} patterns in a request's schemas"),
    "quantifiers": (0, f"a pattern may have {MAX_QUANTIFIERS} of the quantifiers *, +, ? and {{…}}"),
    "formats": (MAX_FORMATS, f"at most {MAX_FORMATS} formats in a request's schemas"),
    "ranges": (MAX_RANGES, f"at most {MAX_RANGES} numbers with a range in a request's schemas"),
}


def _optional(node: Mapping[str, Any]) -> int:
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, Mapping):
        return 0
    named = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    return sum(name not in named for name in properties)


def _patterns(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(text := node.get("pattern"), str):
        yield "pattern", text
    if isinstance(named := node.get("patternProperties"), Mapping):
        yield from (("patternProperties", text) for text in named)


def _quantifiers(pattern: str) -> int:
    """Those that a pattern has outside its classes of characters."""
    count, in_class = 0, False
    for mark in _MARK.findall(pattern):
        if mark == "]" or (mark == "[" and not in_class):
            in_class = mark == "["
        elif mark in "*+?{" and not in_class:
            count += 1
    return count
