"""Chat in OpenAI's dialect on a real engine, by its client's strict types; its users' calls are in `tests/clients`."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.integration.running import Server

MODEL = "pith-mini"
ASK: list[Any] = [{"role": "user", "content": "Tell me about the river."}]


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key, max_retries=0) as client:
        yield client


def test_a_reply_has_openais_shape_and_what_it_cost(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=ASK, max_tokens=8)
    ChatCompletion.model_validate_json(raw.content, strict=True)
    reply = raw.parse()
    assert reply.usage is not None and reply.usage.completion_tokens == 8
    assert reply.choices[0].finish_reason == "length"
    service: Any = reply.model_extra["service"] if reply.model_extra else None
    assert service["metering"]["persisted"] is True and service["billing"]["request_cost_usd"] > 0


def test_without_a_limit_a_reply_goes_on_to_the_end_of_the_context(client: openai.OpenAI) -> None:
    context = client.models.retrieve(MODEL).model_extra or {}
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "river " * 1700}], extra_body={"ignore_eos": True}
    )
    assert reply.usage is not None and reply.usage.total_tokens == context["max_model_len"]
    assert reply.choices[0].finish_reason == "length"


def test_a_stream_tells_usage_where_it_is_asked(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(chunk.model_dump_json(), strict=True)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8


def test_usage_so_far_is_in_every_chunk_on_request(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=ASK,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    )
    counts = [chunk.usage.completion_tokens for chunk in stream if chunk.usage]
    assert counts == sorted(counts) and counts[-1] == 8 and len(counts) > 1
