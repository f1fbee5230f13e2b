"""A credit, an adjustment or a refund: its values, what may be asked for, and its refusals."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from billing.errors import BillingError
from billing.price import exact_usd


class UnknownEvent(BillingError, LookupError):
    """The ledger has no usage event of this id."""

    def __init__(self, event_id: str) -> None:
        super().__init__(f"no usage event in the ledger has the id {event_id[:80]!r}")


class UnknownRequest(BillingError, LookupError):
    """The workspace has no usage event of this request in the period that was looked through."""

    def __init__(self, request_id: str, since: datetime) -> None:
        super().__init__(
            f"no usage event of the workspace since {since:%Y-%m-%d} has the request id {request_id[:80]!r}: "
            "give an earlier since, or the id of the event"
        )


class AmbiguousRequest(BillingError):
    """Several usage events have the id of this request."""

    def __init__(self, request_id: str, events: Sequence[str]) -> None:
        super().__init__(
            f"several usage events have the request id {request_id[:80]!r}; "
            f"refund each by its own id: {', '.join(events)}"
        )


class InvalidAdjustment(BillingError, ValueError):
    """A field cannot be used; the message begins with its name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class AdjustmentKeyReused(BillingError):
    """The idempotency key was used for something else."""

    def __init__(self, key: str, adjustment_id: str) -> None:
        super().__init__(f"idempotency key {key!r} was used for another adjustment: {adjustment_id}")


class AdjustmentRefused(BillingError):
    """It would give back more than was charged, or pass a limit."""


class NothingLeftToRefund(AdjustmentRefused):
    """More is asked back than the event was charged, less what was refunded before."""

    def __init__(self, event_id: str, *, charged_nano_usd: int, left_nano_usd: int) -> None:
        super().__init__(
            f"usage event {event_id} was charged {exact_usd(charged_nano_usd)} USD, of which "
            f"{exact_usd(left_nano_usd)} can still be refunded"
        )


class NoRoomForAdjustment(AdjustmentRefused):
    """An upward adjustment would pass a limit of the workspace."""

    def __init__(self, *, limit_nano_usd: int, committed_nano_usd: int) -> None:
        super().__init__(
            f"the workspace's limit of {exact_usd(limit_nano_usd)} USD has no room for it: "
            f"{exact_usd(committed_nano_usd)} is spent or held; raise the limit first"
        )


class TooMuchAdjusted(AdjustmentRefused):
    """The sums of the workspace would not fit their columns."""

    def __init__(self) -> None:
        super().__init__("the workspace's charges and credits would add up to more than the ledger can count")


class EventArchived(AdjustmentRefused):
    """The event's month is archived, so what it was charged is not in the ledger any more."""

    def __init__(self, event_id: str) -> None:
        super().__init__(
            f"a usage event with the id {event_id[:80]!r} would be of a month that is archived, and cannot be "
            "refunded: look it up in the archive (pith archive --find), and credit the workspace instead"
        )


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
        """True where `made` is the answer to this, asked before."""
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
