"""The `openai` Python client against the real server: what its users read, stream, catch and retry."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

from tests.integration.running import Server

MODEL = "pith-mini"
ASK: list[Any] = [{"role": "user", "content": "Tell me about the river."}]
WEATHER_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ENDLESS = {"ignore_eos": True}


@dataclass
class CountedClient:
    """A client, and what it sent and got, retries included."""

    openai: openai.OpenAI
    statuses: list[int] = field(default_factory=list)
    on_reply: Callable[[int], None] = lambda status: None


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., CountedClient]]:
    """Clients of the server; they retry nothing unless asked to."""
    opened: list[CountedClient] = []

    def new(*, key: str = server.key, max_retries: int = 0) -> CountedClient:
        def seen(response: Any) -> None:
            counted.statuses.append(response.status_code)
            counted.on_reply(response.status_code)

        counted = CountedClient(
            openai.OpenAI(
                base_url=f"{server.url}/v1",
                api_key=key,
                max_retries=max_retries,
                timeout=60,
                http_client=openai.DefaultHttpxClient(event_hooks={"response": [seen]}),
            )
        )
        opened.append(counted)
        return counted

    yield new
    for each in opened:
        each.openai.close()


@pytest.fixture
def client(connect: Callable[..., CountedClient]) -> openai.OpenAI:
    return connect().openai


@pytest.fixture(scope="module")
def poor_key(server: Server) -> str:
    """A key whose workspace may spend less than any request might cost."""
    return server.new_key(f"poor-{uuid.uuid4().hex[:12]}", limit_usd="0.000001")


@pytest.fixture(scope="module")
def one_at_a_time_key(server: Server) -> str:
    return server.new_key(f"single-{uuid.uuid4().hex[:12]}", project=("--max-in-flight", "1"))


def billed(answer: Any) -> dict[str, Any]:
    """The `service` block, which no OpenAI type declares."""
    block: dict[str, Any] = answer.model_extra["service"]
    assert set(block) == {"billing", "metering"}
    return block


class TestReplies:
    def test_a_plain_reply_is_a_chat_completion_with_usage_and_service(self, client: openai.OpenAI) -> None:
        reply = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=20)
        assert (reply.object, reply.model) == ("chat.completion", MODEL)
        assert reply.choices[0].message.role == "assistant"
        assert reply.choices[0].message.content
        assert reply.usage is not None
        assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
        assert billed(reply)["metering"] == {"persisted": True, "status": "persisted"}
        assert billed(reply)["billing"]["request_cost_usd"] > 0

    def test_the_chunks_of_a_stream_make_the_plain_reply(self, client: openai.OpenAI) -> None:
        plain = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=60)
        with client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=60, stream=True) as stream:
            chunks = list(stream)
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(pieces) == plain.choices[0].message.content
        assert len([piece for piece in pieces if piece]) > 1
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        assert [reason for reason in reasons if reason] == [plain.choices[0].finish_reason]
        assert reasons[-1] == plain.choices[0].finish_reason

    @pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
    def test_the_last_chunk_has_usage_and_service(
        self, client: openai.OpenAI, options: dict[str, Any]
    ) -> None:
        plain = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=10)
        with client.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=10, stream=True, **options
        ) as stream:
            *others, last = stream
        assert last.choices == []
        assert last.usage is not None and plain.usage is not None
        assert last.usage.to_dict() == plain.usage.to_dict()
        assert billed(last) == billed(plain)
        assert all(chunk.usage is None and "service" not in (chunk.model_extra or {}) for chunk in others)

    def test_the_stream_helper_accumulates_the_plain_reply(self, client: openai.OpenAI) -> None:
        whole = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=30)
        # The helper takes a reply that was cut off for an error, so this one ends at a stop string.
        stop = str(whole.choices[0].message.content).split()[5]
        plain = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=30, stop=stop)
        with client.chat.completions.stream(model=MODEL, messages=ASK, max_tokens=30, stop=stop) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        assert {"chunk", "content.delta", "content.done"} <= kinds
        assert final.choices[0].message.content == plain.choices[0].message.content
        assert final.usage is not None and plain.usage is not None
        assert final.usage.to_dict() == plain.usage.to_dict()

    def test_parse_gives_the_object_that_was_asked_for(self, client: openai.OpenAI) -> None:
        class Boat(BaseModel):
            name: str = Field(max_length=12)
            length_m: int = Field(ge=1, le=99)
            kind: Literal["barge", "canoe"]

        reply = client.chat.completions.parse(model=MODEL, messages=ASK, max_tokens=200, response_format=Boat)
        boat = reply.choices[0].message.parsed
        assert boat is not None
        assert 1 <= boat.length_m <= 99

    def test_a_raw_response_shows_the_headers(self, client: openai.OpenAI) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=ASK, max_tokens=5, extra_headers={"X-Request-ID": "raw-response-test"}
        )
        assert raw.headers["x-request-id"] == "raw-response-test"
        assert raw.headers["x-service-metering-status"] == "persisted"
        assert raw.request_id == raw.parse()._request_id == "raw-response-test"

    def test_a_streamed_response_shows_the_headers_before_its_events(self, client: openai.OpenAI) -> None:
        with client.chat.completions.with_streaming_response.create(
            model=MODEL, messages=ASK, max_tokens=5, stream=True
        ) as raw:
            assert raw.headers["content-type"].startswith("text/event-stream")
            assert raw.headers["x-service-metering-status"] == "persisted"
            assert raw.headers["x-request-id"]
            assert sum(len(chunk.choices) for chunk in raw.parse()) > 1

    async def test_sixteen_requests_at_once_each_get_their_own_reply(self, server: Server) -> None:
        async def ask(count: int, stream: bool) -> tuple[str, int]:
            """Each asks for another number of tokens, so that swapped replies would show."""
            options: dict[str, Any] = {"model": MODEL, "messages": ASK, "max_tokens": count}
            if not stream:
                reply = await connected.chat.completions.create(**options, extra_body=ENDLESS)
                assert reply.usage is not None
                return reply.id, reply.usage.completion_tokens
            async with await connected.chat.completions.create(
                **options, stream=True, extra_body=ENDLESS
            ) as chunks:
                last = [chunk async for chunk in chunks][-1]
            assert last.usage is not None
            return last.id, last.usage.completion_tokens

        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key=server.key, max_retries=0, timeout=60
        ) as connected:
            answers = await asyncio.gather(*(ask(count, stream=count % 2 == 0) for count in range(1, 17)))
        assert [count for _, count in answers] == list(range(1, 17))
        assert len({identity for identity, _ in answers}) == 16


class TestErrors:
    """Each status reaches its own class, with our message in it."""

    def test_a_call_is_refused_where_the_model_makes_none(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model="pith-small", messages=ASK, tools=[WEATHER_TOOL], tool_choice="required"
            )
        assert "tool_choice: this model does not call tools" in str(caught.value)
        assert (caught.value.param, caught.value.code) == ("tool_choice", "unsupported_option")
        assert caught.value.type == "invalid_request_error"

    def test_a_refused_stream_raises_before_it_begins(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="store: completions are not stored"):
            client.chat.completions.create(model=MODEL, messages=ASK, stream=True, store=True)

    def test_a_missing_key_is_an_authentication_error(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.chat.completions.create(
                model=MODEL, messages=ASK, extra_headers={"Authorization": openai.Omit()}
            )
        assert "send your project API key as: Authorization: Bearer" in str(caught.value)
        assert caught.value.response.headers["www-authenticate"] == "Bearer"

    def test_a_wrong_key_is_a_permission_error(self, connect: Callable[..., CountedClient]) -> None:
        counted = connect(key="pith_nobody_nothing", max_retries=2)
        with pytest.raises(openai.PermissionDeniedError, match="the API key is invalid or was revoked"):
            counted.openai.chat.completions.create(model=MODEL, messages=ASK)
        assert counted.statuses == [403]

    def test_an_invalid_field_is_unprocessable_and_named(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            client.chat.completions.create(model=MODEL, messages=ASK, temperature=2.5)
        assert "body.temperature" in str(caught.value)
        assert "less than or equal to 2" in str(caught.value)
        assert caught.value.param == "temperature"

    def test_an_unknown_model_is_unprocessable_and_named(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.UnprocessableEntityError, match="gpt-9") as caught:
            client.chat.completions.create(model="gpt-9", messages=ASK)
        assert (caught.value.param, caught.value.code) == ("model", "model_not_found")

    def test_an_error_carries_the_request_id(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model=MODEL, messages=ASK, store=True, extra_headers={"X-Request-ID": "find-me"}
            )
        assert caught.value.request_id == "find-me"


class TestRetries:
    def test_an_exhausted_quota_is_not_retried(
        self, connect: Callable[..., CountedClient], poor_key: str
    ) -> None:
        counted = connect(key=poor_key, max_retries=2)
        with pytest.raises(openai.APIStatusError, match="workspace quota exceeded") as caught:
            counted.openai.chat.completions.create(model=MODEL, messages=ASK)
        assert (caught.value.status_code, caught.value.type) == (402, "insufficient_quota")
        assert counted.statuses == [402]

    def test_a_rate_limit_says_when_to_come_back(
        self, connect: Callable[..., CountedClient], one_at_a_time_key: str
    ) -> None:
        first, second = connect(key=one_at_a_time_key), connect(key=one_at_a_time_key)
        with (
            first.openai.chat.completions.create(
                model=MODEL, messages=ASK, max_tokens=3500, stream=True, extra_body=ENDLESS
            ),
            pytest.raises(openai.RateLimitError, match="1 requests at the same time") as caught,
        ):
            second.openai.chat.completions.create(model=MODEL, messages=ASK)
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert caught.value.code == "rate_limit_exceeded"

    def test_a_rate_limited_request_is_retried_and_then_answered(
        self, connect: Callable[..., CountedClient], one_at_a_time_key: str
    ) -> None:
        # The test before may hold the slot for a moment yet.
        first, second = (connect(key=one_at_a_time_key, max_retries=4) for _ in range(2))
        busy = first.openai.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=3500, stream=True, extra_body=ENDLESS
        )

        def make_room(status: int) -> None:
            if status == 429:
                busy.close()

        second.on_reply = make_room
        reply = second.openai.chat.completions.create(model=MODEL, messages=ASK, max_tokens=5)
        assert reply.choices[0].message.content
        assert second.statuses[0] == 429
        assert second.statuses[-1] == 200
