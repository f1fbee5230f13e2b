"""Function tools on real engines, through the `openai` client: the caller or the model chooses, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from tests.integration.running import Server

MODEL = "pith-mini"
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Turin?"}]
# What the tiny models may choose is bounded everywhere, so that their calls end.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Turin", "Oslo"]}, "days": {"type": "integer", "enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
ZONES: dict[str, Any] = {**SCHEMA, "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"]}
# One call takes 40 to 70 tokens.
ENOUGH, TOO_FEW = 200, 30
# The token that opens a call.
TOOL_CALL = "8190"


def tool(name: str, parameters: Any = None, **function: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **function}}


def named(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


WEATHER, CLOCK = tool("weather", SCHEMA, description="The weather of the next days."), tool("clock", ZONES)
TOOLS = [WEATHER, CLOCK]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    # A model on demand may say first that it starts.
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=4, timeout=60) as made:
        yield made


def ask(client: openai.OpenAI, model: str = MODEL, messages: list[Any] = ASK, **fields: Any) -> Any:
    options: dict[str, Any] = {"tools": TOOLS, "max_tokens": ENOUGH, **fields}
    return client.chat.completions.create(model=model, messages=messages, **options)


def fits(call: Any) -> str:
    """The name of the function that is called, with arguments that its schema allows."""
    assert call.type == "function" and call.id
    found: dict[str, Any] = json.loads(call.function.arguments)
    if call.function.name == "weather":
        assert found["city"] in ("Turin", "Oslo") and found["days"] in (1, 2, 3) and len(found) == 2
    else:
        assert call.function.name == "clock" and found in ({"zone": "UTC"}, {"zone": "CET"})
    return str(call.function.name)


# The second starts on this request.
@pytest.mark.parametrize("model", [MODEL, pytest.param("pith-base", marks=pytest.mark.long)])
def test_a_required_call_fits_its_schema(client: openai.OpenAI, model: str) -> None:
    (choice,) = ask(client, model, tool_choice="required").choices
    assert choice.finish_reason == "tool_calls"
    assert {fits(call) for call in choice.message.tool_calls} <= {"weather", "clock"}


@pytest.mark.parametrize("name", ["weather", "clock"])
def test_a_named_function_is_called_once(client: openai.OpenAI, name: str) -> None:
    (choice,) = ask(client, tool_choice=named(name)).choices
    assert [fits(call) for call in choice.message.tool_calls] == [name]
    assert choice.finish_reason == "stop"


def test_each_of_several_choices_makes_its_own_call(client: openai.OpenAI) -> None:
    reply = ask(client, tool_choice="required", n=3, temperature=1, seed=4)
    calls = [call for choice in reply.choices for call in choice.message.tool_calls]
    assert len(reply.choices) == 3 and all(fits(call) for call in calls)
    assert len({call.id for call in calls}) == len(calls) >= 3


def test_calls_may_be_parallel_and_are_not_where_the_caller_says_so(client: openai.OpenAI) -> None:
    # No reply may end before so many tokens, and one call has fewer.
    options = {"tool_choice": "required", "extra_body": {"min_tokens": 75}}
    (several,) = ask(client, **options).choices
    assert len(several.message.tool_calls) > 1 and all(fits(call) for call in several.message.tool_calls)
    (one,) = ask(client, parallel_tool_calls=False, **options).choices
    assert len(one.message.tool_calls) == 1 and fits(one.message.tool_calls[0])


def test_a_model_may_call_by_itself(client: openai.OpenAI) -> None:
    """The tiny models do not, so one is made to want it; `strict` then holds the arguments to the schema."""
    wants = {"logit_bias": {TOOL_CALL: 100}, "stop": ["</tool_call>"]}
    (choice,) = ask(client, tools=[tool("weather", SCHEMA, strict=True)], **wants).choices
    assert [fits(call) for call in choice.message.tool_calls] == ["weather"]
    assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_model_that_does_not_call_answers(client: openai.OpenAI, choice: str) -> None:
    (answer,) = ask(client, tool_choice=choice, max_tokens=12).choices
    assert answer.message.content and answer.message.tool_calls is None
    assert answer.finish_reason in ("stop", "length")


@dataclass
class Streamed:
    """One call as its deltas make it."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    pieces: int = 0


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[dict[tuple[int, int], Streamed], dict[int, str]]:
    """The calls of a stream by choice and place, and why each choice ended."""
    calls: dict[tuple[int, int], Streamed] = {}
    ends: dict[int, str] = {}
    for chunk in ask(client, stream=True, **fields):
        assert chunk.object == "chat.completion.chunk"
        for choice in chunk.choices:
            assert choice.index not in ends
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault((choice.index, delta.index), Streamed())
                call.id += delta.id or ""
                call.name += delta.function.name or ""
                call.arguments += delta.function.arguments or ""
                call.pieces += 1
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    return calls, ends


