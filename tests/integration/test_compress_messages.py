"""Chat messages, spans, marks and promises on the real server, and the same from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.running import Server

SAMPLES = Path(__file__).parents[1] / "samples"
TRACE = json.loads((SAMPLES / "traces" / "03-airline.json").read_text("utf-8"))
TICKET = (SAMPLES / "tickets" / "03-lieferung-verspaetet.txt").read_text("utf-8")
QUERY = "Which flight is to be booked, and with which card is it paid?"
OPTIONS = {"target_ratio": 0.4, "mark_gaps": True}


def body(**fields: Any) -> dict[str, Any]:
    return {"query": QUERY, "compression": OPTIONS, "include": ["spans"], **fields}


def assert_is_what_is_left_of_the_trace(answer: dict[str, Any]) -> None:
    messages = answer["messages"]
    assert json.loads(answer["output"]) == messages and 0 < len(messages) < len(TRACE)
    assert answer["receipt"]["compression_ratio"] <= 0.4
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    texts = [message["content"] or "" for message in messages]
    for span in answer["kept"]:
        piece = TRACE[span["message"]]["content"][span["start"] : span["end"]]
        assert any(piece in text for text in texts)
    assert any("[…]" in text for text in texts)


@pytest.mark.parametrize("path", ["/v1/compress", "/v1/demo/compress", "/v1/batch/compress"])
def test_messages_come_back_as_messages_with_spans_and_marks(http: httpx.Client, path: str) -> None:
    asked = body(messages=TRACE)
    sent = {"items": [asked]} if "batch" in path else asked
    reply = http.post(path, json=sent)
    assert reply.status_code == 200, reply.text
    assert_is_what_is_left_of_the_trace(reply.json()["results"][0] if "batch" in path else reply.json())


def test_the_command_line_keeps_the_same_of_a_file(
    http: httpx.Client, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(TRACE, ensure_ascii=False, separators=(",", ":")))
    over_http = http.post("/v1/compress", json=body(messages=TRACE)).json()
    options = ("--query", QUERY, "--ratio", "0.4", "--mark-gaps", "--spans")
    printed = server.pith("compress", str(file), *options)
    assert (printed["output"], printed["kept"]) == (over_http["output"], over_http["kept"])


def test_spans_of_a_text_are_its_characters_and_bytes(http: httpx.Client) -> None:
    answer = http.post("/v1/compress", json=body(input=TICKET, query="Was ist noch offen?")).json()
    data, at = TICKET.encode(), 0
    for span in answer["kept"]:
        piece = TICKET[span["start"] : span["end"]]
        assert data[span["bytes"]["start"] : span["bytes"]["end"]].decode() == piece
        at = answer["output"].index(piece, at) + len(piece)
    assert at == len(answer["output"]) and "[…]" in answer["output"]


def test_a_promise_says_what_it_rests_on(http: httpx.Client) -> None:
    asked = {**body(input=TICKET, query="Was ist noch offen?"), "compression": {"keep": 0.9}}
    receipt = http.post("/v1/compress", json=asked).json()["receipt"]
    assert receipt["keep"] == 0.9 and receipt["target_ratio"] is None
    assert receipt["calibration"]["name"] and len(receipt["calibration"]["sha256"]) == 64
    assert 0 < receipt["estimated_ratio"] <= 1
    both = http.post("/v1/compress", json={**asked, "compression": {"keep": 0.9, "target_ratio": 0.5}})
    assert both.status_code == 422 and both.json()["detail"][0]["loc"] == ["body", "compression", "keep"]
