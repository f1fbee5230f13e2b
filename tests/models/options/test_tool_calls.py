"""Calls of earlier turns: what reaches the template, and what would break it."""

import json
from typing import Any

import pytest

from models.catalog import Capabilities
from models.errors import InvalidField, UnsupportedOption
from models.options.messages import MAX_ARGUMENT_VALUES, check_calls, engine_tool_calls

PLAIN = Capabilities()
FUNCTION = {"name": "f", "arguments": '{"a": 1}'}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}


def calls(
    role: str = "assistant", capabilities: Capabilities = PLAIN, **message: Any
) -> list[dict[str, Any]]:
    return engine_tool_calls({"role": role, **message}, ("messages", 4), capabilities=capabilities)


def invalid(role: str = "assistant", **message: Any) -> tuple[str | int, ...]:
    with pytest.raises(InvalidField) as caught:
        calls(role, **message)
    return caught.value.loc


def test_a_call_goes_on_without_what_is_not_its_own() -> None:
    assert calls(tool_calls=[{**CALL, "index": 0, "x": 1, "function": {**FUNCTION, "y": 2}}]) == [CALL]


def test_no_calls_are_none() -> None:
    assert calls() == calls(tool_calls=None) == calls(tool_calls=[]) == calls("user", tool_calls=[]) == []


def test_the_deprecated_function_call_is_a_call() -> None:
    assert calls(function_call=FUNCTION) == [{"id": "call_4", "type": "function", "function": FUNCTION}]
    assert invalid(function_call="auto") == ("messages", 4, "function_call")
    assert invalid(function_call={"arguments": "{}"}) == ("messages", 4, "function_call", "name")


@pytest.mark.parametrize(
    ("call", "loc"),
    [
        ({}, ("id",)),
        ({**CALL, "id": 1}, ("id",)),
        ({**CALL, "id": "x" * 257}, ("id",)),
        ({**CALL, "function": None}, ("function",)),
        ({**CALL, "function": []}, ("function",)),
        ({**CALL, "function": {"arguments": "{}"}}, ("function", "name")),
        ({**CALL, "function": {"name": ""}}, ("function", "name")),
        ({**CALL, "function": {"name": "f", "arguments": {}}}, ("function", "arguments")),
        ({**CALL, "function": {"name": "f", "arguments": None}}, ("function", "arguments")),
    ],
)
def test_a_malformed_call_is_named(call: dict[str, Any], loc: tuple[str, ...]) -> None:
    assert invalid(tool_calls=[CALL, call]) == ("messages", 4, "tool_calls", 1, *loc)


@pytest.mark.parametrize("role", ["user", "system", "tool", "function", "developer"])
def test_only_the_assistant_calls(role: str) -> None:
    assert invalid(role, tool_calls=[CALL]) == ("messages", 4, "tool_calls")


def test_a_template_that_knows_no_tools_gets_no_calls() -> None:
    with pytest.raises(UnsupportedOption, match=r"messages\[4\]\.tool_calls"):
        calls(capabilities=Capabilities(template_roles=frozenset({"user", "assistant"})), tool_calls=[CALL])


def test_a_custom_call_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOption, match=r"messages\[4\]\.tool_calls\[1\]\.type"):
        calls(tool_calls=[CALL, {"id": "c", "type": "custom"}])


def test_there_is_a_most_of_calls() -> None:
    assert len(calls(tool_calls=[CALL] * 128)) == 128
    assert invalid(tool_calls=[CALL] * 129) == ("messages", 4, "tool_calls")


@pytest.mark.parametrize(
    "arguments",
    [
        r'{"a": "\ud800"}',
        r'{"a": ["\uDC00 \uD83D"]}',
        r'{"\udfff": 1}',
        r'"\ude00\ud83d"',
        '{"a": ' + "9" * 4301 + "}",
    ],
)
def test_arguments_that_no_prompt_can_hold_are_named(arguments: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    loc = ("messages", 4, "tool_calls", 1, "function", "arguments")
    assert invalid(tool_calls=[CALL, call]) == loc
    assert invalid(function_call=call["function"]) == ("messages", 4, "function_call", "arguments")


@pytest.mark.parametrize(
    "arguments",
    [r'{"a": "\ud83d\ude00"}', r'{"a": "\\ud800"}', r'{"a": \ud800', '{"a": ' + "9" * 4300 + "}"],
)
def test_whole_characters_and_what_is_no_json_pass(arguments: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    assert calls(tool_calls=[call])[0]["function"]["arguments"] == arguments


@pytest.mark.parametrize("arguments", ["", "{}", "not json", '{"a": "[[[["}', "[" * 64 + "]" * 64, "[" * 64])
def test_arguments_are_passed_on_as_the_model_wrote_them(arguments: str) -> None:
    function = {"name": "f", "arguments": arguments}
    assert calls(tool_calls=[{**CALL, "function": function}])[0]["function"] == function


@pytest.mark.parametrize(
    "arguments", ["[" * 65 + "]" * 65, '{"a":' * 100_000, "[" * 900 + "x", "[" * 100_000 + "]" * 100_000]
)
def test_arguments_too_deep_to_parse_are_refused(arguments: str) -> None:
    loc = invalid(tool_calls=[{**CALL, "function": {"name": "f", "arguments": arguments}}])
    assert loc == ("messages", 4, "tool_calls", 0, "function", "arguments")


def test_the_calls_of_all_messages_and_what_their_arguments_hold_are_bounded() -> None:
    def place(*messages: list[Any]) -> tuple[str | int, ...]:
        with pytest.raises(InvalidField) as caught:
            check_calls([{"role": "assistant", "tool_calls": calls} for calls in messages])
        return caught.value.loc

    def with_values(count: int) -> dict[str, Any]:
        return {**CALL, "function": {"name": "f", "arguments": "[" + "0," * (count - 2) + "0]"}}

    check_calls([{"tool_calls": [CALL] * 128}] * 8)
    assert place(*[[CALL] * 128] * 8, [CALL]) == ("messages", 8, "tool_calls")
    check_calls([{"tool_calls": [with_values(MAX_ARGUMENT_VALUES)]}])
    assert place([with_values(MAX_ARGUMENT_VALUES + 1)]) == ("messages", 0, "tool_calls")
    assert place([with_values(MAX_ARGUMENT_VALUES // 2)], [with_values(MAX_ARGUMENT_VALUES // 2 + 1)])[1] == 1
    assert place([with_values(2_000_000)]) == ("messages", 0, "tool_calls")
    # A program in a string is one value.
    check_calls(
        [{"tool_calls": [{"function": {"arguments": json.dumps({"code": "f(a, [b, c]),\n" * 50_000})}}]}]
    )
    code = {"function": {"arguments": json.dumps({"path": "a.py", "code": "f(a, [b, c]),\n" * 100})}}
    check_calls([{"tool_calls": [code] * 100}] * 10)
    # What is malformed is named elsewhere.
    check_calls(
        [{"tool_calls": [None, 1, {}, {"function": 1}]}, {"function_call": "auto"}, {"function_call": {}}]
    )
