"""A stream's end within a call, as its client is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson

from models.vllm.reply_reading import told_cut_off, told_end


def event(reason: str, index: int = 0, **delta: Any) -> str:
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    return f"data: {orjson.dumps({'id': 'x', 'choices': [choice]}).decode()}\n\n"


def test_a_call_that_the_token_limit_ended_is_not_called_complete() -> None:
    assert told_cut_off(event("tool_calls", 1), {1, 2}) == event("length", 1)


def test_whatever_else_ends_a_choice_is_left_as_it_is() -> None:
    for ended in (event("tool_calls", 1), event("tool_calls"), event("stop", 2)):
        assert told_cut_off(ended, {2}) == ended
        assert told_cut_off(ended, set()) is ended
    quoted = event("stop", content='"finish_reason":"tool_calls"')
    assert told_cut_off(quoted, {0}) is quoted


def test_a_reply_in_one_piece_ends_as_its_stream_does() -> None:
    def ended(reason: str, *calls: str) -> str:
        choice = SimpleNamespace(
            finish_reason=reason, index=1, message=SimpleNamespace(tool_calls=list(calls))
        )
        return told_end(choice, {1}) + " " + told_end(choice, {0})

    assert ended("tool_calls", "f") == "length tool_calls"
    assert ended("tool_calls") == "length stop"
    assert ended("stop", "f") == "stop stop"
