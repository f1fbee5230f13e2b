"""A collector of the tests' own: takes OTLP over HTTP and gRPC, and keeps the spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

DEADLINE_S = 60


@dataclass(frozen=True)
class Received:
    """One span. `parent` is empty where it has none."""

    trace: str
    id: str
    parent: str
    name: str
    service: str
    attributes: Mapping[str, Any]
    failed: bool
    start: int
    end: int
    state: str


@dataclass
class Collector:
    """`headers` are those of the last batch. While `holds`, a batch is not answered."""

    http: str = ""
    grpc: str = ""
    spans: list[Received] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def take(self, raw: bytes, headers: Mapping[str, str]) -> None:
        self.goes_on.wait(DEADLINE_S)
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.raw.append(raw)
        self.spans += _spans(ExportTraceServiceRequest.FromString(raw))

    def trace(self, trace_id: str, *, of: int) -> list[Received]:
        """The spans of a trace, once there are so many; all there are at the deadline."""
        deadline, tick = monotonic() + DEADLINE_S, threading.Event()
        while True:
            found = [span for span in self.spans if span.trace == trace_id]
            if len(found) >= of or monotonic() > deadline:
                return found
            tick.wait(0.02)


def tree(spans: Sequence[Received], parent: str) -> dict[str, Any]:
    """The names of spans, each with those below it, in the order of their beginning."""
    below = sorted((span for span in spans if span.parent == parent), key=lambda span: span.start)
    return {span.name: tree(spans, span.id) for span in below}


def _spans(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for resource in request.resource_spans:
        about = {item.key: item.value for item in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    about["service.name"].string_value,
                    {item.key: _value(item.value) for item in span.attributes},
                    span.status.code == 2,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.trace_state,
                )


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


class _Grpc(TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
        self._collector.take(request.SerializeToString(), dict(context.invocation_metadata()))
        return ExportTraceServiceResponse()


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.goes_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            collector.take(self.rfile.read(int(self.headers["content-length"])), dict(self.headers))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=[0.05], daemon=True).start()
    rpc = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(_Grpc(collector), rpc)
    collector.grpc = f"http://127.0.0.1:{rpc.add_insecure_port('127.0.0.1:0')}"
    rpc.start()
    collector.http = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield collector
    finally:
        collector.goes_on.set()
        http.shutdown()
        http.server_close()
        rpc.stop(0).wait()
