"""The base of all views, and the fields that many of them have."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    AliasGenerator,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)

from billing.price import NANO_PER_USD, exact_usd

# A view's plain values, and what else an answer is made of before it is JSON.
Record = dict[str, Any]
_AMOUNT = WithJsonSchema({"type": "string", "pattern": r"^-?\d+(\.\d+)?(E[+-]\d+)?$"})


def stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _shortest_usd(nano_usd: int) -> str:
    """`12.3`, where `exact_usd` has at least two decimals."""
    return str(Decimal(nano_usd) / NANO_PER_USD)


Usd = Annotated[str, PlainValidator(exact_usd), _AMOUNT, Field(description="Exact US dollars.")]
ShortUsd = Annotated[str, PlainValidator(_shortest_usd), _AMOUNT, Field(description="Exact US dollars.")]
At = Annotated[
    str,
    PlainValidator(stamp),
    WithJsonSchema({"type": "string", "format": "date-time"}),
    Field(description="In UTC."),
]
# `2026-11`.
Month = Annotated[str, Field(pattern=r"^\d{4}-\d{2}$", description="A calendar month in UTC.")]


def found_at(*path: str, **about: Any) -> Any:
    """A field that is an attribute of an attribute of the record; None where the first is."""
    return Field(validation_alias=AliasChoices(AliasPath(*path), path[0]), **about)


class View(BaseModel):
    """An amount `…usd` is made of the record's `…nano_usd`; a field of another name says of which it is made."""

    model_config = ConfigDict(
        from_attributes=True,
        alias_generator=AliasGenerator(
            validation_alias=lambda name: re.sub(r"(^|_)usd$", r"\1nano_usd", name)
        ),
    )

    @classmethod
    def row(cls, record: object, **more: Any) -> Record:
        """A record of billing's in plain values; `more` is what it does not say of itself.

        Raises `RuntimeError` for a record that is not as documented: a `ValueError` would be told as a mistake in a
        request, which by now has been done.
        """
        try:
            return cls.model_validate(Known(record, **more)).model_dump(exclude_unset=True)
        except ValidationError as error:
            raise RuntimeError(f"a {cls.__name__} cannot be shown: {error}") from error


class Known:
    """A record's attributes, and others that it does not have."""

    def __init__(self, record: object, **more: Any) -> None:
        self._record, self._more = record, more

    def __getattr__(self, name: str) -> Any:
        return self._more[name] if name in self._more else getattr(self._record, name)


class Listed(View):
    """A page of a list."""

    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")
