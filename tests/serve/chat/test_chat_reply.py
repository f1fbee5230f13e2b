"""What a chat request's caller gets to see: the reply, the stream, and each way in which the engine can fail."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from models.engine import EngineChunk, EngineRequest, TokenUsage
from models.errors import EngineError, EngineFailed, EngineRejected, EngineUnavailable
from models.fake_engine import TEXT, FakeEngine
from models.fake_forms import CREATED
from tests.serve.served import MINIMUM_NANO_USD, Client, Served, serving, token_cost, usage_of

FAILED = EngineFailed("the engine died while it worked on this request")


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("served")) as service:
        yield service


def words(client: Client) -> str:
    """What a stream's reader reads."""
    chunks = [event for event in client.events() if isinstance(event, dict) and event.get("choices")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


async def test_a_reply_is_the_engines_with_usage_price_and_metering(served: Served) -> None:
    client = await served.chat().run()
    assert client.status == 200 and client.is_complete
    reply = client.json()
    assert reply["object"] == "chat.completion" and reply["model"] == "alpha" and reply["created"] == CREATED
    assert reply["choices"][0]["message"]["content"] == "The quick brown fox jumps over"
    assert reply["usage"] == usage_of(2, 6)
    assert reply["service"] == {
        "billing": {
            "input_price_per_mtok": 100.0,
            "output_price_per_mtok": 400.0,
            "minimum_request_charge_usd": 0.001,
            "minimum_applied": False,
            "request_cost_usd": 0.0026,
        },
        "metering": {"persisted": True, "status": "persisted"},
    }
    assert client.reply_headers["content-type"] == "application/json"
    assert client.reply_headers["x-service-metering-status"] == "persisted"
    assert client.reply_headers["x-request-id"] == "chat"


async def test_a_stream_is_the_engines_bytes_then_usage_and_price_then_done(served: Served) -> None:
    client = await served.chat(stream=True).run()
    assert client.status == 200 and client.is_complete
    *chunks, usage, done = client.events()
    assert done == "[DONE]" and client.body.endswith(b"\n\ndata: [DONE]\n\n")
    request = served.engine.requests[0]
    engine_bytes = b"".join([chunk.data async for chunk in FakeEngine().generate(request)])
    assert client.body.startswith(engine_bytes + b"data: ")
    assert words(client) == "The quick brown fox jumps over"
    assert all(chunk["object"] == "chat.completion.chunk" and "usage" not in chunk for chunk in chunks)
    assert usage["choices"] == []
    assert usage["usage"] == usage_of(2, 6)
    assert usage["service"]["billing"]["request_cost_usd"] == 0.0026
    assert usage["service"]["metering"] == {"persisted": True, "status": "persisted"}
    assert {event["id"] for event in (*chunks, usage)} == {f"chatcmpl-{request.request_id}"}
    assert {event["created"] for event in (*chunks, usage)} == {CREATED}
    assert {event["model"] for event in (*chunks, usage)} == {"alpha"}


async def test_a_streams_headers_leave_with_its_first_event(served: Served) -> None:
    client = await served.chat(stream=True).run()
    assert client.reply_headers["content-type"] == "text/event-stream; charset=utf-8"
    assert client.reply_headers["cache-control"] == "no-store"
    assert client.reply_headers["x-service-metering-status"] == "persisted"
    assert client.reply_headers["x-request-id"] == "chat"
    assert "content-length" not in client.reply_headers
    assert [message["type"] for message in client.sent[:2]] == ["http.response.start", "http.response.body"]
    assert len(client.sent) == 1 + 7 + 1


async def test_every_choice_is_counted(served: Served) -> None:
    client = await served.chat(n=3).run()
    assert len(client.json()["choices"]) == 3
    assert client.json()["usage"] == usage_of(2, 18)
    (event,) = await served.events()
    assert event.cost_nano_usd == token_cost(18)


async def test_a_short_reply_costs_the_minimum(served: Served) -> None:
    client = await served.chat(max_tokens=1).run()
    billing = client.json()["service"]["billing"]
    assert (billing["minimum_applied"], billing["request_cost_usd"]) == (True, 0.001)
    (event,) = await served.events()
    assert (event.minimum_applied, event.cost_nano_usd) == (True, MINIMUM_NANO_USD)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_project_that_is_not_metered_is_told_so_and_nothing_is_recorded(
    served: Served, stream: bool
) -> None:
    workspace = f"free-{stream}"
    key = await served.new_key(workspace, metered=False)
    client = await served.chat(key=key, stream=stream).run()
    assert client.reply_headers["x-service-metering-status"] == "not_applicable"
    last = client.events()[-2] if stream else client.json()
    assert last["service"]["metering"] == {"persisted": False, "status": "not_applicable"}
    assert await replace(served, workspace=workspace).events() == []
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    [
        (FAILED, 502, "engine_failed", {}),
        (EngineUnavailable("full", retry_after_s=17), 503, "engine_unavailable", {"retry-after": "17"}),
        (EngineRejected("too long", param="messages"), 422, "rejected_by_engine", {}),
    ],
    ids=["failed", "unavailable", "rejected"],
)
async def test_an_engine_that_fails_before_its_first_chunk_has_a_status_and_costs_nothing(
    served: Served, stream: bool, error: EngineError, status: int, code: str, headers: dict[str, str]
) -> None:
    served.engine.fails_with = error
    client = await served.chat(stream=stream).run()
    assert client.status == status and client.is_complete
    assert client.json()["error"]["code"] == code
    assert client.reply_headers["content-type"] == "application/json"
    assert headers.items() <= client.reply_headers.items()
    assert ("retry-after" in client.reply_headers) == (status == 503)
    assert await served.events() == []
    await served.assert_nothing_is_left_open()


