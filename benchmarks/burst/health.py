"""Asks `/health` at fixed times, each time on a connection of its own, as an orchestrator's probe does.

In a thread with blocking sockets, since the event loop beside it is busy with the burst.
"""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Probe:
    """One `/health`: when it was due, what it took, how late this program was with it, and "" or what went wrong."""

    at_s: float
    took_ms: float
    late_ms: float
    fault: str


@dataclass(slots=True)
class HealthWatch:
    """Probes from `async with` to its end; a probe that is under way then is waited for."""

    url: str
    every_s: float = 0.1
    probes: list[Probe] = field(default_factory=list)
    _began: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    async def __aenter__(self) -> HealthWatch:
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._watch, name="health", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        # Not from the event loop: what answers the last probe may run in it.
        await asyncio.to_thread(self._thread.join, 2 * TIMEOUT_S)

    def _watch(self) -> None:
        due = self._began
        while not self._stop.wait(max(0.0, due - time.perf_counter())):
            asked = time.perf_counter()
            fault = self._ask()
            took_ms = 1000 * (time.perf_counter() - asked)
            self.probes.append(Probe(due - self._began, took_ms, 1000 * (asked - due), fault))
            # One that was due while the last was under way is left out: that one's time tells of it.
            due = max(due + self.every_s, time.perf_counter())

    def _ask(self) -> str:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__} {error}"
        finally:
            connection.close()
        return "" if response.status == 200 else f"status {response.status}"
