"""Writes the usage events of one request: in the ledger or, while that is away, in the spool."""

import logging
from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection

from billing.errors import LedgerUnavailable, RowRefused, UsageNotRecorded
from billing.ledger import ledger_sql
from billing.ledger.ledger_sql import Posting
from billing.ledger.replay import WrittenOff
from billing.spool.spool import Spool
from billing.store.circuit_breaker import CircuitBreaker
from billing.store.database import RowWork, Work
from billing.usage import Settlement, UsageEvent

log = logging.getLogger(__name__)


class Recorder:
    """All events of one call are of one workspace, and are written together or not at all."""

    def __init__(self, ledger: CircuitBreaker, spool: Spool, written_off: WrittenOff) -> None:
        self._ledger = ledger
        self._spool = spool
        self._written_off = written_off

    async def record(self, events: Sequence[UsageEvent]) -> list[Settlement]:
        """In the ledger or in the spool. Raises `UsageNotRecorded`."""
        try:
            return await self._in_ledger(events, partial(ledger_sql.post_all, events=events))
        except (LedgerUnavailable, RowRefused) as error:
            # A refused row is spooled too: the replayer sets it aside where an operator sees it.
            log.warning("usage event %s goes to the spool: %s", events[0].event_id, error)
            await self._in_spool(events)
            return [Settlement(event.event_id, "degraded") for event in events]

    async def record_with(self, events: Sequence[UsageEvent], also: Work[None]) -> list[Settlement]:
        """In the ledger, in one transaction with `also`. Raises `LedgerUnavailable`, `RowRefused` and what `also`
        raises."""

        def work(connection: Connection) -> list[Posting]:
            posted = ledger_sql.post_all(connection, events)
            also(connection)
            return posted

        return await self._in_ledger(events, work)

    async def _in_ledger(self, events: Sequence[UsageEvent], work: Work[list[Posting]]) -> list[Settlement]:
        posted = await self._ledger.write(RowWork(events[0].workspace_id, work), durable=True)
        for event, one in zip(events, posted, strict=True):
            if one.written_off_nano_usd:
                self._written_off(event, one.written_off_nano_usd)
        return [
            Settlement(event.event_id, "persisted", one.written_off_nano_usd)
            for event, one in zip(events, posted, strict=True)
        ]

    async def _in_spool(self, events: Sequence[UsageEvent]) -> None:
        try:
            await self._spool.append(*events)
        except (LedgerUnavailable, RowRefused) as error:
            for event in events:
                log.critical("usage is lost unless it is entered by hand: %r: %s", event, error)
            raise UsageNotRecorded(events[0].event_id, str(error)) from error
