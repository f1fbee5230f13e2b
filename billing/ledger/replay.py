"""Moves usage from the spool back into the ledger: exactly once, in order."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from billing.errors import LedgerUnavailable, RowRefused
from billing.ledger import ledger_sql
from billing.spool.spool import Spool
from billing.store.database import Database
from billing.usage import UsageEvent, event_from_json

log = logging.getLogger(__name__)
# Called with an event and the part of its cost that is written off.
WrittenOff = Callable[[UsageEvent, int], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one replay did with the events: posted now, known to the ledger before, set aside, or waiting."""

    posted: int
    known: int
    refused: int
    waiting: int


def log_written_off(event: UsageEvent, nano_usd: int) -> None:
    log.warning(
        "%d nano-USD of usage event %s of workspace %s are written off: they exceed its hold and its limits",
        nano_usd,
        event.event_id,
        event.workspace_id,
    )


async def replay(
    spool: Spool, ledger: Database, *, batch: int = 100, written_off: WrittenOff = log_written_off
) -> Replayed:
    """Moves what waits into the ledger, oldest first, and stops where the ledger is down.

    A crash between the ledger's commit and the spool's removal is harmless: the event id is known next time.
    """
    posted = known = refused = 0
    while events := await spool.waiting(batch):
        for spooled in events:
            try:
                event = event_from_json(spooled.event)
                posted_now = await ledger.write(partial(ledger_sql.post, event=event))
            except LedgerUnavailable as error:
                log.warning("replay stops: %s", error)
                return Replayed(posted, known, refused, await spool.count_waiting())
            except (RowRefused, ValueError) as error:
                log.error("usage event %s is set aside: %s", spooled.event_id, error)
                await spool.set_aside(spooled.event_id, str(error))
                refused += 1
                continue
            is_new = posted_now.is_new
            posted, known = posted + is_new, known + (not is_new)
            if posted_now.written_off_nano_usd:
                written_off(event, posted_now.written_off_nano_usd)
            await spool.remove(spooled.event_id)
    return Replayed(posted, known, refused, 0)
