"""Periods of budgets: contiguous, each with one end, in zones whose clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.periods import PERIODS, PeriodKind, UnknownTimeZone, period_at

# Clocks that change at midnight, by half an hour, from one side of the date line to the other, and never.
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Havana", "America/Sao_Paulo"),
    *("Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"),
)
LONGEST = {"hour": 1, "day": 25, "week": 169, "month": 31 * 24 + 1}
moments = st.datetimes(datetime(2005, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))


@given(st.sampled_from(PERIODS[:-1]), moments, st.sampled_from(ZONES))
def test_a_period_ends_when_it_says_and_not_before(kind: PeriodKind, moment: datetime, zone: str) -> None:
    period = period_at(kind, moment, zone)
    assert period.ends_at is not None
    assert moment < period.ends_at <= moment + timedelta(hours=LONGEST[kind])
    # An hour in whose midst the clock changes by half an hour ends there.
    if (kind, zone) != ("hour", "Australia/Lord_Howe"):
        assert period_at(kind, period.ends_at - timedelta(microseconds=1), zone) == period
    assert period_at(kind, period.ends_at, zone).key != period.key


@pytest.mark.parametrize(
    ("kind", "moment", "zone", "key", "ends_at"),
    [
        ("hour", "2026-11-20T12:34:56+00:00", "UTC", "2026-11-20T12+0000", "2026-11-20T13:00:00+00:00"),
        # Both hours from two to three, when clocks are set back.
        (
            "hour",
            "2026-10-25T00:30:00+00:00",
            "Europe/Berlin",
            "2026-10-25T02+0200",
            "2026-10-25T01:00:00+00:00",
        ),
        (
            "hour",
            "2026-10-25T01:30:00+00:00",
            "Europe/Berlin",
            "2026-10-25T02+0100",
            "2026-10-25T02:00:00+00:00",
        ),
        (
            "hour",
            "2026-11-20T12:34:56+00:00",
            "Asia/Kathmandu",
            "2026-11-20T18+0545",
            "2026-11-20T13:15:00+00:00",
        ),
        ("day", "2026-10-24T22:30:00+00:00", "Europe/Berlin", "2026-10-25", "2026-10-25T23:00:00+00:00"),
        ("day", "2026-03-29T12:00:00+00:00", "Europe/Berlin", "2026-03-29", "2026-03-29T22:00:00+00:00"),
        ("week", "2027-01-03T12:00:00+00:00", "UTC", "2026-W53", "2027-01-04T00:00:00+00:00"),
        ("month", "2026-12-31T23:30:00+00:00", "Europe/Berlin", "2027-01", "2027-01-31T23:00:00+00:00"),
        # The day that Samoa left out.
        ("day", "2011-12-30T09:59:59+00:00", "Pacific/Apia", "2011-12-29", "2011-12-30T10:00:00+00:00"),
    ],
)
def test_a_period_is_that_of_the_zones_calendar(
    kind: PeriodKind, moment: str, zone: str, key: str, ends_at: str
) -> None:
    period = period_at(kind, datetime.fromisoformat(moment), zone)
    assert (period.key, period.ends_at) == (key, datetime.fromisoformat(ends_at))


def test_all_time_never_ends() -> None:
    assert period_at("total", datetime.now(UTC), "UTC").ends_at is None


@pytest.mark.parametrize("name", ["", "Europe/Nowhere", "../zones", "utc ", "Europe"])
def test_a_name_that_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(UnknownTimeZone):
        period_at("day", datetime.now(UTC), name)
