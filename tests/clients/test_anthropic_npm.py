"""The `@anthropic-ai/sdk` npm client at its defaults."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun


@pytest.mark.client("anthropic-node", "messages: a reply, a stream, `countTokens`")
def test_a_message_comes_whole_and_as_a_stream(client_run: ClientRun) -> None:
    found = client_run("messages.mjs")
    whole, final = found["whole"], found["final"]
    assert whole["role"] == "assistant" and whole["content"][0]["text"]
    assert whole["stop_reason"] in ("end_turn", "max_tokens")
    assert found["events"][0] == "message_start" and found["events"][-2:] == ["message_delta", "message_stop"]
    assert len(found["pieces"]) > 1 and "".join(found["pieces"]) == final["content"][0]["text"]
    assert (
        found["counted"]["input_tokens"]
        == whole["usage"]["input_tokens"]
        == final["usage"]["input_tokens"]
        > 0
    )
    assert final["usage"]["output_tokens"] > 0


@pytest.mark.client("anthropic-node", "messages: a tool, its result fed back, and errors by class")
def test_a_tool_is_called_and_errors_have_their_class(client_run: ClientRun) -> None:
    found = client_run("tools.mjs")
    assert found["stop"] == "tool_use"
    assert all(
        call["name"] == "weather" and call["input"]["city"] in ("Berlin", "Paris") for call in found["calls"]
    )
    assert found["calls"] and found["answered"] in ("end_turn", "max_tokens", "tool_use")
    errors = {name: (found[name]["name"], found[name]["status"], found[name]["type"]) for name in ERRORS}
    assert errors == ERRORS
    assert all(found[name]["message"] for name in ERRORS)


ERRORS = {
    "unknown_model": ("NotFoundError", 404, "not_found_error"),
    "wrong_key": ("AuthenticationError", 401, "authentication_error"),
    "bad_option": ("BadRequestError", 400, "invalid_request_error"),
}
