"""One trace through the whole server: ingress, hop and vLLM's own span; and the line of the same request in the log."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.running import Server, wait_for
from tests.serve.tracing.collector import Collector, tree
from tests.serve.tracing.test_traces import CALLER, asked

CANARY = "the river Zambezi-4711"
SAID = [{"role": "user", "content": f"Tell me about {CANARY}."}]
HOP = {"queue": {}, "llm_request": {}}
CHAT = {
    "POST /v1/chat/completions": {"admission": {}, "hold": {}, "chat pith-mini": HOP, "settle": {}},
}
COMPRESS = {"POST /v1/compress": {"admission": {}, "hold": {}, "compress pith-lexical": {}, "settle": {}}}


@pytest.fixture
def collector(server: Server) -> Collector:
    if server.collector is None:
        pytest.skip("this server sends its traces elsewhere")
    return server.collector


def test_a_chat_is_one_trace_from_the_first_byte_to_the_last_with_the_engine_in_it(
    http: httpx.Client, server: Server, collector: Collector
) -> None:
    for number, stream in enumerate((False, True), 1):
        trace, headers = asked(number)
        body = {"model": "pith-mini", "messages": SAID, "max_tokens": 8, "stream": stream}
        reply = http.post("/v1/chat/completions", json=body, headers=headers)
        assert reply.status_code == 200
        spans = collector.trace(trace, of=7)
        assert tree(spans, CALLER) == CHAT
        by_name = {span.name: span for span in spans}
        engine, hop = by_name["llm_request"], by_name["chat pith-mini"]
        assert (engine.service, hop.service) == ("pith-engine", "pith")
        assert engine.attributes["gen_ai.usage.completion_tokens"] == 8
        for part in ("queue", "model_prefill", "model_decode"):
            assert engine.attributes[f"gen_ai.latency.time_in_{part}"] >= 0
        request_id = reply.headers["x-request-id"]
        assert by_name["POST /v1/chat/completions"].attributes["pith.request_id"] == request_id
        lines = wait_for(
            lambda found=request_id: [line for line in server.lines if found in line],
            what="the request's line in the log",
        )
        assert len(lines) == 1 and f"trace_id={trace}" in lines[0] and "status=200" in lines[0]
    assert not any(CANARY.encode() in raw for raw in collector.raw)
    assert not any(CANARY in line or server.key in line for line in server.lines if "pith.access" in line)


def test_a_compression_is_one_trace(http: httpx.Client, collector: Collector) -> None:
    trace, headers = asked(3)
    body = {"model": "pith-lexical", "query": "radium", "input": "Marie Curie discovered radium."}
    assert http.post("/v1/compress", json=body, headers=headers).status_code == 200
    assert tree(collector.trace(trace, of=5), CALLER) == COMPRESS


def test_what_nobody_asked_to_be_traced_is_not(http: httpx.Client, collector: Collector) -> None:
    before = {span.trace for span in collector.spans}
    body = {"model": "pith-mini", "messages": SAID, "max_tokens": 2}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
    # A later one that is traced has come: the other one, and vLLM's span of it, would have come as well.
    trace, headers = asked(4)
    assert http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
    assert len(collector.trace(trace, of=7)) == 7
    assert {span.trace for span in collector.spans} - before == {trace}
