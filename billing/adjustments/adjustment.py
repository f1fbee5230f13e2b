"""A credit, an adjustment or a refund, as it was asked for and as it was written; and what may be asked for."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from billing.adjustments.errors import InvalidAdjustment

Kind = Literal["credit", "adjustment", "refund"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# A billion dollars: what thousands of these add up to still fits the column.
MAX_NANO_USD = 10**18
MAX_REASON_CHARS = 1024
MAX_KEY_CHARS = 128


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One row. `nano_usd` was added to what is owed: it is below zero for a credit and a refund."""

    id: str
    workspace_id: str
    workspace_name: str
    kind: Kind
    nano_usd: int
    event_id: str | None
    project_id: str | None
    key_id: str | None
    # The month that it counts to, and when it was made: by the database's clock.
    month: str
    created_at: datetime
    actor: str
    reason: str
    idempotency_key: str
    # Whether all that was left of the event was asked for, and no amount.
    refunds_rest: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for. `nano_usd` is signed as in `Adjustment`; None: all that is left of the event."""

    workspace_id: str
    kind: Kind
    nano_usd: int | None
    event_id: str | None
    reason: str
    idempotency_key: str

    @property
    def refunds_rest(self) -> bool:
        return self.nano_usd is None

    def is_what_was_made(self, made: Adjustment) -> bool:
        """Whether `made` is the answer to this, asked before."""
        same = (self.kind, self.event_id, self.reason, self.refunds_rest)
        if same != (made.kind, made.event_id, made.reason, made.refunds_rest):
            return False
        return self.refunds_rest or self.nano_usd == made.nano_usd


def wanted(
    workspace_id: str,
    kind: Kind,
    *,
    nano_usd: int | None,
    event_id: str | None = None,
    reason: str,
    idempotency_key: str,
) -> Wanted:
    """Raises `InvalidAdjustment`, which names the field."""
    if nano_usd is not None:
        _check_amount(nano_usd)
    _check_text("reason", reason, MAX_REASON_CHARS)
    _check_text("idempotency_key", idempotency_key, MAX_KEY_CHARS)
    return Wanted(workspace_id, kind, nano_usd, event_id, reason, idempotency_key)


def lowering(nano_usd: int) -> int:
    """A credit's or a refund's amount, which is given as a positive number. Raises `InvalidAdjustment`."""
    if nano_usd <= 0:
        raise InvalidAdjustment("nano_usd", "must be above 0")
    return -nano_usd


def _check_amount(nano_usd: int) -> None:
    if isinstance(nano_usd, bool) or not isinstance(nano_usd, int):
        raise InvalidAdjustment("nano_usd", "must be an integer of nano-USD")
    if nano_usd == 0 or abs(nano_usd) > MAX_NANO_USD:
        raise InvalidAdjustment("nano_usd", f"must not be 0, nor more than {MAX_NANO_USD} either way")


def _check_text(field: str, text: str, most: int) -> None:
    if not (1 <= len(text) <= most and text.isprintable() and text == text.strip()):
        raise InvalidAdjustment(field, f"must be 1 to {most} printable characters, not {text[:80]!r}")
