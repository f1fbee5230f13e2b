"""The arrows between folders: no circle, and every package's rooms in the order that import-linter holds and
docs/architecture.md shows."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.config.server_settings import OpsSettings, ServerSettings
from serve.money.ledger_setup import PEPPER
from serve.processes.run_folder import COUNTERS_SOCKET, LISTENER_SOCKET, RAY_FOLDER
from tests.import_graph import PACKAGES, ROOT, circle, folder_imports, folder_of

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def described(imports: list[tuple[str, str]]) -> str:
    return "\n".join(
        f"{importer} imports {imported}: "
        + ", ".join(" → ".join(pair) for pair in folder_imports()[importer, imported][:3])
        for importer, imported in imports
    )


def test_the_folders_import_one_another_in_no_circle() -> None:
    found = circle(folder_imports())
    assert not found, f"these folders import one another in a circle:\n{described(found)}"


def test_a_circle_is_found_and_named_in_order() -> None:
    assert circle([("a", "b"), ("b", "c"), ("a", "c")]) == []
    found = circle([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
    assert set(found) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert all(first[1] == second[0] for first, second in itertools.pairwise(found))


def test_a_folder_is_its_files_and_each_subfolder_another() -> None:
    assert folder_of("serve.app") == "serve"
    assert folder_of("serve.chat") == folder_of("serve.chat.route") == "serve/chat"
    assert ("serve", "serve/chat") in folder_imports()


def test_an_import_for_type_checking_counts() -> None:
    """`serve.cluster.deployments.ingress` needs `serve.app` for its annotations, and imports it when it starts."""
    assert ("serve.cluster.deployments.ingress", "serve.app") in folder_imports()[
        "serve/cluster/deployments", "serve"
    ]


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "benchmarks"])
def test_every_room_of_a_package_is_in_its_layers(package: str) -> None:
    """What no layer names, import-linter refuses only where the contract is exhaustive."""
    (contract,) = [each for each in CONTRACTS if each["type"] == "layers" and package in each["containers"]]
    assert contract["exhaustive"] and not contract.get("exhaustive_ignores")
    assert not contract.get("ignore_imports")


# The page.

PAGE = (ROOT / "docs/architecture.md").read_text()
LAYERED = [contract for contract in CONTRACTS if contract["type"] == "layers"]


def said_of(module: Path) -> str:
    """The first paragraph of a room's or a module's docstring, on one line."""
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(source.read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def rooms_of(package: str) -> Iterator[tuple[int, Path]]:
    """What is in a package, with the number of its layer; a room is followed by those inside it."""
    (contract,) = [each for each in LAYERED if package in each["containers"]]
    for number, layer in enumerate(contract["layers"], 1):
        for name in re.split(r" [|:] ", layer):
            room = ROOT / package / name
            yield number, room
            for inner in sorted(room.rglob("__init__.py")) if room.is_dir() else []:
                if inner.parent != room:
                    yield number, inner.parent


def table_of(package: str) -> str:
    rows = ["| layer | | |", "|---|---|---|"]
    for number, path in rooms_of(package):
        name = str(path.relative_to(ROOT / package)) + ("/" if path.is_dir() else ".py")
        rows.append(f"| {number} | `{name}` | {said_of(path)} |")
    return "\n".join(rows)


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "benchmarks"])
def test_the_page_has_every_room_in_its_layer_as_its_docstring_says(package: str) -> None:
    assert table_of(package) in PAGE, f"docs/architecture.md should have:\n\n{table_of(package)}"


def test_the_page_names_the_ports_and_files_that_there_are() -> None:
    names = [LISTENER_SOCKET, COUNTERS_SOCKET, RAY_FOLDER, PEPPER]
    names += [ServerSettings.model_fields["port"].default, OpsSettings.model_fields["port"].default]
    assert not [name for name in names if str(name) not in PAGE]
