"""One burst: all connections opened, then one request on each of them at once, until each has its answer."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from benchmarks.burst.connection import Answer, Connection, request_bytes
from benchmarks.burst.health import HealthWatch, Probe
from benchmarks.load.exchange import Call
from benchmarks.load.loop import Target

SPARE_FILES = 128


@dataclass(frozen=True, slots=True)
class Burst:
    """What became of every request of one kind, and of every probe meanwhile."""

    kind: str
    answers: tuple[Answer, ...]
    probes: tuple[Probe, ...]
    # From the first request sent to the last answer, and what opening all the connections took before it.
    seconds: float
    connecting_s: float

    def counts(self) -> dict[str, int]:
        return dict(sorted(Counter(answer.kind for answer in self.answers).items()))

    def latencies_ms(self, *, status: int) -> list[float]:
        return [answer.latency_ms for answer in self.answers if answer.status == status]

    @property
    def longest_health_ms(self) -> float:
        return max((probe.took_ms for probe in self.probes), default=0.0)


async def burst(
    kind: str,
    target: Target,
    call: Call,
    *,
    requests: int,
    timeout_s: float,
    on_done: Callable[[object], None] = lambda answer: None,
) -> Burst:
    """Returns when each request was answered, refused, broken off or left unanswered for `timeout_s`."""
    allow_open_files(2 * requests + SPARE_FILES)
    async with HealthWatch(target.url) as watch:
        began = time.perf_counter()
        connections = await asyncio.gather(*(connected(target, call) for _ in range(requests)))
        sent = time.perf_counter()
        for number, connection in enumerate(connections):
            connection.done.add_done_callback(on_done)
            connection.send(request_bytes(target, call, call.bodies[number % len(call.bodies)]))
        await asyncio.wait([one.done for one in connections], timeout=timeout_s)
        ended = time.perf_counter()
        for connection in connections:
            connection.end("no answer", f"within {timeout_s:g} s")
    answers = tuple(connection.done.result() for connection in connections)
    return Burst(kind, answers, tuple(watch.probes), ended - sent, sent - began)


async def connected(target: Target, call: Call) -> Connection:
    """A connection that is open, or that has its answer: that none could be opened."""
    address = urlsplit(target.url)
    connection = Connection(call)
    host, port = address.hostname or "", address.port or 80
    try:
        await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
    except OSError as error:
        connection.end("refused", str(error))
    return connection


def allow_open_files(wanted: int) -> None:
    """Raise this process's soft limit where it is below, as far as the hard one lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def complaints(bursts: Sequence[Burst], *, max_health_ms: float) -> list[str]:
    """A request without an answer or a proper refusal, a `/health` that failed or took too long."""
    found = []
    for one in bursts:
        faulty = Counter(answer.kind for answer in one.answers if answer.fault)
        for kind, number in sorted(faulty.items()):
            example = next(answer.fault for answer in one.answers if answer.kind == kind)
            found.append(f"{one.kind}: {number:,} of {len(one.answers):,} requests: {kind} ({example})")
        failed = [probe for probe in one.probes if probe.fault]
        if failed:
            found.append(f"{one.kind}: /health failed {len(failed)} times: {failed[0].fault}")
        slowest = max(one.probes, key=lambda probe: probe.took_ms)
        if slowest.took_ms > max_health_ms:
            found.append(f"{one.kind}: /health took {slowest.took_ms:.0f} ms at {slowest.at_s:.1f} s")
    return found
