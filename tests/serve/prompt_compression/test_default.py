"""A project's default as the ledger keeps it, and what a request makes of one that this release cannot read."""

from __future__ import annotations

import logging
import timeit

import pytest

from serve.prompt_compression.options import ProjectCompression, default_of, stored_default


def test_what_is_stored_is_read_again() -> None:
    options = ProjectCompression(keep=0.95, model="modèle", min_tokens=200, holdout=0.02)
    assert default_of(stored_default(options)) == options
    assert default_of(stored_default(ProjectCompression())) == ProjectCompression()


def test_no_default_is_none() -> None:
    assert default_of(None) is None


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


def test_a_default_costs_a_request_less_than_ten_microseconds() -> None:
    text = '{"target_ratio":0.25,"scope":"all"}'
    assert min(timeit.repeat(lambda: default_of(text), number=1000, repeat=5)) < 0.01
