"""What can go wrong with a credit, an adjustment or a refund. Nothing was changed then."""

from collections.abc import Sequence
from datetime import datetime

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
