"""What sums and events cannot say any more, since a month's events are in files."""

from datetime import datetime

from billing.errors import BillingError


class ArchivedSumsChanged(BillingError):
    """Sums cannot be made anew: what is kept of an archived month is not what was kept. Nothing was changed."""

    def __init__(self, month: str, problem: str) -> None:
        super().__init__(
            f"archived {month}: {problem}, and no sum can be made anew from them: restore the ledger's archived_days "
            "of this month from a backup"
        )


class PeriodArchived(BillingError, ValueError):
    """The answer needs single events, and some of them are archived. Sums of whole days are still there."""

    def __init__(self, what: str, last_settled_at: datetime) -> None:
        super().__init__(
            f"{what} needs single events, and those settled up to {last_settled_at:%Y-%m-%d %H:%M} UTC are archived: "
            "ask for whole days (UTC), or for what came later"
        )