async def test_what_the_engine_rejects_names_the_field(served: Served) -> None:
    served.engine.fails_with = EngineRejected("9000 tokens are too many", param="messages")
    reply = (await served.chat().run()).json()
    assert reply["detail"] == [
        {"type": "engine_rejected", "loc": ["body", "messages"], "msg": "9000 tokens are too many"}
    ]
    assert reply["error"]["param"] == "messages"


@pytest.mark.parametrize("tokens", [1, 3])
async def test_a_stream_that_breaks_ends_with_an_error_event_and_pays_for_what_was_delivered(
    served: Served, tokens: int
) -> None:
    served.engine.fails_with, served.engine.fails_after = FAILED, tokens
    client = await served.chat(stream=True).run()
    assert client.status == 200 and client.is_complete
    *chunks, last = client.events()
    assert len(chunks) == tokens
    assert last["detail"] == str(FAILED)
    assert last["error"] == {
        "message": str(FAILED),
        "type": "server_error",
        "param": None,
        "code": "engine_failed",
    }
    (event,) = await served.events()
    assert (event.outcome, event.completion_tokens) == ("failed", tokens)
    assert (event.cost_nano_usd, event.minimum_applied) == (token_cost(tokens), False)
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize("tokens", [1, 3])
async def test_a_json_reply_that_breaks_was_never_seen_and_costs_nothing(served: Served, tokens: int) -> None:
    served.engine.fails_with, served.engine.fails_after = FAILED, tokens
    client = await served.chat().run()
    assert (client.status, client.json()["detail"]) == (502, str(FAILED))
    assert await served.events() == []
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xfe\x00", b"not json", b"[]", b"null", b"{}", b'{"choices": []}', b'{"choices": {}}', b""],
)
async def test_bytes_that_are_no_completion_are_a_502_and_cost_nothing(
    served: Served, stream: bool, garbage: bytes
) -> None:
    served.engine.garbage = garbage
    client = await served.chat(stream=stream).run()
    assert client.status == 502 and client.is_complete
    assert client.json()["error"]["code"] == "engine_failed"
    assert client.json()["detail"].startswith("the engine")
    assert await served.events() == []
    await served.assert_nothing_is_left_open()


