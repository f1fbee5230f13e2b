"""The ledger as a request uses it: prices, then a hold, then its settlement or release, whatever happens."""

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from billing.caller import Caller
from billing.errors import (
    BillingDisabled,
    BillingError,
    ClockBehind,
    InvalidKey,
    LedgerUnavailable,
    PricesUnavailable,
    QuotaExceeded,
    RowRefused,
    UsageNotRecorded,
)
from billing.ledger import ledger_sql, price_list
from billing.ledger.leases import LeaseKeeper, LeaseTimes
from billing.ledger.price_list import PriceList
from billing.ledger.recording import OfflineAllowance, Recorder, Replayed, WrittenOff, log_written_off, replay
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.store.database import CircuitBreaker, Database, RowWork, Work
from billing.transparency.leaves import record
from billing.usage import (
    Hold,
    Outcome,
    Settlement,
    UsageEvent,
    UsageFigures,
    Used,
    mint_event_id,
    paired,
    usage_event,
)

T = TypeVar("T")
log = logging.getLogger(__name__)
PUBLISH_ATTEMPTS = 10


class Ledger:
    """Money moves here and nowhere else. Every write runs to its end, even if its caller is cancelled."""

    def __init__(
        self,
        database: Database,
        spool: Spool,
        *,
        offline_allowance_nano_usd: int = 0,
        lease: LeaseTimes | None = None,
        owner: str | None = None,
        written_off: WrittenOff = log_written_off,
    ) -> None:
        """`offline_allowance_nano_usd` is what each workspace may spend while the ledger is down; 0: nothing.

        `owner` names this server in the leases of its holds and is never used twice; None: a new one.
        """
        self._database = database
        self._spool = spool
        self._allowance = OfflineAllowance(spool, nano_usd=offline_allowance_nano_usd)
        self._requests = CircuitBreaker(database, may_skip=self._allowance.is_on)
        self._leases = LeaseKeeper(
            database, spool, owner=owner or secrets.token_hex(16), times=lease or LeaseTimes()
        )
        self._written_off = written_off
        self._recorder = Recorder(self._requests, spool, written_off)
        self._writes: set[asyncio.Task[Any]] = set()
        # By version, those that this server has published or read.
        self._listed: dict[int, PriceList] = {}

    async def publish_prices(self, prices: Sequence[ModelPrice], *, now: datetime) -> int:
        """The version in force for these prices: a new one if any differs. Raises `LedgerUnavailable`."""
        for _ in range(PUBLISH_ATTEMPTS):
            try:
                version = await self._database.write(lambda c: price_list.publish(c, prices, now))
            except RowRefused:
                continue
            self._listed[version] = PriceList(version, tuple(prices))
            return version
        raise LedgerUnavailable(f"other servers published prices first, {PUBLISH_ATTEMPTS} times in a row")

    async def current_prices(self, of: Sequence[ModelPrice] | None = None) -> PriceList:
        """The latest list with exactly these prices; None: the last that anybody published.

        Raises `PricesUnavailable` when it was never published or cannot be read.
        """
        find = price_list.latest if of is None else partial(price_list.newest_equal_to, wanted=of)
        try:
            found = await self._database.read(find)
        except LedgerUnavailable as error:
            raise PricesUnavailable(str(error)) from error
        if found is None:
            raise PricesUnavailable("no price list has been published yet")
        self._listed[found.version] = found
        return found

    async def prices_of_version(self, version: int) -> PriceList:
        """Raises `PricesUnavailable` when it was never published or cannot be read."""
        try:
            found = await self._database.read(partial(price_list.of_version, version=version))
        except LedgerUnavailable as error:
            raise PricesUnavailable(str(error)) from error
        if found is None:
            raise PricesUnavailable(f"price list {version} was never published")
        self._listed[version] = found
        return found

    async def hold(
        self,
        caller: Caller,
        *,
        model_id: str,
        pricing_version: int,
        amount_nano_usd: int,
        request_id: str,
        now: datetime,
        route: str | None = None,
        may_land: bool = False,
    ) -> Hold:
        """Sets the worst case aside, in the ledger or, while that is down, in the workspace's allowance. `route` says
        in the usage event what was asked; what `may_land` is refused where a budget would have it land.

        Raises `QuotaExceeded`, `BillingDisabled`, `InvalidKey` (the workspace was revoked), `ClockBehind`,
        `LedgerUnavailable` or `SpoolFull`, and then nothing is held.
        """
        hold = Hold(
            event_id=mint_event_id(now),
            kind="held" if caller.metered else "not_applicable",
            request_id=request_id,
            workspace_id=caller.workspace_id,
            project_id=caller.project_id,
            key_id=caller.key_id,
            model_id=model_id,
            pricing_version=pricing_version,
            amount_nano_usd=amount_nano_usd,
            created_at=now,
            route=route,
            person=caller.person,
            tags=",".join(caller.tags) or None,
            may_land=may_land,
        )
        if not caller.metered:
            return hold
        await self._spool.require_writable()
        opening = self._begin(self._open(hold))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The statement may be under way. Nobody else knows this hold, so it is given back from here.
            self._begin(self._release_after(opening))
            raise

    async def settle(
        self, hold: Hold, *, figures: UsageFigures, cost: Cost, outcome: Outcome, now: datetime
    ) -> Settlement:
        """Charges what was used and closes the hold; a second call for the same hold changes nothing.

        Raises `UsageNotRecorded` when neither the ledger nor the spool took the event.
        """
        (settlement,) = await self.settle_all([Used(hold, figures, cost)], outcome=outcome, now=now)
        return settlement

    async def settle_all(
        self, used: Sequence[Used], *, outcome: Outcome, now: datetime, also: Work[None] | None = None
    ) -> list[Settlement]:
        """As `settle`, of a chat and, where there is one, of the compression of its prompt, in events that name each
        other. They are written in one transaction, of the ledger or of the spool: neither is charged without the other.

        `also` is written in the same transaction, and nothing is charged where it raises. With it nothing is spooled:
        raises `LedgerUnavailable` (it is unknown whether the transaction was committed), `RowRefused`, and the
        `BillingError` that `also` raised.
        """
        holds = [one.hold for one in used]
        if holds[0].kind == "not_applicable":
            if also is not None:
                await asyncio.shield(self._begin(self._database.write(also)))
            return [Settlement(hold.event_id, "not_applicable") for hold in holds]
        events = self._events(used, outcome, now)
        recorder = self._recorder
        record = recorder.record(events) if also is None else recorder.record_with(events, also)
        return await asyncio.shield(self._begin(self._settle(holds, events, record)))

    def records(self, used: Sequence[Used], *, outcome: Outcome, now: datetime) -> list[str]:
        """What the leaf of each will have for its record, once the same was settled."""
        return [record(ledger_sql.event_values(event)) for event in self._events(used, outcome, now)]

    async def release(self, hold: Hold, *, now: datetime) -> bool:
        """Gives the hold back uncharged. False when it was closed already, or when the ledger is down: then
        `keep_leases` closes it once the ledger is back."""
        if hold.kind == "not_applicable":
            return False
        return await asyncio.shield(self._begin(self._release(hold)))

    async def keep_leases(self) -> None:
        """Renews this server's holds, and closes unused ones: its own, and those of servers that died.

        To be called about every second; it does what is due. Raises `LedgerUnavailable`.
        """
        await self._leases.keep()

    async def replay_spool(self) -> Replayed:
        """Moves what waits in the spool into the ledger, exactly once. Raises `LedgerUnavailable` where the
        spool cannot be read."""
        try:
            return await replay(self._spool, self._database, written_off=self._written_off)
        finally:
            self._allowance.recount()

    async def close(self) -> None:
        """Waits for the writes whose callers have gone. Call it before the databases are closed."""
        while self._writes:
            await asyncio.gather(*self._writes, return_exceptions=True)
        if self._leases.may_have_unknown_holds:
            try:
                await self._leases.close_unknown()
            except LedgerUnavailable as error:
                log.warning("this server's holds are left for other servers to close: %s", error)

    def _events(self, used: Sequence[Used], outcome: Outcome, now: datetime) -> list[UsageEvent]:
        return paired([usage_event(one, outcome, now, self._price_of(one.hold)) for one in used])

    def _price_of(self, hold: Hold) -> ModelPrice | None:
        listed = self._listed.get(hold.pricing_version)
        return None if listed is None else listed.of(hold.model_id)

    async def _open(self, hold: Hold) -> Hold:
        self._leases.begin(hold.event_id)
        try:
            return await self._opened(hold)
        except (QuotaExceeded, BillingDisabled, InvalidKey, ClockBehind):
            # The ledger has answered.
            self._leases.end(hold.event_id)
            raise
        except BaseException:
            # It may have been opened, and only the answer lost.
            self._leases.mark_possibly_open(hold.event_id)
            raise

    async def _opened(self, hold: Hold) -> Hold:
        opening = partial(
            ledger_sql.open_hold, hold=hold, owner=self._leases.owner, lease_s=self._leases.times.ttl_s
        )
        try:
            await self._requests.write(RowWork(hold.workspace_id, opening), durable=False)
        except LedgerUnavailable as error:
            if not self._allowance.is_on:
                raise
            log.info("hold %s is taken from the allowance: %s", hold.event_id, error)
            await self._allowance.take(hold)
            return replace(hold, kind="offline")
        return hold

    async def _settle(
        self,
        holds: Sequence[Hold],
        events: Sequence[UsageEvent],
        record: Coroutine[Any, Any, list[Settlement]],
    ) -> list[Settlement]:
        persisted = refused = False
        try:
            settlements = await record
            persisted = settlements[0].persisted
            # In the ledger their holds are closed now; in the spool they keep them.
            for hold in holds:
                self._leases.end(hold.event_id)
            return settlements
        except BillingError as error:
            # Without a spool nothing was charged, and nothing is owed.
            refused = not isinstance(error, UsageNotRecorded)
            for hold in holds:
                self._leases.mark_possibly_open(hold.event_id)
            raise
        except BaseException:
            for hold in holds:
                self._leases.mark_possibly_open(hold.event_id)
            raise
        finally:
            for hold, event in zip(holds, events, strict=True):
                if hold.kind == "offline":
                    self._allowance.free(hold)
                if not persisted and not refused:
                    self._allowance.spend(event.workspace_id, event.cost_nano_usd)

    async def _release(self, hold: Hold) -> bool:
        if hold.kind == "offline":
            self._allowance.free(hold)
            # Its opening may have been committed before its answer was lost.
            self._leases.mark_possibly_open(hold.event_id)
            return True
        try:
            closing = RowWork(hold.workspace_id, lambda c: ledger_sql.close_hold(c, hold.event_id))
            was_open = await self._database.write(closing, durable=False)
        except (LedgerUnavailable, RowRefused) as error:
            log.warning("hold %s will be closed later: %s", hold.event_id, error)
            self._leases.mark_possibly_open(hold.event_id)
            return False
        self._leases.end(hold.event_id)
        return was_open

    async def _release_after(self, opening: asyncio.Task[Hold]) -> None:
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            await self._release(opening.result())

    def _begin(self, write: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return task
