"""Moments as every report shows them."""

from datetime import datetime


def stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
