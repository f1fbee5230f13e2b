"""Compression inside chat that has a price: charged once, with the chat or not at all, and never more than it saves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text

from billing.caller import ProjectLimits
from billing.price import ModelPrice
from compression.pipeline.errors import CompressorFailed
from models.engine import EngineRequest
from models.errors import EngineFailed
from tests.serve.chat.test_compression import PASSAGES, QUESTION, agent, sent
from tests.serve.compressing import INPUT_NANO_USD, Compressing
from tests.serve.served import eventually

PRICED = {"target_ratio": 0.3, "model": "lexical"}
CHAT_NANO_USD = 100_000
# Longer than a reply waits for a count.
COUNT_S = 60.0


pytestmark = pytest.mark.asyncio(loop_scope="module")


def by_model(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {event["model_id"]: event for event in events}
    assert len(found) == len(events), "a model was charged twice"
    return found


async def test_it_is_an_event_of_its_own_beside_the_chat_s(service: Compressing) -> None:
    said = (await service.chat(agent(), compression=PRICED).run()).json()["service"]
    events = by_model(await service.events())
    receipt = said["compression"]["blocks"][0]["receipt"]
    assert events["lexical"]["prompt_tokens"] == receipt["original_tokens"]
    assert events["lexical"]["cost_nano_usd"] == receipt["original_tokens"] * INPUT_NANO_USD
    assert said["compression"]["cost_usd"] == pytest.approx(events["lexical"]["cost_nano_usd"] / 1e9)
    assert said["compression"]["net_usd"] == pytest.approx(
        said["compression"]["saved_usd"] - said["compression"]["cost_usd"]
    )
    # The chat's own price keeps the contract's formula over what the engine saw.
    assert said["billing"]["request_cost_usd"] == pytest.approx(events["alpha"]["cost_nano_usd"] / 1e9)
    assert events["alpha"]["compression_nano_usd"] == events["lexical"]["cost_nano_usd"]


async def test_a_block_that_was_paid_for_is_free_in_later_turns(service: Compressing) -> None:
    first = (await service.chat(agent(), compression=PRICED).run()).json()["service"]["compression"]
    text_sent = sent(service)[2]["content"]
    grown = [
        *agent(),
        {"role": "assistant", "content": "119."},
        {"role": "user", "content": "And of item 3?"},
    ]
    said = (await service.chat(grown, compression=PRICED).run()).json()["service"]["compression"]
    assert (said["status"], said["cost_usd"], said["blocks"][0]["cached"]) == ("applied", 0, True)
    assert not first["blocks"][0]["cached"] and first["blocks"][0]["id"] == said["blocks"][0]["id"]
    assert len(service.model.started) == 1 and sent(service)[2]["content"] == text_sent
    assert sorted(event["model_id"] for event in await service.events()) == ["alpha", "alpha", "lexical"]


async def test_a_block_that_would_not_pay_is_sent_whole_and_costs_nothing(service: Compressing) -> None:
    reply = (await service.chat(agent(), compression={**PRICED, "target_ratio": 0.9}).run()).json()
    said = reply["service"]["compression"]
    assert (said["status"], said["cost_usd"], said["blocks"][0]["reason"]) == ("skipped", 0, "not_worth")
    assert sent(service)[2]["content"] == PASSAGES
    assert [event["model_id"] for event in await service.events()] == ["alpha"]


async def test_a_chat_goes_out_whole_if_its_compressor_fails_and_that_costs_nothing(
    service: Compressing,
) -> None:
    service.model.failures[PASSAGES] = CompressorFailed("it died")
    reply = await service.chat(agent(), compression=PRICED).run()
    said = reply.json()["service"]["compression"]
    assert (said["status"], said["tokens_saved"], said["blocks"][0]["reason"]) == ("failed", 0, "failed")
    assert (reply.status, reply.reply_headers["x-service-compression"]) == (200, "failed")
    assert sent(service)[2]["content"] == PASSAGES
    assert [event["model_id"] for event in await service.events()] == ["alpha"]


@pytest.mark.parametrize(
    ("compression", "failure", "holds"),
    [
        (PRICED, None, 2),
        (PRICED, CompressorFailed("it died"), 1),
        ({**PRICED, "target_ratio": 0.9}, None, 1),
    ],
    ids=["charged", "failed", "not worth it"],
)
async def test_what_will_not_be_charged_is_not_held_while_the_engine_works(
    service: Compressing, compression: dict[str, Any], failure: Exception | None, holds: int
) -> None:
    if failure is not None:
        service.model.failures[PASSAGES] = failure
    service.engine.token_s = 3600
    try:
        client = service.chat(agent(), compression=compression, stream=True)
        running = client.start()
        await eventually(lambda: client.body)
        counting = text("SELECT count(*) FROM holds")
        assert await service.database.read(lambda c: c.execute(counting).scalar_one()) == holds
        client.gone.set()
        await running
    finally:
        service.engine.token_s = 0


@pytest.mark.thorough
async def test_a_count_that_comes_after_the_books_were_written_is_not_told(service: Compressing) -> None:
    """What the reply says was saved is what the books say."""

    async def count_late(request: EngineRequest, *, beyond_context: bool = False) -> int:
        if request.messages[0]["content"] != QUESTION:
            # A block by itself.
            return await counts(request, beyond_context=beyond_context)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(settling.wait()), COUNT_S)
        return 10**6

    settling, begin = asyncio.Event(), service.ledger.settle_all

    async def settle_all(*args: Any, **kwargs: Any) -> Any:
        settling.set()
        await asyncio.sleep(0.05)
        return await begin(*args, **kwargs)

    counts = service.engine.count_tokens
    service.engine.count_tokens = count_late  # type: ignore[method-assign]
    service.ledger.settle_all = settle_all  # type: ignore[method-assign]
    try:
        said = (await service.chat(agent(), compression=PRICED).run()).json()["service"]["compression"]
    finally:
        service.engine.count_tokens = counts  # type: ignore[method-assign]
        service.ledger.settle_all = begin  # type: ignore[method-assign]
    assert (said["original_tokens"], said["saved_usd"]) == (None, 0)
    assert by_model(await service.events())["alpha"]["saved_nano_usd"] == 0


async def test_a_chat_that_fails_after_it_began_is_charged_with_its_compression(service: Compressing) -> None:
    service.engine.fails_with, service.engine.fails_after = EngineFailed("it died"), 3
    try:
        await service.chat(agent(), compression=PRICED, stream=True).run()
    finally:
        service.engine.fails_with, service.engine.fails_after = None, 0
    events = by_model(await service.events())
    assert {model: event["outcome"] for model, event in events.items()} == {
        "alpha": "failed",
        "lexical": "failed",
    }


async def test_who_leaves_before_the_engine_works_owes_nothing(service: Compressing) -> None:
    service.model.gates[PASSAGES] = asyncio.Event()
    client = service.chat(agent(), compression=PRICED)
    running = client.start()
    await eventually(lambda: service.model.started)
    client.gone.set()
    await running
    assert service.model.cancelled == [PASSAGES] and service.engine.requests == []
    assert await service.events() == []


async def test_who_leaves_while_the_engine_works_owes_both(service: Compressing) -> None:
    service.engine.token_s = 3600
    try:
        client = service.chat(agent(), compression=PRICED, stream=True)
        running = client.start()
        await eventually(lambda: client.body)
        client.gone.set()
        await running
    finally:
        service.engine.token_s = 0
    events = by_model(await service.events())
    assert {event["outcome"] for event in events.values()} == {"disconnected"}
    assert set(events) == {"alpha", "lexical"}


async def test_what_was_compressed_for_nobody_is_charged_to_who_uses_it(service: Compressing) -> None:
    service.engine.fails_with = EngineFailed("it died")
    try:
        await service.chat(agent(), compression=PRICED).run()
    finally:
        service.engine.fails_with = None
    assert await service.events() == []
    said = (await service.chat(agent(), compression=PRICED).run()).json()["service"]["compression"]
    assert len(service.model.started) == 1
    assert said["cost_usd"] > 0
    assert "lexical" in by_model(await service.events())


async def test_money_that_does_not_suffice_is_a_402_and_nothing_is_done(service: Compressing) -> None:
    await service.new_key(spend_limit_nano_usd=1000)
    reply = await service.chat(agent(), compression=PRICED).run()
    assert reply.status == 402
    assert service.model.started == []
    assert await service.events() == []


async def test_the_limits_count_what_the_engine_saw_and_not_the_compression_too(service: Compressing) -> None:
    await service.new_key(limits=ProjectLimits(tokens_per_minute=10_000))
    reply = await service.chat(agent(), compression=PRICED, max_tokens=5).run()
    used = reply.json()["usage"]["total_tokens"]
    again = await service.chat([{"role": "user", "content": "hi"}], max_tokens=1, compression=False).run()
    left = int(again.reply_headers["x-ratelimit-remaining-tokens"])
    assert 10_000 - left <= used + 50


async def test_a_receipt_above_its_hold_is_not_believed(service: Compressing) -> None:
    service.model.counts_more = 10**6
    said = (await service.chat(agent(), compression=PRICED).run()).json()["service"]["compression"]
    assert (said["status"], said["cost_usd"]) == ("failed", 0)
    assert sent(service)[2]["content"] == PASSAGES


async def test_a_block_that_does_not_pay_is_held_for_once(service: Compressing) -> None:
    asked_for = {**PRICED, "target_ratio": 0.9}
    await service.chat(agent(), compression=asked_for).run()
    held: list[str] = []
    hold = service.ledger.hold

    async def watched(*args: Any, **fields: Any) -> Any:
        held.append(fields["model_id"])
        return await hold(*args, **fields)

    service.ledger.hold = watched  # type: ignore[method-assign]
    try:
        await service.chat(agent(), compression=asked_for).run()
    finally:
        service.ledger.hold = hold  # type: ignore[method-assign]
    assert held == ["alpha"]


@pytest.mark.parametrize("limit", [35, 40, 65, 70])
async def test_asking_for_compression_makes_no_chat_a_402(service: Compressing, limit: int) -> None:
    statuses = []
    for compression in (False, PRICED):
        await service.new_key(spend_limit_nano_usd=limit * 10**6)
        service.forget()
        reply = await service.chat(agent(), compression=compression, max_tokens=6).run()
        statuses.append(reply.status)
    assert statuses == [200 if limit >= 69.6 else 402, 200 if limit >= 39 else 402]


async def test_compression_that_cannot_be_paid_for_is_left_out_of_a_chat_that_can(
    service: Compressing,
) -> None:
    """The hold of a compression is so dear that there is no room for it, whatever it would save."""
    await service.reprice(ModelPrice("chat", 100_000_000, 400_000_000, 0), 99_000_000)
    try:
        await service.new_key(spend_limit_nano_usd=70_000_000)
        reply = await service.chat(agent(), compression=PRICED, max_tokens=6).run()
        refused = {**PRICED, "on_failure": "refuse"}
        other = await service.chat(agent(), compression=refused, max_tokens=6).run()
    finally:
        await service.reprice(ModelPrice("chat", 100_000_000, 400_000_000, 0), INPUT_NANO_USD * 1000)
    assert (reply.status, reply.reply_headers["x-service-compression"]) == (200, "failed")
    assert reply.json()["service"]["compression"]["blocks"][0]["reason"] == "quota_exceeded"
    assert other.status == 402


async def test_a_chat_that_is_held_gives_its_compression_s_hold_back(service: Compressing) -> None:
    """Near the limit no more is held for a compression than it costs."""
    await service.new_key(spend_limit_nano_usd=70_000_000)
    service.engine.token_s = 3600
    try:
        client = service.chat(agent(), compression=PRICED, stream=True, max_tokens=6)
        running = client.start()
        await eventually(lambda: client.body)
        held = text("SELECT amount_nano_usd FROM holds ORDER BY 1")
        amounts = await service.database.read(lambda c: c.execute(held).scalars().all())
        client.gone.set()
        await running
    finally:
        service.engine.token_s = 0
    (_, compression) = sorted(event["model_id"] for event in await service.events())
    assert compression == "lexical"
    assert min(amounts) == by_model(await service.events())["lexical"]["cost_nano_usd"]


async def test_a_block_that_saves_less_than_it_costs_in_the_chat_s_tokens_is_sent_whole(
    service: Compressing,
) -> None:
    """The receipt counts 780 tokens, of which it leaves 234; the engine counts 672 and 210."""
    await service.reprice(ModelPrice("chat", 100_000_000, 400_000_000, 0), 65_000_000)
    try:
        said = (await service.chat(agent(), compression=PRICED, max_tokens=6).run()).json()["service"]
    finally:
        await service.reprice(ModelPrice("chat", 100_000_000, 400_000_000, 0), INPUT_NANO_USD * 1000)
    assert said["billing"]["request_cost_usd"] == pytest.approx(0.0696)
    assert (said["compression"]["net_usd"], said["compression"]["blocks"][0]["reason"]) == (0, "not_worth")


async def test_nothing_is_charged_where_the_count_of_the_prompt_shows_that_it_did_not_pay(
    service: Compressing,
) -> None:
    """The engine counts a block by itself otherwise than in its place."""
    counts = service.engine.count_tokens

    async def count(request: EngineRequest, *, beyond_context: bool = False) -> int:
        counted = await counts(request, beyond_context=beyond_context)
        return counted if request.messages[0]["content"] == QUESTION else 10 * counted

    service.engine.count_tokens = count  # type: ignore[method-assign]
    await service.reprice(ModelPrice("chat", 100_000_000, 400_000_000, 0), 65_000_000)
    try:
        said = (await service.chat(agent(), compression=PRICED, max_tokens=6).run()).json()["service"]
    finally:
        service.engine.count_tokens = counts  # type: ignore[method-assign]
        await service.reprice(ModelPrice("chat", 100_000_000, 400_000_000, 0), INPUT_NANO_USD * 1000)
    assert (said["compression"]["status"], said["compression"]["cost_usd"]) == ("applied", 0)
    assert said["compression"]["saved_usd"] > 0
    assert [event["model_id"] for event in await service.events()] == ["alpha"]


async def test_a_block_that_the_engine_cannot_count_is_sent_whole(service: Compressing) -> None:
    counts = service.engine.count_tokens

    async def fails(request: EngineRequest, *, beyond_context: bool = False) -> int:
        raise EngineFailed("it died")

    service.engine.count_tokens = fails  # type: ignore[method-assign]
    try:
        reply = await service.chat(agent(), compression=PRICED, max_tokens=6).run()
    finally:
        service.engine.count_tokens = counts  # type: ignore[method-assign]
    assert reply.status == 200
    assert reply.json()["service"]["compression"]["blocks"][0]["reason"] == "failed"
    assert sent(service)[2]["content"] == PASSAGES


async def test_no_replica_is_started_to_count_for_who_cannot_pay(service: Compressing) -> None:
    await service.new_key(spend_limit_nano_usd=1000)
    service.engine.is_ready = False
    service.engine.counted.clear()
    try:
        reply = await service.chat(agent(), compression={**PRICED, "model": "free"}, max_tokens=6).run()
    finally:
        service.engine.is_ready = True
    assert reply.status == 402
    assert service.engine.counted == []
