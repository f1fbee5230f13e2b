"""Bounds on the JSON Schemas that callers send, since a grammar is compiled from them inside the engine.

A malformed `type` or `pattern` has crashed engines (CVE-2025-48944), and a counted repetition is compiled in
quadratic time: `a{1,10000}` alone costs xgrammar 0.2.x several seconds of a core.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from models.errors import InvalidField

Loc = tuple[str | int, ...]

MAX_DEPTH = 32
MAX_NODES = 10_000
MAX_TEXT_CHARS = 65_536
MAX_PATTERN_CHARS = 512
MAX_REPETITIONS = 1000

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_REPETITION = re.compile(r"\{(\d+)(?:,(\d*))?\}")
# Below these keys stand names of the caller's own or literal values, where `type` and `pattern` mean nothing.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LITERAL = frozenset({"const", "enum", "default", "examples"})


def check_schema(schema: Mapping[str, Any], loc: Loc) -> None:
    """Raise `InvalidField` where the schema is too large, too deep, or malformed in what engines compile."""
    _check_size(schema, loc)
    _check_references(schema, loc)
    repetitions = 0
    for node, place in _schemas(schema, loc):
        _check_types(node, place)
        _check_counts(node, place)
        repetitions += _check_patterns(node, place)
    if repetitions > MAX_REPETITIONS:
        raise InvalidField(loc, f"patterns may count {MAX_REPETITIONS} repetitions in all, not {repetitions}")


def _check_references(schema: Mapping[str, Any], loc: Loc) -> None:
    """Refuse a schema that stands for nothing but itself, on which xgrammar gives the request up.

    Recursion through properties or items is fine: each round reads something.
    """
    for node, place in _schemas(schema, loc):
        waiting, seen = [node], set[int]()
        while waiting:
            same = waiting.pop()
            if id(same) in seen:
                continue
            seen.add(id(same))
            found = [*_applied(same), *_referred(schema, same)]
            if any(each is node for each in found):
                raise InvalidField(place, "the schema refers to itself without holding anything else")
            waiting += found


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


def _check_size(schema: Any, loc: Loc) -> None:
    nodes, chars = 0, 0
    waiting = [(schema, loc, 1)]
    while waiting:
        value, place, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise InvalidField(loc, f"the schema is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            waiting += [(item, (*place, key), depth + 1) for key, item in value.items()]
            chars += sum(map(len, value))
        elif isinstance(value, list):
            waiting += [(item, (*place, index), depth + 1) for index, item in enumerate(value)]
        elif isinstance(value, str):
            chars += len(value)
        else:
            _check_number(value, place)
        nodes += 1
        if nodes + len(waiting) > MAX_NODES:
            raise InvalidField(loc, f"the schema has more than {MAX_NODES} values")
        if chars > MAX_TEXT_CHARS:
            raise InvalidField(loc, f"the schema has more than {MAX_TEXT_CHARS} characters of text")


def _check_number(value: Any, loc: Loc) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidField(loc, "integers must fit in 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidField(loc, "numbers must be finite")


def _schemas(value: Any, loc: Loc) -> Iterator[tuple[Mapping[str, Any], Loc]]:
    """Every object that is read as a schema, with its place. Recursion is bounded by `MAX_DEPTH`."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _schemas(item, (*loc, index))
    if not isinstance(value, Mapping):
        return
    yield value, loc
    for key, item in value.items():
        if key in _NAMED and isinstance(item, Mapping):
            for name, member in item.items():
                yield from _schemas(member, (*loc, key, name))
        elif key not in _LITERAL:
            yield from _schemas(item, (*loc, key))


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
    patterns: list[tuple[Loc, Any]] = [((*loc, "pattern"), node["pattern"])] if "pattern" in node else []
    named = node.get("patternProperties")
    if isinstance(named, Mapping):
        patterns += [((*loc, "patternProperties"), text) for text in named]
    for place, text in patterns:
        if not isinstance(text, str):
            raise InvalidField(place, "must be a string", kind="string_type")
        if len(text) > MAX_PATTERN_CHARS:
            raise InvalidField(
                place, f"must have at most {MAX_PATTERN_CHARS} characters", kind="string_too_long"
            )
    found = (count for _, text in patterns for count in _REPETITION.findall(text))
    return sum(int(high or low) for low, high in found)
