"""Usage, statements, receipts and the audit log in answers."""

from typing import Any

from pydantic import Field

from serve.ops.shapes.fields import Answer, At, Month, Usd


class UsageGroup(Answer):
    """What a row is of: only the fields that were asked for by `by` are there."""

    workspace: str = ""
    workspace_id: str = ""
    project: str = ""
    project_id: str = ""
    key: str = ""
    key_id: str = ""
    model: str = ""
    route: str = ""
    day: str = ""
    month: str = ""


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


class SavingsRow(UsageGroup):
    """Compressed conversations against those that were left whole to compare with."""

    conversations: int
    requests: int
    original_tokens: int
    cost_usd: Usd
    held_out_conversations: int
    held_out_requests: int
    held_out_original_tokens: int
    held_out_cost_usd: Usd
    mixed_conversations: int
    measured_saving: float | None = Field(description="A share of the cost; null: too few to say.")
    measured_low: float | None = Field(description="The 95% interval's lower end.")
    measured_high: float | None


class Usage(Answer):
    data: list[UsageRow] | list[SavingsRow] = Field(description="The second with `savings`.")
    has_more: bool = Field(description="Narrow the period or the workspace to see all.")


class Balance(Answer):
    owed_usd: Usd = Field(description="Below 0: paid in advance.")
    in_collections_usd: Usd
    uncollected_usd: Usd


class StatedAdjustment(Answer):
    id: str
    at: At
    kind: str
    usd: Usd
    event_id: str | None
    reason: str


class StatedCollection(Answer):
    id: str
    cut_at: At
    cents: int
    usd: Usd
    state: str
    reference: str | None
    closed_at: At | None


class Statement(Answer):
    workspace: str
    workspace_id: str
    month: Month
    since: At
    until: At
    month_has_ended: bool
    asked_at: At
    opening: Balance
    usage: list[UsageRow] = Field(description="By project and model.")
    used_usd: Usd
    written_off_usd: Usd
    tokens_saved: int
    saved_usd: Usd
    compression_usd: Usd
    net_saved_usd: Usd
    events_archived: bool = Field(description="Whether the events of the month are in files.")
    measured_savings: list[SavingsRow]
    adjustments: list[StatedAdjustment]
    adjusted_usd: Usd
    collections_cut: list[StatedCollection]
    collections_closed: list[StatedCollection]
    paid_usd: Usd
    closing: Balance = Field(description="opening + used + adjusted - paid.")


class Receipt(Answer):
    event_id: str
    request_id: str
    workspace: str
    project: str
    model: str
    created_at: At
    settled_at: At
    charged_usd: Usd
    receipt: dict[str, Any] = Field(description="As its request was answered with, without any text.")


class Receipts(Answer):
    data: list[Receipt]
    archived: list[Month] = Field(description="Months whose receipts are in files.")


class AuditEntry(Answer):
    at: At
    actor: str = Field(description="`admin:` and eight digits of a key's hash, or `cli:` and a user's name.")
    action: str
    workspace_id: str | None
    subject: str = Field(description="The id of what was changed.")
    details: dict[str, Any]


class AuditEntries(Answer):
    data: list[AuditEntry]
