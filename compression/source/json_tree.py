"""JSON as a tree of offsets: its brackets, members and elements, read without recursion and without copying."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


@dataclass(slots=True)
class Node:
    """A member or element: `source[start:end]` with its key, where it has one; the value begins at `value`.

    `inside` is the span between a container's brackets, None for a scalar.
    """

    start: int
    value: int
    end: int
    key: str | None = None
    inside: tuple[int, int] | None = None
    children: list[Node] = field(default_factory=list)


def json_end(source: str, start: int) -> tuple[int | None, int | None]:
    """The end of the JSON object or array at `start`, and None; or None and where it stops being JSON.

    (None, None) where it is nested too deep to tell.
    """
    try:
        _, end = _DECODER.raw_decode(source, start)
    except json.JSONDecodeError as error:
        return None, error.pos
    except RecursionError:
        return None, None
    return end, None


def json_value(source: str, start: int) -> tuple[Any, int] | None:
    """The JSON value at `start`, its numbers as strings, and where it ends; None where none is, or one too deep."""
    try:
        return _DECODER.raw_decode(source, start)
    except (json.JSONDecodeError, RecursionError):
        return None


def read_tree(source: str, start: int, end: int) -> Node:
    """The tree of the valid JSON object or array `source[start:end]`."""
    root = Node(start, start, end)
    stack: list[Node] = []
    node = root
    key_of: str | None = None
    last_end = start
    for found in _TOKEN.finditer(source, start, end):
        mark = source[found.start()]
        if mark in "{[":
            if node is not root or stack:
                node.value = found.start() if node.value < 0 else node.value
            node.inside = (found.end(), found.end())
            stack.append(node)
            node = Node(_skip(source, found.end()), -1, -1)
        elif mark in "}]":
            _finish(stack[-1], node, source, found.start())
            node = stack.pop()
            node.inside = (node.inside[0] if node.inside else node.value, found.start())
            node.end = found.end()
        elif mark == ",":
            _finish(stack[-1], node, source, found.start())
            node = Node(_skip(source, found.end()), -1, -1)
        elif mark == ":":
            node.key = key_of
            node.value = _skip(source, found.end())
        else:
            key_of = found.group()
        last_end = found.end()
    root.end = last_end
    return root


def _finish(parent: Node, node: Node, source: str, stop: int) -> None:
    """Hang `node`, which ends before the comma or bracket at `stop`, under its parent; an empty one is none."""
    if node.end < 0:
        text_end = stop
        while text_end > node.start and source[text_end - 1] in " \t\r\n":
            text_end -= 1
        node.end = text_end
    if node.value < 0:
        node.value = node.start
    if node.end > node.start:
        parent.children.append(node)


def _skip(source: str, at: int) -> int:
    found = _SPACE.match(source, at)
    return found.end() if found else at
