"""Event ids begin with the millisecond of their request, so stretches of time are stretches of ids, for ever."""

from datetime import UTC, date, datetime, time

DIGITS = 12


def id_of(moment: datetime) -> str:
    """The ids of requests that came earlier are less."""
    return f"{int(moment.timestamp() * 1000):0{DIGITS}x}"


def id_of_day(day: date) -> str:
    return id_of(datetime.combine(day, time.min, tzinfo=UTC))


def day_of(event_id: str) -> date | None:
    """The day (UTC) that an id begins with; None where it begins with no time."""
    try:
        return datetime.fromtimestamp(int(event_id[:DIGITS], 16) / 1000, UTC).date()
    except (ValueError, OverflowError, OSError):
        return None


def month_of_day(day: date) -> date:
    """Its first day."""
    return day.replace(day=1)


def following(month: date) -> date:
    """The first day of the month after that of `month`."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)
