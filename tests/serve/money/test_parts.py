"""A part of a request, held by itself, such as the compression of its prompt: settled with the whole, or free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from billing.errors import QuotaExceeded, UsageNotRecorded
from billing.price import Cost
from billing.usage import MeteringStatus, Saving
from models.engine import TokenUsage
from serve.http.replies import Client
from serve.money.held_request import AlsoWrite, ChargedPrompt, HeldRequest
from tests.serve.money.test_held_request import (
    BOUND,
    TOKEN_NANO_USD,
    WORDS,
    Broken,
    Counted,
    Embeddings,
    Interrupted,
    Work,
    breaks,
    done,
    embedding,
)

# The part's model costs twice as much a token.
PART_NANO_USD = 2 * TOKEN_NANO_USD
PART_WORDS = 3


@dataclass
class PartToPay(ChargedPrompt):
    """A fake: its part is to be paid if it used anything. `ends` says of each settlement whether it was."""

    part: HeldRequest
    ends: list[bool] = field(default_factory=list)

    def saving_of(self, usage: TokenUsage, charged: Cost, minimum: bool) -> Saving:
        return Saving("applied", 50, 0, 1)

    def begin_settlement(self) -> HeldRequest | None:
        return self.part if self.part.usage.prompt_tokens else None

    def end_settlement(self, *, is_paid: bool) -> None:
        self.ends.append(is_paid)

    def observe(self, saving: Saving, usage: TokenUsage, status: MeteringStatus) -> None: ...


@dataclass
class Whole:
    """A request with a part, on a real ledger."""

    kind: Embeddings
    part: Counted = field(default_factory=Counted)
    prompts: list[PartToPay] = field(default_factory=list)

    async def run(
        self,
        work: Work = done,
        *,
        part_words: int = PART_WORDS,
        client: Client | None = None,
        also_write: AlsoWrite | None = None,
    ) -> HeldRequest:
        kind = self.kind
        terms = kind.terms()
        its = kind.terms(model_id="other", counts_against_limits=False)
        async with kind.admissions.admit(kind.caller, "whole", [terms], route="embeddings") as admitted:
            async with admitted.hold_part(its, self.part, client=client) as part:
                if part_words:
                    part.use(TokenUsage(prompt_tokens=part_words))
                self.prompts.append(PartToPay(part))
                prompt = self.prompts[-1]
                async with admitted.hold(terms, kind.observed, client=client, prompt=prompt) as held:
                    held.use(TokenUsage(prompt_tokens=WORDS))
                    await work(held)
                    await held.settle("completed", also_write=also_write)
            return part

    async def costs(self) -> list[int]:
        return sorted(cost for _, _, _, cost, _ in await self.kind.events())


@pytest.fixture
async def whole(tmp_path: Path) -> AsyncIterator[Whole]:
    async with embedding(tmp_path) as kind:
        yield Whole(kind)


async def test_a_part_is_settled_with_its_request(whole: Whole) -> None:
    async def look(held: HeldRequest) -> None:
        workspace = await whole.kind.accounts.find_workspace(whole.kind.caller.workspace_id)
        assert workspace.held_nano_usd == BOUND * (TOKEN_NANO_USD + PART_NANO_USD)

    part = await whole.run(look)
    mine, its = WORDS * TOKEN_NANO_USD, PART_WORDS * PART_NANO_USD
    assert await whole.costs() == sorted([mine, its])
    assert await whole.kind.money() == (mine + its, 0)
    assert part.receipt is not None and part.receipt.cost.nano_usd == its
    assert whole.kind.observed.told == [(WORDS, mine, "persisted"), "end"]
    assert whole.part.told == [(PART_WORDS, its, "persisted"), "end"]


async def test_a_part_that_used_nothing_has_no_event(whole: Whole) -> None:
    await whole.run(part_words=0)
    assert await whole.costs() == [WORDS * TOKEN_NANO_USD]
    assert await whole.kind.money() == (WORDS * TOKEN_NANO_USD, 0)
    assert whole.part.told == ["end"]


async def test_a_request_that_fails_before_anything_is_delivered_costs_nothing_and_nor_does_its_part(
    whole: Whole,
) -> None:
    with pytest.raises(Broken):
        await whole.run(breaks)
    assert await whole.kind.money() == (0, 0)
    assert await whole.costs() == []
    assert whole.part.told == ["Broken", "end"]


async def test_what_refuses_to_be_written_with_a_settlement_leaves_nothing_held(whole: Whole) -> None:
    def refuses(receipt: object) -> Any:
        raise Broken

    with pytest.raises(Broken):
        await whole.run(also_write=refuses)
    assert await whole.kind.money() == (0, 0)
    assert await whole.costs() == []


async def test_who_leaves_pays_for_both_once_the_model_has_the_prompt(whole: Whole) -> None:
    client = Client()
    with pytest.raises(asyncio.CancelledError):
        await whole.run(Interrupted(client=client), client=client)
    due = WORDS * TOKEN_NANO_USD + PART_WORDS * PART_NANO_USD
    assert await whole.kind.money() == (due, 0)
    assert len(await whole.costs()) == 2


async def test_who_leaves_before_pays_for_neither(whole: Whole) -> None:
    """A compression by itself is worth nothing to anybody."""
    client = Client()
    with pytest.raises(asyncio.CancelledError):
        await whole.run(Interrupted(client=client, tokens=0), client=client)
    assert await whole.kind.money() == (0, 0)
    assert await whole.costs() == []


async def test_who_leaves_while_the_part_is_worked_on_pays_nothing(whole: Whole) -> None:
    kind, client = whole.kind, Client()
    its = kind.terms(model_id="other")
    with pytest.raises(asyncio.CancelledError):
        async with (
            kind.admissions.admit(kind.caller, "whole", [its], route="embeddings") as admitted,
            admitted.hold_part(its, whole.part, client=client) as part,
        ):
            await Interrupted(client=client)(part)
    assert await kind.money() == (0, 0)


async def test_a_request_that_cannot_be_held_gives_its_part_back(whole: Whole) -> None:
    # Enough for the part, and not for the rest.
    await whole.kind.become(spend_limit_nano_usd=BOUND * PART_NANO_USD + WORDS * TOKEN_NANO_USD - 1)
    with pytest.raises(QuotaExceeded):
        await whole.run()
    assert await whole.kind.money() == (0, 0)


async def test_both_are_lost_together_where_nothing_takes_them(whole: Whole) -> None:
    async def everything_breaks(held: HeldRequest) -> None:
        whole.kind.database.is_down = True
        whole.kind.spool._database = whole.kind.database

    with pytest.raises(UsageNotRecorded):
        await whole.run(everything_breaks)
    assert whole.kind.observed.told == ["lost", "UsageNotRecorded", "end"]
    assert whole.part.told == ["lost", "UsageNotRecorded", "end"]


async def test_both_wait_in_the_spool_while_the_ledger_is_away(whole: Whole) -> None:
    async def goes(held: HeldRequest) -> None:
        whole.kind.database.is_down = True

    part = await whole.run(goes)
    whole.kind.database.is_down = False
    assert part.receipt is not None and part.receipt.settlement.status == "degraded"
    assert (await whole.kind.ledger.replay_spool()).posted == 2
    due = WORDS * TOKEN_NANO_USD + PART_WORDS * PART_NANO_USD
    assert await whole.kind.money() == (due, 0)


async def test_a_part_that_waits_in_the_spool_keeps_its_hold(whole: Whole) -> None:
    """The ledger is away while they are settled, and back before the part is left: it must not be given back then."""

    async def settled_in_an_outage(held: HeldRequest) -> None:
        whole.kind.database.is_down = True
        await held.settle("completed")
        whole.kind.database.is_down = False

    await whole.run(settled_in_an_outage)
    assert await whole.kind.money() == (0, BOUND * (TOKEN_NANO_USD + PART_NANO_USD))
    assert (await whole.kind.ledger.replay_spool()).posted == 2
    assert await whole.kind.money() == (WORDS * TOKEN_NANO_USD + PART_WORDS * PART_NANO_USD, 0)


async def test_settling_twice_is_settling_both_once(whole: Whole) -> None:
    async def settles(held: HeldRequest) -> None:
        await asyncio.gather(held.settle("completed"), held.settle("completed"))

    await whole.run(settles)
    assert len(await whole.costs()) == 2


async def test_a_part_does_not_count_against_the_projects_limit(whole: Whole) -> None:
    kinds: list[Any] = []

    async def look(held: HeldRequest) -> None:
        kinds.append(held.limited_tokens)

    part = await whole.run(look)
    assert kinds == [WORDS] and part.limited_tokens == 0
