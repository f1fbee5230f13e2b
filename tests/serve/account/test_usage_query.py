"""Queries of usage, and those that are refused."""

from __future__ import annotations

from datetime import date

import pytest

from serve.account.response import MAX_DAYS, usage_query
from serve.http.request_body import InvalidBody

TODAY = date(2026, 11, 22)


def test_unless_told_otherwise_it_is_the_last_thirty_days_by_day_of_this_key() -> None:
    asked = usage_query({}, today=TODAY)
    assert (str(asked.start), str(asked.end)) == ("2026-10-24", "2026-11-23")
    assert (asked.group_by, asked.scope, asked.limit) == (("day",), "key", 1000)
    assert usage_query({"group_by": ""}, today=TODAY).group_by == ()


def test_a_period_is_of_whole_days_in_utc() -> None:
    asked = usage_query({"start": "2026-11-01", "end": "2026-12-01"}, today=TODAY)
    assert asked.since.isoformat() == "2026-11-01T00:00:00+00:00"
    assert asked.until.isoformat() == "2026-12-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"start": "yesterday"}, "start"),
        ({"start": "2026-02-30"}, "start"),
        ({"end": "20261101"}, "end"),
        ({"end": "2026-W01-1"}, "end"),
        ({"start": "2026-11-02", "end": "2026-11-02"}, "end"),
        ({"start": "2026-11-02", "end": "2026-11-01"}, "end"),
        ({"start": "2024-01-01", "end": "2025-01-02"}, "end"),
        ({"start": "9999-12-31"}, "end"),
        ({"end": "0001-01-01"}, "end"),
        ({"group_by": "workspace"}, "group_by"),
        ({"group_by": "day,day"}, "group_by"),
        ({"group_by": "," * 10_000}, "group_by"),
        ({"scope": "workspace"}, "scope"),
        ({"group_by": "person"}, "scope"),
        ({"group_by": "person,model", "scope": "project"}, "group_by"),
        ({"group_by": "person,tag", "scope": "project"}, "group_by"),
        ({"limit": "0"}, "limit"),
        ({"limit": "10001"}, "limit"),
        ({"limit": "9" * 10_000}, "limit"),
        ({"limit": "\u0661"}, "limit"),
    ],
)
def test_what_cannot_be_answered_names_its_parameter(given: dict[str, str], parameter: str) -> None:
    with pytest.raises(InvalidBody) as raised:
        usage_query(given, today=TODAY)
    assert [issue.loc for issue in raised.value.issues] == [("query", parameter)]


def test_a_year_with_a_leap_day_fits() -> None:
    asked = usage_query({"start": "2024-01-01", "end": "2025-01-01"}, today=TODAY)
    assert (asked.end - asked.start).days == MAX_DAYS
