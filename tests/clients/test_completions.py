"""Clients of text completions."""

from __future__ import annotations

import pytest

from tests.clients.running import ClientRun


@pytest.mark.client("openai", "text completions: plain, streamed, several prompts")
def test_openai_completes(client_run: ClientRun) -> None:
    found = client_run("completions.py")
    assert found["text"] and found["streamed"] == found["text"]
    # OpenAI's default of this route.
    assert 0 < found["usage"]["completion_tokens"] <= 16
    assert found["several"] == [0, 1] and 0 < found["tokens"] <= 8


@pytest.mark.client(
    "llamaindex",
    "`OpenAILike` at its defaults (`complete`, `chat` by completions) and as a chat model, streamed",
)
def test_llamaindex_completes_and_chats(client_run: ClientRun) -> None:
    found = client_run("llm.py")
    assert found["completed"] and found["streamed"]
    assert found["default chat"] == "assistant"
    assert found["chat"] and found["chat completed"] and found["chat streamed"]
