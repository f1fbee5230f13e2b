"""Holds, usage events and settlements: the values that travel from a request to the ledger."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from billing.price import WHOLE_PPM, Cost, ModelPrice

HoldKind = Literal["held", "offline", "not_applicable"]
Outcome = Literal["completed", "disconnected", "failed"]
MeteringStatus = Literal["persisted", "degraded", "not_applicable"]
# `holdout`: left whole on purpose, to measure against.
PromptCompression = Literal["applied", "skipped", "failed", "holdout"]


@dataclass(frozen=True, slots=True)
class Hold:
    """Money set aside for one request. `event_id` is the server's, and becomes the usage event's id.

    `held` is in the ledger. `offline` is in this server's memory alone, taken while the ledger was away.
    """

    event_id: str
    kind: HoldKind
    request_id: str
    workspace_id: str
    project_id: str
    key_id: str
    model_id: str
    pricing_version: int
    amount_nano_usd: int
    created_at: datetime
    # What was asked: `chat`, `embeddings`, …; of a line of a batch, `batch:chat`; in another tier, `flex:chat`.
    route: str | None = None
    # Whom and what it is for: a keyed hash, and tags with commas between.
    person: str | None = None
    tags: str | None = None
    # Whether it is to be refused where a budget would have it land.
    may_land: bool = False

    @property
    def status(self) -> MeteringStatus:
        """The word of a streamed response's header, before the settlement."""
        if self.kind == "not_applicable":
            return "not_applicable"
        return "persisted" if self.kind == "held" else "degraded"


