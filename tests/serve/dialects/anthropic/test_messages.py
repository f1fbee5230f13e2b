"""Messages in Anthropic's form: its events, its errors, and what they cost."""

import json
from typing import Any

import pytest
from anthropic.types import Message, ModelInfo, RawMessageStreamEvent
from pydantic import TypeAdapter

from models.errors import EngineFailed, EngineUnavailable
from models.fake_engine import FakeEngine
from serve.dialects.anthropic import message
from tests.serve.served import HI, Client, Event, Served, eventually, token_cost

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/anthropic/v1/messages"
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def request(served: Served, path: str = PATH, headers: dict[str, str] | None = None, **fields: Any) -> Client:
    return served.post(path, {"messages": HI, "max_tokens": 6, **fields}, headers=headers)


def events(client: Client) -> list[Any]:
    pairs = [event.split(b"\ndata: ") for event in client.body.split(b"\n\n") if event]
    found = [json.loads(data) for _, data in pairs]
    assert [name.decode() for name, _ in pairs] == [f"event: {event['type']}" for event in found]
    return found


async def test_a_message_is_billed_as_the_chat_that_it_is(served: Served) -> None:
    client = await request(served, metadata={"user_id": "u"}, system="").run()
    reply = client.json()
    message = Message.model_validate(reply)
    assert client.status == 200 and message.stop_reason == "max_tokens"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (2, 6)
    assert reply["service"]["billing"]["request_cost_usd"] == token_cost(6) / 10**9
    assert await served.events() == [Event("completed", 2, 6, token_cost(6), False, False)]
    assert client.reply_headers["request-id"] == client.reply_headers["x-request-id"]
    (asked,) = served.engine.requests
    assert (asked.form, asked.max_tokens, asked.max_tokens_field) == ("message", 6, None)
    await served.assert_nothing_is_left_open()


async def test_a_stream_ends_with_what_was_billed(served: Served) -> None:
    client = await request(served, stream=True).run()
    found = events(client)
    for event in found:
        EVENT.validate_python(event)
    delta, stop = found[-2:]
    assert (delta["type"], stop) == ("message_delta", {"type": "message_stop"})
    assert delta["usage"]["input_tokens"] == 2 and delta["usage"]["output_tokens"] == 6
    assert delta["delta"]["stop_reason"] == "max_tokens" and delta["service"]["metering"]["persisted"]
    assert await served.events() == [Event("completed", 2, 6, token_cost(6), False, True)]


