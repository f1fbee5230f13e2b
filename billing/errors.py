"""Errors of identity and money, named for what happened; none knows an HTTP status."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from billing.caller import LimitState

Span = Literal["total", "month", "week", "day", "hour"]
LimitName = Literal["requests", "tokens", "in_flight"]

LimitPeriod = Literal["minute", "hour", "day"]

_LIMIT_WORDS: dict[LimitName, str] = {
    "requests": "{} requests {}",
    "tokens": "{} tokens {}",
    "in_flight": "{} requests at the same time",
}
_PERIOD_WORDS: dict[LimitPeriod, str] = {"minute": "a minute", "hour": "an hour", "day": "a day"}


class BillingError(Exception):
    """Base of every error in this package."""


class InvalidKey(BillingError):
    """The key is malformed, unknown or wrong, or its key, project or workspace was revoked.

    `reason` is for the operator's log. In the message it would help someone who guesses keys.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("the API key is invalid or was revoked")
        self.reason = reason


class LedgerUnavailable(BillingError):
    """The ledger's database could not be reached, was locked, or dropped the connection; the write may have failed."""


class SpoolUnavailable(LedgerUnavailable):
    """The usage spool cannot be written: if the ledger failed now, usage would be lost."""


class AllowanceSpent(LedgerUnavailable):
    """The ledger is down, and the workspace has spent what it may until it is back. Nothing was held."""

    def __init__(self, allowance_nano_usd: int) -> None:
        super().__init__(
            f"the ledger is unavailable, and this request may cost more than is left of the "
            f"{_usd(allowance_nano_usd)} that a workspace may spend meanwhile"
        )


class RowRefused(BillingError):
    """The ledger's database answered, and a constraint refused the row: retrying cannot help."""


class DatabaseConfigError(BillingError, ValueError):
    """The database URL cannot be used; the message says which part and why."""


class NoProof(BillingError):
    """What was asked for cannot be proven, or not here; the message says why."""


class PricesUnavailable(BillingError):
    """No price list was ever published, or it cannot be read."""


class QuotaExceeded(BillingError):
    """The worst case of this request would exceed a spend limit of `whose`. Nothing was held."""

    whose = "workspace"

    def __init__(
        self, *, span: Span, limit_nano_usd: int, committed_nano_usd: int, wanted_nano_usd: int
    ) -> None:
        super().__init__(
            f"{self.whose} quota exceeded: this request may cost up to {_usd(wanted_nano_usd)} and "
            f"{_usd(committed_nano_usd)} of the {self._limit_words(span, _usd(limit_nano_usd))} is spent or held"
        )
        self.span = span
        self.limit_nano_usd = limit_nano_usd
        self.committed_nano_usd = committed_nano_usd
        self.wanted_nano_usd = wanted_nano_usd

    @property
    def left_nano_usd(self) -> int:
        """The amount that could still be held when it was asked."""
        return self.limit_nano_usd - self.committed_nano_usd

    def _limit_words(self, span: Span, usd: str) -> str:
        return f"spend limit{'' if span == 'total' else ' of this calendar month (UTC)'} of {usd}"


class BudgetExceeded(QuotaExceeded):
    """The worst case of this request would exceed a budget in its present period. Nothing was held.

    `resets_at` is in the time zone of the period; None: it never ends. `at_end` is the budget's, for chats;
    `is_early`: so much of it is committed that they are to land, though there may be room."""

    def __init__(
        self,
        *,
        whose: str,
        budget_id: str,
        span: Span,
        resets_at: datetime | None,
        limit_nano_usd: int,
        committed_nano_usd: int,
        wanted_nano_usd: int,
        at_end: str = "refuse",
        is_early: bool = False,
    ) -> None:
        self.whose, self.budget_id, self.resets_at = whose, budget_id, resets_at
        self.at_end, self.is_early = at_end, is_early
        super().__init__(
            span=span,
            limit_nano_usd=limit_nano_usd,
            committed_nano_usd=committed_nano_usd,
            wanted_nano_usd=wanted_nano_usd,
        )

    def _limit_words(self, span: Span, usd: str) -> str:
        if self.resets_at is None:
            return f"budget of {usd} in all"
        reset = f"resets at {self.resets_at.isoformat(timespec='seconds')} ({self.resets_at.tzinfo})"
        return f"budget of {usd} for each {span}, which {reset},"


class BillingDisabled(BillingError):
    """The workspace's billing is switched off, so nothing may be charged to it."""

    def __init__(self) -> None:
        super().__init__("billing is disabled for this workspace")


class ClockBehind(BillingError):
    """This server's clock gave the request an id of a time whose usage is archived: nothing could be charged for it."""

    def __init__(self, event_id: str) -> None:
        super().__init__("the server's clock is behind: usage of the time that it shows is archived already")
        self.event_id = event_id


