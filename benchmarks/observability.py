"""Cost of log and traces: CPU time of the HTTP service for each request, with a fake engine, beside none of them.

`python -m benchmarks.observability`: rounds of requests in this process, all modes in turn, in a new order each time.
The ratio is of two modes in the same round, so that what else the machine does weighs on both alike. What is written
goes nowhere, and spans to a collector in another process that answers and keeps nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Annotated, Any

import typer

from billing.ledger.spool import Spool
from billing.store.database import open_database
from billing.usage import now
from models.fake_engine import FakeEngine
from serve.app import build_service, open_ledger
from serve.catalog.offered import catalog_of
from serve.config.server_settings import LogSettings, TracingSettings
from serve.config.settings import Settings, load_settings
from serve.logs.lines import formatter
from serve.logs.outlet import ACCESS, Outlet
from serve.metrics.background import TraceMetrics
from serve.metrics.counts import Counts
from serve.money.ledger_setup import prepare_ledger
from serve.tracing.request_record import Tracing

CONFIG = Path(__file__).parents[1] / "configs/tiny.yaml"
COLLECTOR = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def modes(collector: str) -> dict[str, dict[str, Any]]:
    """What is changed in the configuration; the first is what the others are compared with."""

    def traced(ratio: float) -> dict[str, Any]:
        return {"tracing": TracingSettings(endpoint=collector, sample_ratio=ratio)}

    text, as_json = LogSettings(access=True), LogSettings(access=True, format="json")
    return {
        "nothing": {},
        "access lines, text": {"logs": text},
        "access lines, JSON": {"logs": as_json},
        "1% traced": traced(0.01),
        "all traced": traced(1),
        "JSON lines and 1% traced": {"logs": as_json, **traced(0.01)},
    }


class Service:
    """The application in one mode."""

    def __init__(self, settings: Settings, key: str, opened: AsyncExitStack) -> None:
        self._outlet = Outlet(lambda line: None, formatter(settings.logs.format))
        database = open_database(settings.billing.database_url)
        spool = Spool(settings.billing.spool_path)
        ledger = open_ledger(settings, database, spool)
        tracing = Tracing(settings.tracing, TraceMetrics(Counts()))
        self._api, *_ = build_service(
            settings,
            engines={model.id: FakeEngine() for model in settings.models},
            database=database,
            ledger=ledger,
            tracer=tracing.tracer,
        )
        for close in (database.close, spool.close, ledger.close, tracing.close):
            opened.push_async_callback(close)
        body = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 16}
        self._body = json.dumps({**body, "stream": True}).encode()
        self._headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]

    async def cpu_s(self, requests: int) -> float:
        """CPU seconds of this process for each of so many requests, 16 at once."""
        logger = logging.getLogger(ACCESS)
        logger.handlers[:] = [self._outlet]
        began = process_time()
        for _ in range(requests // 16):
            await asyncio.gather(*(self._ask() for _ in range(16)))
        await asyncio.to_thread(self._outlet.drain, 10)
        return (process_time() - began) / (requests // 16 * 16)

    async def _ask(self) -> None:
        received, status = iter([{"type": "http.request", "body": self._body, "more_body": False}]), []

        async def receive() -> Any:
            message = next(received, None)
            if message is None:
                await asyncio.Event().wait()
            return message

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        path = "/v1/chat/completions"
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
        }
        scope |= {"headers": self._headers, "client": ("127.0.0.1", 1), "root_path": "", "scheme": "http"}
        await self._api(scope, receive, send)
        assert status == [200]


async def measure(folder: Path, collector: str, rounds: int, requests: int) -> dict[str, list[float]]:
    """CPU seconds a request, by mode and round."""
    base = load_settings(CONFIG).anchored(folder)
    key = await prepare_ledger(base, catalog_of(base), now=now())
    assert key is not None
    logging.getLogger(ACCESS).setLevel(logging.INFO)
    logging.getLogger(ACCESS).propagate = False
    async with AsyncExitStack() as opened:
        services = {
            name: Service(base.model_copy(update=changes), key, opened)
            for name, changes in modes(collector).items()
        }
        found: dict[str, list[float]] = {name: [] for name in services}
        for number in range(-1, rounds):
            for name in Random(number).sample(list(services), len(services)):
                cpu_s = await services[name].cpu_s(requests)
                if number >= 0:
                    found[name].append(cpu_s)
    return found


def main(
    rounds: Annotated[int, typer.Option(help="Rounds after one that warms up.")] = 15,
    requests: Annotated[int, typer.Option(help="Requests of each mode in a round.")] = 320,
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as child,
    ):
        assert child.stdout is not None
        collector = f"http://127.0.0.1:{child.stdout.readline().strip()}"
        try:
            found = asyncio.run(measure(Path(folder), collector, rounds, requests))
        finally:
            child.kill()
    first = next(iter(found.values()))
    print(f"{rounds} rounds of {requests} streamed chats a mode, load average {os.getloadavg()[0]:.1f}")
    print("| | CPU ms a request | beside nothing | quartiles |\n|---|---|---|---|")
    for name, taken in found.items():
        ratios = sorted(one / other for one, other in zip(taken, first, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(f"| {name} | {1000 * median(taken):.2f} | {median(ratios):.3f} | {low:.3f} to {high:.3f} |")


if __name__ == "__main__":
    typer.run(main)
