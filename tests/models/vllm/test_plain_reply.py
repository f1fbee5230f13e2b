"""A reply in one piece is what its stream assembles to: in each form, by every parser, cut off at any token."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from models.engine import EngineRequest, ReplyFormName
from models.engine_kinds import ENGINE_LIMITS
from tests.models.vllm.markup import ARGUMENTS, DEMANDED, MARKUP, NAME, NAMED, SPECIAL, TOOLS, UNBUILT
from tests.models.vllm.replayed import ReplayedEngine, ReplayedReplies, checkpoint_with

if TYPE_CHECKING:
    from models.vllm.counting_client import CountingClient

pytestmark = [
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
# vLLM reads them when it is imported.
os.environ.update(ENGINE_LIMITS)
FORMS: tuple[ReplyFormName, ...] = ("chat", "message", "response")
CHOICES: dict[str, Any] = {
    "auto": "auto",
    "required": "required",
    "named": {"type": "function", "function": {"name": NAME}},
}
NAMES = sorted(MARKUP)
# Its calls are one list, and vLLM fails on a second.
ONE_BLOCK = {"apertus"}
BEFORE = "Let me look. "


class Asked:
    """One loop for all requests, and the parsers that were used."""

    def __init__(self, engine: ReplayedEngine, runner: asyncio.Runner) -> None:
        self.engine = engine
        self._runner = runner
        self._replies: dict[tuple[str, str], ReplayedReplies] = {}

    def replies(self, tool_parser: str, reasoning_parser: str = "") -> ReplayedReplies:
        parsers = (tool_parser, reasoning_parser)
        if parsers not in self._replies:
            self._replies[parsers] = ReplayedReplies(
                self.engine, tool_parser=tool_parser, reasoning_parser=reasoning_parser
            )
        return self._replies[parsers]

    def streamed(self, replies: ReplayedReplies, cut: int, **options: Any) -> bytes:
        return self._runner.run(replies.data(request("chat", cut, True, **options)))

    def both(
        self, replies: ReplayedReplies, form: ReplyFormName, cut: int, **options: Any
    ) -> tuple[Any, Any]:
        """A reply in one piece, and what the stream of the same tokens assembles to."""
        read = READ[form]
        plain, stream = (
            self._runner.run(replies.data(request(form, cut, stream, **options))) for stream in (False, True)
        )
        return read(json.loads(plain)), read(ASSEMBLED[form](stream))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    from vllm.engine.arg_utils import AsyncEngineArgs

    folder = checkpoint_with(tmp_path_factory.mktemp("checkpoint"), SPECIAL)
    arguments = AsyncEngineArgs(
        model=str(folder), served_model_name="m", max_model_len=2048, dtype="float32", enforce_eager=True
    )
    with asyncio.Runner() as runner:
        yield Asked(ReplayedEngine(arguments.create_engine_config()), runner)


def request(form: ReplyFormName, cut: int, stream: bool, **options: Any) -> EngineRequest:
    form_options = {"response": {}, "namespaces": {}} if form == "response" else {}
    return EngineRequest(
        f"r{time.monotonic_ns()}",
        "m",
        ({"role": "user", "content": "Where is it?"},),
        cut,
        stream,
        "salt",
        options,
        form=form,
        form_options=form_options,
    )


def said_by(name: str, choice: str) -> str:
    """What a model says when it calls."""
    from vllm.tool_parsers import ToolParserManager

    if choice != "auto" and ToolParserManager.get_tool_parser(name).supports_required_and_named:
        return DEMANDED if choice == "required" else NAMED
    return MARKUP[name]


def events(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.partition(b"data: ")[2]) for event in data.split(b"\n\n") if event]


def assembled_chat(data: bytes) -> dict[str, Any]:
    choices: dict[int, dict[str, Any]] = {}
    for choice in (choice for chunk in events(data) for choice in chunk["choices"]):
        found = choices.setdefault(
            choice["index"], {"message": {"content": "", "reasoning": ""}, "calls": {}, "finish_reason": None}
        )
        for part in ("content", "reasoning"):
            found["message"][part] += choice["delta"].get(part) or ""
        for call in choice["delta"].get("tool_calls") or ():
            made = found["calls"].setdefault(call["index"], {"name": "", "arguments": ""})
            for part in made:
                made[part] += call["function"].get(part) or ""
        found["finish_reason"] = choice["finish_reason"] or found["finish_reason"]
    for found in choices.values():
        found["message"]["tool_calls"] = [{"function": found["calls"][at]} for at in sorted(found["calls"])]
    return {"choices": [choices[index] for index in sorted(choices)]}


def read_chat(reply: dict[str, Any]) -> list[Any]:
    return [
        (
            choice["message"]["content"] or "",
            choice["message"].get("reasoning") or "",
            [(call["function"]["name"], call["function"]["arguments"]) for call in _calls(choice)],
            choice["finish_reason"],
        )
        for choice in reply["choices"]
    ]


def _calls(choice: dict[str, Any]) -> Any:
    return choice["message"].get("tool_calls") or ()


def assembled_message(data: bytes) -> dict[str, Any]:
    """As Anthropic's package assembles it: the input of a call is as much of its JSON as there is."""
    blocks: list[dict[str, Any]] = []
    ended: dict[str, Any] = {}
    for event in events(data):
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "input": ""})
        elif event["type"] == "content_block_delta":
            kind, text = next(item for item in event["delta"].items() if item[0] != "type")
            name = "input" if kind == "partial_json" else kind
            blocks[event["index"]][name] = blocks[event["index"]].get(name, "") + text
        elif event["type"] == "message_delta":
            ended = event["delta"]
    for block in blocks:
        is_call = block["type"] == "tool_use"
        block["input"] = from_json(block["input"] or "{}", allow_partial=True) if is_call else None
    return {"content": blocks, **ended}


