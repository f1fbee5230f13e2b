"""What is counted of compressions, through the routes with a real compressor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from compression.pipeline.errors import (
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
)
from tests.serve.compressing import CONTEXT, INPUT_NANO_USD, QUERY, SENTENCES, Compressing, compressing
from tests.serve.metrics.readings import Readings, grown, of_registry
from tests.serve.served import Client, at_rest, eventually

MODEL = '{model="lexical"}'


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path, per_address=2) as service:
        yield service


async def changed(found: Compressing, *clients: Client) -> dict[str, Readings]:
    before = of_registry(found.registry)
    for client in clients:
        await client.run()
    await at_rest()
    after = of_registry(found.registry)
    prefixes = ("pith_compress", "pith_metering", "pith_charged", "pith_holds", "pith_rate")
    return {prefix: grown(before, after, prefix) for prefix in prefixes}


def ended(outcome: str, times: int = 1) -> Readings:
    return {f'pith_compress_requests_total{{model="lexical",outcome="{outcome}"}}': times}


def receipts(*found: dict[str, Any]) -> Readings:
    """What the receipts in replies add up to."""
    flags: Readings = {}
    for receipt in found:
        for flag in receipt["risk_flags"]:
            name = f'pith_compress_risk_flags_total{{code="{flag["code"]}",model="lexical"}}'
            flags[name] = flags.get(name, 0) + 1
    return {
        f"pith_compress_original_tokens_total{MODEL}": sum(each["original_tokens"] for each in found),
        f"pith_compress_output_tokens_total{MODEL}": sum(each["output_tokens"] for each in found),
        f"pith_compress_ratio_count{MODEL}": len(found),
        f"pith_compress_ratio_sum{MODEL}": round(sum(each["compression_ratio"] for each in found), 12),
        f"pith_compress_request_duration_seconds_count{MODEL}": len(found),
        **flags,
    }


async def test_a_compression_is_counted_with_its_receipt_and_its_charge(found: Compressing) -> None:
    client = found.compress(compression={"target_ratio": 0.1}, query="Who painted 77 ships?")
    change = await changed(found, client)
    receipt = client.json()["receipt"]
    assert receipt["risk_flags"], "this test needs a receipt with a flag"
    assert change["pith_compress"] == {**ended("completed"), **receipts(receipt)}
    assert change["pith_metering"] == {'pith_metering_total{model="lexical",status="persisted"}': 1}
    charged = receipt["original_tokens"] * INPUT_NANO_USD / 10**9
    assert change["pith_charged"] == {f"pith_charged_usd_total{MODEL}": pytest.approx(charged)}


async def test_every_item_of_a_batch_is_counted_by_itself(found: Compressing) -> None:
    found.model.failures[SENTENCES[1]] = CompressorFailed("died")
    client = found.batch([{"query": QUERY, "input": text} for text in (CONTEXT, SENTENCES[1], SENTENCES[2])])
    change = await changed(found, client)
    kept = [result["receipt"] for result in client.json()["results"] if result["status"] == "ok"]
    assert len(kept) == 2
    assert change["pith_compress"] == {**ended("completed", 2), **ended("failed"), **receipts(*kept)}
    assert change["pith_metering"] == {'pith_metering_total{model="lexical",status="persisted"}': 2}


async def test_the_demo_is_counted_and_charged_to_nobody(found: Compressing) -> None:
    clients = [found.demo() for _ in range(3)]
    change = await changed(found, *clients)
    kept = [client.json()["receipt"] for client in clients[:2]]
    assert change["pith_compress"] == {**ended("completed", 2), **receipts(*kept)}
    assert change["pith_metering"] == change["pith_charged"] == {}
    assert change["pith_rate"] == {'pith_rate_limit_refusals_total{limit="requests",scope="demo"}': 1}


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (RefusedRequest("input", "is no text"), "refused"),
        (CompressorOverloaded("full"), "overloaded"),
        (CompressorUnavailable("not up"), "unavailable"),
        (CompressorFailed("died"), "failed"),
        (RuntimeError("a bug"), "failed"),
    ],
)
async def test_a_compression_that_fails_is_counted_and_nothing_else(
    found: Compressing, failure: Exception, outcome: str
) -> None:
    found.model.failures[CONTEXT] = failure
    change = await changed(found, found.compress())
    assert change["pith_compress"] == ended(outcome)
    assert change["pith_metering"] == change["pith_charged"] == {}


async def test_a_hold_that_is_refused_is_counted_by_its_reason(found: Compressing) -> None:
    await found.new_key(spend_limit_nano_usd=1)
    change = await changed(found, found.compress())
    assert change["pith_holds"] == {'pith_holds_refused_total{model="lexical",reason="quota_exceeded"}': 1}
    assert change["pith_compress"] == ended("refused")


async def test_a_client_that_leaves_is_cancelled(found: Compressing) -> None:
    found.model.gates[CONTEXT] = asyncio.Event()
    before = of_registry(found.registry)
    client = found.compress()
    running = client.start()
    await eventually(lambda: found.model.started)
    client.gone.set()
    await running
    await at_rest()
    assert grown(before, of_registry(found.registry), "pith_compress") == ended("cancelled")


async def test_a_client_that_leaves_while_its_usage_is_written_is_charged_in_the_metrics_too(
    found: Compressing,
) -> None:
    before = of_registry(found.registry)
    await found.compress().run()
    once = grown(before, of_registry(found.registry), "pith_charged")
    found.model.gates[CONTEXT] = asyncio.Event()
    client = found.compress()
    running = client.start()
    await eventually(lambda: found.model.started[1:])
    # The hold is written: what comes next is the settlement.
    found.database.pauses = "before"
    found.model.gates[CONTEXT].set()
    await found.database.paused.wait()
    client.gone.set()
    await running
    found.database.resumed.set()
    await at_rest()
    after = of_registry(found.registry)
    assert len(await found.events()) == 2
    assert after['pith_compress_requests_total{model="lexical",outcome="cancelled"}'] == 1
    assert grown(before, after, "pith_charged") == {name: 2 * value for name, value in once.items()}
