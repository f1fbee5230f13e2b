"""What the ledger needs done now and then: spooled usage replayed, and the holds of dead requests closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from billing.errors import BillingError
from billing.ledger import Ledger

log = logging.getLogger(__name__)


async def keep_up(
    ledger: Ledger, *, every_s: float, expire_holds_after: timedelta, clock: Callable[[], datetime]
) -> None:
    """Runs until it is cancelled. `expire_holds_after` must exceed the longest request that is served."""
    while True:
        try:
            await keep_up_once(ledger, now=clock(), expire_holds_after=expire_holds_after)
        except BillingError as error:
            log.warning("upkeep of the ledger failed and is tried again in %s s: %s", every_s, error)
        await asyncio.sleep(every_s)


async def keep_up_once(ledger: Ledger, *, now: datetime, expire_holds_after: timedelta) -> None:
    """Raises `LedgerUnavailable` where the ledger or the spool cannot be read or written."""
    replayed = await ledger.replay_spool()
    if replayed.posted or replayed.refused:
        log.info("replayed the spool: %s", replayed)
    if replayed.waiting:
        # Their holds stand for money that was spent: closing them first would let it be spent again.
        return
    expired = await ledger.release_expired(now, expire_holds_after)
    if expired:
        log.warning("closed %d holds that no request settled", expired)
