"""The current time in UTC, for those that are given no other clock."""

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)
