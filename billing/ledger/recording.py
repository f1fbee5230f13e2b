"""Recording of usage: in the ledger or, while that is away, in the spool, within an allowance; and its replay."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy import Connection

from billing.errors import AllowanceSpent, LedgerUnavailable, RowRefused, UsageNotRecorded
from billing.ledger import ledger_sql, price_list
from billing.ledger.ledger_sql import Posting
from billing.ledger.spool import Spool, SpooledEvent
from billing.store.database import CircuitBreaker, Database, RowWork, Work
from billing.usage import Hold, Settlement, UsageEvent, event_from_json


class OfflineAllowance:
    """Counts, for each workspace, the worst cases of requests under way and the cost of usage in the spool.

    The spool outlives its server, so a restart begins with what was spent before it.
    """

    def __init__(self, spool: Spool, *, nano_usd: int) -> None:
        self._spool = spool
        self._nano_usd = nano_usd
        self._open: Counter[str] = Counter()
        self._spooled: Counter[str] | None = None
        self._changes = 0

    @property
    def is_on(self) -> bool:
        return self._nano_usd > 0

    async def take(self, hold: Hold) -> None:
        """Sets the hold's amount aside. Raises `AllowanceSpent`, `SpoolFull` or `LedgerUnavailable`."""
        if not self.is_on:
            raise LedgerUnavailable("the ledger is unavailable")
        await self._spool.require_room()
        spooled = await self._costs()
        # Nothing is awaited from here on, or two requests could take the same money.
        spent = self._open[hold.workspace_id] + spooled.get(hold.workspace_id, 0)
        if spent + hold.amount_nano_usd > self._nano_usd:
            raise AllowanceSpent(self._nano_usd)
        self._open[hold.workspace_id] += hold.amount_nano_usd

    def free(self, hold: Hold) -> None:
        """Gives back what `take` set aside."""
        self._open[hold.workspace_id] -= hold.amount_nano_usd
        if self._open[hold.workspace_id] <= 0:
            del self._open[hold.workspace_id]

    def spend(self, workspace_id: str, nano_usd: int) -> None:
        """Counts usage that went to the spool."""
        self._changes += 1
        if self._spooled is not None:
            self._spooled[workspace_id] += nano_usd

    def recount(self) -> None:
        """Forgets what the spool held: some of it is in the ledger now."""
        self._changes += 1
        self._spooled = None

    async def _costs(self) -> Mapping[str, int]:
        while self._spooled is None:
            changes = self._changes
            costs = await self._spool.costs_by_workspace()
            # Usage that was spooled while the spool was read may or may not be in these sums: they are read again.
            if changes == self._changes:
                self._spooled = Counter(costs)
        return self._spooled


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
    """Moves what waits into the ledger, oldest first, and stops where the ledger is down. Events that name each other
    are moved in one transaction.

    A crash between the ledger's commit and the spool's removal is harmless: the event id is known next time.
    """
    posted = known = refused = 0
    while events := await spool.waiting(batch):
        for together in _groups(events, may_have_more=len(events) == batch > 1):
            try:
                moved = await _move(together, ledger, written_off)
            except LedgerUnavailable as error:
                log.warning("replay stops: %s", error)
                return Replayed(posted, known, refused, await spool.count_waiting())
            except (RowRefused, ValueError) as error:
                for spooled in together:
                    log.error("usage event %s is set aside: %s", spooled.event_id, error)
                await spool.set_aside([spooled.event_id for spooled in together], str(error))
                refused += len(together)
                continue
            posted, known = posted + moved, known + len(together) - moved
            for spooled in together:
                await spool.remove(spooled.event_id)
    return Replayed(posted, known, refused, 0)


async def retry(spool: Spool, ledger: Database, event_id: str) -> str:
    """Offers an event that was set aside to the ledger again, with all that waits; says what became of it. Raises
    `UnknownSpooledEvent`."""
    await spool.retry(event_id)
    await replay(spool, ledger)
    again = [event for event in await spool.refused(10**6) if event.event_id == event_id]
    if again:
        return f"set aside again: {again[0].refusal}"
    waits = any(event.event_id == event_id for event in await spool.waiting(10**6))
    return "waits: the ledger is down" if waits else "in the ledger"


async def _move(together: Sequence[SpooledEvent], ledger: Database, written_off: WrittenOff) -> int:
    """How many of these events the ledger did not know. Raises `ValueError` for one that cannot be read."""
    events = [event_from_json(spooled.event) for spooled in together]
    posted = await ledger.write(partial(_post, events=events))
    for event, one in zip(events, posted, strict=True):
        if one.written_off_nano_usd:
            written_off(event, one.written_off_nano_usd)
    return sum(one.is_new for one in posted)


def _post(connection: Connection, events: Sequence[UsageEvent]) -> list[Posting]:
    return ledger_sql.post_all(connection, [_under_its_price(connection, event) for event in events])


def _under_its_price(connection: Connection, event: UsageEvent) -> UsageEvent:
    """The event with the number under which this ledger lists its price, which is another one where the ledger was
    restored from a backup and published other prices since. Raises `RowRefused` where it lists none such."""
    price = event.listed_price
    if price is None:
        return event
    version = price_list.version_with(connection, price, at_first=event.pricing_version)
    if version is None:
        raise RowRefused(
            f"the ledger lists no such price, under {event.pricing_version} or any number: {price}. Was it restored "
            "from a backup? Start the server once with this price, and run pith spool retry"
        )
    return replace(event, pricing_version=version)


def _groups(events: Sequence[SpooledEvent], *, may_have_more: bool) -> list[list[SpooledEvent]]:
    """The events by what is to be moved at once. The last of a piece waits for one that comes with it, if any."""
    groups: list[list[SpooledEvent]] = []
    expected = None
    for spooled in events:
        if spooled.event_id == expected:
            groups[-1].append(spooled)
            expected = None
        else:
            groups.append([spooled])
            expected = _other_of(spooled)
    if may_have_more and expected is not None:
        groups.pop()
    return groups


def _other_of(spooled: SpooledEvent) -> str | None:
    try:
        return event_from_json(spooled.event).paired_with
    except ValueError:
        return None


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
