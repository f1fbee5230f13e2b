"""One ingress of several that share a port and a ledger: the real HTTP server on a canned engine with a fixed delay.

It is given a file of settings and the engine's seconds. It says "up", answers each line on standard input with what its
ledger's writer did until then, and serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import uvloop

from tests.ingress_cost.server import MODEL, CannedEngine


class DelayedEngine(CannedEngine):
    """Its replies come after a while, as an engine's do."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(tokens_per_chunk=8)
        self._delay_s = delay_s

    async def generate(self, request: Any) -> AsyncGenerator[Any, None]:
        await asyncio.sleep(self._delay_s)
        async for chunk in super().generate(request):
            yield chunk


class WriterClock:
    """How long the writer of an SQLite ledger has been at its transactions: by the clock, with the waits for the file's
    lock, for the disk and for the interpreter, and what its thread used of the CPU."""

    def __init__(self) -> None:
        self.seconds, self.cpu_seconds, self.transactions, self.jobs = 0.0, 0.0, 0, 0

    def watch(self) -> None:
        from billing.store.sqlite import Job, Writer

        transact = Writer._transact

        def timed(writer: Writer, group: list[Job]) -> list[Any]:
            began, used = time.perf_counter(), time.thread_time()
            try:
                return transact(writer, group)
            finally:
                self.seconds += time.perf_counter() - began
                self.cpu_seconds += time.thread_time() - used
                self.transactions += 1
                self.jobs += len(group)

        Writer._transact = timed  # type: ignore[method-assign]


async def serve(settings: Any, delay_s: float, clock: WriterClock) -> None:
    from billing.store.database import open_database
    from serve.app import start_service
    from serve.metrics.counts import open_counts

    told_to_stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told_to_stop.set)
    service = start_service(
        settings,
        engines={MODEL: DelayedEngine(delay_s)},
        compressors={},
        retrievers={},
        database=open_database(settings.billing.database_url),
        # As in a replica: in files.
        counts=open_counts(settings),
    )
    while not service.server.started:
        service.check()
        await asyncio.sleep(0.002)

    def answer() -> None:
        if sys.stdin.readline():
            print(json.dumps(vars(clock)), flush=True)
        else:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, answer)
    print("up", flush=True)
    await told_to_stop.wait()
    await service.stop()


def main() -> None:
    from serve.config.settings import Settings

    settings = Settings.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    clock = WriterClock()
    clock.watch()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, float(sys.argv[2]), clock))


if __name__ == "__main__":
    main()
