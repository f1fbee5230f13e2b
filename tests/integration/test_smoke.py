"""The server that a stranger starts answers what the README's first screen shows."""

from __future__ import annotations

import httpx


def test_a_chat_completion_carries_usage_and_billing(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 20}
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"]
    assert reply.json()["usage"]["completion_tokens"] > 0
    assert reply.json()["service"]["metering"] == {"persisted": True, "status": "persisted"}