class UsageNotRecorded(BillingError):
    """Neither the ledger nor the spool took the usage event. The operator's log has it in full."""

    def __init__(self, event_id: str, reason: str) -> None:
        super().__init__(f"usage event {event_id} is in neither the ledger nor the spool: {reason}")


class SpoolFull(BillingError):
    """The ledger is down, and the spool is at its limit: no more work is accepted."""

    def __init__(self, max_rows: int) -> None:
        super().__init__(f"the usage spool is full ({max_rows} events)")


class UnknownSpooledEvent(BillingError, LookupError):
    """The spool has no event with this id that is set aside."""


class UnknownAccount(BillingError, LookupError):
    """No workspace, project or key has this id or name."""

    def __init__(self, kind: str, ref: str) -> None:
        super().__init__(f"no {kind} has the id or name {ref!r}")


class AccountExists(BillingError):
    """The name is taken."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"a {kind} named {name!r} already exists")


class AccountRevoked(BillingError):
    """Nothing can be made in a workspace or a project that was revoked: it would never work."""

    def __init__(self, kind: str, ref: str, revoked_at: datetime, *, wanted: str) -> None:
        super().__init__(
            f"{kind} {ref!r} was revoked on {revoked_at:%Y-%m-%d}, which cannot be undone: "
            f"a {wanted} in it would never work"
        )


class InvalidAccount(BillingError, ValueError):
    """A name or a figure of a workspace, project or key is invalid; the message names it."""


class UnknownOriginal(BillingError, LookupError):
    """The project has no original of this id: it never had, or it has expired. Of another project's: the same."""

    def __init__(self) -> None:
        super().__init__("no original with this id is retained: none ever was, or its time is over")


class OriginalsFull(BillingError):
    """The project's retained originals leave no room for another. Nothing was written."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the project's retained originals may hold {most_bytes} bytes together")


class UnknownCollection(BillingError, LookupError):
    """No collection has this id."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"no collection has the id {ref!r}")


class IllegalMove(BillingError):
    """A collection cannot go from its state to the one asked for."""

    def __init__(self, collection_id: str, *, state: str, wanted: str, allowed: Sequence[str]) -> None:
        may = f"it may become {' or '.join(allowed)}" if allowed else f"{state} is final"
        super().__init__(f"collection {collection_id} is {state} and cannot become {wanted}: {may}")
        self.wanted = wanted


class InvalidCollection(BillingError, ValueError):
    """A reference or a note of a collection cannot be used; the message names it."""


class HookFailed(BillingError):
    """The payment system's command could not be run, took too long, or ended with an error."""

    def __init__(self, problem: str, *, timed_out: bool = False) -> None:
        super().__init__(f"the collection hook failed: {problem}")
        self.problem = problem
        self.timed_out = timed_out


class RebuildRefused(BillingError):
    """The events add up to less than what was collected: no balance can say that."""

    def __init__(self, workspace_id: str, *, posted_nano_usd: int, collected_nano_usd: int) -> None:
        super().__init__(
            f"workspace {workspace_id}: its collections are {_usd(collected_nano_usd)} and its events only "
            f"{_usd(posted_nano_usd)}; void a collection that is open or failed, then rebuild again"
        )


class ArchiveRefused(BillingError):
    """The month is not one that can be archived now; the message says why."""


class ArchiveDamaged(BillingError):
    """A file is missing, cannot be read or written, or is not what the ledger had."""


class RateLimited(BillingError):
    """A limit of the project, or of whom else the request counts for, is used up. No limit has counted it.

    `state` is for the response's headers. `retry_after_s` is the soonest that the same request can fit; one whose
    `amount` is above the limit never does, and the message says so. `scope` says whose limit it is; with a tag comes
    its name.
    """

    def __init__(
        self,
        *,
        which: LimitName,
        limit: int,
        retry_after_s: int,
        state: LimitState,
        amount: int = 1,
        per: LimitPeriod = "minute",
        scope: str = "project",
    ) -> None:
        whose = "API key" if scope == "key" else scope
        words = f"{whose} rate limit exceeded: {_LIMIT_WORDS[which].format(limit, _PERIOD_WORDS[per])}"
        if amount > limit:
            words += (
                f"; this request may use up to {amount}, which exceeds the limit, so it will always be refused: "
                "make it shorter or ask for fewer tokens"
            )
        super().__init__(words)
        self.which = which
        self.scope = scope.partition(" ")[0]
        self.limit = limit
        self.retry_after_s = retry_after_s
        self.state = state


class LimitsUnavailable(BillingError):
    """The store of the rate limits (Redis, say) could not be reached."""


def _usd(nano_usd: int) -> str:
    # What is committed may be below zero: paid in advance.
    whole, part = divmod(abs(nano_usd), 10**9)
    return f"{'-' if nano_usd < 0 else ''}${whole}.{part:09d}".rstrip("0").rstrip(".")
