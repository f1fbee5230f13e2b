"""Clients of Anthropic's messages."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun

STOPS = ("end_turn", "max_tokens")
EVENTS = ["message_start", "content_block_start", "content_block_delta"]


@pytest.mark.client(
    "anthropic",
    "messages: plain, streamed, a tool and its result, `count_tokens`; `models.list()`; errors by class",
)
def test_anthropic_sends_messages(client_run: ClientRun) -> None:
    found = client_run("messages.py")
    assert found["text"] and found["streamed"] and found["stop"] in STOPS
    assert found["usage"][0] == found["final"][0] == found["counted"] > 0
    assert 0 < found["usage"][1] <= 40
    assert [event for event in found["events"] if event != "ping"][:3] == EVENTS
    assert found["events"][-2:] == ["message_delta", "message_stop"]
    assert found["call"] == ["weather", ["city"], "tool_use"]
    assert found["answered"] == "assistant"
    assert "pith-mini" in found["models"] and "pith-base" in found["models"]
    assert found["wrong key"] == ["AuthenticationError", 401, "authentication_error", True]
    assert found["wrong model"] == ["NotFoundError", 404, "not_found_error", True]
    assert found["wrong field"] == ["BadRequestError", 400, "invalid_request_error", True]
