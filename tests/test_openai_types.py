"""What the check of OpenAI's types lets through, and what not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tests.openai_types import check_reply

MODEL = {"id": "pith-mini", "object": "model", "created": 1, "owned_by": "pith", "kind": "chat"}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}


def check(path: str, reply: Any, *, status: int = 200) -> None:
    check_reply("GET", path, status, "application/json", json.dumps(reply).encode())


def test_what_is_more_than_openais_is_let_through() -> None:
    check("/openai/v1/models", {"object": "list", "data": [MODEL], "more": 1})
    check("/openai/v1/models/org/name", MODEL)
    check("/v1/models", [1])


@pytest.mark.parametrize("wrong", [{"created": "1"}, {"object": "list"}, {"owned_by": None}])
def test_a_wrong_type_is_not(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        check("/openai/v1/models", {"object": "list", "data": [MODEL | wrong]})


def test_an_error_is_openais_too() -> None:
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": None}
    check("/openai/v1/models", {"error": error}, status=404)
    with pytest.raises(ValidationError):
        check("/openai/v1/models", {"error": error | {"message": ["no"]}}, status=404)


def test_each_event_of_a_stream_is_looked_at() -> None:
    def streamed(*events: dict[str, Any]) -> bytes:
        return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in events) + b"data: [DONE]\n\n"

    path = "/openai/v1/chat/completions"
    check_reply("POST", path, 200, "text/event-stream", streamed(CHUNK, CHUNK))
    with pytest.raises(ValidationError):
        check_reply("POST", path, 200, "text/event-stream", streamed(CHUNK, CHUNK | {"choices": None}))
