"""A compressor that dies, hangs or answers nonsense: its block goes out whole, and no chat is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from compression.pipeline.compression_model import CompressionResult, Receipt
from compression.pipeline.errors import (
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
)
from tests.serve.chat.test_compression import PASSAGES, agent, sent
from tests.serve.chat.test_priced_compression import PRICED, by_model
from tests.serve.compressing import Compressing, compressing

FAILURES = [
    CompressorFailed("the process that worked on this died"),
    CompressorOverloaded("1000 compressions are already waiting"),
    CompressorUnavailable("no answer"),
    CompressionTimedOut("not done in time"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def module_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Compressing]:
    # Of its tokenizer nothing is proven: it counts before anything is held.
    async with compressing(tmp_path_factory.mktemp("broken"), tokens_per_byte=None) as service:
        yield service


pytestmark = pytest.mark.asyncio(loop_scope="module")


def receipt(original: Any, output: Any) -> Receipt:
    return Receipt(original, output, 0.3, 1.0, "words", ())


async def assert_sent_whole(service: Compressing, reason: str = "failed") -> None:
    reply = await service.chat(agent(), compression=PRICED).run()
    assert reply.status == 200, reply.body
    said = reply.json()["service"]["compression"]
    assert (said["status"], said["cost_usd"], said["blocks"][0]["reason"]) == ("failed", 0, reason)
    assert sent(service)[2]["content"] == PASSAGES
    assert set(by_model(await service.events())) == {"alpha"}


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_a_compressor_that_cannot_count_does_not_lose_the_chat(
    service: Compressing, failure: Exception
) -> None:
    service.model.count_failure = failure
    await assert_sent_whole(service, "timed_out" if isinstance(failure, CompressionTimedOut) else "failed")


async def test_a_compressor_that_never_counts_does_not_keep_the_chat_for_long(tmp_path: Path) -> None:
    async with compressing(tmp_path, tokens_per_byte=None, chat_deadline_s=0.2) as service:
        service.model.counts_never = True
        await assert_sent_whole(service, "timed_out")


async def test_it_is_a_503_where_the_request_refuses_to_go_out_whole(service: Compressing) -> None:
    service.model.count_failure = CompressorFailed("it died")
    reply = await service.chat(agent(), compression={**PRICED, "on_failure": "refuse"}).run()
    assert reply.status == 503
    assert await service.events() == []


@pytest.mark.parametrize("model", ["lexical", "free"])
@pytest.mark.parametrize(
    "garbage",
    [
        SimpleNamespace(),
        "a text",
        CompressionResult("", receipt(-300, 10), ()),
        CompressionResult("", receipt(300, -10), ()),
        CompressionResult("", receipt(10**9, 10), ()),
        CompressionResult("", receipt("300", None), ()),
        CompressionResult(None, receipt(300, 10), ()),  # type: ignore[arg-type]
    ],
    ids=["nothing", "no result", "negative", "negative output", "absurd", "no numbers", "no text"],
)
async def test_what_no_compressor_can_answer_is_not_believed(
    service: Compressing, garbage: Any, model: str
) -> None:
    service.model.garbage = garbage
    reply = await service.chat(agent(), compression={**PRICED, "model": model}).run()
    assert reply.status == 200, reply.body
    said = reply.json()["service"]["compression"]
    assert (said["status"], said["cost_usd"]) == ("failed", 0)
    assert sent(service)[2]["content"] == PASSAGES
    assert set(by_model(await service.events())) == {"alpha"}
    # Nor is it kept for the next turn.
    service.model.reset()
    said = (await service.chat(agent(), compression={**PRICED, "model": model}).run()).json()["service"]
    assert said["compression"]["status"] == "applied"


async def test_a_receipt_of_more_than_was_counted_for_the_hold_is_not_charged(service: Compressing) -> None:
    # Nothing is proven of its tokenizer, so what it counted is held.
    service.model.counts_more = 1
    await assert_sent_whole(service)
