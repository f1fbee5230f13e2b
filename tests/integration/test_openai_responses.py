"""OpenAI's Responses API through the `openai` client, against vLLM: every reply is one of OpenAI's types."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.integration.running import Server, wait_for

MODEL = "pith-mini"
ENDLESS = {"ignore_eos": True}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Turin", "Oslo"]}, "days": {"type": "integer", "enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
ASK = "What is the weather in Turin?"


class Forecast(BaseModel):
    city: Literal["Turin", "Oslo"]
    days: Literal["one", "two"]


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[str], openai.OpenAI]]:
    with contextlib.ExitStack() as opened:
        yield lambda key: opened.enter_context(
            openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=key, max_retries=0, timeout=60)
        )


@pytest.fixture
def client(connect: Callable[[str], openai.OpenAI], server: Server) -> openai.OpenAI:
    return connect(server.key)


def checked(response: Response) -> dict[str, Any]:
    """As JSON, once it was held against OpenAI's types: the client itself takes what it gets."""
    fields = json.loads(response.to_json(exclude_unset=True))
    Response.model_validate(fields)
    assert fields["service"]["metering"]["persisted"] is True
    return fields


def recorded(server: Server, request_id: str) -> tuple[int, int, str]:
    """What the ledger has of a request: its tokens, and how it ended."""

    def found() -> Any:
        uri = f"file:{server.state_dir}/pith.db?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=120)) as ledger:
            columns = "prompt_tokens, completion_tokens, outcome"
            return ledger.execute(
                f"SELECT {columns} FROM usage_events WHERE request_id = ?", (request_id,)
            ).fetchall()

    (row,) = wait_for(found, what=f"the usage of {request_id}")
    return tuple(row)  # type: ignore[return-value]


def test_a_text_is_answered_and_billed_as_the_ledger_says(client: openai.OpenAI, server: Server) -> None:
    raw = client.responses.with_raw_response.create(
        model=MODEL,
        input="Tell me about the river.",
        instructions="Be brief.",
        max_output_tokens=12,
        temperature=0,
        metadata={"order": "4417"},
        extra_body=ENDLESS,
    )
    response = raw.parse()
    fields = checked(response)
    assert response.usage is not None and response.output_text
    usage = (response.usage.input_tokens, response.usage.output_tokens)
    assert usage == recorded(server, raw.headers["x-request-id"])[:2] and usage[1] == 12
    assert (response.status, response.instructions) == ("incomplete", "Be brief.")
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert (fields["metadata"], fields["max_output_tokens"]) == ({"order": "4417"}, 12)


def test_the_prompt_is_that_of_a_chat(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model=MODEL,
        instructions="Be brief.",
        input=[{"role": "user", "content": [{"type": "input_text", "text": "Tell me about the river."}]}],
        temperature=0,
        max_output_tokens=8,
    )
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Tell me about the river."}]},
    ]
    chat = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=8)
    assert response.usage is not None and chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.output_text == chat.choices[0].message.content


def test_a_stream_has_openais_events_in_order(client: openai.OpenAI) -> None:
    stream = client.responses.create(model=MODEL, input=ASK, max_output_tokens=24, temperature=0, stream=True)
    events = [json.loads(event.to_json(exclude_unset=True)) for event in stream]
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        EVENT.validate_python(event)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:-1] == ["output_text.done", "content_part.done", "output_item.done"]
    assert kinds[-1] in ("completed", "incomplete") and set(kinds[4:-4]) == {"output_text.delta"}
    closing = events[-1]["response"]
    assert closing["usage"]["output_tokens"] > 0 and closing["service"]["billing"]["request_cost_usd"] > 0
    said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert closing["output"][0]["content"][0]["text"] == said
    assert closing["output"] == [event["item"] for event in events if event["type"].endswith("item.done")]


def test_a_stream_that_is_helped_along_ends_in_the_same_response(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=ASK, text_format=Forecast) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == said and isinstance(final.output_parsed, Forecast)


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
def test_a_function_is_called_and_its_result_is_read(client: openai.OpenAI, streamed: bool) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False,
        "max_output_tokens": 200,
    }
    if streamed:
        with client.responses.stream(input=ASK, **asked) as stream:
            kinds = {event.type for event in stream}
            first: Response = stream.get_final_response()
        assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= kinds
    else:
        first = client.responses.create(input=ASK, **asked)
        checked(first)
    (call,) = [item for item in first.output if item.type == "function_call"]
    arguments = json.loads(call.arguments)
    assert call.name == "weather" and arguments["city"] in ("Turin", "Oslo") and call.call_id
    turn: list[Any] = [
        {"role": "user", "content": ASK},
        *(json.loads(item.to_json(exclude_unset=True)) for item in first.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "clear"}'},
    ]
    second = client.responses.create(model=MODEL, input=turn, tools=[WEATHER], max_output_tokens=16)
    checked(second)
    assert second.usage is not None and first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens


