"""Collections, adjustments, and usage that waits for the ledger."""

import json
from typing import Any, Literal

from pydantic import Field

from billing.adjustments.adjustment import Kind
from billing.collections.collection import State
from billing.ledger import spool
from serve.operator.view import At, Listed, Month, Record, Usd, View


class Collection(View):
    id: str
    idempotency_key: str = Field(description="For the payment system: the same collection is paid once.")
    workspace_id: str
    workspace: str = Field(validation_alias="workspace_name")
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


class Collections(Listed):
    data: list[Collection]


class CutCollections(View):
    data: list[Collection] = Field(description="One, or none where there was not one whole cent.")


class Adjustment(View):
    id: str
    created_at: At
    month: Month
    workspace_id: str
    workspace: str = Field(validation_alias="workspace_name")
    kind: Kind
    usd: Usd = Field(description="What it added to what is owed: below 0 of a credit and of a refund.")
    event_id: str | None = Field(description="Of a refund: the usage event.")
    project_id: str | None
    key_id: str | None
    reason: str
    actor: str
    idempotency_key: str


class Adjustments(View):
    data: list[Adjustment]


class SpooledEvent(View):
    event_id: str
    state: Literal["waiting", "set aside"]
    refusal: str | None = Field(description="Why the ledger refused it.")
    event: Any = Field(description="As it was written down: an object, or text that is none.")


class SpooledEvents(View):
    data: list[SpooledEvent]


class Retried(View):
    outcome: str = Field(description="`in the ledger`, or why not.")


def spooled_row(found: spool.SpooledEvent) -> Record:
    try:
        event = json.loads(found.event)
    except ValueError:
        # Shown as it is: that it is not JSON may be why the event was set aside.
        event = found.event
    return SpooledEvent.row(found, state="waiting" if found.refusal is None else "set aside", event=event)
