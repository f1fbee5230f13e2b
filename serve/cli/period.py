"""Days and moments on the command line: `--since`, `--until`, and times as commands print them."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from serve.config.settings import ConfigError

Since = Annotated[
    str | None, typer.Option(help="First day or moment, such as 2026-11-01 or 2026-11-01T09:30 (UTC).")
]
Until = Annotated[str | None, typer.Option(help="First day or moment (UTC) to leave out.")]


def period(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Both ends. Raises `ConfigError`, also for an end that is not after the beginning."""
    begin, end = moment(since, "--since"), moment(until, "--until")
    if begin is not None and end is not None and end <= begin:
        raise ConfigError(f"--until: {until!r} is not after --since {since!r}")
    return begin, end


def moment(text: str | None, option: str) -> datetime | None:
    """A moment from the command line; UTC unless it names a zone. Raises `ConfigError`."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option}: {text!r} is not a day or a moment, such as 2026-11-01 or 2026-11-01T09:30"
        ) from error


def stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
