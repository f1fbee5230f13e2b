"""Leaves: each column of a row that concerns money changes them, and a column that is not there yet does not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.store.schema import adjustments, usage_events
from billing.transparency.leaves import POSTED, leaf, record

AT = datetime(2026, 11, 24, 17, 0, tzinfo=UTC)
SAMPLES: dict[type, tuple[Any, Any]] = {
    str: ("a", "b"),
    int: (1, 2),
    bool: (False, True),
    # A moment, to SQLAlchemy.
    object: (AT, AT + timedelta(microseconds=1)),
}


def row(table: Any) -> dict[str, Any]:
    return {column.name: SAMPLES[column.type.python_type][0] for column in table.columns}


def columns(table: Any) -> list[tuple[Any, str]]:
    return [
        (table, column.name)
        for column in table.columns
        if column.name not in ("actor", "budgets", "person", "tags")
    ]


@pytest.mark.parametrize(("table", "name"), [*columns(usage_events), *columns(adjustments)])
def test_each_column_is_committed_to(table: Any, name: str) -> None:
    before = row(table)
    value = SAMPLES[table.c[name].type.python_type][1]
    assert leaf(before | {name: value}).entry != leaf(before).entry


def test_a_column_that_is_null_is_left_out() -> None:
    assert leaf(row(usage_events) | {"later": None}) == leaf(row(usage_events))


def test_what_the_ledger_adds_is_not_in_the_promised_record() -> None:
    posted = dict.fromkeys(POSTED, None)
    assert record(row(usage_events) | posted) == record(row(usage_events))


def test_moments_are_told_in_utc() -> None:
    elsewhere = AT.astimezone(datetime.fromisoformat("2026-01-01T00:00+02:00").tzinfo)
    assert leaf(row(usage_events) | {"settled_at": elsewhere}) == leaf(row(usage_events))