def read_message(reply: dict[str, Any]) -> Any:
    blocks = [
        {
            name: block[name]
            for name in ("type", "text", "thinking", "name", "input")
            if block.get(name) is not None
        }
        for block in reply["content"]
    ]
    return blocks, reply["stop_reason"], reply["stop_sequence"]


def assembled_response(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = events(data)[-1]["response"]
    return found


def read_response(reply: dict[str, Any]) -> Any:
    items = [{name: item[name] for name in item if name not in ("id", "call_id")} for item in reply["output"]]
    return items, reply["status"], reply["incomplete_details"]


ASSEMBLED = {"chat": assembled_chat, "message": assembled_message, "response": assembled_response}
READ = {"chat": read_chat, "message": read_message, "response": read_response}


def test_every_parser_that_can_be_built_is_tried() -> None:
    from vllm.tool_parsers import ToolParserManager

    assert set(MARKUP) | UNBUILT == set(ToolParserManager.lazy_parsers)


def test_what_is_misread_is_still_called_by_its_name() -> None:
    from vllm.tool_parsers import ToolParserManager

    from models.vllm.reply_reading import MISREADING

    assert set(MISREADING) <= {ToolParserManager.get_tool_parser(name).__name__ for name in NAMES}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_call_is_read_in_one_piece_and_streamed(asked: Asked, name: str, choice: str) -> None:
    tokens = asked.engine.will_say(said_by(name, choice))
    plain, streamed = asked.both(
        asked.replies(name), "chat", tokens, tools=TOOLS, tool_choice=CHOICES[choice]
    )
    ((content, _, calls, reason),) = plain
    assert plain == streamed
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [(NAME, ARGUMENTS)]
    assert content.strip() == "" and reason == ("stop" if choice == "named" else "tool_calls")


# Parsers of vLLM that misread or lose a call when many of its tokens come in one output.
WRONG_AT_ONCE = {
    "deepseek_v3",
    "deepseek_v31",
    "gigachat3",
    "llama3_json",
    "llama4_json",
    "step3",
    "xlam",
}


@pytest.mark.parametrize("at_once", [2, 11, 1000])
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", NAMES)
def test_of_tokens_that_come_at_once_a_chunk_has_one_part_of_a_call(
    asked: Asked, name: str, choice: str, at_once: int
) -> None:
    tokens = asked.engine.will_say(said_by(name, choice))
    options = {"tools": TOOLS, "tool_choice": CHOICES[choice]}
    one_by_one = asked.streamed(asked.replies(name), tokens, **options)
    asked.engine.at_once = at_once
    try:
        together = asked.streamed(asked.replies(name), tokens, **options)
    finally:
        asked.engine.at_once = 1
    for chunk in (chunk for chunk in events(together) if chunk["choices"]):
        calls = [call["index"] for call in chunk["choices"][0]["delta"].get("tool_calls") or ()]
        assert len(calls) == len({*calls}), chunk
    if name not in WRONG_AT_ONCE:
        assert read_chat(assembled_chat(together)) == read_chat(assembled_chat(one_by_one))


@given(
    name=st.sampled_from(NAMES),
    choice=st.sampled_from(list(CHOICES)),
    form=st.sampled_from(FORMS),
    before=st.booleans(),
    twice=st.booleans(),
    part=st.floats(0, 1),
)
@settings(max_examples=1500, deadline=None)
def test_wherever_the_limit_cuts_it_a_reply_is_what_its_stream_assembles_to(
    asked: Asked, name: str, choice: str, form: ReplyFormName, before: bool, twice: bool, part: float
) -> None:
    said = said_by(name, choice)
    if choice == "auto":
        twice &= name not in ONE_BLOCK
        said = (BEFORE if before else "") + said + (f"\n{said}" if twice else "")
    cut = max(1, round(part * asked.engine.will_say(said)))
    plain, streamed = asked.both(asked.replies(name), form, cut, tools=TOOLS, tool_choice=CHOICES[choice])
    assert plain == streamed


@pytest.mark.parametrize("form", FORMS)
def test_a_demanded_call_is_never_told_as_text(asked: Asked, form: ReplyFormName) -> None:
    tokens = asked.engine.will_say(MARKUP["hermes"])
    for cut in range(1, tokens + 1):
        plain, streamed = asked.both(asked.replies("hermes"), form, cut, tools=TOOLS, tool_choice="required")
        assert plain == streamed
        assert "tool_call>" not in json.dumps(plain), cut


@pytest.mark.parametrize("form", FORMS)
def test_thoughts_are_read_as_in_a_stream(asked: Asked, form: ReplyFormName) -> None:
    tokens = asked.engine.will_say(f"<think>Hm, an order.</think>{BEFORE}{MARKUP['hermes']}")
    replies = asked.replies("hermes", "deepseek_r1")
    for cut in range(1, tokens + 1, 3):
        plain, streamed = asked.both(replies, form, cut, tools=TOOLS, tool_choice="auto")
        assert plain == streamed


def test_every_choice_is_read_by_itself(asked: Asked) -> None:
    tokens = asked.engine.will_say(MARKUP["hermes"])
    plain, streamed = asked.both(
        asked.replies("hermes"), "chat", tokens - 3, tools=TOOLS, n=3, temperature=1.0
    )
    assert plain == streamed and len(plain) == 3
    assert {reason for *_, reason in plain} == {"length"}
    assert all(calls[0][0] == NAME for _, _, calls, _ in plain)


def test_log_probabilities_of_a_read_reply_are_of_every_token(asked: Asked) -> None:
    tokens = asked.engine.will_say(BEFORE + MARKUP["hermes"])
    replies = asked.replies("hermes")
    options = {"tools": TOOLS, "logprobs": True, "top_logprobs": 0}
    data = asked._runner.run(replies.data(request("chat", tokens - 3, False, **options)))
    (choice,) = json.loads(data)["choices"]
    assert len(choice["logprobs"]["content"]) == tokens - 3


def test_a_reply_without_markup_is_not_read_token_by_token(asked: Asked) -> None:
    tokens = asked.engine.will_say(BEFORE)
    replies, client = asked.replies("hermes"), asked.replies("hermes").client
    counted = outputs_of(client)
    asked.both(replies, "chat", tokens)
    # One in one piece, and each token of the stream.
    assert counted() == 1 + tokens
    asked.both(replies, "chat", tokens, tools=TOOLS)
    assert counted() == 1 + 3 * tokens


def outputs_of(client: CountingClient) -> Any:
    engine: Any = client._client
    before = engine.handed_out
    return lambda: engine.handed_out - before
