"""A period of settlements, cut into what is added up already (whole months, whole days) and what is not (its edges)."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """From one day to before another; None: that end is open."""

    since: date | None
    until: date | None

    @property
    def is_empty(self) -> bool:
        return self.since is not None and self.until is not None and self.since >= self.until


@dataclass(frozen=True, slots=True)
class Edge:
    """A part of a day."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Parts:
    """Together they are the period, and no moment is in two of them. `months` begins and ends with a month."""

    months: Days | None
    days: tuple[Days, ...]
    edges: tuple[Edge, ...]


def parts_of(since: datetime | None, until: datetime | None, *, by_day: bool) -> Parts:
    """The parts of a period; `by_day`: whole months are read as days."""
    if since is not None and until is not None and since >= until:
        return Parts(None, (), ())
    first = None if since is None else _day_from(since)
    last = None if until is None else until.astimezone(UTC).date()
    if since is not None and until is not None and first is not None and last is not None and first > last:
        return Parts(None, (), (Edge(since, until),))
    edges = _edges(since, first, until, last)
    whole = Days(first, last)
    if by_day:
        return Parts(None, () if whole.is_empty else (whole,), edges)
    months, days = _months_of(whole)
    return Parts(months, days, edges)


def _edges(
    since: datetime | None, first: date | None, until: datetime | None, last: date | None
) -> tuple[Edge, ...]:
    edges = []
    if since is not None and first is not None:
        edges.append(Edge(since, _midnight(first)))
    if until is not None and last is not None:
        edges.append(Edge(_midnight(last), until))
    return tuple(edge for edge in edges if edge.since < edge.until)


def _months_of(whole: Days) -> tuple[Days | None, tuple[Days, ...]]:
    first = None if whole.since is None else _month_from(whole.since)
    last = None if whole.until is None else whole.until.replace(day=1)
    if first is not None and last is not None and first >= last:
        return None, () if whole.is_empty else (whole,)
    around = []
    if first is not None:
        around.append(Days(whole.since, first))
    if last is not None:
        around.append(Days(last, whole.until))
    return Days(first, last), tuple(days for days in around if not days.is_empty)


def _day_from(moment: datetime) -> date:
    """The first day that begins then or later."""
    day = moment.astimezone(UTC).date()
    return day if _midnight(day) == moment else day + DAY


def _month_from(day: date) -> date:
    """The first month that begins then or later, by its first day."""
    return day if day.day == 1 else (day.replace(day=1) + 31 * DAY).replace(day=1)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=UTC)