@dataclass(frozen=True, slots=True)
class Saving:
    """The effect of compressing a chat's prompt: the uncompressed prompt's tokens, how many of them would have been
    cached, the gross saving, and the charge for it, which is a separate event.

    `conversation` is a keyed hash of the conversation's start, where it is compared with held-out ones.
    """

    status: PromptCompression
    original_tokens: int
    original_cached_tokens: int
    saved_nano_usd: int = 0
    compression_nano_usd: int = 0
    conversation: str | None = None


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """Tokens as the engine counted them. Cached tokens are part of the prompt tokens, not added to them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    stream: bool
    # A compression's receipt as JSON: the project's usage log. None for a chat.
    receipt: str | None = None
    # None where no compression was asked for.
    saving: Saving | None = None
    # What the engine says of the token ids that it counted (docs/proof.md), in hex. None for what is no chat.
    tokens_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class UsageEvent:
    """One row of the append-only usage table."""

    event_id: str
    request_id: str
    workspace_id: str
    project_id: str
    key_id: str
    model_id: str
    pricing_version: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    subtotal_nano_usd: int
    minimum_applied: bool
    cost_nano_usd: int
    outcome: Outcome
    stream: bool
    created_at: datetime
    settled_at: datetime
    receipt: str | None = None
    # Taken under the allowance, while the ledger was away.
    offline: bool = False
    # Both are set by the ledger when it posts the event.
    written_off_nano_usd: int = 0
    month: str | None = None
    # As in `Saving`.
    original_tokens: int | None = None
    original_cached_tokens: int | None = None
    saved_nano_usd: int = 0
    compression_nano_usd: int = 0
    compression: PromptCompression | None = None
    conversation: str | None = None
    # The other event of the same request, by its id: of a chat, its compression's, and of that the chat's.
    paired_with: str | None = None
    # Millionths of the listed prices that were charged.
    price_ppm: int = WHOLE_PPM
    # As in `Hold`. None in events of releases that did not note it.
    route: str | None = None
    # As in `UsageFigures`.
    tokens_sha256: str | None = None
    # Set by the ledger when it posts the event: the periods of budgets that it counts in, as JSON.
    budgets: str | None = None
    # As in `Hold`.
    person: str | None = None
    tags: str | None = None
    # As the ledger listed it under `pricing_version`. For the spool alone: a ledger that was restored from a backup may
    # list other prices under that number.
    listed_price: ModelPrice | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """What a held request used, and what that costs at `price_ppm` millionths of the listed prices."""

    hold: Hold
    figures: UsageFigures
    cost: Cost
    price_ppm: int = WHOLE_PPM


@dataclass(frozen=True, slots=True)
class Settlement:
    """`persisted`: in the ledger. `degraded`: in the spool, to be replayed. `not_applicable`: not metered."""

    event_id: str
    status: MeteringStatus
    # The part of the cost that is written off; of spooled usage it is known only after the replay.
    written_off_nano_usd: int = 0

    @property
    def persisted(self) -> bool:
        return self.status == "persisted"


def mint_event_id(now: datetime) -> str:
    """32 hex digits: the millisecond, then 80 random bits, so that new rows go to the end of the index."""
    return f"{int(now.timestamp() * 1000):012x}{secrets.token_hex(10)}"


def usage_event(
    used: Used, outcome: Outcome, now: datetime, listed_price: ModelPrice | None = None
) -> UsageEvent:
    """The event of a held request that has ended."""
    hold, figures, cost = used.hold, used.figures, used.cost
    return UsageEvent(
        event_id=hold.event_id,
        request_id=hold.request_id,
        workspace_id=hold.workspace_id,
        project_id=hold.project_id,
        key_id=hold.key_id,
        model_id=hold.model_id,
        pricing_version=hold.pricing_version,
        prompt_tokens=figures.prompt_tokens,
        completion_tokens=figures.completion_tokens,
        cached_tokens=figures.cached_tokens,
        subtotal_nano_usd=cost.subtotal_nano_usd,
        minimum_applied=cost.minimum_applied,
        cost_nano_usd=cost.nano_usd,
        outcome=outcome,
        stream=figures.stream,
        created_at=hold.created_at,
        settled_at=now,
        receipt=without_text(figures.receipt),
        offline=hold.kind == "offline",
        price_ppm=used.price_ppm,
        route=hold.route,
        person=hold.person,
        tags=hold.tags,
        tokens_sha256=figures.tokens_sha256,
        listed_price=listed_price,
        **_saving_fields(figures.saving),
    )


def paired(events: Sequence[UsageEvent]) -> list[UsageEvent]:
    """A chat's event alone as it is; with its compression's, each with the other's id, and the chat's with what the
    compression costs."""
    if len(events) == 1:
        return list(events)
    chat, compression = events
    spent = compression.cost_nano_usd
    return [
        replace(chat, paired_with=compression.event_id, compression_nano_usd=spent),
        replace(compression, paired_with=chat.event_id),
    ]


def _saving_fields(saving: Saving | None) -> dict[str, Any]:
    if saving is None:
        return {}
    fields = asdict(saving)
    return {"compression": fields.pop("status"), **fields}


def month_of(moment: datetime) -> str:
    """The calendar month, in UTC, that a spend counts to: `2026-11`."""
    return moment.astimezone(UTC).strftime("%Y-%m")


def event_to_json(event: UsageEvent) -> str:
    fields = asdict(event)
    for name in ("created_at", "settled_at"):
        fields[name] = fields[name].astimezone(UTC).isoformat()
    return json.dumps(fields, separators=(",", ":"))


def event_from_json(text: str) -> UsageEvent:
    """Raises `ValueError` for text that `event_to_json` cannot have written."""
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("a spooled event must be a JSON object")
    try:
        for name in ("created_at", "settled_at"):
            fields[name] = datetime.fromisoformat(fields[name])
        # An older release spooled customers' text with it.
        fields["receipt"] = without_text(fields.get("receipt"))
        if fields.get("listed_price") is not None:
            fields["listed_price"] = ModelPrice(**fields["listed_price"])
        return UsageEvent(**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a spooled event has the wrong fields: {error}") from error


TEXT = "text"


def without_text(receipt: str | None) -> str | None:
    """The receipt without the excerpts of its flags' examples; None if it is not JSON."""
    if receipt is None or f'"{TEXT}"' not in receipt:
        return receipt
    try:
        fields = json.loads(receipt)
    except (ValueError, RecursionError):
        # It may hold anything.
        return None
    return json.dumps(_scrubbed(fields), separators=(",", ":"), ensure_ascii=False)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _scrubbed(part) for name, part in value.items() if name != TEXT}
    if isinstance(value, list):
        return [_scrubbed(part) for part in value]
    return value


def now() -> datetime:
    return datetime.now(UTC)