def test_the_deltas_of_a_stream_make_the_call_of_the_plain_reply(client: openai.OpenAI) -> None:
    (choice,) = ask(client, tool_choice="required").choices
    calls, ends = streamed(client, tool_choice="required")
    assert [(call.name, json.loads(call.arguments)) for call in calls.values()] == [
        (call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls
    ]
    assert all(call.id and call.pieces > 1 for call in calls.values())
    assert ends == {0: "tool_calls"}


def test_the_calls_of_a_streams_choices_are_kept_apart(client: openai.OpenAI) -> None:
    calls, ends = streamed(client, tool_choice=named("weather"), n=2, temperature=1, seed=4)
    assert calls.keys() == {(0, 0), (1, 0)} and ends == {0: "stop", 1: "stop"}
    for call in calls.values():
        assert call.name == "weather" and json.loads(call.arguments)["city"] in ("Turin", "Oslo")


def test_a_call_that_the_limit_cuts_off_is_not_said_to_be_complete(client: openai.OpenAI) -> None:
    (choice,) = ask(client, tool_choice=named("weather"), max_tokens=TOO_FEW).choices
    assert choice.finish_reason == "length" and "tool_call" not in (choice.message.content or "")
    # As its stream says it: as far as it came, and never as text.
    assert [call.function.name for call in choice.message.tool_calls or []] in ([], ["weather"])
    for demanded in ("required", named("weather")):
        calls, ends = streamed(client, tools=[WEATHER], tool_choice=demanded, max_tokens=TOO_FEW)
        assert ends == {0: "length"}, demanded
        assert [call.name for call in calls.values()] in ([], ["weather"])


def test_a_result_is_read_in_the_next_turn(client: openai.OpenAI) -> None:
    first = ask(client, tool_choice=named("weather"))
    said = first.choices[0].message
    result = {
        "role": "tool",
        "tool_call_id": said.tool_calls[0].id,
        "content": "Sunny in Turin, all three days.",
    }
    turn = [*ASK, said.model_dump(exclude_none=True), result]
    second = ask(client, messages=turn, max_tokens=20)
    assert second.choices[0].message.content and not second.choices[0].message.tool_calls
    assert second.usage.prompt_tokens > first.usage.prompt_tokens + 20
    again = ask(client, messages=turn, tool_choice="required")
    assert all(fits(call) for call in again.choices[0].message.tool_calls)


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_demanded_call_fits_its_schema_strict_or_not(client: openai.OpenAI, strict: bool | None) -> None:
    (choice,) = ask(client, tools=[tool("clock", ZONES, strict=strict)], tool_choice="required").choices
    assert {fits(call) for call in choice.message.tool_calls} == {"clock"}


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object", "properties": {}}])
def test_a_function_without_parameters_is_called_with_an_empty_object(
    client: openai.OpenAI, parameters: Any
) -> None:
    (choice,) = ask(client, tools=[tool("now", parameters)], tool_choice=named("now")).choices
    assert [call.function.arguments for call in choice.message.tool_calls] == ["{}"]


def test_a_format_holds_the_answer_and_tools_the_call(client: openai.OpenAI) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": ZONES}}
    (answer,) = ask(client, response_format=wanted).choices
    assert json.loads(answer.message.content)["zone"] in ("UTC", "CET")
    (call,) = ask(client, response_format=wanted, tool_choice=named("weather")).choices
    assert fits(call.message.tool_calls[0]) == "weather"


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({"type": "strange"}, ["tools", 1, "function", "parameters", "type"]),
        ({"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}, ["tools"]),
        ({"type": "object", "properties": {"a": {"pattern": "((", "type": "string"}}}, ["tools"]),
        ({"$ref": "#/$defs/none"}, ["tools"]),
        ({"type": "string", "pattern": ".*" * 200}, ["tools", 1, "function", "parameters", "pattern"]),
    ],
    ids=["unknown type", "nothing allowed", "no pattern", "no definition", "a pattern too dear"],
)
def test_a_schema_that_no_call_can_be_held_to_is_refused_and_the_engine_goes_on(
    client: openai.OpenAI, parameters: dict[str, Any], place: list[Any]
) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        ask(client, tools=[CLOCK, tool("f", parameters)], tool_choice="required")
    (issue,) = caught.value.response.json()["detail"]
    assert issue["loc"] == ["body", *place]
    assert ask(client, max_tokens=1).usage.completion_tokens == 1
