"""A server's background work: replay its spool, keep its leases, collect, delete originals that have expired."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from billing.background.upkeep import (
    LEASES_EVERY_S,
    Background,
    Loop,
    Round,
    collection_round,
    lease_round,
    months_round,
    originals_round,
    replay_round,
)
from billing.collections.collector import Collector
from billing.collections.payment_hook import HookCommand
from billing.ledger.leases import LeaseTimes
from billing.ledger.ledger import Ledger
from billing.originals.original_store import OriginalStore
from billing.store.database import Database
from serve.config.settings import Settings
from serve.metrics.background import UpkeepMetrics
from serve.tracing.spans import NO_TRACER, Tracer, traced


def begin_upkeep(
    settings: Settings,
    database: Database,
    ledger: Ledger,
    lease: LeaseTimes,
    metrics: UpkeepMetrics,
    others: Sequence[Round] = (),
    tracer: Tracer = NO_TRACER,
) -> Background:
    """All of it, and the rounds of `others`, until `Background.stop`. A round is a trace of its own, unless it may take
    any time."""
    rounds = [
        replay_round(ledger, every_s=settings.billing.upkeep_s),
        lease_round(ledger, every_s=min(LEASES_EVERY_S, lease.renew_every_s)),
        collecting_round(settings, database),
        months_round(database),
        originals_round(
            OriginalStore(database), every_s=settings.billing.upkeep_s, count=metrics.delete_originals
        ),
        *others,
    ]
    background = Background([Loop(_traced(of, tracer), observe=metrics.observe) for of in rounds])
    background.start()
    return background


def _traced(of: Round, tracer: Tracer) -> Round:
    if of.stuck_s is None:
        return of

    async def once() -> object:
        with traced(tracer, f"upkeep {of.name}"):
            return await of.once()

    return replace(of, once=once)


def collecting_round(settings: Settings, database: Database) -> Round:
    """Cut and hand over collections, as the configuration says."""
    billing = settings.billing
    argv, timeout_s = billing.collection_hook, billing.collection_hook_timeout_s
    return collection_round(
        Collector(database, actor="upkeep"),
        threshold_cents=billing.collection_threshold_cents,
        hook=HookCommand(argv, timeout_s) if argv else None,
        every_s=billing.upkeep_s,
        clock=lambda: datetime.now(UTC),
    )
