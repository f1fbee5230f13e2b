"""Chat completions as server-sent events against sections 4 and 6 of the contract, on the real server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.contract_shapes import (
    BILLING,
    ERROR,
    METERING,
    SERVICE,
    USAGE,
    ListOf,
    mismatches,
    rows,
)

if TYPE_CHECKING:
    from tests.integration.running import Server

COMPLETIONS = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
CHUNK = {"id": str, "object": str, "created": int, "model": str, "choices": ListOf(dict)}


def chat(**fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Tell me about the river."}
    return {"messages": [message], "max_tokens": 40, "ignore_eos": True, **fields}


@dataclass(frozen=True)
class Stream:
    """A whole stream: its response, and its events before `[DONE]`."""

    reply: httpx.Response
    events: list[dict[str, Any]]

    @property
    def final(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def text(self) -> str:
        deltas = [choice["delta"] for event in self.events for choice in event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)


def read_stream(client: httpx.Client, **fields: Any) -> Stream:
    reply = client.post(COMPLETIONS, json=chat(stream=True, **fields))
    assert reply.status_code == 200, reply.text
    assert reply.content.endswith(DONE)
    pieces = reply.content.removesuffix(DONE).split(b"\n\n")
    assert pieces.pop() == b""
    assert all(piece.startswith(b"data: {") and b"\n" not in piece for piece in pieces)
    return Stream(reply, [json.loads(piece.removeprefix(b"data: ")) for piece in pieces])


@pytest.fixture(scope="module")
def stream(server: Server) -> Stream:
    with server.client() as client:
        return read_stream(client)


def test_a_stream_is_event_stream_with_both_headers(stream: Stream) -> None:
    """4 POST /v1/chat/completions: text/event-stream when stream is true, with the same two headers."""
    headers = stream.reply.headers
    assert headers["content-type"].partition(";")[0] == "text/event-stream"
    assert headers["x-request-id"]
    assert headers["x-service-metering-status"] == "persisted"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(("field", "kind"), rows("OpenAI chunk", CHUNK))
def test_every_event_has(field: str, kind: Any, stream: Stream) -> None:
    for event in stream.events:
        assert mismatches(event, {field: kind}) == []


def test_all_events_are_of_one_completion(stream: Stream, http: httpx.Client) -> None:
    """6: OpenAI-compatible incremental delta events."""
    first = http.get("/v1/models").json()[0]["id"]
    assert {event["object"] for event in stream.events} == {"chat.completion.chunk"}
    assert {event["model"] for event in stream.events} == {first}
    assert len({(event["id"], event["created"]) for event in stream.events}) == 1


def test_deltas_start_with_a_role_and_end_with_a_reason(stream: Stream) -> None:
    """6: OpenAI-compatible incremental delta events."""
    choices = [choice for event in stream.events for choice in event["choices"]]
    assert choices[0]["delta"]["role"] == "assistant"
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == "length"
    assert {choice["index"] for choice in choices} == {0}
    assert len(choices) > 2


def test_a_stream_says_what_the_json_form_says(stream: Stream, http: httpx.Client) -> None:
    """4: the same completion in two forms."""
    whole = http.post(COMPLETIONS, json=chat()).json()
    assert stream.text == whole["choices"][0]["message"]["content"]
    assert stream.final["usage"] == whole["usage"]
    assert stream.final["service"] == whole["service"]


def test_the_final_event_has_no_choices_and_the_bill(stream: Stream) -> None:
    """6: a final event carrying usage; only this one has `service`, and `[DONE]` follows it."""
    assert stream.final["choices"] == []
    assert ["service" in event for event in stream.events[:-1]] == [False] * (len(stream.events) - 1)
    assert all(event["choices"] for event in stream.events[:-1])
    assert stream.reply.content.count(b"[DONE]") == 1


@pytest.mark.parametrize(("field", "kind"), rows("Usage, streamed", USAGE))
def test_the_final_usage_has(field: str, kind: Any, stream: Stream) -> None:
    assert mismatches(stream.final["usage"], {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("service, streamed", SERVICE))
def test_the_final_service_object_has(field: str, kind: Any, stream: Stream) -> None:
    assert mismatches(stream.final["service"], {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("Billing, streamed", BILLING))
def test_the_final_billing_has(field: str, kind: Any, stream: Stream) -> None:
    assert mismatches(stream.final["service"]["billing"], {field: kind}) == []


@pytest.mark.parametrize(("field", "kind"), rows("Metering, streamed", METERING))
def test_the_final_metering_has(field: str, kind: Any, stream: Stream) -> None:
    assert mismatches(stream.final["service"]["metering"], {field: kind}) == []


def test_tokens_are_counted_to_the_last(stream: Stream) -> None:
    """2 Usage: completion_tokens, of a stream."""
    assert stream.final["usage"]["completion_tokens"] == 40


@pytest.mark.parametrize(
    "options",
    [{}, {"include_usage": True}, {"include_usage": False}, {"continuous_usage_stats": False}],
    ids=str,
)
def test_the_final_event_comes_whatever_is_asked(options: dict[str, bool], http: httpx.Client) -> None:
    """6: a final event carrying usage, always."""
    found = read_stream(http, stream_options=options, max_tokens=2)
    assert found.final["usage"]["completion_tokens"] == 2
    assert "service" in found.final
    assert not any(event.get("usage") for event in found.events[:-1])


def test_usage_may_be_asked_for_in_every_chunk(http: httpx.Client) -> None:
    """6: stream_options.continuous_usage_stats, as load tools send it."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = read_stream(http, stream_options=options, max_tokens=5)
    counts = [event["usage"]["completion_tokens"] for event in found.events]
    assert counts == sorted(counts)
    assert counts[-1] == 5
    assert [event["choices"] for event in found.events].count([]) == 1


def test_two_choices_are_streamed_side_by_side(http: httpx.Client) -> None:
    """6: OpenAI-compatible deltas, told apart by their index."""
    found = read_stream(http, n=2, max_tokens=3)
    assert {choice["index"] for event in found.events for choice in event["choices"]} == {0, 1}
    assert found.final["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"echo": True}, 400),
        ({"model": "unknown"}, 422),
        ({"max_tokens": 0}, 422),
        ({"messages": [{"role": "user", "content": "river " * 9000}]}, 422),
    ],
    ids=["400 option", "422 model", "422 field", "422 context"],
)
def test_an_error_before_the_first_event_is_json(
    fields: dict[str, Any], status: int, http: httpx.Client
) -> None:
    """7 Errors: every error body is an Error object, with stream true too."""
    reply = http.post(COMPLETIONS, json=chat(stream=True, **fields))
    assert reply.status_code == status
    assert reply.headers["content-type"].partition(";")[0] == "application/json"
    assert mismatches(reply.json(), ERROR) == []
    assert reply.headers["x-request-id"]
