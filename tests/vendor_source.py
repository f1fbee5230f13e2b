"""Reads the source of an installed package without importing it: what pith relies on of its insides must be there."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def source(module: str) -> ast.Module:
    """The module's syntax tree. Raises `FileNotFoundError` where there is none."""
    package, *rest = module.split(".")
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations, f"{package} is not installed"
    path = Path(spec.submodule_search_locations[0], *rest)
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def found(module: str, path: str) -> ast.AST:
    """A class, function or variable by its dotted path within the module. Fails where it is not."""
    node: ast.AST = source(module)
    for name in path.split("."):
        inner = next((each for each in ast.walk(node) if name in _names(each)), None)
        assert inner is not None, f"{module} has no {path}"
        node = inner
    return node


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {ast.unparse(target) for target in targets}
    return set()


def text(module: str, path: str) -> str:
    """Its source as Python would write it, on however many lines."""
    return ast.unparse(found(module, path))


def parameters(module: str, path: str) -> list[str]:
    """A function's parameters, in order, without `self`."""
    node = found(module, path)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    names = [each.arg for each in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    return [name for name in names if name not in ("self", "cls")]
