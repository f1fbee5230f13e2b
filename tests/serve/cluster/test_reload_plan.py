"""What a reload finds to do, from two configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve.cluster.reload_plan import HIDDEN, differences, plan_of
from serve.cluster.replicas.applications import model_of, of_generation, without_generation
from serve.config.settings import Settings
from tests.serve.config import test_adapters as adapters
from tests.serve.served import model_document, settings_document

LEXICAL = {"id": "lexical", "name": "Lexical", "blurb": "For tests.", "kind": "lexical"}
TEXTS = {
    "id": "texts",
    "kind": "embedding",
    "name": "Texts",
    "blurb": "For tests.",
    "context_length": 512,
    "price": {"input_usd_per_mtok": 1},
    "engine": {"kind": "static"},
}


def pair(folder: Path, edit: Callable[[dict[str, Any]], None]) -> tuple[Settings, Settings]:
    """A configuration, and what `edit` makes of it."""
    found = []
    for change in (lambda document: None, edit):
        document = settings_document(folder)
        document["compression"] = {"models": [dict(LEXICAL)]}
        document["models"].append({**TEXTS})
        change(document)
        found.append(Settings.model_validate(document))
    return found[0], found[1]


def set_at(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def edit(document: Any) -> None:
        for key in keys:
            document = document.setdefault(key, {}) if isinstance(document, dict) else document[key]
        document[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "started", "prices_change"),
    [
        (set_at("server", "max_body_bytes", 9999), (), False),
        (set_at("models", 0, "price", "input_usd_per_mtok", "7"), (), True),
        (set_at("models", 0, "capabilities", {"tools": "ignore"}), (), False),
        (set_at("models", 0, "replicas", {"max": 2}), ("model:alpha",), False),
        (set_at("models", 0, "environment", {"A": "1"}), ("model:alpha",), False),
        (set_at("compression", "models", 0, "price_usd_per_mtok_input", 2), (), True),
        (set_at("compression", "models", 0, "max_waiting", 7), ("compress:lexical",), False),
        # It has no processes of its own.
        (set_at("models", 4, "blurb", "Another."), (), False),
        (
            set_at("server", "coalesce_ms", 5),
            ("model:alpha", "model:beta", "model:gamma", "model:delta"),
            False,
        ),
    ],
)
def test_only_what_is_started_with_something_else_is_started_anew(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], started: tuple[str, ...], prices_change: bool
) -> None:
    plan = plan_of(*pair(tmp_path, edit), code="none")
    assert (plan.started, plan.prices_change, plan.refused, plan.removed) == (started, prices_change, (), ())


def test_a_price_that_is_written_in_another_way_is_no_change(tmp_path: Path) -> None:
    plan = plan_of(*pair(tmp_path, set_at("models", 0, "price", "input_usd_per_mtok", "100.00")), code="none")
    assert plan.is_empty


def test_what_may_be_secret_is_not_shown(tmp_path: Path) -> None:
    old, new = pair(tmp_path, set_at("models", 0, "environment", {"HF_TOKEN": "hunter2"}))
    (change,) = differences(old, new)
    assert HIDDEN in str(change) and "hunter2" not in str(change)
    old, new = pair(tmp_path, set_at("billing", "collection_hook", ["/bin/true", "hunter2"]))
    assert "hunter2" not in str(differences(old, new))
    old, new = pair(tmp_path, set_at("billing", "database_url", "postgresql+asyncpg://a:hunter2@h/n"))
    plan = plan_of(old, new, code="none")
    assert plan.refused == ("billing.database_url",) and "hunter2" not in str(plan)


def test_a_model_that_comes_or_goes_is_one_difference(tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["models"][1] = model_document("zeta")

    old, new = pair(tmp_path, edit)
    assert [str(change) for change in differences(old, new)] == [
        "models: alpha, beta, gamma, delta → alpha, zeta, gamma, delta"
    ]
    plan = plan_of(old, new, code="none")
    assert (plan.started, plan.removed) == (("model:zeta",), ("model:beta",))


def test_a_model_whose_id_begins_as_one_that_comes_has_its_differences(tmp_path: Path) -> None:
    def named(document: dict[str, Any], price: str) -> None:
        document["models"][0]["id"] = "a.b"
        document["models"][0]["price"]["input_usd_per_mtok"] = price

    edited = settings_document(tmp_path)
    named(edited, "7")
    before = Settings.model_validate(edited)
    named(edited, "8")
    edited["models"].append(model_document("a"))
    after = Settings.model_validate(edited)
    assert [change.key for change in differences(before, after)] == [
        "models",
        "models.a.b.price.input_usd_per_mtok",
    ]


LOUD = adapters.adapter_document("a")
DEARER = {**LOUD, "price": {**LOUD["price"], "input_usd_per_mtok": "8"}}


@pytest.mark.parametrize(
    ("before", "after", "started"),
    [
        ((), (LOUD,), ("model:alpha",)),
        ((LOUD,), (), ("model:alpha",)),
        ((LOUD,), (adapters.adapter_document("b"),), ("model:alpha",)),
        ((LOUD,), ({**LOUD, "adapter": {"of": "alpha", "source": "./other"}},), ("model:alpha",)),
        ((LOUD,), (adapters.adapter_document("a", of="beta"),), ("model:alpha", "model:beta")),
        ((LOUD,), (DEARER,), ()),
    ],
)
def test_an_adapter_that_comes_goes_or_changes_needs_its_bases_engine_anew(
    before: tuple[Any, ...], after: tuple[Any, ...], started: tuple[str, ...], tmp_path: Path
) -> None:
    old, new = (Settings.model_validate(adapters.document(tmp_path, *each)) for each in (before, after))
    plan = plan_of(old, new, code="none")
    assert (plan.started, plan.removed) == (started, ())


def test_the_order_of_models_is_a_difference_without_new_processes(tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["models"][:2] = document["models"][1::-1]

    plan = plan_of(*pair(tmp_path, edit), code="none")
    assert [change.key for change in plan.changes] == ["models"] and plan.started == ()


def test_names_of_generations() -> None:
    assert (of_generation("model:a/b", 1), of_generation("model:a/b", 3)) == ("model:a/b", "model:a/b@3")
    assert without_generation("model:a/b@3") == "model:a/b"
    assert [model_of(name) for name in ("model:a@2", "compress:b", "ingress@2", "other:c")] == [
        "a",
        "b",
        None,
        None,
    ]
