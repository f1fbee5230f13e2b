"""Moments that a request names, in UTC."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator


def utc(moment: datetime | None) -> datetime | None:
    """UTC unless it names a zone. Raises `ValueError` for one that is in no year from 1 to 9999 there."""
    if moment is None:
        return None
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError("must be in a year from 1 to 9999, in UTC") from error


Moment = Annotated[
    datetime | None, AfterValidator(utc), Query(description="A moment; UTC unless it names a zone.")
]
