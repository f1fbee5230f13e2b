"""OpenAI's Responses API at the edge: what it makes of a body, its events and errors, and what it bills."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from models.engine import EngineRequest
from models.errors import EngineFailed, EngineUnavailable
from models.fake_engine import FakeEngine
from serve.dialects.openai.responses.conversation import Places
from serve.dialects.openai.responses.response import ResponseReplyForm
from serve.http.errors import unexpected_problem
from tests.serve.served import Client, Served, model_document, serving, token_cost

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/openai/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CALLS_TOOLS = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    models = [
        model_document("alpha", capabilities={"tools": True}, engine=CALLS_TOOLS),
        model_document("deaf", capabilities={"tools": "ignore"}),
    ]
    async with serving(tmp_path_factory.mktemp("served"), models=models) as service:
        yield service


async def ask(served: Served, **fields: Any) -> Client:
    return await served.post(PATH, {"input": "Hi", **fields}).run()


def events_of(client: Client) -> list[dict[str, Any]]:
    """Each checked by OpenAI's types, its name and its number."""
    *written, rest = client.body.decode().split("\n\n")
    assert rest == ""
    events = []
    for number, text in enumerate(written):
        name, data = text.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}" and event["sequence_number"] == number
        EVENT.validate_python(event)
        events.append(event)
    return events


def usage(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


async def test_a_response_is_billed_as_a_chat_and_repeats_what_was_asked(served: Served) -> None:
    asked = {"max_output_tokens": 6, "instructions": "Be brief.", "metadata": {"a": "b"}, "store": False}
    client = await ask(served, **asked)
    assert client.status == 200
    response = Response.model_validate(client.json())
    assert (response.status, response.instructions, response.metadata) == (
        "incomplete",
        "Be brief.",
        {"a": "b"},
    )
    assert client.json()["store"] is False and response.tool_choice == "auto"
    # Two messages, and three words.
    assert client.json()["usage"] == usage(5, 6)
    (event,) = await served.events()
    assert event.cost_nano_usd == token_cost(6) + 3 * 100_000
    assert client.json()["service"]["billing"]["request_cost_usd"] == event.cost_nano_usd / 10**9
    await served.assert_nothing_is_left_open()


async def test_a_stream_has_openais_events_in_their_order_and_what_was_settled(served: Served) -> None:
    client = await ask(served, stream=True)
    events = events_of(client)
    order = list(dict.fromkeys(event["type"].removeprefix("response.") for event in events))
    assert order == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    closing = events[-1]["response"]
    (settled,) = await served.events()
    assert closing["usage"] == usage(settled.prompt_tokens, settled.completion_tokens)
    assert closing["service"]["metering"] == {"persisted": True, "status": "persisted"}
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert closing["output"][0]["content"][0]["text"] == text
    await served.assert_nothing_is_left_open()


async def test_a_stream_that_breaks_ends_with_an_error_and_a_failed_response(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineFailed("the engine died"), fails_after=4)
    error, failed = events_of(await ask(served, stream=True))[-2:]
    assert (error["type"], error["code"]) == ("error", "engine_failed")
    # What OpenAI's SDKs raise as an exception.
    assert error["error"]["message"] == error["message"] == "the engine died"
    response = failed["response"]
    assert (failed["type"], response["status"]) == ("response.failed", "failed")
    assert response["error"] == {"code": "server_error", "message": "the engine died"}
    (event,) = await served.events()
    assert response["usage"] == usage(2, 4) and event.cost_nano_usd == token_cost(4)
    await served.assert_nothing_is_left_open()


async def test_a_stream_of_nonsense_ends_in_an_error_too() -> None:
    form = ResponseReplyForm({"response": {}}, Places())
    last = b'event: x\ndata: {"sequence_number": 7, nonsense\n\n'
    asked = EngineRequest("r", "m", (), 1, True, "salt")
    ended = form.error(unexpected_problem(), {}, asked, last)
    assert b'"sequence_number":8' in ended and b"event: response.failed" in ended


async def test_what_fails_before_the_first_event_is_an_error_of_http(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineUnavailable("busy", retry_after_s=3))
    client = await ask(served, stream=True)
    assert (client.status, client.json()["error"]["code"]) == (503, "engine_unavailable")
    served.engine = FakeEngine(garbage=b"nonsense")
    assert (await ask(served)).status == 502
    await served.assert_nothing_is_left_open()


async def test_a_limit_that_was_asked_for_is_not_cut_to_what_can_be_paid(served: Served) -> None:
    # 4,000 tokens cost 1.6 dollars; where none were asked for, 512 do.
    key = {"Authorization": f"Bearer {await served.new_key(spend_limit_nano_usd=10**9 // 2)}"}
    statuses = [
        (await served.post(PATH, {"input": "Hi", "max_output_tokens": limit}, headers=key).run()).status
        for limit in (4000, None)
    ]
    assert statuses == [402, 200]


USER = {"role": "user", "content": "Hi"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "…"}
IMAGE = {"type": "input_image", "image_url": "https://x.example/a.png"}
SCHEMA = {"type": "json_schema", "name": "s", "schema": {"$ref": "#"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": None}, "input"),
        ({"input": [USER, {"role": "tool", "content": "x"}]}, "input[1].role"),
        ({"input": [USER, {"role": "user", "content": 3}]}, "input[1].content"),
        ({"input": [USER, {**USER, "content": [{"type": "input_text"}]}]}, "input[1].content[0].text"),
        ({"input": [{**USER, "content": [IMAGE]}]}, "input[0].content[0]"),
        ({"instructions": "x", "input": [{**USER, "content": [{}]}]}, "input[0].content[0].type"),
        ({"input": [USER, {"type": "item_reference", "id": "msg_1"}]}, "input[1]"),
        ({"input": [USER, {"type": "web_search_call", "id": "ws_1"}]}, "input[1].type"),
        ({"input": [USER, {"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[1].name"),
        ({"input": [USER, {"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[1].call_id"),
        ({"input": [USER, {"type": "function_call_output", "call_id": "c"}]}, "input[1].output"),
        ({"instructions": ["x"]}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "s"}}}, "text.format.schema"),
        ({"text": {"format": SCHEMA}}, "text.format.schema"),
        ({"text": {"format": {**SCHEMA, "name": "a b"}}}, "text.format.name"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [TOOL, {"type": "file_search", "vector_store_ids": []}]}, "tools[1].type"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL, {**TOOL, "parameters": 3}]}, "tools[1].parameters"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": True}, "background"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"service_tier": "priority"}, "service_tier"),
    ],
)
async def test_an_error_names_the_field_of_the_body(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    client = await ask(served, **fields)
    assert client.status == 400, client.body
    error = client.json()["error"]
    assert error["param"] == param and error["message"]
    assert served.engine.requests == []
    await served.assert_nothing_is_left_open()


async def test_a_prompt_that_is_too_long_is_openais_error(served: Served) -> None:
    served.engine = FakeEngine(context_length=8)
    client = await ask(served, input="one two three four five six seven eight")
    error = client.json()["error"]
    assert (client.status, error["code"], error["param"]) == (400, "context_length_exceeded", "input")
    # A limit caps what is left, and never refuses a prompt.
    assert (await ask(served, max_output_tokens=10**6)).status == 200


async def test_items_become_the_messages_of_a_chat(served: Served) -> None:
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
        USER,
        REASONING,
        {**REASONING, "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {**said, "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "go", "namespace": "ns", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
    ]
    assert (await ask(served, input=items, tools=[TOOL])).status == 200
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for call_id, name in (("c1", "look_up"), ("c2", "ns__go"))
    ]
    assert list(served.engine.requests[-1].messages) == [
        {"role": "system", "content": [{"type": "text", "text": "Rules."}]},
        USER,
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}],
            "reasoning": "Hm.",
            "tool_calls": calls,
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
    ]


