"""Clients whose default is the Responses API."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun


@pytest.mark.client(
    "openai",
    "responses: plain, streamed, `stream()`, `parse()`, a function tool and its result, `previous_response_id`",
)
def test_openai_responds(client_run: ClientRun) -> None:
    found = client_run("responses.py")
    assert found["text"] and found["streamed"] == found["final"] == found["text"]
    assert found["status"] in ("completed", "incomplete") and found["answered"] in ("completed", "incomplete")
    assert found["usage"]["total_tokens"] == found["usage"]["input_tokens"] + found["usage"]["output_tokens"]
    assert found["events"][:2] == ["response.created", "response.in_progress"]
    assert found["events"][-1] in ("response.completed", "response.incomplete")
    assert list(found["parsed"]) == ["name", "is_capital"]
    assert found["call"] == ["weather", ["city"]]
    is_named, read = found["followed"]
    assert is_named and read > found["usage"]["input_tokens"], "what was said before is read again"
    kind, message = found["unknown"]
    assert kind == "BadRequestError" and "previous_response_id" in message


@pytest.mark.client(
    "openai-agents",
    "an agent on responses: text, a function tool called and answered, streamed, `output_type`",
)
def test_openai_agents_runs_an_agent(client_run: ClientRun) -> None:
    found = client_run("agent.py")
    assert found["plain"] == found["streamed"] == "str"
    assert found["items"] == ["tool_call_item", "tool_call_output_item"] and found["calls"] >= 2
    assert found["tokens"] > 0
    assert "raw_response_event" in found["kinds"] and "run_item_stream_event" in found["kinds"]
    assert list(found["typed"]) == ["name"]


@pytest.mark.client(
    "pydantic-ai", "an agent of `openai:MODEL`: text, `output_type`, a tool offered, streamed"
)
def test_pydantic_ai_runs_an_agent(client_run: ClientRun) -> None:
    found = client_run("agent.py")
    assert found["text"] and found["tokens"] > 0
    assert list(found["typed"]) == ["name", "is_capital"]
    assert found["offered"] == found["streamed"] == "str"
