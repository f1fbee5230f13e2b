"""Grammars that cost the engine: the dear ones are tried out first, and those that are too dear never reach it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.integration.running import Server

PATH = "/v1/chat/completions"


def asked(schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    messages = [{"role": "user", "content": "Hello."}]
    return {"messages": messages, "max_tokens": 200, "response_format": wanted, **fields}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_is_dear_and_not_too_dear_holds_the_reply(server: Server, stream: bool) -> None:
    # A pattern and lengths are compiled on trial first.
    schema = {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[A-C]{2}$"},
            "name": {"type": "string", "maxLength": 9 + stream},
        },
        "required": ["code", "name"],
        "additionalProperties": False,
    }
    with server.client() as http:
        reply = http.post(PATH, json=asked(schema, stream=stream), timeout=180)
    assert reply.status_code == 200, reply.text
    text = _streamed(reply) if stream else reply.json()["choices"][0]["message"]["content"]
    found = json.loads(text)
    assert set(found["code"]) <= set("ABC")
    assert len(found["name"]) <= 9 + stream


def _streamed(reply: httpx.Response) -> str:
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    return "".join(c["delta"].get("content") or "" for event in events for c in event["choices"])


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(4000)}}, "properties"),
        ({"type": "string", "pattern": ".*" * 200}, "pattern"),
    ],
)
def test_a_schema_that_is_known_to_be_too_dear_is_refused_at_once(
    server: Server, schema: dict[str, Any], place: str
) -> None:
    with server.client() as http:
        reply = http.post(PATH, json=asked(schema))
    assert reply.status_code == 422
    (issue,) = reply.json()["detail"]
    assert issue["loc"] == ["body", "response_format", "json_schema", "schema", place]
    assert issue["type"] == "too_costly"
