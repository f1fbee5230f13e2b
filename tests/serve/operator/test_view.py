"""A view: billing's record in plain values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from billing.accounts.account_sql import Project
from billing.accounts.key_sql import KeyRecord
from billing.caller import ProjectLimits
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
