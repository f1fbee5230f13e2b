"""Webhooks and deliveries, in requests and in answers."""

from typing import Literal

from pydantic import Field

from billing.webhooks.endpoint import MAX_URL_CHARS, EventType
from billing.webhooks.endpoint import DeliveryState as DeliveryState
from serve.ops.shapes.bodies import AdminBody
from serve.ops.shapes.fields import Answer, At


class NewWebhook(AdminBody):
    url: str = Field(max_length=MAX_URL_CHARS, description="Where to POST, https.")
    workspace: str | None = Field(None, max_length=64, description="Id or name; null: of all workspaces.")
    events: list[EventType] = Field([], max_length=20, description="Only these; none: all.")


class Redelivery(AdminBody):
    webhook: str | None = Field(
        None, max_length=64, description="Only to this one; null: to all that it was for."
    )


class Webhook(Answer):
    id: str
    workspace: str | None = Field(description="Its name; null: of all workspaces.")
    url: str
    events: list[EventType] = Field(description="Empty: all.")
    state: Literal["active", "disabled"]
    reason: str | None = Field(description="Why it is disabled.")
    failures: int = Field(description="Tries in a row that failed.")
    created_at: At


class MadeWebhook(Webhook):
    secret: str = Field(description="What is sent is signed with it; shown this once.")


class Webhooks(Answer):
    data: list[Webhook]
    next: str | None = Field(description="`cursor` of the next page; null: this is the last.")


class Delivery(Answer):
    event_id: str
    type: EventType
    webhook: str
    state: DeliveryState
    attempts: int
    created_at: At
    due_at: At | None = Field(description="While it waits: when it is tried next.")
    delivered_at: At | None
    last_status: int | None = Field(description="What the receiver answered.")
    last_error: str | None


class Deliveries(Answer):
    data: list[Delivery]
