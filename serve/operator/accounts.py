"""Workspaces, projects and keys, and the webhooks that are told of them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from billing.accounts import account_sql, key_sql
from billing.accounts.keys import RouteName
from billing.ledger.budget_settings import BudgetScope
from billing.periods import PeriodKind
from billing.preservation.size_control import shares_of
from billing.webhooks import endpoint
from billing.webhooks.endpoint import EventType
from serve.operator.view import At, Listed, Month, Record, ShortUsd, View, found_at

ACTIVE = "active"


class Workspace(View):
    id: str
    name: str
    billing_enabled: bool
    spend_limit_usd: ShortUsd | None = Field(description="null: none.")
    monthly_limit_usd: ShortUsd | None = Field(description="null: none.")
    posted_usd: ShortUsd = Field(description="All charges of usage and all upward adjustments.")
    held_usd: ShortUsd = Field(description="Set aside for requests that run.")
    month: Month = Field(description="The month that `month_posted_usd` is of.")
    month_posted_usd: ShortUsd = Field(description="Less what was credited in the month.")
    created_at: At
    revoked_at: At | None
    collected_usd: ShortUsd = Field(description="The part of `posted_usd` that was asked for in collections.")
    credited_usd: ShortUsd
    time_zone: str = Field(description="Of its hours, days, weeks and months: an IANA name.")
    requests_per_minute: int | None = found_at("limits", "requests_per_minute")
    tokens_per_minute: int | None = found_at("limits", "tokens_per_minute")
    max_in_flight: int | None = found_at("limits", "max_in_flight")
    requests_per_hour: int | None = found_at("limits", "requests_per_hour")
    requests_per_day: int | None = found_at("limits", "requests_per_day")
    tokens_per_hour: int | None = found_at("limits", "tokens_per_hour")
    tokens_per_day: int | None = found_at("limits", "tokens_per_day")
    state: Literal["active", "workspace revoked"]


class Workspaces(Listed):
    data: list[Workspace]


def _parsed(stored: str | None) -> Any:
    """The object; text that is none is shown as it is."""
    try:
        return None if stored is None else json.loads(stored)
    except ValueError:
        return stored


def _shares(step: float | None) -> dict[str, float] | None:
    return None if step is None else shares_of(step)


class Project(View):
    id: str
    workspace_id: str
    name: str
    metered: bool
    requests_per_minute: int | None = found_at("limits", "requests_per_minute")
    tokens_per_minute: int | None = found_at("limits", "tokens_per_minute")
    max_in_flight: int | None = found_at("limits", "max_in_flight")
    requests_per_hour: int | None = found_at("limits", "requests_per_hour")
    requests_per_day: int | None = found_at("limits", "requests_per_day")
    tokens_per_hour: int | None = found_at("limits", "tokens_per_hour")
    tokens_per_day: int | None = found_at("limits", "tokens_per_day")
    weight: int = found_at("limits", "weight")
    created_at: At
    revoked_at: At | None
    compression: Annotated[
        Any,
        PlainValidator(_parsed),
        WithJsonSchema({"anyOf": [{"type": "object", "additionalProperties": True}, {"type": "null"}]}),
    ] = Field(description="How its chats are compressed; null: not at all.")
    proof: bool = Field(
        description="Whether its replies carry promises that their usage will be in the transparency log."
    )
    person_required: bool = Field(description="Whether its requests have to name a person.")
    allowed_tags: list[str] | None = Field(description="Those that its requests may name; null: all.")
    label_rates: dict[str, dict[str, int]] | None = Field(
        description="Limits of `*`, each person whom its requests name, and by tag; null: none."
    )
    conversations_by_keep: Annotated[dict[str, float] | None, BeforeValidator(_shares)] = Field(
        validation_alias="size_step",
        description="Shares of its conversations by the `keep` that they have now, `whole` among them, where "
        "`compression.within` decides it; null: it does not, or no sample has come yet, and all have the first, 0.99.",
    )


class ListedProject(Project):
    workspace: str = Field(description="The name of its workspace.")
    state: Literal["active", "workspace revoked", "project revoked"]


class Projects(Listed):
    data: list[ListedProject]


class Forgotten(View):
    originals: int
    bytes: int


class Key(View):
    """All of a key but its secret. Spend is null of a key without a spend limit: it is counted for those that have
    one."""

    id: str
    project_id: str
    name: str
    created_at: At
    revoked_at: At | None
    expires_at: At | None = found_at("terms", "expires_at")
    last_used_at: At | None
    allowed_models: Annotated[list[str], BeforeValidator(sorted)] | None = found_at(
        "terms", "powers", "models", description="null: all."
    )
    allowed_routes: Annotated[list[RouteName], BeforeValidator(sorted)] | None = found_at(
        "terms", "powers", "routes", description="null: all."
    )
    requests_per_minute: int | None = found_at("terms", "limits", "requests_per_minute")
    tokens_per_minute: int | None = found_at("terms", "limits", "tokens_per_minute")
    max_in_flight: int | None = found_at("terms", "limits", "max_in_flight")
    requests_per_hour: int | None = found_at("terms", "limits", "requests_per_hour")
    requests_per_day: int | None = found_at("terms", "limits", "requests_per_day")
    tokens_per_hour: int | None = found_at("terms", "limits", "tokens_per_hour")
    tokens_per_day: int | None = found_at("terms", "limits", "tokens_per_day")
    spend_limit_usd: ShortUsd | None = found_at("terms", "spend_limit_nano_usd")
    monthly_limit_usd: ShortUsd | None = found_at("terms", "monthly_limit_nano_usd")
    posted_usd: ShortUsd | None = found_at("balance", "posted_nano_usd")
    held_usd: ShortUsd | None = found_at("balance", "held_nano_usd")
    month: Month | None = found_at("balance", "month")
    month_posted_usd: ShortUsd | None = found_at("balance", "month_posted_nano_usd")
    limits_of: str = Field(
        validation_alias="limits_key_id",
        description="The key whose limits and spend it shares: itself, unless it was rotated.",
    )


class MadeKey(Key):
    key: str = Field(description="The secret, shown this once.")


class RotatedKey(MadeKey):
    replaces: Key = Field(description="The old key, which ends after the overlap.")


class ListedKey(Key):
    workspace: str = Field(description="The name of its workspace.")
    workspace_id: str
    project: str = Field(description="The name of its project.")
    state: Literal["active", "workspace revoked", "project revoked", "key revoked", "expired"]


class Keys(Listed):
    data: list[ListedKey]


def workspace_row(found: account_sql.Workspace) -> Record:
    return Workspace.row(found, state=_state("workspace" if found.revoked_at else None))


def listed_project_row(found: key_sql.ListedProject) -> Record:
    return ListedProject.row(found.project, workspace=found.workspace.name, state=_state(found.revoked))


def listed_key_row(found: key_sql.ListedKey) -> Record:
    has_expired = found.revoked is None and found.key.has_expired
    return ListedKey.row(
        found.key,
        workspace=found.workspace.name,
        workspace_id=found.workspace.id,
        project=found.project.name,
        state="expired" if has_expired else _state(found.revoked),
    )


def _state(revoked: str | None) -> str:
    return ACTIVE if revoked is None else f"{revoked} revoked"


class Budget(View):
    id: str
    workspace_id: str
    scope: BudgetScope = Field(description="`person`: each person of the project has it.")
    subject: str = Field(
        description="Its id; of rotated keys, that of the first; of persons and of a tag, their project's."
    )
    tag: str | None
    period: PeriodKind
    time_zone: str = Field(description="That of its workspace.")
    limit_usd: ShortUsd
    used_usd: ShortUsd | None = Field(
        description="In the present period, as are those below; null: each person has used something else."
    )
    held_usd: ShortUsd | None = Field(description="Set aside for requests that run.")
    remaining_usd: ShortUsd | None
    resets_at: At | None = Field(description="null: never.")
    at_end: str = Field(description="For a chat that it has no room for: `refuse`, `flex` or `model:ID`.")
    land_from_percent: int = Field(description="Chats land from so much of it on, spent or held.")
    created_at: At


class Budgets(Listed):
    data: list[Budget]


class Webhook(View):
    id: str
    workspace: str | None = Field(
        validation_alias="workspace_name", description="Its name; null: of all workspaces."
    )
    url: str
    events: list[EventType] = Field(description="Empty: all.")
    state: Literal["active", "disabled"]
    reason: str | None = Field(validation_alias="state_reason", description="Why it is disabled.")
    failures: int = Field(description="Tries in a row that failed.")
    created_at: At


class MadeWebhook(Webhook):
    secret: str = Field(description="What is sent is signed with it; shown this once.")


class Webhooks(Listed):
    data: list[Webhook]


class Delivery(View):
    event_id: str
    type: EventType
    webhook: str = Field(validation_alias="endpoint_id")
    state: endpoint.DeliveryState
    attempts: int
    created_at: At
    due_at: At | None = Field(description="While it waits: when it is tried next.")
    delivered_at: At | None
    last_status: int | None = Field(description="What the receiver answered.")
    last_error: str | None


class Deliveries(View):
    data: list[Delivery]


def delivery_row(found: endpoint.Delivery) -> Record:
    return Delivery.row(found, due_at=found.due_at if found.state == "waiting" else None)
