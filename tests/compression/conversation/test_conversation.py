from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from compression.conversation import fault_in, is_conversation, spans_by_message
from compression.pipeline.compression_model import CompressionResult
from compression.source.units import Slice
from tests.compression.conversation.chats import answer, call, is_conversation_still

Compress = Callable[..., CompressionResult]


def chat(rounds: int = 12) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You help people to book flights. " * 20}]
    for number in range(rounds):
        text = f'Please look at order A{number}.\nIt says "pending" — and I paid {number} €.'
        record = {"order": f"A{number}", "state": "pending", "notes": [f"seat {number}C", "no meal"] * 8}
        messages += [
            {"role": "user", "content": text},
            call("call_1", "look_up", order=f"A{number}"),
            answer("call_1", json.dumps(record)),
            {"role": "assistant", "content": f"Order A{number} is pending. Is there anything else?"},
        ]
    return [*messages, {"role": "user", "content": "What of the other one?"}]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 1])
def test_the_exchange_that_is_asked_about_is_kept_and_every_message_is_whole_but_for_its_text(
    compress: Compress, indent: int | None, ascii_only: bool
) -> None:
    messages = chat()
    source = json.dumps(messages, indent=indent, ensure_ascii=ascii_only)
    result = compress(source, 0.3, marked=["seat 7C"])
    left = is_conversation_still(source, messages, result)
    assert (
        messages[30] in left
        and "seat 7C" in json.loads(left[left.index(messages[30]) + 1]["content"])["notes"]
    )
    assert left[0]["role"] == "system" and left[-1]["role"] == "user"


def test_a_record_inside_a_result_parses_after_some_of_it_went(compress: Compress) -> None:
    record = {f"key{number}": f"value {number}" for number in range(80)}
    messages = [{"role": "user", "content": "Look."}, call("a", "f", x=1), answer("a", json.dumps(record))]
    result = compress(json.dumps(messages), 0.3, marked=["value 41"])
    left = json.loads(json.loads(result.output)[-1]["content"])
    assert left["key41"] == "value 41" and len(left) < 40


def test_white_space_between_marks_of_json_is_not_paid_for(compress: Compress) -> None:
    messages = chat()
    result = compress(json.dumps(messages, indent=4), 0.3)
    texts = sum(len(json.dumps(message["content"])) for message in json.loads(result.output))
    shells = json.dumps(
        [{**message, "content": ""} for message in json.loads(result.output)], separators=(",", ":")
    )
    assert len(result.output) <= texts + len(shells)


def test_an_exchange_may_be_chosen_for_the_arguments_of_its_call(compress: Compress) -> None:
    messages = [*chat(), call("b", "book", seat="unheard-of"), answer("b", "")]
    result = compress(json.dumps(messages), 0.1, marked=["unheard-of"])
    assert json.loads(result.output)[-2:] == messages[-2:]


def test_a_part_that_is_a_text_goes_with_its_text(compress: Compress) -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {"q": 1}}
    talk = {"type": "text", "text": "Let me look at it. " * 9}
    found = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "text", "text": "It is 7C. " + "No. " * 40}],
    }
    messages = [
        {"role": "user", "content": [talk, image, {"type": "text", "text": "Which seat?"}]},
        {"role": "assistant", "content": [talk, use]},
        {"role": "user", "content": [found, talk]},
    ]
    source = json.dumps(messages)
    left = json.loads(compress(source, 0.3, marked=["It is 7C."]).output)
    assert left[-2]["content"] == [use]
    assert left[-1]["content"][0]["content"][0]["text"].startswith("It is 7C.")
    assert not [part for message in left for part in message["content"] if part.get("text") == ""]


def test_a_system_prompt_of_a_body_is_cut_as_a_text(compress: Compress) -> None:
    body = {"system": "Be kind. Order 7 is lost. " + "Be quick. " * 90, "messages": chat(1)}
    left = json.loads(compress(json.dumps(body), 0.3, marked=["is lost"]).output)
    assert "Order 7 is lost." in left["system"] and len(left["system"]) < 900


