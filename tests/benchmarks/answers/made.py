"""A case and a server's streamed replies, for the tests of answers."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from benchmarks.answers.asking import Reader
from benchmarks.answers.prompts import Prompt
from benchmarks.evaluation.case import Case

CONTEXT = "The weather is fine. Marie Curie discovered radium. Pierre worked with her."
CASE = Case(
    "s", "s/1", "Who discovered radium?", CONTEXT, ((0, 75),), gold=(21, 51), answers=("Marie Curie",)
)
Reply = Callable[[Mapping[str, Any]], httpx.Response]


def streamed(text: str) -> httpx.Response:
    service = {"billing": {"request_cost_usd": 0.001}, "compression": {"cost_usd": 0.0005}}
    usage = {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 8}}
    events = [
        {"choices": [{"delta": {"role": "assistant"}}]},
        {"choices": [{"delta": {"content": text}}]},
        {"choices": [], "usage": usage, "service": service},
    ]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return httpx.Response(200, text="".join(lines) + "data: [DONE]\n\n")


def reader(reply: Reply) -> Reader:
    transport = httpx.MockTransport(lambda request: reply(json.loads(request.content)))
    return Reader(httpx.Client(base_url="http://pith.test", transport=transport), Prompt("{}"))
