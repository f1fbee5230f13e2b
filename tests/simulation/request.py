"""One request as a server carries it: held before any work, then settled or released, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from billing.caller import Caller
from billing.errors import BillingError, UsageNotRecorded
from billing.price import cost, worst_case
from billing.usage import Hold, Outcome, Saving, UsageFigures, Used
from tests.simulation.accounts import PART_PRICE, PRICE
from tests.simulation.auditor import Witness
from tests.simulation.plan import PartPlan, RequestPlan
from tests.simulation.server import Server

DEARER_NANO_USD = 7


class EngineFailed(Exception):
    """The simulated engine ended in the midst of a request."""


class Request:
    """What `serve/chat/service.py` does around an engine, as far as money is concerned: the compression of its prompt,
    where there is one, is held first and by itself, and settled with the rest in one transaction."""

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
        # By what each is of: "" is the request itself.
        self.event_ids: dict[str, str] = {}
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
            await (self._serve([]) if self.plan.part is None else self._serve_with(self.plan.part))
        except UsageNotRecorded:
            self.outcome = "not recorded"
        except BillingError as refusal:
            self.outcome = f"refused: {type(refusal).__name__}"
        finally:
            self._note(f"r{self.plan.number}: {self.outcome}")

    async def _serve_with(self, part: PartPlan) -> None:
        amount = worst_case(PART_PRICE, prompt_tokens_bound=part.most_tokens, max_tokens=0).nano_usd
        hold = await self._hold(" part", PART_PRICE.model_id, amount)
        charged = cost(PART_PRICE, prompt_tokens=part.tokens, completion_tokens=0, minimum=True)
        used = Used(hold, UsageFigures(part.tokens, 0, 0, stream=False), charged)
        try:
            await asyncio.sleep(part.takes_s)
            await self._serve([used] if part.tokens else [])
        except asyncio.CancelledError:
            self.outcome = "released"
        finally:
            if self._settling is None or not part.tokens:
                await self._release(hold)

    async def _serve(self, parts: Sequence[Used]) -> None:
        amount = worst_case(PRICE, prompt_tokens_bound=0, max_tokens=self.plan.most_tokens).nano_usd
        hold = await self._hold("", PRICE.model_id, amount)
        try:
            await self._generate()
            await self._settle(hold, parts, "completed")
        except (EngineFailed, asyncio.CancelledError) as failure:
            await self._close(hold, parts, failure)

    async def _hold(self, what: str, model_id: str, amount: int) -> Hold:
        hold = await self._server.ledger.hold(
            self._caller,
            model_id=model_id,
            pricing_version=self._pricing_version,
            amount_nano_usd=amount,
            request_id=f"r{self.plan.number}",
            now=self._server.clock.now(),
        )
        self.event_ids[what] = hold.event_id
        self._note(f"r{self.plan.number}{what} is {hold.kind}")
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

    async def _close(self, hold: Hold, parts: Sequence[Used], failure: BaseException) -> None:
        left = isinstance(failure, asyncio.CancelledError)
        if self._settling is not None:
            await asyncio.shield(self._settling)
            return
        if left:
            self._used = self._used or self.plan.tokens // 2
        if self._used:
            await self._settle(hold, parts, "disconnected" if left else "failed")
            return
        self.outcome = "released"
        await self._release(hold)

    async def _release(self, hold: Hold) -> None:
        self._forget(hold)
        await self._server.ledger.release(hold, now=self._server.clock.now())

    def _forget(self, hold: Hold) -> None:
        self._witness.running.discard(hold.event_id)
        self._witness.offline.pop(hold.event_id, None)

    async def _settle(self, hold: Hold, parts: Sequence[Used], outcome: Outcome) -> None:
        charged = cost(PRICE, prompt_tokens=0, completion_tokens=self._used, minimum=outcome != "failed")
        # Some compressions made their chats dearer, which is to be credited once.
        dearer = DEARER_NANO_USD * (self._used % 3) if parts else 0
        saved = sum(part.cost.nano_usd for part in parts) - dearer
        saving = Saving("applied", 0, 0, saved_nano_usd=saved) if parts else None
        mine = Used(hold, UsageFigures(0, self._used, 0, stream=True, saving=saving), charged)
        # In a task of its own: a client that leaves now ends the request, and not its settlement.
        self._settling = self._server.spawn(self._settle_and_note([mine, *parts], outcome))
        await asyncio.shield(self._settling)

    async def _settle_and_note(self, used: Sequence[Used], outcome: Outcome) -> None:
        for one in used:
            self._forget(one.hold)
        self._witness.settle_together([(one.hold.event_id, one.cost.nano_usd) for one in used])
        try:
            settlement, *_ = await self._server.ledger.settle_all(
                used, outcome=outcome, now=self._server.clock.now()
            )
        except UsageNotRecorded:
            self.outcome = "not recorded"
            raise
        for one in used:
            self._witness.promised[one.hold.event_id] = one.cost.nano_usd
        with_part = " with its part" if len(used) > 1 else ""
        self.outcome = f"{outcome}{with_part}, {settlement.status}"
