"""Compression inside a message: the results of tools are compressed on their way, as in chat."""

import json
from pathlib import Path

import pytest

from tests.serve.compressing import compressing
from tests.serve.served import Client

PASSAGES = "\n\n".join(
    f"Item {i} has a price of {i * 7} dollars and colour number {i % 5}." for i in range(60)
)
CALL = {"type": "tool_use", "id": "t1", "name": "items", "input": {"about": "item 17"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": PASSAGES}]}
TURNS = [
    {"role": "user", "content": "What is the price of item 17?"},
    {"role": "assistant", "content": [CALL]},
    {"role": "user", "content": [RESULT]},
]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tools_result_is_compressed_and_the_reply_says_so(tmp_path: Path, stream: bool) -> None:
    async with compressing(tmp_path) as service:
        compression = {"target_ratio": 0.3, "model": "free"}
        body = {"messages": TURNS, "max_tokens": 6, "stream": stream, "compression": compression}
        headers = {"x-api-key": service.key, "Content-Type": "application/json"}
        client = Client(service.api, "/anthropic/v1/messages", "POST", headers, (json.dumps(body).encode(),))
        await client.run()
        assert client.reply_headers["x-service-compression"] == "applied"
        sent = service.engine.requests[-1].messages[-1]["content"]
        text = sent if isinstance(sent, str) else sent[0]["text"]
        assert "Item 17 has a price of 119 dollars" in text and len(text) < 0.4 * len(PASSAGES)
        (told,) = [
            json.loads(line.removeprefix(b"data: "))
            for line in client.body.splitlines()
            if b'"service"' in line
        ]
        assert told["service"]["compression"]["tokens_saved"] > 0
