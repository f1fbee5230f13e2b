"""The `billing` of another version beside this one's, in one process: as the package `billing_before`."""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGE, OURS = "billing_before", "billing"
# Both raise and catch the same.
SHARED = "billing.errors"


def module_before(code: Path, name: str) -> ModuleType:
    """A module of `billing`, of the code in this folder."""
    if not any(isinstance(finder, _Finder) and finder.code == code for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(code))
        # What it logs is heard, or not, as this version's is.
        logging.getLogger(PACKAGE).parent = logging.getLogger(OURS)
    return import_module(_renamed(name))


def _renamed(name: str) -> str:
    of_billing = name == OURS or name.startswith(f"{OURS}.")
    return PACKAGE + name.removeprefix(OURS) if of_billing and name != SHARED else name


class _Finder(MetaPathFinder):
    def __init__(self, code: Path) -> None:
        self.code = code

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, *parts = name.split(".")
        if package != PACKAGE:
            return None
        folder = self.code.joinpath(OURS, *parts)
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        within = [str(folder)] if folder.is_dir() else None
        loader = _Loader(name, str(file))
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=within)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        # Not what is kept beside the file: there the imports are others.
        path = self.get_filename(fullname)
        tree: Any = _Renaming().visit(ast.parse(self.get_data(path)))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Renaming(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        node.module = _renamed(node.module or "")
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        if any(alias.name.partition(".")[0] == OURS for alias in node.names):
            raise ImportError(
                f"import {node.names[0].name} would bring this version's: from … import is renamed"
            )
        return node
