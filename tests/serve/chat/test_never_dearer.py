"""No chat ends dearer for its compression than the engine's counts say that it would have been: it is credited.

`pytest -s tests/serve/chat/test_never_dearer.py` prints how many were.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from sqlalchemy import select, text

from billing.price import ModelPrice, cost
from billing.store.schema import usage_events
from billing.transparency import notes
from billing.transparency.leaves import digest, record
from models.errors import EngineFailed
from tests.serve.chat.test_compression import CALL, QUESTION, agent
from tests.serve.chat.test_compression_money import COUNTERS, TOKENIZERS
from tests.serve.compressing import Compressing, local_model

pytestmark = pytest.mark.asyncio(loop_scope="module")
PRICED = {"target_ratio": 0.3, "model": "lexical", "min_tokens": 16}
REQUESTS = 40
PRICE = ModelPrice("alpha", 100_000_000, 400_000_000, 0)


def some_price(chance: random.Random) -> ModelPrice:
    most = chance.choice([chance.randint(1, 1000), chance.randint(1000, 200_000_000)])
    cached = chance.choice([None, None, 0, most // 10, most // 2])
    output = chance.choice([0, most, 10 * most])
    return ModelPrice("alpha", most, output, chance.choice([0, 0, most // 3, most, 100 * most]), cached)


def some_turn(chance: random.Random, number: int) -> list[dict[str, Any]]:
    lines = chance.randint(2, 40)
    result = "\n\n".join(f"Item {number}.{at} has a price of {at * 7} dollars." for at in range(lines))
    call = {**CALL, "id": f"c{number}"}
    return [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


async def whole_costs(service: Compressing, price: ModelPrice) -> dict[str, tuple[int, int]]:
    """By chat, what it cost in the end, and what it would have cost whole."""
    credited = text("SELECT event_id, sum(nano_usd) FROM adjustments GROUP BY event_id")
    rows = await service.database.read(lambda c: c.execute(credited).all())
    back = {event_id: int(nano_usd) for event_id, nano_usd in rows}
    events = await service.events()
    compressions = {
        event["paired_with"]: event["cost_nano_usd"] for event in events if not event["compression"]
    }
    found = {}
    for event in (one for one in events if one["compression"]):
        whole = cost(
            price,
            prompt_tokens=event["original_tokens"],
            completion_tokens=event["completion_tokens"],
            cached_tokens=event["original_cached_tokens"],
            minimum=event["outcome"] != "failed",
        )
        paid = event["cost_nano_usd"] + compressions.get(event["event_id"], 0)
        found[event["event_id"]] = (paid + back.get(event["event_id"], 0), whole.nano_usd)
    return found


@pytest.mark.parametrize("lists", [10, pytest.param(50, marks=pytest.mark.long)])
async def test_none_of_forty_chats_of_each_price_list_ends_dearer(service: Compressing, lists: int) -> None:
    chance, asked, dearer, credited = random.Random(27), 0, 0, 0
    for _ in range(lists):
        price = some_price(chance)
        await service.renewed()
        await service.reprice(
            price, int(price.input_micro_usd_per_mtok * chance.choice([0, 0.1, 0.5, 0.9, 3]))
        )
        counter = chance.choice(COUNTERS)
        service.model.counter, service.model.inner = counter, local_model(counter)
        service.engine.tokens_of = TOKENIZERS[chance.choice(sorted(TOKENIZERS))]
        messages: list[dict[str, Any]] = []
        for number in range(REQUESTS):
            messages = [*(messages if len(messages) < 9 else []), *some_turn(chance, number)]
            # An engine may count more for what it was sent than a count of what came.
            service.engine.prompt_tokens = chance.choice([None, None, None, 900, 1500])
            reply = await service.chat(messages, compression=PRICED, max_tokens=6).run()
            assert reply.status == 200, reply.body
            report = reply.json()["service"]["compression"]
            asked, credited = asked + 1, credited + bool(report["credited_usd"])
            assert bool(report["credited_usd"]) == (report["net_usd"] < 0)
        found = await whole_costs(service, price)
        assert len(found) == REQUESTS
        dearer += sum(paid > whole for paid, whole in found.values())
    service.engine.prompt_tokens = None
    print(f"{asked} chats over {lists} price lists: {credited} credited, {dearer} dearer")
    assert (asked, dearer) == (lists * REQUESTS, 0) and credited > 0


async def test_a_chat_whose_whole_prompt_was_not_counted_pays_for_no_compression(
    service: Compressing,
) -> None:
    """The next one that has the same text pays."""
    await service.reprice(PRICE, 1_000_000)
    count_tokens = service.engine.count_tokens

    async def fails(request: Any, *, beyond_context: bool = False) -> int:
        if request.max_tokens != 1:
            raise EngineFailed("no count of the whole prompt")
        return await count_tokens(request, beyond_context=beyond_context)

    service.engine.count_tokens = fails  # type: ignore[method-assign]
    try:
        said = (await service.chat(agent(), compression=PRICED).run()).json()["service"]["compression"]
    finally:
        service.engine.count_tokens = count_tokens  # type: ignore[method-assign]
    assert (said["original_tokens"], said["cost_usd"], said["credited_usd"]) == (None, 0, 0)
    again = (await service.chat(agent(), compression=PRICED).run()).json()["service"]["compression"]
    assert again["cost_usd"] > 0


async def test_both_charges_of_a_compressed_chat_are_promised(service: Compressing) -> None:
    await service.reprice(PRICE, 1_000_000)
    await service.accounts.change_project(f"{service.workspace}/project", {"proof": True})
    await service.new_project_key()
    said = (await service.chat(agent(), compression=PRICED).run()).json()["service"]
    chat, compression = said["metering"]["proof"], said["compression"]["proof"]
    records = [json.loads(proof["record"]) for proof in (chat, compression)]
    assert records[0]["paired_with"] == records[1]["event_id"]
    assert {event["event_id"] for event in await service.events()} == {one["event_id"] for one in records}
    signer = notes.signer(b"p" * 32)
    assert compression["note"] == signer.receipt(digest(compression["record"]))


async def test_a_compression_by_itself_is_promised_beside_its_receipt(service: Compressing) -> None:
    assert "service" not in (await service.compress().run()).json()
    await service.accounts.change_project(f"{service.workspace}/project", {"proof": True})
    await service.new_project_key()
    single = (await service.compress().run()).json()["service"]
    assert single["metering"]["status"] == "persisted"
    talk = (await service.post("/v1/compress", {"messages": agent()}).run()).json()
    assert talk["blocks"] and talk["service"]["metering"]["status"] == "persisted", talk
    many = (await service.batch([{"query": "price", "input": "One. Two. Three."}]).run()).json()["results"]
    proofs = [each["metering"]["proof"] for each in (single, talk["service"], many[0]["service"])]
    for proof in proofs:
        assert proof["note"] == notes.signer(b"p" * 32).receipt(digest(proof["record"]))
    await service.events()
    rows = await service.database.read(lambda c: c.execute(select(usage_events)).mappings().all())
    assert len(proofs) == len({proof["record"] for proof in proofs} & {record(row) for row in rows})
