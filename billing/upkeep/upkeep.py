"""Regular upkeep of the ledger: replays spooled usage, keeps leases, collects what is due, deletes what has expired."""

import logging
from collections.abc import Callable
from datetime import datetime

from billing.collections.collector import Collector
from billing.collections.payment_hook import HookCommand
from billing.ledger.ledger import Ledger
from billing.originals.original_store import Count, OriginalStore
from billing.rollups.partitions import make_months
from billing.store.database import Database
from billing.upkeep.background import Round

log = logging.getLogger(__name__)

# How soon a hold that could not be closed is tried again.
LEASES_EVERY_S = 1.0
# They are made months ahead.
MONTHS_EVERY_S = 3600.0


def replay_round(ledger: Ledger, *, every_s: float) -> Round:
    """Moves usage from the spool into the ledger."""
    return Round("replay", lambda: replay_once(ledger), every_s)


def lease_round(ledger: Ledger, *, every_s: float = LEASES_EVERY_S) -> Round:
    """Renews this server's holds, and closes unused ones."""
    return Round("leases", ledger.keep_leases, every_s)


def originals_round(store: OriginalStore, *, every_s: float, count: Count) -> Round:
    """Deletes retained originals that have expired, and those of revoked projects."""
    return Round("originals", lambda: store.delete_expired(count), every_s)


def months_round(database: Database, *, every_s: float = MONTHS_EVERY_S) -> Round:
    """Makes the tables of usage events of the months to come, where the database has one for each."""
    return Round("months", lambda: make_months(database), every_s)


def collection_round(
    collector: Collector,
    *,
    threshold_cents: int,
    hook: HookCommand | None,
    every_s: float,
    clock: Callable[[], datetime],
) -> Round:
    """Separate from the others: a payment system may take long, and usage must not wait."""

    async def once() -> None:
        await collect_once(collector, threshold_cents=threshold_cents, hook=hook, clock=clock)

    # Each run of the hook is bounded, but there may be many.
    return Round("collecting", once, every_s, stuck_s=None)


async def replay_once(ledger: Ledger) -> None:
    """Raises `LedgerUnavailable` where the spool cannot be read or written."""
    replayed = await ledger.replay_spool()
    if replayed.posted or replayed.refused:
        log.info("replayed the spool: %s", replayed)


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
