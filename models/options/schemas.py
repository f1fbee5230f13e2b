"""Bounds on the JSON Schemas that callers send, since a grammar is compiled from them inside the engine.

A malformed `type` or `pattern` has crashed engines (CVE-2025-48944), and a counted repetition is compiled in
quadratic time: `a{1,10000}` alone costs xgrammar 0.2.x several seconds of a core.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from models.errors import InvalidField

Loc = tuple[str | int, ...]

MAX_DEPTH = 32
MAX_NODES = 10_000
MAX_TEXT_CHARS = 65_536
MAX_REQUEST_TEXT_CHARS = 4 * MAX_TEXT_CHARS
MAX_PATTERN_CHARS = 512
MAX_REPETITIONS = 1000
# Each optional property may follow each other one: 1,000 take seconds, 4,000 took two minutes.
MAX_OPTIONAL = 256
# Of the squares, over all objects of a request.
MAX_OPTIONAL_SQUARES = MAX_OPTIONAL**2
MAX_PATTERNS = 100
# Quantifiers without an upper end, or that let a piece be absent: ".*" fifty times takes four seconds.
MAX_QUANTIFIERS = 20
MAX_FORMATS = 50
MAX_RANGES = 100

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_REPETITION = re.compile(r"\{(\d+)(?:,(\d*))?\}")
# Below these keys stand names of the caller's own or literal values, where `type` and `pattern` mean nothing.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LITERAL = frozenset({"const", "enum", "default", "examples"})
_MARK = re.compile(r"\\.|[\[\]*+?{]", re.DOTALL)
_RANGE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
# The most of each in all schemas of a request, and what is said of more.
BOUNDS: Mapping[str, tuple[int, str]] = {
    "values": (MAX_NODES, f"the request's schemas have more than {MAX_NODES} values in all"),
    "chars": (
        MAX_REQUEST_TEXT_CHARS,
        f"the request's schemas have more than {MAX_REQUEST_TEXT_CHARS} characters of text in all",
    ),
    "repetitions": (
        MAX_REPETITIONS,
        f"patterns may count {MAX_REPETITIONS} repetitions in all, and these count more",
    ),
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


def check_schemas(schemas: Iterable[tuple[Mapping[str, Any], Loc]]) -> None:
    """Check all schemas of one request, each at its place, against the bounds that hold for them together. Raises
    `InvalidField` where one is too large, too deep, or malformed in what engines compile.

    The cost is linear in the values and the text that these bounds let through.
    """
    left = _Left()
    for schema, loc in schemas:
        _check_size(schema, loc, left)
        places = list(_schemas(schema, loc))
        _check_references(schema, places)
        for node, place in places:
            _check_types(node, place)
            _check_counts(node, place)
            left.take("repetitions", _check_patterns(node, place), loc)
            for name, cost, key in costs_of(node):
                left.take(name, cost, (*place, key), kind="too_costly")


class _Left:
    """The rest of the bounds that hold for all schemas of a request together."""

    def __init__(self) -> None:
        self._left = {name: most for name, (most, _) in BOUNDS.items()}

    def take(self, name: str, number: int, loc: Loc, *, kind: str = "value_error") -> None:
        """Raises `InvalidField` when there is not so much left."""
        self._left[name] -= number
        if self._left[name] < 0:
            raise InvalidField(loc, BOUNDS[name][1], kind=kind)


def _check_references(schema: Mapping[str, Any], places: list[tuple[Mapping[str, Any], Loc]]) -> None:
    """Refuse a schema that only refers to itself: xgrammar aborts the request on it.

    Recursion through properties or items is fine: each round reads something. A search that enters each object once:
    one that is met again while it is still open is part of a cycle.
    """
    place_of = {id(node): place for node, place in places}
    left_behind = set[int]()
    for root, loc in places:
        if id(root) in left_behind:
            continue
        entered, path = {id(root)}, [(id(root), iter(_same_value(schema, root)))]
        while path:
            current, rest = path[-1]
            if (found := next(rest, None)) is None:
                path.pop()
                entered.discard(current)
                left_behind.add(current)
            elif id(found) in entered:
                message = "the schema refers to itself without holding anything else"
                raise InvalidField(place_of.get(id(found), loc), message)
            elif id(found) not in left_behind:
                entered.add(id(found))
                path.append((id(found), iter(_same_value(schema, found))))


def _same_value(schema: Mapping[str, Any], node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schemas that are held against the very value that `node` is held against."""
    return [*_applied(node), *_referred(schema, node)]


