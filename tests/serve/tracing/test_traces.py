"""One trace a request, as a collector gets it, with nothing that a caller wrote; and callers' own traces."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from models.errors import EngineFailed
from serve.config.server_settings import BadHeaders, TracingSettings
from serve.tracing.otlp import Exporting, Sampling, exporter_of
from serve.tracing.request_record import RemoteParent, remote_parent
from tests.serve.batches.running import running_server
from tests.serve.batches.uploading import ended, jsonl, made
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.retrieval.serving import LEXICAL
from tests.serve.served import Gate, Served, serving
from tests.serve.tracing.collector import Collector, Received, collecting, tree

CANARY = "the patient's canary 4711"
CALLER = "00f067aa0ba902b7"
CHAT = {
    "POST /v1/chat/completions": {
        "admission": {},
        "hold": {},
        "chat alpha": {"queue": {}},
        "settle": {},
    }
}
COMPRESS = {"POST /v1/compress": {"admission": {}, "hold": {}, "compress lexical": {}, "settle": {}}}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def asked(number: int) -> tuple[str, dict[str, str]]:
    """A trace id, and the header of a caller who traces its request."""
    trace = f"{number:032x}"
    return trace, {"traceparent": f"00-{trace}-{CALLER}-01", "tracestate": "vendor=1"}


def traced(endpoint: str, **more: Any) -> dict[str, Any]:
    """Only those are traced that ask for it."""
    return {"tracing": {"endpoint": endpoint, "sample_ratio": 0, "callers_per_s": 100, **more}}


async def chat(served: Served, number: int, **fields: Any) -> str:
    trace, headers = asked(number)
    client = served.chat(request_id=f"mine-{number}", **fields)
    client.headers |= headers
    await client.run()
    return trace


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_chats_and_compressions_are_a_trace_each(
    tmp_path: Path, collector: Collector, protocol: str
) -> None:
    (tmp_path / "headers").write_text("X-Api-Key: secret one\n\n")
    given = traced(getattr(collector, protocol), protocol=protocol, headers_file=str(tmp_path / "headers"))
    compressors = {"lexical": ReadyModel(local_model())}
    async with serving(
        tmp_path, compression={"models": [LEXICAL]}, compressors=compressors, **given
    ) as service:
        served = await service.renewed()
        whole, streamed = await chat(served, 1), await chat(served, 2, stream=True)
        sent = served.engine.requests[-1].trace_headers
        third, headers = asked(3)
        source = "Marie Curie discovered radium. The weather is fine."
        compress = served.post("/v1/compress", {"query": "radium", "input": source})
        compress.headers |= headers
        assert (await compress.run()).status == 200
        # Nobody asked for a trace of these.
        await served.chat().run()
    for trace in (whole, streamed):
        assert tree(collector.trace(trace, of=6), CALLER) == CHAT
    assert tree(collector.trace(third, of=5), CALLER) == COMPRESS
    assert len(collector.spans) == 17
    by_name = {span.name: span for span in collector.trace(streamed, of=6)}
    root, hop = by_name["POST /v1/chat/completions"], by_name["chat alpha"]
    assert {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "pith.request_id": "mine-2",
        "pith.ended": "complete",
        "gen_ai.request.model": "alpha",
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 6,
    }.items() <= root.attributes.items()
    assert (
        hop.attributes["gen_ai.operation.name"] == "chat"
        and hop.attributes["gen_ai.usage.output_tokens"] == 6
    )
    assert sent["traceparent"] == f"00-{streamed}-{hop.id}-01" and sent["tracestate"] == "vendor=1"
    # To the last byte of the reply, and past the settlement.
    assert all(root.start <= span.start and span.end <= root.end for span in by_name.values())
    assert not any(span.failed for span in collector.spans)
    # Whose request it was is said only where that was asked for.
    assert not any("workspace" in name for name in root.attributes)
    assert collector.headers["x-api-key"] == "secret one"


async def test_a_trace_says_that_the_client_left_or_what_failed(tmp_path: Path, collector: Collector) -> None:
    async with serving(tmp_path, **traced(collector.http, tenants=True)) as service:
        served = await service.renewed()
        served.engine.sleep = gate = Gate(2)
        left, headers = asked(1)
        client = served.chat(stream=True)
        client.headers |= headers
        running = client.start()
        await gate.reached.wait()
        client.gone.set()
        await running
        served = await service.renewed()
        served.engine.fails_with, served.engine.fails_after = EngineFailed(f"it broke: {CANARY}"), 2
        broke = await chat(served, 2, stream=True)
        refused = await chat(served, 3, model="nobody's")

    def root_of(trace: str, of: int) -> tuple[Received, dict[str, Received]]:
        by_name = {span.name: span for span in collector.trace(trace, of=of)}
        return by_name["POST /v1/chat/completions"], by_name

    root, steps = root_of(left, 6)
    assert (root.attributes["pith.ended"], root.failed) == ("client_left", False)
    assert steps["chat alpha"].attributes["pith.cancelled"] is True
    assert root.attributes["gen_ai.usage.output_tokens"] == 2
    assert root.attributes["pith.workspace_id"].startswith("ws_")
    root, steps = root_of(broke, 6)
    assert (root.attributes["pith.ended"], root.failed) == ("failed", True)
    assert root.attributes["error.type"] == steps["chat alpha"].attributes["error.type"] == "EngineFailed"
    root, steps = root_of(refused, 1)
    assert (root.attributes["pith.ended"], root.failed, list(steps)) == ("complete", False, [root.name])


async def test_no_span_has_a_prompt_a_reply_or_a_key(tmp_path: Path, collector: Collector) -> None:
    said = [{"role": "user", "content": CANARY}]
    async with serving(tmp_path, **traced(collector.http, sample_ratio=1)) as service:
        served = await service.renewed()
        served.engine.text = f"{CANARY} it says"
        for path in ("/v1/chat/completions", "/openai/v1/chat/completions", "/anthropic/v1/messages"):
            await served.post(path, {"messages": said, "max_tokens": 3}).run()
            await served.post(path, {"messages": said, "max_tokens": CANARY, CANARY: 1}).run()
            await served.post(path, {"messages": said, "model": CANARY, "max_tokens": 3}).run()
        served.engine.fails_with = EngineFailed(CANARY)
        await served.chat(messages=said).run()
        await served.get(f"/v1/{CANARY}").run()
    sent = b"".join(collector.raw)
    assert sent.count(b"pith.ended") == 11
    assert b"canary" not in sent and b"4711" not in sent
    assert served.key.encode() not in sent and served.key.split("_")[2].encode() not in sent


async def test_a_line_of_a_batch_and_a_round_of_upkeep_are_traces_of_their_own(
    tmp_path: Path, collector: Collector
) -> None:
    async with serving(tmp_path, **traced(collector.http, sample_ratio=1)) as service:
        served = await service.renewed()
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
        url = "/v1/chat/completions"
        line = {"custom_id": "a", "method": "POST", "url": url, "body": body}
        await ended(served, await made(served, jsonl([line]), endpoint=url))
    roots = [span for span in collector.spans if span.name == "batch line"]
    assert [span.parent for span in roots] == [""]
    below = tree(collector.trace(roots[0].trace, of=6), "")
    assert below == {"batch line": CHAT["POST /v1/chat/completions"]}


def test_a_server_that_listens_traces_its_upkeep_and_stops_while_its_collector_hangs(
    tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    from httpx import Client

    from models.fake_engine import FakeEngine

    given = traced(collector.http, sample_ratio=1)
    with running_server(tmp_path, FakeEngine(), **given) as (url, _), Client(base_url=url) as client:
        assert client.get("/health").status_code == 200
        names: set[str] = set()
        for _ in range(200):
            names = {span.name for span in collector.spans}
            if {"GET /health", "upkeep replay"} <= names:
                break
            client.get("/health")
        collector.goes_on.clear()
        assert client.get("/health").status_code == 200
    # A background task whose name the metrics do not know ends, and is begun again without an end.
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
    # It has stopped, with a batch under way that is not answered.
    assert {"GET /health", "upkeep replay"} <= names


class Counts:
    def __init__(self) -> None:
        self.taken = self.lost = 0

    def exported(self, count: int) -> None:
        self.taken += count

    def dropped(self, count: int) -> None:
        self.lost += count


def tracing(endpoint: str, file: Path | None = None) -> TracingSettings:
    return TracingSettings(endpoint=endpoint, headers_file=file)


def test_spans_that_a_slow_collector_has_no_time_for_are_dropped_and_counted(collector: Collector) -> None:
    collector.goes_on.clear()
    counts = Counts()
    exporting = Exporting(exporter_of(tracing(collector.http)), counts, most_waiting=10)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(exporting)
    tracer = provider.get_tracer("test")
    for number in range(2000):
        tracer.start_span(f"span {number}").end()
    exporting.stop(0.1)
    collector.goes_on.set()
    # Those under way when it stopped are in neither: nobody knows of them yet.
    assert counts.lost >= 1400 and counts.taken == 0


def test_a_collector_that_is_away_is_counted() -> None:
    counts = Counts()
    exporting = Exporting(exporter_of(tracing("http://127.0.0.1:1")), counts)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(exporting)
    provider.get_tracer("test").start_span("one").end()
    exporting.stop(20)
    assert (counts.taken, counts.lost) == (0, 1)


def test_a_file_of_headers_that_is_not_one_is_refused_without_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    for content in ("secret", "a b: secret", "\xe9: secret"):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(BadHeaders) as caught:
            tracing("http://127.0.0.1:1", file).headers()
        assert "secret" not in str(caught.value) and str(file) in str(caught.value)


def test_without_tracing_no_process_imports_opentelemetry() -> None:
    look = "sys.exit([name for name in sys.modules if name.startswith('opentelemetry')] != [])"
    script = f"import sys, serve.app, serve.cluster.replicas.port; {look}"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def parent_of(*values: str, state: str | None = None) -> RemoteParent | None:
    headers = [(b"traceparent", value.encode("latin-1")) for value in values]
    if state is not None:
        headers.append((b"tracestate", state.encode("latin-1")))
    return remote_parent(headers)


def test_a_valid_parent_is_read_with_its_state() -> None:
    assert parent_of(GOOD, state="a=1") == RemoteParent(TRACE, SPAN, is_sampled=True, state="a=1")
    assert parent_of(f"00-{TRACE}-{SPAN}-00") == RemoteParent(TRACE, SPAN, is_sampled=False)
    # Of a later version, what is known of this one.
    assert parent_of(f"01-{TRACE}-{SPAN}-03-more") == RemoteParent(TRACE, SPAN, is_sampled=True)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        GOOD.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{GOOD}-more",
        f"{GOOD}\xe9",
        f"00-{TRACE}-{SPAN}-01" + "0" * 10_000,
    ],
)
def test_what_is_not_valid_is_no_parent(value: str) -> None:
    assert parent_of(value) is None


def test_two_parents_are_none() -> None:
    assert parent_of(GOOD, GOOD) is None


@pytest.mark.parametrize("state", ["a=" + "x" * 600, "a=\x01", "a=\xe9"])
def test_a_state_that_is_long_or_no_text_is_left_out(state: str) -> None:
    found = parent_of(GOOD, state=state)
    assert found is not None and found.state == ""


ASKS = RemoteParent(TRACE, SPAN, is_sampled=True)


def test_a_caller_traces_no_more_than_its_rate_and_nothing_by_default() -> None:
    now = [0.0]
    sampling = Sampling(0, 2, clock=lambda: now[0])
    assert [sampling.takes(ASKS) for _ in range(4)] == [True, True, False, False]
    now[0] = 0.5
    assert [sampling.takes(ASKS) for _ in range(2)] == [True, False]
    now[0] = 1000.0
    assert [sampling.takes(ASKS) for _ in range(3)] == [True, True, False]
    assert not sampling.takes(RemoteParent(TRACE, SPAN, is_sampled=False))
    assert not any(Sampling(0, 0).takes(ASKS) for _ in range(100))


def test_of_all_others_chance_takes_its_part_whatever_their_trace_id() -> None:
    draws = iter([0.09, 0.1, 0.5])
    sampling = Sampling(0.1, 0, draw=lambda: next(draws))
    assert [sampling.takes(None), sampling.takes(ASKS), sampling.takes(None)] == [True, False, False]
