"""What a reply says that compression saved is what the books say, and `pith reconcile` finds nothing to correct."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from billing.books.books import Books
from billing.books.usage_report import usage
from billing.ledger.spool import Spool
from billing.price import exact_usd, usd
from compression.pipeline.errors import CompressorFailed
from models.errors import EngineFailed
from tests.serve.compressing import Compressing, compressing
from tests.serve.served import at_rest

QUESTION = "What is the price of item 17?"
SIZES = ({"model": "free"}, {"model": "lexical"})


def passages(seed: int) -> str:
    return "\n\n".join(f"Item {i} of list {seed} has a price of {i * 7} dollars." for i in range(60))


def asked(seed: int) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": passages(seed), "compress": True}, {"type": "text", "text": QUESTION}]
    return [{"role": "user", "content": parts}]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path) as found:
        yield await found.renewed()


async def test_whatever_becomes_of_chats_the_books_add_up(service: Compressing, tmp_path: Path) -> None:
    rng, told = random.Random(13), []
    for number in range(40):
        seed, stream = rng.randrange(25), rng.random() < 0.5
        holdout = rng.choice((0, 0, 0.5))
        compression = {**rng.choice(SIZES), "target_ratio": rng.choice((0.3, 0.9)), "holdout": holdout}
        fate = rng.choice(("fine", "fine", "fine", "leaves", "engine breaks", "compressor breaks"))
        service.model.reset()
        service.engine.fails_with, service.engine.fails_after = None, 0
        if fate == "compressor breaks":
            service.model.failures[passages(seed)] = CompressorFailed("it died")
        if fate == "engine breaks":
            service.engine.fails_with = EngineFailed("it died")
            service.engine.fails_after = rng.randrange(3)
        client = service.chat(asked(seed), compression=compression, stream=stream, max_tokens=5)
        running = client.start()
        if fate == "leaves":
            for _ in range(rng.randrange(40)):
                await asyncio.sleep(0)
            client.gone.set()
        await running
        await at_rest()
        if fate in ("fine", "compressor breaks"):
            reply = client.events()[-2] if stream else client.json()
            told.append((f"chat {number}", reply["service"]))
    reconciled = await Books(service.database).reconcile(Spool(tmp_path / "no spool"))
    assert reconciled.is_clean, (reconciled.mispriced, reconciled.differences)
    await service.assert_nothing_is_left_open()

    events = await service.events()
    assert {event["compression"] for event in events} >= {"applied", "failed", "holdout", None}
    assert sum(event["paired_with"] is not None for event in events) >= 4
    assert len({event["outcome"] for event in events}) >= 2
    assert all(sum(one["compression"][name] for _, one in told) > 0 for name in ("saved_usd", "cost_usd"))


async def test_a_reply_and_the_books_say_the_same(service: Compressing) -> None:
    reply = (await service.chat(asked(1), compression={"model": "lexical", "target_ratio": 0.3}).run()).json()
    said = reply["service"]["compression"]
    (line,) = await service.database.read(partial(usage, by=["workspace"], workspace=service.workspace))
    assert said["tokens_saved"] == line.tokens_saved > 0
    assert (said["saved_usd"], said["cost_usd"]) == (
        usd(line.saved_nano_usd),
        usd(line.compression_nano_usd),
    )
    assert said["net_usd"] == pytest.approx(float(exact_usd(line.net_saved_nano_usd)))
    assert line.requests == 2, "the chat and its compression"