class BrokenEngine(FakeEngine):
    """A fake with a bug: it raises what is no `EngineError` after `fails_after` chunks, some of them silent."""

    silent = False

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        self.requests.append(request)
        for tokens in range(1, self.fails_after + 1):
            data = b"" if self.silent else b'data: {"choices": [{"index": 0, "delta": {}}]}\n\n'
            yield EngineChunk(data, TokenUsage(2, tokens), finished=False)
        raise ZeroDivisionError("the secret of line 17")


@pytest.mark.parametrize(("stream", "tokens"), [(False, 0), (False, 2), (True, 0)])
async def test_a_bug_before_the_first_byte_is_a_500_without_a_trace_and_logged_with_the_request_id(
    served: Served, caplog: pytest.LogCaptureFixture, stream: bool, tokens: int
) -> None:
    served.engine = BrokenEngine(fails_after=tokens)
    client = await served.chat(stream=stream, request_id="find-me").run()
    assert client.status == 500 and client.is_complete
    assert client.json()["error"]["code"] == "internal_error"
    assert b"secret" not in client.body and b"ZeroDivision" not in client.body
    assert client.reply_headers["x-request-id"] == "find-me"
    assert await served.events() == []
    await served.assert_nothing_is_left_open()
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "find-me" in record.getMessage()
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


async def test_a_bug_in_mid_stream_is_an_error_event_and_logged_with_the_request_id(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.engine = BrokenEngine(fails_after=2)
    client = await served.chat(stream=True, request_id="find-me").run()
    assert client.status == 200 and client.is_complete
    assert client.events()[-1]["error"]["code"] == "internal_error"
    assert b"secret" not in client.body
    (event,) = await served.events()
    assert (event.outcome, event.cost_nano_usd) == ("failed", token_cost(2))
    await served.assert_nothing_is_left_open()
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "find-me" in record.getMessage()


async def test_a_stream_that_breaks_before_its_first_event_was_never_seen_and_costs_nothing(
    served: Served,
) -> None:
    engine = BrokenEngine(fails_after=3)
    engine.silent = True
    served.engine = engine
    assert (await served.chat(stream=True).run()).status == 500
    assert await served.events() == []
    await served.assert_nothing_is_left_open()


async def test_progress_without_data_is_counted_and_not_sent(served: Served) -> None:
    class SlowStarter(FakeEngine):
        """A fake that reports progress before it has anything to say."""

        async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
            yield EngineChunk(b"", TokenUsage(2, 0), finished=False)
            yield EngineChunk(b"", TokenUsage(2, 4), finished=False)
            yield EngineChunk(b'data: {"choices": [{}]}\n\n', TokenUsage(2, 5), finished=True)

    served.engine = SlowStarter()
    client = await served.chat(stream=True).run()
    assert all(message["body"] for message in client.sent[1:])
    assert client.events()[1]["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "omega"}, 422, "model"),
        ({"store": True}, 400, "store"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "tools"),
        ({"messages": []}, 422, "messages"),
    ],
)
async def test_a_request_that_is_refused_reaches_neither_engine_nor_ledger(
    served: Served, fields: dict[str, Any], status: int, param: str
) -> None:
    client = await served.chat(**fields).run()
    assert (client.status, client.json()["error"]["param"]) == (status, param)
    assert served.engine.requests == [] and await served.events() == []
    await served.assert_nothing_is_left_open()


async def test_the_engine_gets_what_was_asked_and_a_salt_of_the_workspace(served: Served) -> None:
    await served.chat(model="gamma", seed=7, unknown="x", user="someone").run()
    (request,) = served.engine.requests
    workspace = await served.accounts.find_workspace(served.workspace)
    assert (request.model_id, request.max_tokens, request.stream) == ("gamma", 6, False)
    assert request.cache_salt == workspace.id
    assert request.options["seed"] == 7 and not {"unknown", "user"} & set(request.options)
    assert json.loads(json.dumps(list(request.messages))) == [{"role": "user", "content": "hi"}]


async def test_the_whole_text_comes_where_the_limit_allows_it(served: Served) -> None:
    client = await served.chat(max_tokens=100, stream=True).run()
    assert words(client) == TEXT
