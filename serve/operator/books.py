"""Usage and what compression saved, statements, receipts, the audit log, and archived months."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasPath, BeforeValidator, Field

from billing.archive.month_files import Manifest
from billing.books import statement, usage_report
from billing.rollups import archived
from serve.operator.view import At, Month, Record, Usd, View, found_at

COLUMNS = {
    "workspace": ("workspace", "workspace_id"),
    "project": ("project", "project_id"),
    "key": ("key", "key_id"),
    "model": ("model",),
    "route": ("route",),
    "day": ("day",),
    "month": ("month",),
    "person": ("person",),
    "tag": ("tag",),
    "kind": ("kind",),
}


def _group(name: str) -> Any:
    return Field("", validation_alias=AliasPath("group", name))


class UsageGroup(View):
    """The group of a row: only the fields that were asked for by `by` are there."""

    workspace: str = _group("workspace")
    workspace_id: str = _group("workspace_id")
    project: str = _group("project")
    project_id: str = _group("project_id")
    key: str = _group("key")
    key_id: str = _group("key_id")
    model: str = _group("model")
    route: str = _group("route")
    day: str = _group("day")
    month: str = _group("month")
    person: str = _group("person")
    tag: str = _group("tag")


class UsageRow(UsageGroup):
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: Usd
    written_off_usd: Usd
    tokens_saved: int
    saved_usd: Usd = Field(description="Gross.")
    compression_usd: Usd = Field(description="What the compression itself cost.")
    net_saved_usd: Usd


# An exact share would be read for more than it is.
Share = Annotated[float, AfterValidator(lambda share: round(share, 4))]


class SavingsRow(UsageGroup):
    """Compressed conversations against those that were left whole to compare with."""

    conversations: int = found_at("treated", "conversations")
    requests: int = found_at("treated", "requests")
    original_tokens: int = found_at("treated", "tokens")
    cost_usd: Usd = found_at("treated", "cost_nano_usd")
    held_out_conversations: int = found_at("holdout", "conversations")
    held_out_requests: int = found_at("holdout", "requests")
    held_out_original_tokens: int = found_at("holdout", "tokens")
    held_out_cost_usd: Usd = found_at("holdout", "cost_nano_usd")
    mixed_conversations: int = Field(validation_alias="mixed")
    measured_saving: Share | None = found_at(
        "saving", "share", description="A share of the cost; null: too few to say."
    )
    measured_low: Share | None = found_at("saving", "low", description="The 95% interval's lower end.")
    measured_high: Share | None = found_at("saving", "high")


class PreservationRow(UsageGroup):
    """Compressed chats whose reply was scored again under the whole prompt."""

    kind: str = _group("kind")
    checked_chats: int
    scored_tokens: int = Field(description="Of their replies.")
    original_tokens: int
    sent_tokens: int
    nats_per_token: Share = found_at(
        "nats",
        "mean",
        description="How much likelier a reply's token is after what was sent; mean of the chats.",
    )
    nats_low: Share = found_at(
        "nats", "low", description="Of an interval that holds at every look, with 95%."
    )
    nats_high: Share = found_at("nats", "high")
    clipped_chats: int = Field(description="Outside of -1 to 4 nats, counted as the nearer of both.")
    agreement: Share = found_at(
        "agreement", "mean", description="Share of places with the same likeliest token; mean of the chats."
    )
    agreement_low: Share = found_at("agreement", "low")
    agreement_high: Share = found_at("agreement", "high")


def _own(row: type[UsageGroup]) -> tuple[str, ...]:
    return tuple(
        name for name in row.model_fields if name not in COLUMNS and name not in UsageGroup.model_fields
    )


SUMS, SAVINGS = _own(UsageRow)[:6], _own(UsageRow)[6:]
COMPARED = _own(SavingsRow)
PRESERVED = _own(PreservationRow)


class Usage(View):
    data: list[UsageRow] | list[SavingsRow] = Field(description="The second with `savings`.")
    has_more: bool = Field(description="Narrow the period or the workspace to see all.")
    preservation: list[PreservationRow] | None = Field(
        None,
        description="With `savings`: what compression changed in replies, by `by` and the kind of block.",
    )


class Balance(View):
    owed_usd: Usd = Field(description="Below 0: paid in advance.")
    in_collections_usd: Usd = Field(validation_alias="asked_nano_usd")
    uncollected_usd: Usd


class StatedAdjustment(View):
    id: str
    at: At = Field(validation_alias="created_at")
    kind: str
    usd: Usd
    event_id: str | None
    reason: str


class StatedCollection(View):
    id: str
    cut_at: At = Field(validation_alias="created_at")
    cents: int
    usd: Usd
    state: str
    reference: str | None
    closed_at: At | None


class Statement(View):
    workspace: str = Field(validation_alias="workspace_name")
    workspace_id: str
    month: Month
    since: At
    until: At
    month_has_ended: bool
    asked_at: At
    opening: Balance
    usage: list[UsageRow] = Field(description="By project and model.")
    by_person: list[UsageRow] = Field(description="By project, the 100 most expensive persons.")
    by_tag: list[UsageRow] = Field(
        description="By project, the 100 most expensive tags; usage with two tags is in both."
    )
    used_usd: Usd
    written_off_usd: Usd
    tokens_saved: int = found_at("total", "tokens_saved")
    saved_usd: Usd = found_at("total", "saved_nano_usd")
    compression_usd: Usd = found_at("total", "compression_nano_usd")
    net_saved_usd: Usd = found_at("total", "net_saved_nano_usd")
    events_archived: bool = Field(
        validation_alias="is_archived", description="Whether the events of the month are in files."
    )
    measured_savings: list[SavingsRow] = Field(validation_alias="comparisons")
    preservation: list[PreservationRow] = Field(
        description="What compression changed in replies, by project, model and kind of block."
    )
    adjustments: list[StatedAdjustment]
    adjusted_usd: Usd
    collections_cut: list[StatedCollection] = Field(validation_alias="cut")
    collections_closed: list[StatedCollection] = Field(validation_alias="closed")
    paid_usd: Usd
    closing: Balance = Field(description="opening + used + adjusted - paid.")


def statement_row(found: statement.Statement, asked_at: datetime) -> Record:
    return Statement.row(
        found,
        asked_at=asked_at,
        month_has_ended=asked_at >= found.until,
        total=usage_report.total(found.usage),
    )


class Receipt(View):
    event_id: str
    request_id: str
    workspace: str
    project: str
    model: str = Field(validation_alias="model_id")
    created_at: At
    settled_at: At
    charged_usd: Usd
    receipt: Annotated[dict[str, Any], BeforeValidator(json.loads)] = Field(
        description="As its request was answered with, without any text."
    )


class Receipts(View):
    data: list[Receipt]
    archived: list[Month] = Field(description="Months whose receipts are in files.")


class AuditEntry(View):
    at: At
    actor: str = Field(description="`admin:` and eight digits of a key's hash, or `cli:` and a user's name.")
    action: str
    workspace_id: str | None
    subject: str = Field(description="The id of what was changed.")
    details: dict[str, Any]


class AuditEntries(View):
    data: list[AuditEntry]


class ArchiveFile(View):
    name: str = Field(description="In the folder.")
    events: int
    bytes: int
    sha256: str


class ArchivedMonth(View):
    month: Month
    state: Literal["dropping", "dropped"] = Field(
        description="`dropping`: not all of its events have left the ledger; the next run goes on."
    )
    events: int
    charged_usd: Usd
    written_off_usd: Usd
    last_settled_at: At
    files: list[ArchiveFile]


class DueMonth(View):
    month: Month
    events: int = Field(description="In the ledger now.")
    state: Literal["sealed", "dropping"] | None = Field(
        description="How far a run came that did not end; null: none has begun it."
    )


class Archive(View):
    keep_months: int | None = Field(description="Whole months before the present one that stay; null: all.")
    folder: str = Field(description="Of the files, on the machine where `pith archive` runs.")
    months: list[ArchivedMonth] = Field(description="The oldest first.")
    due: list[DueMonth] = Field(description="The oldest first; it goes first.")


def archived_row(month: archived.ArchivedMonth, manifest: Manifest) -> Record:
    state = "dropped" if month.is_dropped else "dropping"
    return ArchivedMonth.row(month, state=state, files=manifest.files)