def _applied(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schemas that apply to the very value that `node` applies to."""
    lists = [node[key] for key in ("allOf", "anyOf", "oneOf") if isinstance(node.get(key), list)]
    return [each for schemas in lists for each in schemas if isinstance(each, Mapping)]


def _referred(schema: Mapping[str, Any], node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schema that `node` refers to within the same document, if there is one."""
    reference = node.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return []
    target: Any = schema
    for step in reference.removeprefix("#").removeprefix("/").split("/") if len(reference) > 1 else []:
        key = step.replace("~1", "/").replace("~0", "~")
        target = target.get(key) if isinstance(target, Mapping) else None
    return [target] if isinstance(target, Mapping) else []


def _check_size(schema: Any, loc: Loc, left: _Left) -> None:
    chars = MAX_TEXT_CHARS
    left.take("values", 1, loc)
    waiting = [(schema, loc, 1)]
    while waiting:
        value, place, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise InvalidField(loc, f"the schema is nested deeper than {MAX_DEPTH} levels")
        text = 0
        if isinstance(value, Mapping):
            left.take("values", len(value), loc)
            waiting += [(item, (*place, key), depth + 1) for key, item in value.items()]
            text = sum(map(len, value))
        elif isinstance(value, list):
            left.take("values", len(value), loc)
            waiting += [(item, (*place, index), depth + 1) for index, item in enumerate(value)]
        elif isinstance(value, str):
            text = len(value)
        else:
            _check_number(value, place)
        left.take("chars", text, loc)
        chars -= text
        if chars < 0:
            raise InvalidField(loc, f"the schema has more than {MAX_TEXT_CHARS} characters of text")


def _check_number(value: Any, loc: Loc) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidField(loc, "integers must fit in 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidField(loc, "numbers must be finite")


def _schemas(schema: Mapping[str, Any], loc: Loc) -> Iterator[tuple[Mapping[str, Any], Loc]]:
    """Every object that is read as a schema, with its place, in the document's order."""
    waiting: list[tuple[Any, Loc]] = [(schema, loc)]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, Mapping):
            yield value, place
            waiting += reversed(list(_members(value, place)))
        elif isinstance(value, list):
            waiting += reversed([(item, (*place, index)) for index, item in enumerate(value)])


def _members(node: Mapping[str, Any], loc: Loc) -> Iterator[tuple[Any, Loc]]:
    """The members of a schema that may be read as schemas."""
    for key, item in node.items():
        if key in _NAMED and isinstance(item, Mapping):
            yield from ((member, (*loc, key, name)) for name, member in item.items())
        elif key not in _LITERAL:
            yield item, (*loc, key)


def _check_types(node: Mapping[str, Any], loc: Loc) -> None:
    if "type" not in node:
        return
    types = node["type"] if isinstance(node["type"], list) else [node["type"]]
    if not types or not all(isinstance(name, str) and name in _TYPES for name in types):
        raise InvalidField((*loc, "type"), f"must be one of {', '.join(sorted(_TYPES))}, or a list of them")


def _check_counts(node: Mapping[str, Any], loc: Loc) -> None:
    for key in _COUNTS:
        value = node.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidField((*loc, key), "must be an integer of at least 0")


def _check_patterns(node: Mapping[str, Any], loc: Loc) -> int:
    """Check the node's patterns, and return how many repetitions they count."""
    repetitions = 0
    for key, text in _patterns(node):
        if not isinstance(text, str):
            raise InvalidField((*loc, key), "must be a string", kind="string_type")
        if len(text) > MAX_PATTERN_CHARS:
            message = f"must have at most {MAX_PATTERN_CHARS} characters"
            raise InvalidField((*loc, key), message, kind="string_too_long")
        repetitions += sum(int(high or low) for low, high in _REPETITION.findall(text))
    return repetitions


def costs_of(node: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """The cost of one checked schema: the bound's name, how much it takes of it, and the key that causes it."""
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


def _optional(node: Mapping[str, Any]) -> int:
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, Mapping):
        return 0
    named = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    return sum(name not in named for name in properties)


def _patterns(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if "pattern" in node:
        yield "pattern", node["pattern"]
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
