"""Chat completions and compressions for Locust: `PITH_API_KEY=… locust -f benchmarks/recipes/locustfile.py --host URL`.

The key comes from PITH_API_KEY, the model from PITH_MODEL (pith-mini). A stream counts as done at its last event.
"""

from __future__ import annotations

import os
import time

from locust import HttpUser, constant, task

MODEL = os.environ.get("PITH_MODEL", "pith-mini")
CONTEXT = "Marie Curie discovered radium in 1898. She was born in Warsaw. The weather is fine today. " * 20


class Caller(HttpUser):
    """Sends its next request when the last one has been answered."""

    wait_time = constant(0)

    def on_start(self) -> None:
        self.client.headers["Authorization"] = f"Bearer {os.environ['PITH_API_KEY']}"

    def chat(self, *, stream: bool) -> None:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Tell me about the river."}],
            "max_tokens": 16,
            "stream": stream,
        }
        name = "chat, SSE" if stream else "chat, JSON"
        began = time.perf_counter()
        with self.client.post(
            "/v1/chat/completions", json=body, stream=stream, name=name, catch_response=True
        ) as response:
            whole = response.content
            # Locust's own clock stops at the headers of a stream.
            response.request_meta["response_time"] = 1000 * (time.perf_counter() - began)
            if stream and response.ok and not whole.rstrip().endswith(b"data: [DONE]"):
                response.failure("the stream ended without [DONE]")

    @task(4)
    def chat_json(self) -> None:
        self.chat(stream=False)

    @task(4)
    def chat_stream(self) -> None:
        self.chat(stream=True)

    @task(2)
    def compress(self) -> None:
        body = {
            "query": "who discovered radium?",
            "input": CONTEXT,
            "compression": {"target_ratio": 0.25, "preserve_order": True},
        }
        self.client.post("/v1/compress", json=body, name="compress")
