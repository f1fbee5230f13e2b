"""Counts limits behind a Unix socket, as the process does that starts a server."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from billing.rate_limits.counters import Counters, MemoryCounters
from serve.processes.rate_limit_counters import CountersServer


@asynccontextmanager
async def counted_elsewhere(counters: Counters | None = None) -> AsyncIterator[Path]:
    """The path of the socket."""
    # A socket's path must be short, and pytest's folders are not.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counters.sock"
        server = await asyncio.start_unix_server(CountersServer(counters or MemoryCounters()).answer, path)
        try:
            yield path
        finally:
            server.close()
