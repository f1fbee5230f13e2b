"""Options of the compression of prompts, in a request and as a project's default in the ledger."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from serve.http.request_body import InvalidBody, check_shape
from serve.prompt_compression.options import (
    ProjectCompression,
    PromptCompressionOptions,
    default_of,
    settings_of,
    stored_default,
)
from tests.serve.compressing import served_model

ALL = {
    "keep": 0.95,
    "model": "pith-extract",
    "scope": "all",
    "min_tokens": 500,
    "on_failure": "refuse",
    "mark_gaps": True,
    "holdout": 0.02,
    "verify": 0.01,
    "retain_s": 3600,
}
BAD: list[dict[str, Any]] = [
    {"target_ratio": 0},
    {"target_ratio": 1.01},
    {"target_ratio": "0.5"},
    {"target_ratio": True},
    {"target_ratio": float("nan")},
    {"keep": 0},
    {"keep": 1},
    {"model": 7},
    {"model": "m" * 257},
    {"scope": "tools"},
    {"min_tokens": 0},
    {"min_tokens": 1.5},
    {"min_tokens": 1_000_001},
    {"on_failure": "ignore"},
    {"mark_gaps": "yes"},
    {"holdout": -0.1},
    {"holdout": 1.1},
    {"verify": -0.1},
    {"verify": 1.1},
    {"retain_s": -1},
    {"retain_s": 10**30},
]


@pytest.mark.parametrize("shape", [PromptCompressionOptions, ProjectCompression])
def test_all_options_are_read_and_what_is_absent_is_none(shape: type[PromptCompressionOptions]) -> None:
    assert check_shape(ALL, shape).model_dump(exclude_none=True) == ALL
    assert check_shape({"target_ratio": 1}, shape).model_dump(exclude_none=True) == {"target_ratio": 1}
    assert check_shape({}, shape).model_dump(exclude_none=True) == {}


@pytest.mark.parametrize("given", BAD, ids=str)
def test_a_bad_value_is_refused_under_its_name(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidBody) as refused:
        check_shape(given, PromptCompressionOptions)
    assert [issue.loc for issue in refused.value.issues] == [("body", next(iter(given)))]


def test_a_ratio_and_a_promise_exclude_each_other() -> None:
    with pytest.raises(InvalidBody, match=r"body\.keep: keep cannot be given together with target_ratio"):
        check_shape({"keep": 0.9, "target_ratio": 0.3}, PromptCompressionOptions)


def test_null_counts_as_absent() -> None:
    found = check_shape({"keep": 0.9, "target_ratio": None, "scope": None}, ProjectCompression)
    assert found.model_dump(exclude_none=True) == {"keep": 0.9}


@pytest.mark.parametrize("shape", [PromptCompressionOptions, ProjectCompression])
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(
    shape: type[PromptCompressionOptions],
) -> None:
    with pytest.raises(
        InvalidBody, match=r"body\.target_ration: unknown option; did you mean target_ratio\?"
    ):
        check_shape({"target_ration": 0.3}, shape)
    with pytest.raises(
        InvalidBody, match=r"body\.level: unknown option; there are target_ratio, keep, model, "
    ):
        check_shape({"level": 11}, shape)


def test_of_thousands_of_unknown_options_one_is_named() -> None:
    with pytest.raises(InvalidBody) as refused:
        check_shape({f"o{number}": 1 for number in range(60_000)}, PromptCompressionOptions)
    assert [issue.loc for issue in refused.value.issues] == [("body", "o0")]


def test_what_is_stored_is_read_again() -> None:
    options = ProjectCompression(keep=0.95, model="modèle", min_tokens=200, holdout=0.02)
    assert default_of(stored_default(options)) == options
    assert default_of(stored_default(ProjectCompression())) == ProjectCompression()


def test_the_same_options_are_stored_as_the_same_text() -> None:
    one = ProjectCompression.model_validate({"target_ratio": 0.3, "scope": "all"})
    other = ProjectCompression.model_validate({"scope": "all", "keep": None, "target_ratio": 0.30})
    assert stored_default(one) == stored_default(other) == '{"scope":"all","target_ratio":0.3}'


UNREADABLE = {
    "of another release": '{"target_ratio":0.3,"summarize":true}',
    "a value that another release took": '{"scope":"everything"}',
    "cut": '{"target_ratio":0.',
    "no object": "true",
    "empty": "",
    "nested too deep": "[" * 5000,
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_default_that_cannot_be_read_is_off_and_logged_once(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="pith.compression"):
        assert [default_of(text) for _ in range(3)] == [None] * 3
    assert [text in record.getMessage() for record in caplog.records] == [True]


def test_a_share_of_the_project_is_not_changed_by_a_request() -> None:
    models = {"m": served_model()}
    asked = PromptCompressionOptions(verify=0.0, holdout=1.0)
    default = ProjectCompression(verify=0.5, holdout=0.1)
    both = settings_of(asked, default, models)
    assert (both.verify, both.holdout) == (0.5, 0.1)
    assert settings_of(asked, ProjectCompression(), models).holdout == 1.0
    assert settings_of(PromptCompressionOptions(), None, models).verify == 0.0
