"""Delivers what is due, from each HTTP process of a server: claims endpoints, each sent to in a task of its own."""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from billing.errors import LedgerUnavailable
from billing.store.database import Database, PatientWork
from billing.webhooks import outbox
from billing.webhooks.endpoint import Attempt, Outcome, Result, SecretUnreadable, pause_after
from billing.webhooks.secret_box import SecretBox
from billing.webhooks.sender import Sender

log = logging.getLogger(__name__)

# Beyond what a try may take: for the ledger to answer before and after.
LEASE_MARGIN_S = 20.0
# While something is being sent, it is looked so often whether more is due.
LOOK_EVERY_S = 1.0
# Then another endpoint gets the place.
MOST_IN_A_TURN = 50
# An endpoint that does not answer is left alone for so long, whatever else is due for it.
REST_S = 10.0
Count = Callable[[Result], None]


@dataclass(slots=True)
class Lane:
    """Places for endpoints whose last try failed, or for the others: what hangs takes no place of what works."""

    failing: bool
    places: int
    running: set[asyncio.Task[None]] = field(default_factory=set)


class Dispatcher:
    """One for each process. An endpoint is sent to by one process at a time, one event after another."""

    def __init__(
        self,
        database: Database,
        box: SecretBox,
        sender: Sender,
        *,
        count: Count = lambda result: None,
        chance: Callable[[], float] = random.random,
        places: int = 16,
        places_of_failing: int = 8,
    ) -> None:
        """`count` is called with what each try came to, and `chance` (0 to 1) spreads the pauses between tries."""
        self._database = database
        self._box = box
        self._sender = sender
        self._count = count
        self._chance = chance
        self._lanes = (Lane(False, places), Lane(True, places_of_failing))

    @property
    def lease_s(self) -> float:
        return self._sender.timeout_s + LEASE_MARGIN_S

    async def once(self) -> None:
        """Until nothing is due that this process can send. Raises `LedgerUnavailable`, but only once what it was
        sending is done."""
        try:
            while True:
                failure = await self._fill()
                running = self._running()
                if not running:
                    break
                await asyncio.wait(running, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._stop()
            raise
        if failure is not None:
            raise failure

    async def close(self) -> None:
        await self._stop()
        await self._sender.close()

    async def _fill(self) -> LedgerUnavailable | None:
        """Starts a task for each endpoint that can be claimed; what kept it from that, if anything did."""
        try:
            for lane in self._lanes:
                while len(lane.running) < lane.places and (found := await self._claim(lane)) is not None:
                    task = asyncio.create_task(self._serve(*found))
                    lane.running.add(task)
                    task.add_done_callback(lane.running.discard)
        except LedgerUnavailable as error:
            return error
        return None

    async def _claim(self, lane: Lane) -> tuple[str, str] | None:
        """The endpoint, and the name under which it is claimed."""
        if not await self._database.read(partial(outbox.anything_due, failing=lane.failing)):
            return None
        worker = secrets.token_hex(16)
        claim = partial(outbox.claim, worker=worker, lease_s=self.lease_s, failing=lane.failing)
        found = await self._database.write(PatientWork(claim))
        return None if found is None else (found, worker)

    async def _serve(self, endpoint_id: str, worker: str) -> None:
        """One turn of an endpoint: until nothing is due for it, it does not answer, or others are to have a turn."""
        rest_s = 0.0
        try:
            for _ in range(MOST_IN_A_TURN):
                take = partial(
                    outbox.next_attempt, endpoint_id=endpoint_id, worker=worker, lease_s=self.lease_s
                )
                attempt = await self._database.write(PatientWork(take))
                if attempt is None:
                    return
                if (await self._try(attempt)).result not in ("delivered", "refused"):
                    rest_s = REST_S
                    break
            release = partial(outbox.release, endpoint_id=endpoint_id, worker=worker, rest_s=rest_s)
            await self._database.write(PatientWork(release))
        except LedgerUnavailable as error:
            # What was sent and not recorded is sent again, with the same id, once the lease has ended.
            log.warning("webhook %s is left for later: %s", endpoint_id, error)
        except Exception:
            log.exception("webhook %s is left for later", endpoint_id)

    async def _try(self, attempt: Attempt) -> Outcome:
        try:
            opened = [self._box.open(attempt.endpoint_id, sealed) for sealed in attempt.secrets]
            outcome = await self._sender.send(attempt, opened)
        except SecretUnreadable as error:
            outcome = Outcome("unreachable", error=str(error))
        pause_s = pause_after(attempt.attempts + 1, self._chance())
        record = partial(outbox.record, attempt=attempt, outcome=outcome, pause_s=pause_s, actor="upkeep")
        state = await self._database.write(record)
        self._count(outcome.result)
        if outcome.result != "delivered":
            log.warning(
                "webhook %s: event %s: %s; it is %s now",
                attempt.endpoint_id,
                attempt.event_id,
                outcome.error,
                state,
            )
        return outcome

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for lane in self._lanes for task in lane.running]

    async def _stop(self) -> None:
        running = self._running()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
