"""Collections, adjustments and usage that waits, in answers."""

from typing import Any, Literal

from pydantic import Field

from billing.adjustments.adjustment import Kind
from billing.collections.collection import State
from serve.ops.shapes.fields import Answer, At, Month, Usd


class Collection(Answer):
    id: str
    idempotency_key: str = Field(description="For the payment system: the same collection is paid once.")
    workspace_id: str
    workspace: str
    cents: int
    usd: Usd
    state: State
    reference: str | None = Field(description="What the payment system calls it.")
    note: str | None
    times_opened: int
    created_at: At
    updated_at: At
    handed_over_at: At | None
    closed_at: At | None


class Collections(Answer):
    data: list[Collection]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")


class CutCollections(Answer):
    data: list[Collection] = Field(description="One, or none where there was not one whole cent.")


class Adjustment(Answer):
    id: str
    created_at: At
    month: Month
    workspace_id: str
    workspace: str
    kind: Kind
    usd: Usd = Field(description="What it added to what is owed: below 0 of a credit and of a refund.")
    event_id: str | None = Field(description="Of a refund: the usage event.")
    project_id: str | None
    key_id: str | None
    reason: str
    actor: str
    idempotency_key: str


class Adjustments(Answer):
    data: list[Adjustment]


class SpooledEvent(Answer):
    event_id: str
    state: Literal["waiting", "set aside"]
    refusal: str | None = Field(description="Why the ledger refused it.")
    event: Any = Field(description="As it was written down: an object, or text that is none.")


class SpooledEvents(Answer):
    data: list[SpooledEvent]


class Retried(Answer):
    outcome: str = Field(description="`in the ledger`, or why not.")
