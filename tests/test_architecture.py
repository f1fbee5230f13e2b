"""The arrows between folders: no circle, and every package's rooms in the order that import-linter holds."""

from __future__ import annotations

import itertools
import tomllib

import pytest

from tests.import_graph import PACKAGES, ROOT, circle, folder_imports, folder_of

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
# The suites of cases and what is measured on them.
MAY_BE_CIRCULAR = {"benchmarks/quality", "benchmarks/quality/suites", "benchmarks/quality/suites/logs"}


def described(imports: list[tuple[str, str]]) -> str:
    return "\n".join(
        f"{importer} imports {imported}: "
        + ", ".join(" → ".join(pair) for pair in folder_imports()[importer, imported][:3])
        for importer, imported in imports
    )


def test_the_folders_import_one_another_in_no_circle() -> None:
    held = [pair for pair in folder_imports() if not set(pair) <= MAY_BE_CIRCULAR]
    found = circle(held)
    assert not found, f"these folders import one another in a circle:\n{described(found)}"


def test_a_folder_that_may_be_in_a_circle_is_in_one() -> None:
    inside = [pair for pair in folder_imports() if set(pair) <= MAY_BE_CIRCULAR]
    assert bool(circle(inside)) == bool(MAY_BE_CIRCULAR)


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
