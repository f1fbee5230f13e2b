"""What others do not promise to keep is named in one module for each of them, where it has its reason and its tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("serve", "models", "compression", "billing")
INSIDES = {
    "serve/cluster/ray_insides/ray_serve.py": "Ray and Ray Serve",
    "serve/cluster/ray_insides/ray_serve_llm.py": "Ray Serve LLM",
    "serve/cluster/ray_insides/cluster_nodes.py": "Ray and Ray Serve",
    "serve/cli/completion.py": "typer",
    "serve/http/server/server.py": "uvicorn",
    "models/vllm/insides.py": "vLLM",
    "models/vllm/going_on.py": "vLLM",
    "models/vllm/pooling.py": "vLLM's pooling runner",
    # Only loads them, so that a process forked from it has them.
    "models/vllm/core_imports.py": "vLLM and torch",
    "models/vllm/lending.py": "vLLM's scheduler, in its cores",
    "models/vllm/scored_rows.py": "vLLM's scheduler, in its cores",
    "models/vllm/plugin.py": "vLLM, in its cores and workers",
    "models/vllm/reply_reading.py": "vLLM's parsers",
}
# Documented as public by those who made them.
PROMISED = {"os._exit", "_mapping"}


def private_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Names with a leading underscore that this module uses and does not define, and imports from within others."""
    defined = set(_defined(module))
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in defined:
            name = ast.unparse(node)
            # Of ours, a class may use what its base in another module has.
            ours = name == f"self.{node.attr}" and node.attr in defined_anywhere()
            if not ours and not {name, node.attr} & PROMISED:
                yield node.lineno, name
        elif isinstance(node, ast.keyword) and node.arg and _is_private(node.arg) and node.arg not in defined:
            yield node.value.lineno, f"{node.arg}="
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, name) for name in _imported(node) if _is_inside(name))
        elif isinstance(node, ast.ClassDef):
            yield from _overridden(module, node)


@cache
def defined_anywhere() -> frozenset[str]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return frozenset(name for path in paths for name in _defined(ast.parse(path.read_text())))


def _defined(module: ast.Module) -> Iterator[str]:
    """What the module assigns to `self` or a variable, declares, or defines."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            if not isinstance(node, ast.ClassDef):
                yield from (each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))


def _overridden(module: ast.Module, node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    """Private constants that a class sets for a base of somebody else's, and methods of it that are called."""
    used = {each.attr for each in ast.walk(module) if isinstance(each, ast.Attribute)}
    for member in node.body if _has_strange_base(module, node) else ():
        if isinstance(member, ast.Assign) and isinstance(member.value, ast.Constant):
            names = [ast.unparse(target) for target in member.targets]
            yield from ((member.lineno, name) for name in names if _is_private(name) and name not in used)
    for call in ast.walk(node):
        if (
            isinstance(call, ast.Attribute)
            and _is_private(call.attr)
            and ast.unparse(call.value) == "super()"
        ):
            yield call.lineno, f"super().{call.attr}"


def _has_strange_base(module: ast.Module, node: ast.ClassDef) -> bool:
    strange = {
        each.asname or each.name
        for line in ast.walk(module)
        if isinstance(line, ast.Import | ast.ImportFrom)
        and (isinstance(line, ast.Import) or (line.module or "").partition(".")[0] not in PACKAGES)
        for each in line.names
    }
    return any(ast.unparse(base).partition(".")[0] in strange for base in node.bases)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    return [f"{node.module}.{each.name}" for each in node.names]


def _is_inside(name: str) -> bool:
    parts = name.split(".")
    return parts[:2] == ["vllm", "v1"] or any(_is_private(part) for part in parts)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def found_in(path: Path) -> list[str]:
    names = sorted(set(private_names(ast.parse(path.read_text()))))
    return [f"{path.relative_to(ROOT)}:{line}: {name}" for line, name in names]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_module_uses_a_private_name_of_somebody_else(package: str) -> None:
    modules = [path for path in (ROOT / package).rglob("*.py") if str(path.relative_to(ROOT)) not in INSIDES]
    assert not [name for path in modules for name in found_in(path)]


@pytest.mark.parametrize("name", INSIDES)
def test_a_module_of_insides_uses_some(name: str) -> None:
    assert found_in(ROOT / name)