async def test_functions_are_offered_and_what_agents_name_beside_them_is_left_out(served: Served) -> None:
    inner = [{**TOOL, "name": "go"}, {**TOOL, "name": "long_" * 12}]
    space = {"type": "namespace", "name": "agents", "description": "Others.", "tools": inner}
    offered = [
        TOOL,
        space,
        {"type": "web_search", "external_web_access": False},
        {"type": "custom", "name": "p"},
    ]
    client = await ask(served, tools=offered, parallel_tool_calls=False, tool_choice="auto")
    response = Response.model_validate(client.json())
    assert [tool.type for tool in response.tools] == ["function", "namespace"]
    request = served.engine.requests[-1]
    names = [tool["function"]["name"] for tool in request.options["tools"]]
    assert names[:2] == ["look_up", "agents__go"] and len(names[2]) == 64
    assert request.form_options["namespaces"][names[2]] == ["agents", "long_" * 12]
    assert request.options["parallel_tool_calls"] is False
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "look_up"}],
    }
    shown = (await ask(served, tools=offered, tool_choice={**allowed, "junk": "x" * 99})).json()
    assert (shown["tool_choice"], [tool["name"] for tool in shown["tools"]]) == (allowed, ["look_up"])
    options = served.engine.requests[-1].options
    assert ([tool["function"]["name"] for tool in options["tools"]], options["tool_choice"]) == (
        ["look_up"],
        "required",
    )


async def test_of_a_model_that_ignores_tools_the_reply_says_that_none_were_offered(served: Served) -> None:
    shown = (await ask(served, model="deaf", tools=[TOOL])).json()
    assert (shown["tools"], shown["tool_choice"]) == ([], "none")


async def test_options_reach_the_engine_under_a_chats_names(served: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    text = {"format": {"type": "json_schema", "name": "s", "schema": schema, "strict": True}}
    fields = {"temperature": 0.3, "top_p": 0.5, "text": text, "top_logprobs": 2, "unknown": 1}
    client = await ask(
        served, **fields, include=["message.output_text.logprobs", "reasoning.encrypted_content"]
    )
    assert client.json()["text"] == text
    assert served.engine.requests[-1].options == {
        "temperature": 0.3,
        "top_p": 0.5,
        "logprobs": True,
        "top_logprobs": 2,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": schema, "strict": True},
        },
    }
