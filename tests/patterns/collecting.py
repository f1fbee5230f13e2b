"""Every regular expression in our packages, with whether it is tried at one place or at every."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("compression", "models", "serve")
AT_ONE_PLACE = {"match", "fullmatch"}
AT_EVERY = {"search", "finditer", "findall", "sub", "subn", "split"}


@dataclass(frozen=True)
class Found:
    """`name` is `module.VARIABLE`, or `module:line` where it has no variable of its own."""

    name: str
    pattern: str
    flags: int
    searched: bool


@cache
def every_pattern() -> tuple[Found, ...]:
    uses = _uses()
    return tuple(found for path in _files() for found in _in_file(path, uses))


def _files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def _uses() -> Mapping[str, set[str]]:
    """How each name is used: the methods called on it, and `passed` where it goes elsewhere."""
    uses: dict[str, set[str]] = defaultdict(set)
    for path in _files():
        tree = ast.parse(path.read_text())
        called = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                uses[node.id].add(called.get(id(node), "passed"))
    return uses


def _in_file(path: Path, uses: Mapping[str, set[str]]) -> Iterator[Found]:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    tree = ast.parse(path.read_text())
    names = {
        id(inner): node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        for inner in ast.walk(node.value)
    }
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if not (isinstance(call.func.value, ast.Name) and call.func.value.id == "re"):
            continue
        name = names.get(id(call))
        where = f"{module}.{name}" if name else f"{module}:{call.lineno}"
        if call.func.attr == "compile":
            searched = name is None or bool(uses[name] - AT_ONE_PLACE)
            for pattern in _compiled(call, module):
                yield Found(where, pattern.pattern, pattern.flags, searched)
        elif call.func.attr in AT_ONE_PLACE | AT_EVERY:
            pattern = _value(call.args[0], module)
            yield Found(where, pattern, 0, call.func.attr in AT_EVERY)


def _compiled(call: ast.Call, module: str) -> list[re.Pattern[str]]:
    """What the call makes; where a loop makes many, all patterns of the module that it does not import."""
    try:
        made = _value(call, module)
    except NameError:
        of_others = _imported(ROOT / f"{module.replace('.', '/')}.py")
        held = vars(importlib.import_module(module))
        return list(_held(value for name, value in held.items() if name not in of_others))
    return [made] if isinstance(made.pattern, str) else []


def _imported(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def _value(expression: ast.expr, module: str) -> Any:
    """What an expression stands for: by itself where it is constant, else among the names of its module."""
    code = compile(ast.Expression(expression), module, "eval")
    try:
        return eval(code, {"re": re})
    except NameError:
        return eval(code, dict(vars(importlib.import_module(module))))


def _held(values: Any) -> Iterator[re.Pattern[str]]:
    for value in values:
        if isinstance(value, re.Pattern):
            yield value
        elif isinstance(value, dict):
            yield from _held(value.values())
        elif isinstance(value, tuple | list):
            yield from _held(value)
        elif isinstance(value, type) and not isinstance(value, ModuleType):
            yield from (part for part in vars(value).values() if isinstance(part, re.Pattern))
