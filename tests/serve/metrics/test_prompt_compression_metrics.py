"""What is counted of compression inside chat, through the route with a real compressor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from compression.pipeline.errors import CompressorFailed
from tests.serve.chat.test_compression import FREE, PASSAGES, asked
from tests.serve.compressing import Compressing, compressing
from tests.serve.metrics.readings import Readings, grown, of_registry
from tests.serve.served import Client, at_rest

PREFIX = "pith_prompt_compression_"
PAID = {"target_ratio": 0.3, "model": "lexical"}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Compressing]:
    async with compressing(tmp_path) as found:
        yield await found.renewed()


async def changed(service: Compressing, client: Client) -> Readings:
    before = of_registry(service.registry)
    await client.run()
    await at_rest()
    found = grown(before, of_registry(service.registry), PREFIX)
    return {name.removeprefix(PREFIX): value for name, value in found.items()}


def named(name: str, **labels: str) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in sorted({"model": "alpha", **labels}.items()))
    return f"{name}{{{inner}}}"


def tokens(said: dict[str, Any]) -> Readings:
    return {
        named("original_tokens_total"): said["original_tokens"],
        named("sent_tokens_total"): said["sent_tokens"],
        named("seconds_count"): 1,
    }


async def test_a_compressed_prompt_is_counted_with_what_it_saved(service: Compressing) -> None:
    for end in ("compressed", "cached"):
        client = service.chat(asked(), compression=FREE)
        change = await changed(service, client)
        said = client.json()["service"]["compression"]
        assert said["saved_usd"] > 0
        assert change == {
            **tokens(said),
            named("requests_total", status="applied"): 1,
            named("blocks_total", outcome=end): 1,
            named("tokens_saved_total"): said["tokens_saved"],
            named("saved_usd_total"): pytest.approx(said["saved_usd"]),
        }


async def test_what_a_compression_was_charged_is_counted_beside_what_it_saved(service: Compressing) -> None:
    client = service.chat(asked(), compression=PAID)
    change = await changed(service, client)
    said = client.json()["service"]["compression"]
    assert said["cost_usd"] > 0
    assert change[named("cost_usd_total")] == pytest.approx(said["cost_usd"])
    assert change[named("saved_usd_total")] == pytest.approx(said["saved_usd"])


async def test_a_held_out_prompt_is_counted_as_such_and_saved_nothing(service: Compressing) -> None:
    client = service.chat(asked(), compression={**FREE, "holdout": 1})
    change = await changed(service, client)
    assert change == {
        **tokens(client.json()["service"]["compression"]),
        named("requests_total", status="holdout"): 1,
        named("blocks_total", outcome="holdout"): 1,
    }


async def test_a_prompt_that_could_not_be_compressed_is_counted_though_it_went_out_whole(
    service: Compressing,
) -> None:
    service.model.failures[PASSAGES] = CompressorFailed("it died")
    client = service.chat(asked(), compression=FREE)
    change = await changed(service, client)
    assert change == {
        **tokens(client.json()["service"]["compression"]),
        named("requests_total", status="failed"): 1,
        named("blocks_total", outcome="failed"): 1,
    }


async def test_of_an_unmetered_project_no_dollars_are_counted(service: Compressing) -> None:
    await service.new_key(metered=False)
    client = service.chat(asked(), compression=FREE)
    change = await changed(service, client)
    assert change[named("requests_total", status="applied")] == 1
    assert change[named("tokens_saved_total")] > 0 and named("saved_usd_total") not in change


async def test_a_chat_for_which_nobody_asked_for_it_is_not_counted(service: Compressing) -> None:
    assert await changed(service, service.chat(asked(mark=None))) == {}
