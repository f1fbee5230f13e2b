"""What the ledger needs done now and then: spooled usage replayed, the holds of dead requests closed, and what is
due collected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from billing.collector import Collector
from billing.errors import BillingError
from billing.hook import HookCommand
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


async def keep_collecting(
    collector: Collector,
    *,
    threshold_cents: int,
    hook: HookCommand | None,
    every_s: float,
    clock: Callable[[], datetime],
) -> None:
    """Runs until it is cancelled, apart from `keep_up`: a payment system may take long, and usage must not wait."""
    while True:
        try:
            await collect_once(collector, threshold_cents=threshold_cents, hook=hook, clock=clock)
        except BillingError as error:
            log.warning("collecting failed and is tried again in %s s: %s", every_s, error)
        await asyncio.sleep(every_s)


async def collect_once(
    collector: Collector,
    *,
    threshold_cents: int,
    hook: HookCommand | None,
    clock: Callable[[], datetime],
) -> None:
    """Cuts what is due and hands over what is open. Raises `LedgerUnavailable`."""
    for cut in await collector.cut_due(threshold_cents=threshold_cents, now=clock()):
        log.info("cut collection %s of %d cents for workspace %s", cut.id, cut.cents, cut.workspace_id)
    if hook is not None:
        await collector.hand_over(hook, clock=clock)
