"""Work that a server does alongside its requests, round after round: no error ends it, and failures are reported."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from billing.collections.collection import HookCommand
from billing.collections.collector import Collector
from billing.errors import BillingError
from billing.ledger import budgets
from billing.ledger.ledger import Ledger
from billing.originals.original_store import Count, OriginalStore
from billing.preservation.checks import PreservationStore
from billing.rollups.partitions import make_months
from billing.store.database import Database, PatientWork

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
# A round that takes longer is stuck: everything that it waits for has a timeout.
STUCK_S = 900.0
# The same failure is logged again after this long, and not every second.
LOG_AGAIN_S = 60.0
# Called with a task's name and how many seconds it has been failing: 0 after a round that succeeded.
Observe = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Round:
    """What is done every `every_s` seconds. A round longer than `stuck_s` is stuck; None: it may take any time."""

    name: str
    once: Callable[[], Awaitable[object]]
    every_s: float
    stuck_s: float | None = STUCK_S


class Loop:
    """Runs one kind of round until it is cancelled. After a failure it retries sooner at first."""

    def __init__(self, round_: Round, *, observe: Observe = lambda name, seconds: None) -> None:
        self.round = round_
        self._failing_since: float | None = None
        self._observe = observe
        self._begun_at: float | None = None
        self._failures = 0
        self._logged_at = 0.0

    async def run(self) -> None:
        while True:
            self._begun_at = _now()
            try:
                await self.round.once()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Something that it waited for was cancelled, not this task.
                self._fail(RuntimeError("what it waited for was cancelled"))
            except Exception as error:
                self._fail(error)
            else:
                self._succeed()
            self._begun_at = None
            await asyncio.sleep(self._pause_s())

    def stuck_for_s(self) -> float | None:
        """Seconds that its round has taken, where that is too long."""
        if self._begun_at is None or self.round.stuck_s is None:
            return None
        taken = _now() - self._begun_at
        return taken if taken > self.round.stuck_s else None

    def _pause_s(self) -> float:
        if not self._failures:
            return self.round.every_s
        return min(self.round.every_s, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 16))

    def _succeed(self) -> None:
        if self._failing_since is not None:
            log.warning("%s succeeds again, after %d failures", self.round.name, self._failures)
        self._failing_since, self._failures = None, 0
        self._observe(self.round.name, 0.0)

    def _fail(self, error: Exception) -> None:
        now = _now()
        if self._failing_since is None:
            self._failing_since, self._logged_at = now, now - LOG_AGAIN_S
        self._failures += 1
        self._observe(self.round.name, max(now - self._failing_since, 1e-3))
        if now - self._logged_at >= LOG_AGAIN_S:
            self._logged_at = now
            # Any other error is a bug or a fault of the machine: logged with its traceback.
            trace = None if isinstance(error, BillingError) else error
            log.warning("%s failed and is tried again: %s", self.round.name, error, exc_info=trace)


class Background:
    """The loops of one server, each in a task that is restarted if it ends."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = loops
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    def start(self) -> None:
        for loop in self._loops:
            self._begin(loop)

    def check(self) -> None:
        """Raises `RuntimeError` if a round is stuck: only another process can help."""
        for loop in self._loops:
            stuck_s = loop.stuck_for_s()
            if stuck_s is not None:
                raise RuntimeError(
                    f"the background task {loop.round.name!r} has been stuck for {stuck_s:.0f} s"
                )

    async def stop(self) -> None:
        self._stopping = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, loop: Loop) -> None:
        if self._stopping:
            return
        task = asyncio.create_task(loop.run(), name=f"background {loop.round.name}")
        self._tasks[loop.round.name] = task
        task.add_done_callback(lambda done: self._restart(loop, done))

    def _restart(self, loop: Loop, done: asyncio.Task[None]) -> None:
        why = "was cancelled" if done.cancelled() else f"ended: {done.exception()!r}"
        if self._stopping or done.get_loop().is_closed():
            return
        log.error("the background task %s %s; it is restarted", loop.round.name, why)
        # What ended it may be there again at once: without a pause, the process would do nothing else.
        done.get_loop().call_later(FIRST_PAUSE_S, self._begin, loop)


def _now() -> float:
    now: float = asyncio.get_running_loop().time()
    return now


# How soon a hold that could not be closed is tried again.
LEASES_EVERY_S = 1.0
# They are made months ahead.
MONTHS_EVERY_S = 3600.0
# Checks are kept for more than a year.
CHECKS_EVERY_S = 3600.0


def replay_round(ledger: Ledger, *, every_s: float) -> Round:
    """Moves usage from the spool into the ledger."""
    return Round("replay", lambda: replay_once(ledger), every_s)


def lease_round(ledger: Ledger, *, every_s: float = LEASES_EVERY_S) -> Round:
    """Renews this server's holds, and closes unused ones."""
    return Round("leases", ledger.keep_leases, every_s)


def originals_round(store: OriginalStore, *, every_s: float, count: Count) -> Round:
    """Deletes retained originals that have expired, and those of revoked projects."""
    return Round("originals", lambda: store.delete_expired(count), every_s)


def preservation_round(
    store: PreservationStore, *, clock: Callable[[], datetime], every_s: float = CHECKS_EVERY_S
) -> Round:
    """Deletes checks of compressed chats that are old."""
    return Round("preservation", lambda: store.delete_old(clock()), every_s)


def budgets_round(database: Database, *, every_s: float = MONTHS_EVERY_S) -> Round:
    """Deletes what budgets and rate limits had in periods that are long over."""

    async def once() -> None:
        deleted = budgets.DELETED_AT_ONCE
        while deleted == budgets.DELETED_AT_ONCE:
            deleted = await database.write(PatientWork(budgets.forget_old))

    return Round("budgets", once, every_s)


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
