"""Periods of budgets: the hours, days, weeks and months of a time zone, with its changes of clock.

Zones are those of the pinned `tzdata`: every server has the same."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from importlib import resources
from typing import Literal, get_args
from zoneinfo import ZoneInfo

PeriodKind = Literal["hour", "day", "week", "month", "total"]
PERIODS: tuple[PeriodKind, ...] = get_args(PeriodKind)
_HOUR = timedelta(hours=1)


class UnknownTimeZone(ValueError):
    """No time zone has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"time_zone: {name!r} is no IANA time zone, such as Europe/Berlin")


@dataclass(frozen=True, slots=True)
class Period:
    """`key` names it among those of its kind. From `ends_at` on it is another one; None: it never ends."""

    key: str
    ends_at: datetime | None


TOTAL = Period("total", None)


def period_at(kind: PeriodKind, moment: datetime, zone: str) -> Period:
    """Raises `UnknownTimeZone`."""
    if kind == "total":
        return TOTAL
    local = moment.astimezone(time_zone(zone))
    if kind == "hour":
        return _hour(local)
    first, key = local.date(), f"{local:%Y-%m-%d}"
    if kind == "day":
        return Period(key, _midnight(first + timedelta(days=1), local))
    if kind == "week":
        year, week, weekday = first.isocalendar()
        return Period(f"{year}-W{week:02}", _midnight(first + timedelta(days=8 - weekday), local))
    following = (first.replace(day=28) + timedelta(days=4)).replace(day=1)
    return Period(key[:7], _midnight(following, local))


def _hour(local: datetime) -> Period:
    """Named with its offset: when clocks are set back, an hour of the same name comes twice."""
    begin = local.replace(minute=0, second=0, microsecond=0)
    end = local.astimezone(UTC) - (local.replace(fold=0) - begin.replace(fold=0)) + _HOUR
    return Period(f"{begin:%Y-%m-%dT%H}{local:%z}", end)


def _midnight(day: date, local: datetime) -> datetime:
    """The first moment of a day: where clocks are set forward over midnight, that at which they are."""
    return datetime.combine(day, time(), local.tzinfo).astimezone(UTC)


@lru_cache(maxsize=1024)
def time_zone(name: str) -> ZoneInfo:
    """Raises `UnknownTimeZone`."""
    if name not in _names():
        raise UnknownTimeZone(name)
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())
