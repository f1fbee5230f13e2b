"""One request as a server carries it: held before any work, then settled or released, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from billing.caller import Caller
from billing.errors import BillingError, UsageNotRecorded
from billing.price import cost, worst_case
from billing.usage import Hold, Outcome, UsageFigures
from tests.simulation.accounts import PRICE
from tests.simulation.auditor import Witness
from tests.simulation.plan import RequestPlan
from tests.simulation.server import Server


class EngineFailed(Exception):
    """The simulated engine ended in the midst of a request."""


class Request:
    """What `serve/chat/service.py` does around an engine, as far as money is concerned."""

    def __init__(
        self,
        plan: RequestPlan,
        server: Server,
        caller: Caller,
        pricing_version: int,
        witness: Witness,
        note: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.outcome = "under way"
        self.event_id = ""
        self.incarnation = server.incarnation
        self.on_offline: Callable[[], None] = lambda: None
        self._server = server
        self._caller = caller
        self._pricing_version = pricing_version
        self._witness = witness
        self._note = note
        self._used = 0
        self._settling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self._note(f"r{self.plan.number} asks {self._server.place.name} for {self.plan.most_tokens} tokens")
        try:
            await self._serve()
        except UsageNotRecorded:
            self.outcome = "not recorded"
        except BillingError as refusal:
            self.outcome = f"refused: {type(refusal).__name__}"
        finally:
            self._note(f"r{self.plan.number}: {self.outcome}")

    async def _serve(self) -> None:
        hold = await self._hold()
        try:
            await self._generate()
            await self._settle(hold, "completed")
        except (EngineFailed, asyncio.CancelledError) as failure:
            await self._close(hold, failure)

    async def _hold(self) -> Hold:
        amount = worst_case(PRICE, prompt_tokens_bound=0, max_tokens=self.plan.most_tokens).nano_usd
        hold = await self._server.ledger.hold(
            self._caller,
            model_id=PRICE.model_id,
            pricing_version=self._pricing_version,
            amount_nano_usd=amount,
            request_id=f"r{self.plan.number}",
            now=self._server.clock.now(),
        )
        self.event_id = hold.event_id
        self._note(f"r{self.plan.number} is {hold.kind}")
        if hold.kind == "held":
            self._witness.running.add(hold.event_id)
        else:
            self._witness.offline[hold.event_id] = (self._server.place.name, hold.workspace_id, amount)
            self.on_offline()
        return hold

    async def _generate(self) -> None:
        plan = self.plan
        if plan.shape == "engine fails early":
            await asyncio.sleep(plan.takes_s / 2)
            raise EngineFailed
        await asyncio.sleep(plan.takes_s)
        self._used = plan.tokens
        if plan.shape == "engine fails late":
            raise EngineFailed

    async def _close(self, hold: Hold, failure: BaseException) -> None:
        left = isinstance(failure, asyncio.CancelledError)
        if self._settling is not None:
            await asyncio.shield(self._settling)
            return
        if left:
            self._used = self._used or self.plan.tokens // 2
        if self._used:
            await self._settle(hold, "disconnected" if left else "failed")
            return
        self._forget(hold)
        self.outcome = "released"
        await self._server.ledger.release(hold, now=self._server.clock.now())

    def _forget(self, hold: Hold) -> None:
        self._witness.running.discard(hold.event_id)
        self._witness.offline.pop(hold.event_id, None)

    async def _settle(self, hold: Hold, outcome: Outcome) -> None:
        # In a task of its own: a client that leaves now ends the request, and not its settlement.
        self._settling = self._server.spawn(self._settle_and_note(hold, outcome))
        await asyncio.shield(self._settling)

    async def _settle_and_note(self, hold: Hold, outcome: Outcome) -> None:
        self._forget(hold)
        charged = cost(PRICE, prompt_tokens=0, completion_tokens=self._used, minimum=outcome != "failed")
        try:
            settlement = await self._server.ledger.settle(
                hold,
                figures=UsageFigures(0, self._used, 0, stream=True),
                cost=charged,
                outcome=outcome,
                now=self._server.clock.now(),
            )
        except UsageNotRecorded:
            self.outcome = "not recorded"
            raise
        self._witness.promised[hold.event_id] = charged.nano_usd
        self.outcome = f"{outcome}, {settlement.status}"
