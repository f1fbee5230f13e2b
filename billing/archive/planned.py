"""What of a ledger would be archived now."""

from dataclasses import dataclass
from functools import partial

from billing.archive import month_sql
from billing.rollups.archived import sealed_until
from billing.store.database import Database


@dataclass(frozen=True, slots=True)
class Planned:
    """A month that the policy gives up. `events` are in the ledger now; `state`: how far a run before this came; None:
    not begun."""

    month: str
    events: int
    state: str | None = None


async def planned(database: Database, keep_months: int | None) -> list[Planned]:
    """What a run does if everything is proven by then, oldest first; None keeps all. Raises `LedgerUnavailable`."""
    found, after = list[Planned](), await database.read(sealed_until)
    if begun := await database.read(month_sql.unfinished):
        left = await database.read(partial(month_sql.count_events, month=begun))
        found.append(Planned(begun.month, left, begun.state))
    if keep_months is None:
        return found
    while month := await database.read(partial(month_sql.due, after=after, keep_months=keep_months)):
        events = await database.read(partial(month_sql.count_events, month=month))
        found.append(Planned(month.month, events))
        after = month.until_id
    return found
