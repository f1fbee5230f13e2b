"""Fields that many answers have: money, moments, and what is one's to read."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema

# What an answer is made of, before it is JSON.
Record = dict[str, Any]
Usd = Annotated[
    Decimal,
    WithJsonSchema({"type": "string", "pattern": r"^-?\d+(\.\d+)?(E[+-]\d+)?$"}),
    Field(description="Exact US dollars."),
]
At = Annotated[datetime, Field(description="In UTC.")]
# `2026-11`.
Month = Annotated[str, Field(pattern=r"^\d{4}-\d{2}$", description="A calendar month in UTC.")]


class Answer(BaseModel):
    """What is documented of an answer. It is sent as it was made: a reply to what was done is not lost for its form."""