def test_a_body_keeps_its_messages(compress: Compress) -> None:
    tools = [{"name": f"tool{number}", "description": "It does a thing. " * 9} for number in range(9)]
    body = {"model": "m", "system": "Be kind. " * 40, "tools": tools, "messages": chat(3), "stream": True}
    for ratio in (0.9, 0.5, 0.2, 0.05, 0.01):
        left = json.loads(compress(json.dumps(body), ratio).output)
        assert isinstance(left["messages"], list)
        assert all(tool in tools for tool in left.get("tools", ()))


@pytest.mark.parametrize("budget", [0.001, 0.01, 0.02])
def test_where_nothing_fits_no_message_is_left_and_the_receipt_says_so(
    compress: Compress, budget: float
) -> None:
    source = json.dumps([{"role": "user", "content": "word " * 60}])
    result = compress(source, budget)
    assert result.output == "[]"
    flagged = {flag.code for flag in result.receipt.risk_flags}
    assert ("target_unreachable" in flagged) == (result.receipt.compression_ratio > budget)


def test_a_result_without_its_call_is_left_as_it_was(compress: Compress) -> None:
    messages = [answer("gone", "One result. " * 30), {"role": "user", "content": "And now? " * 30}]
    result = compress(json.dumps(messages), 0.6, marked=["result"])
    left = json.loads(result.output)
    assert left[0]["tool_call_id"] == "gone" and "result" in left[0]["content"]


def test_spans_are_of_the_text_as_it_was_written() -> None:
    source = r'[{"role":"user","content":"a\n\ud83d\ude00\"b"},{"role":"user","content":[{"type":"text","text":"cd"}]}]'
    at = source.index(r"\"b")
    (first,) = spans_by_message(source, [Slice(2, 5), Slice(at, at + 3)])
    assert first.index == 0 and first.texts[0].path == () and first.texts[0].spans == ((3, 5),)
    whole = spans_by_message(source, [Slice(0, len(source))])
    assert [text.spans for message in whole for text in message.texts] == [((0, 5),), ((0, 2),)]
    assert whole[1].texts[0].path == (0,)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([{"role": "user", "content": "a"}], None),
        ({"messages": [{"role": "user", "content": None}]}, None),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], None),
        ([], ": must hold a message"),
        ("text", ": must be an array of messages"),
        ({"messages": [{"role": 1}]}, "messages[0].role: must be a string that is not empty"),
        ([{"role": "user", "content": 3}], "[0].content: must be a string, null or an array of parts"),
        ([{"role": "user", "content": [{"type": "text"}]}], "[0].content[0].text: must be a string"),
        ([{"name": "Ann", "role": "pilot"}, {"name": "Bo", "role": "cook"}], ": no message has a content"),
    ],
)
def test_what_is_no_conversation_is_told_by_its_fault(value: object, fault: str | None) -> None:
    assert fault_in(value) == fault
    assert is_conversation(value) == (fault is None)


def test_what_the_user_said_last_stays_where_it_leaves_room(compress: Compress) -> None:
    messages = chat()
    for ratio in (0.5, 0.3, 0.1):
        assert json.loads(compress(json.dumps(messages), ratio, marked=["seat"]).output)[-1] == messages[-1]
    messages[-1]["content"] = "A paper that was pasted here. " * 400
    left = json.loads(compress(json.dumps(messages), 0.1, marked=["seat 7C"]).output)
    assert "seat 7C" in json.dumps(left) and len(left[-1]["content"]) < 4_000


def test_messages_are_never_put_in_another_order(compress: Compress) -> None:
    messages = chat()
    source = json.dumps(messages)
    result = compress(source, 0.4, marked=["A9"], preserve_order=False)
    is_conversation_still(source, messages, result)
    assert "A9" in result.output
