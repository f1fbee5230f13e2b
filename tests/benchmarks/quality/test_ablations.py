"""Mechanisms that are left out, and the table of what that costs."""

from __future__ import annotations

import inspect
from importlib import import_module
from operator import attrgetter

import pytest

from benchmarks.quality import ablations
from benchmarks.quality.scoring import Outcome, summarise
from compression.pipeline import pipeline


@pytest.mark.parametrize("mechanism", ablations.MECHANISMS)
def test_what_comes_out_instead_is_what_the_mechanism_changes(mechanism: str) -> None:
    module, path, number = ablations.MECHANISMS[mechanism]
    parameters = list(inspect.signature(attrgetter(path)(import_module(module))).parameters)
    assert parameters[number] in {"scores", "logits", "first", "fences"}


def test_a_mechanism_that_is_left_out_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "with_replies", pipeline.with_replies)  # put back after the test
    ablations.leave_out("replies")
    assert getattr(pipeline, "with_replies")(None, [0.25, 0.5]) == [0.25, 0.5]  # noqa: B009


def test_an_unknown_mechanism_is_not_left_out() -> None:
    with pytest.raises(KeyError, match="sorcery"):
        ablations.leave_out("sorcery")


def outcomes(selector: str, kept: dict[str, tuple[bool, bool]]) -> list[Outcome]:
    return [
        Outcome(f"{suite}-{number}", suite, 0.5, None, selector, {"answer": float(held)}, held)
        for suite, both in kept.items()
        for number, held in enumerate(both)
    ]


def test_the_table_says_what_each_suite_loses_and_names_no_suite_that_loses_nothing() -> None:
    found = outcomes("lexical", {"nq": (True, True), "xquad_de": (True, False)})
    for mechanism in ablations.MECHANISMS:
        left = {"nq": (True, mechanism != "gist"), "xquad_de": (True, False)}
        found += outcomes(ablations.selector("lexical", mechanism), left)
    rows = ablations.costs(summarise(found), "lexical")
    assert "| gist | nq 50 |" in rows
    assert "| causes | nothing |" in rows
