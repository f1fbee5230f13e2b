"""Compression in OpenAI's Responses API: the outputs of functions are compressed on their way to the engine."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.serve.compressing import Compressing
from tests.serve.served import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
PASSAGES = "\n\n".join(f"Item {i} has a price of {i * 7} dollars and colour {i % 5}." for i in range(60))
FREE = {"target_ratio": 0.3, "model": "free"}


@pytest_asyncio.fixture(loop_scope="module")
async def service(module_service: Compressing) -> AsyncIterator[Compressing]:
    yield await module_service.renewed()
    await module_service.assert_nothing_is_left_open()


async def ask(service: Compressing, **fields: Any) -> Client:
    items = [
        {"role": "user", "content": "What is the price of item 17?"},
        {"type": "function_call", "call_id": "c1", "name": "items", "arguments": '{"about": "item 17"}'},
        {"type": "function_call_output", "call_id": "c1", "output": PASSAGES},
    ]
    return await service.post("/openai/v1/responses", {"input": items, **fields}).run()


def sent(service: Compressing) -> str:
    return str(service.engine.requests[-1].messages[-1]["content"])


@pytest.mark.parametrize("stream", [False, True])
async def test_the_engine_gets_what_matters_of_a_functions_output(service: Compressing, stream: bool) -> None:
    client = await ask(service, instructions="Be brief.", compression=FREE, stream=stream)
    assert "Item 17 has a price of 119 dollars" in sent(service) and len(sent(service)) < 0.4 * len(PASSAGES)
    last = client.body.decode().strip().split("\n\n")[-1]
    response = json.loads(last.split("\ndata: ")[1])["response"] if stream else client.json()
    said = response["service"]["compression"]
    assert response["usage"]["input_tokens"] == said["sent_tokens"] < said["original_tokens"]
    (block,) = said["blocks"]
    # Its place in the input, not in the messages, which begin with the instructions.
    assert block["item"] == 2 and "message" not in block
    assert client.reply_headers["x-service-compression"] == "applied"


async def test_a_projects_default_holds_for_responses_and_can_be_turned_off(service: Compressing) -> None:
    await service.set_default(**FREE)
    assert (await ask(service)).json()["service"]["compression"]["status"] == "applied"
    assert "compression" not in (await ask(service, compression=None)).json()["service"]
    assert sent(service) == PASSAGES


async def test_what_is_wrong_with_a_compression_is_named(service: Compressing) -> None:
    client = await ask(service, compression={"target_ratio": 3})
    assert (client.status, client.json()["error"]["param"]) == (400, "compression.target_ratio")