async def test_cached_input_is_told_apart(served: Served) -> None:
    served.engine = FakeEngine(cached_tokens=1)
    usage = (await request(served).run()).json()["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (1, 1)
    (event,) = await served.events()
    assert event.prompt_tokens == 2


@pytest.mark.parametrize("header", ["x-api-key", "Authorization"])
async def test_the_key_is_in_either_header(served: Served, header: str) -> None:
    for key, status in ((served.key, 200), ("nonsense", 401)):
        given = key if header == "x-api-key" else f"Bearer {key}"
        client = served.post(PATH, {"messages": HI, "max_tokens": 1})
        client.headers.pop("Authorization")
        client.headers[header] = given
        assert (await client.run()).status == status


@pytest.mark.parametrize(
    ("fields", "headers", "status", "kind"),
    [
        ({}, {"Authorization": "Bearer nonsense"}, 401, "authentication_error"),
        ({"model": "claude-opus-4-8"}, {}, 404, "not_found_error"),
        ({"messages": []}, {}, 400, "invalid_request_error"),
        ({"max_tokens": 0}, {}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, {}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": "a " * 3000}]}, {}, 413, "request_too_large"),
        ({"messages": [{"role": "user", "content": "a " * 900}]}, {}, 400, "invalid_request_error"),
    ],
)
async def test_errors_are_anthropics(
    served: Served, fields: dict[str, Any], headers: dict[str, str], status: int, kind: str
) -> None:
    served.engine = FakeEngine(context_length=64)
    client = await request(served, headers=headers, **fields).run()
    body = client.json()
    assert (client.status, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert set(body) == {"type", "error", "request_id"} and body["error"]["message"]
    assert body["request_id"] == client.reply_headers["request-id"]
    if served.engine.counted or served.engine.requests:
        assert body["error"]["message"].startswith("prompt is too long")
    assert await served.events() == []


async def test_no_money_and_no_engine_have_their_own_statuses(served: Served) -> None:
    poor = {"Authorization": f"Bearer {await served.new_key(spend_limit_nano_usd=1)}"}
    for path in (PATH, f"{PATH}/count_tokens"):
        client = await request(served, path, poor).run()
        assert (client.status, client.json()["error"]["type"]) == (402, "billing_error")
    assert not served.engine.requests and not served.engine.counted
    served.engine = FakeEngine(fails_with=EngineUnavailable("no replica", retry_after_s=3))
    client = await request(served).run()
    assert (client.status, client.json()["error"]["type"]) == (529, "overloaded_error")
    assert client.reply_headers["retry-after"] == "3"


async def test_a_stream_that_breaks_ends_with_an_error_and_what_was_charged(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineFailed("the engine died"), fails_after=3)
    last = events(await request(served, stream=True).run())[-1]
    assert last["type"] == "error" and last["error"]["type"] == "api_error"
    assert last["usage"]["output_tokens"] == 3 and last["service"]["billing"]
    (event,) = await served.events()
    assert (event.outcome, event.completion_tokens) == ("failed", 3)
    await served.assert_nothing_is_left_open()


async def test_tokens_are_counted_for_nothing_and_the_count_ends_with_its_client(served: Served) -> None:
    path = f"{PATH}/count_tokens"
    client = await request(served, path, system="Be brief.").run()
    assert (client.status, client.json()) == (200, {"input_tokens": 5})
    served.engine.answers = False
    leaving = request(served, path)
    running = leaving.start()
    await eventually(lambda: len(served.engine.counted) == 2, "it is being counted")
    leaving.gone.set()
    await running
    assert leaving.sent == [] and await served.events() == [] and not served.engine.requests
    await served.assert_nothing_is_left_open()


async def test_what_no_context_has_room_for_is_not_counted(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{PATH}/count_tokens"
    # Of a context of 4,096 tokens; the body may have no more bytes.
    monkeypatch.setattr(message, "MOST_COUNTED_CHARS_PER_TOKEN", 0.5)
    for chars, status in ((2048, 200), (2049, 400)):
        messages = [{"role": "user", "content": [{"type": "text", "text": "a" * chars}]}]
        client = await request(served, path, messages=messages).run()
        assert client.status == status
    assert "prompt is too long" in client.json()["error"]["message"]
    assert len(served.engine.counted) == 1


async def test_models_are_listed_as_anthropics_clients_read_them(served: Served) -> None:
    listed = (await served.get("/anthropic/v1/models").run()).json()
    models = [ModelInfo.model_validate(model) for model in listed["data"]]
    assert [model.id for model in models] == [model.id for model in served.settings.models]
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, models[0].id, models[-1].id)
    one = (await served.get(f"/anthropic/v1/models/{models[1].id}").run()).json()
    assert ModelInfo.model_validate(one) == models[1]
    missing = await served.get("/anthropic/v1/models/none").run()
    assert (missing.status, missing.json()["error"]["type"]) == (404, "not_found_error")
    assert (await served.get("/anthropic/v1/models", key="nonsense").run()).status == 401


@pytest.mark.parametrize(("last", "continues"), [("{", True), ("", False)])
async def test_a_last_message_of_the_assistants_is_the_beginning_of_the_reply(
    served: Served, last: str, continues: bool
) -> None:
    turns = [*HI, {"role": "assistant", "content": last}]
    assert (await served.post(PATH, {"messages": turns, "max_tokens": 1}).run()).status == 200
    assert bool(served.engine.requests[0].form_options) is continues