def test_what_an_agent_sends_at_its_defaults_is_taken(client: openai.OpenAI) -> None:
    """As Codex CLI does: a namespace of functions, a search of the web that is not to be had, reasoning, no store."""
    tools: list[Any] = [
        WEATHER,
        {
            "type": "namespace",
            "name": "agents",
            "description": "Others.",
            "tools": [{**WEATHER, "name": "go"}],
        },
        {"type": "web_search", "external_web_access": False},
    ]
    response = client.responses.create(
        model=MODEL,
        input=[
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": ASK}]},
        ],
        tools=tools,
        tool_choice={"type": "function", "name": "agents__go"},
        reasoning={"summary": "auto"},
        include=["reasoning.encrypted_content"],
        store=False,
        prompt_cache_key="c1",
        max_output_tokens=200,
        extra_body={"client_metadata": {"turn_id": "t1"}},
    )
    fields = checked(response)
    assert fields["store"] is False
    assert [tool["type"] for tool in fields["tools"]] == ["function", "namespace"]
    calls = [item for item in fields["output"] if item["type"] == "function_call"]
    assert calls and {(call["namespace"], call["name"]) for call in calls} == {("agents", "go")}


def test_a_conversation_goes_on_from_its_last_response(client: openai.OpenAI) -> None:
    """By `previous_response_id`, and by references to items, as AI SDK sends them."""
    fields: dict[str, Any] = {"model": MODEL, "max_output_tokens": 8, "temperature": 0, "extra_body": ENDLESS}
    first = client.responses.create(input=ASK, **fields)
    assert checked(first)["store"] is True
    user: Any = {"role": "user", "content": ASK}
    whole = [user, *(json.loads(item.to_json(exclude_unset=True)) for item in first.output), user]
    referred: Any = [user, {"type": "item_reference", "id": first.output[0].id}, user]
    replies = [
        client.responses.create(input=ASK, previous_response_id=first.id, **fields),
        client.responses.create(input=referred, **fields),
        client.responses.create(input=whole, store=False, **fields),
    ]
    usages = [reply.usage.input_tokens for reply in replies if reply.usage is not None]
    assert len(usages) == 3 and len(set(usages)) == 1
    assert len({reply.output_text for reply in replies}) == 1


def test_a_schema_is_parsed_into_its_type(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(model=MODEL, input=ASK, text_format=Forecast, max_output_tokens=64)
    assert isinstance(parsed.output_parsed, Forecast)
    checked(parsed)


def test_log_probabilities_come_with_the_text(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model=MODEL,
        input=ASK,
        max_output_tokens=4,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        extra_body=ENDLESS,
    )
    (part,) = checked(response)["output"][0]["content"]
    assert len(part["logprobs"]) == 4 and len(part["logprobs"][0]["top_logprobs"]) == 2


def test_who_leaves_pays_for_what_was_generated(client: openai.OpenAI, server: Server) -> None:
    request_id = f"leaves-{uuid.uuid4().hex}"
    stream = client.responses.create(
        model=MODEL,
        input=ASK,
        stream=True,
        max_output_tokens=2000,
        extra_body=ENDLESS,
        extra_headers={"X-Request-ID": request_id},
    )
    for event in stream:
        if event.type == "response.output_text.delta":
            break
    stream.close()
    _, completion_tokens, outcome = recorded(server, request_id)
    assert outcome == "disconnected" and 0 < completion_tokens < 2000


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"model": "gpt-6"}, openai.NotFoundError, "model"),
        ({"previous_response_id": "resp_1"}, openai.BadRequestError, "previous_response_id"),
        ({"background": True}, openai.BadRequestError, "background"),
        ({"tools": [{"type": "web_search"}]}, openai.BadRequestError, "tools[0].type"),
        ({"input": "word " * 6000}, openai.BadRequestError, "input"),
        ({"input": "word " * 6000, "stream": True}, openai.BadRequestError, "input"),
        (
            {"text": {"format": {"type": "json_schema", "name": "s", "schema": {"$ref": "#"}}}},
            openai.BadRequestError,
            "text.format.schema",
        ),
    ],
)
def test_errors_are_of_openais_classes_and_name_the_field(
    client: openai.OpenAI, fields: dict[str, Any], error: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(error) as raised:
        client.responses.create(**{"model": MODEL, "input": ASK, **fields})
    assert raised.value.param == param
    if len(str(fields.get("input", ""))) > 1000:
        assert raised.value.code == "context_length_exceeded"


def test_a_wrong_key_and_an_empty_purse_are_refused(
    connect: Callable[[str], openai.OpenAI], server: Server
) -> None:
    with pytest.raises(openai.AuthenticationError):
        connect("nonsense").responses.create(model=MODEL, input=ASK)
    poor = server.new_key(f"poor-{uuid.uuid4().hex[:12]}", limit_usd="0.000001")
    with pytest.raises(openai.APIStatusError) as refused:
        connect(poor).responses.create(model=MODEL, input=ASK)
    assert (refused.value.status_code, refused.value.code) == (402, "insufficient_quota")
