"""What imports what, by module and by folder, as import-linter sees it: imports for type checking alone count too."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("serve", "models", "compression", "billing", "benchmarks")
Import = tuple[str, str]


@cache
def import_graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def folder_of(module: str) -> str:
    """`serve/chat` for `serve.chat.route` and for `serve.chat` itself; `serve` for `serve.app`."""
    path = Path(*module.split("."))
    return str(path if (ROOT / path).is_dir() else path.parent)


@cache
def folder_imports() -> dict[Import, list[Import]]:
    """From each folder to each other: the imports of modules. A folder is the files directly in it."""
    graph = import_graph()
    found: dict[Import, list[Import]] = defaultdict(list)
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            between = folder_of(importer), folder_of(imported)
            if between[0] != between[1]:
                found[between].append((importer, imported))
    return dict(found)


def circle(imports: Iterable[Import]) -> list[Import]:
    """The imports of one circle, in its order; none where there is no circle."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for importer, imported in imports:
        sorter.add(importer, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        # Each folder is imported by the one after it.
        folders = error.args[1][::-1]
        return list(itertools.pairwise(folders))
    return []
