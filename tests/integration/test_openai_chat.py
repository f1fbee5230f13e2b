"""OpenAI's dialect of chat on a real engine, through its own client at its defaults."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from tests.integration.running import Server

MODEL = "pith-mini"
ASK: list[Any] = [{"role": "user", "content": "Tell me about the river."}]


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=server.key, max_retries=0) as client:
        yield client


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    listed = list(client.models.list())
    assert listed[0].id == MODEL
    assert client.models.retrieve(MODEL) == listed[0]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


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


def test_each_chunk_of_a_plain_stream_has_a_choice(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=8, stream=True)
    ends = [chunk.choices[0].finish_reason for chunk in stream]
    assert ends[-1] == "length" and set(ends[:-1]) == {None}


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


class Place(BaseModel):
    open: bool


def test_a_reply_is_parsed_as_a_model(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Place)
    assert parsed.choices[0].message.parsed is not None


def test_errors_have_the_classes_that_clients_catch(server: Server, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4o", messages=ASK)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as invalid:
        client.chat.completions.create(model=MODEL, messages=ASK, temperature=9)
    assert invalid.value.param == "temperature"
    for messages, limit in ((ASK, 10**6), ([{"role": "user", "content": "river " * 9000}], None)):
        with pytest.raises(openai.BadRequestError) as long:
            client.chat.completions.create(
                model=MODEL, messages=messages, max_tokens=limit if limit else openai.omit
            )
        assert long.value.code == "context_length_exceeded"
    wrong = openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as stranger:
        wrong.chat.completions.create(model=MODEL, messages=ASK)
    assert stranger.value.code == "invalid_api_key"
