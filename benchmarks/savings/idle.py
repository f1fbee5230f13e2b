"""Cost of a project's default to a request that has nothing to compress: requests with and without it, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import aiohttp

from benchmarks.load.exchange import Clock, chat, exchange
from benchmarks.load.loop import Target
from benchmarks.savings.interval import Estimate, bootstrap

# Requests that are drawn together, since what else the machine does lasts longer than one of them.
STRETCH = 25
Pair = tuple[float, float]


async def alternate(
    model: str, whole: Target, default: Target, pairs: int, on_done: Callable[[], None]
) -> list[Pair]:
    """Latencies in milliseconds of replies of one token, without a default and with one. Raises `Failed`."""
    found: list[Pair] = []
    while len(found) < pairs:
        found += await _stretch(model, whole, default, on_done)
    return found


async def _stretch(model: str, whole: Target, default: Target, on_done: Callable[[], None]) -> list[Pair]:
    """On new connections: a server has several HTTP processes, and a connection stays with one. The first pair opens
    them, and does not count."""
    call, found = chat(model, tokens=1, stream=False), list[Pair]()
    async with whole.session() as off, default.session() as on:
        for number in range(STRETCH + 1):
            body, took = call.bodies[number % len(call.bodies)], dict[aiohttp.ClientSession, float]()
            for session in (off, on) if number % 2 else (on, off):
                clock = Clock(time.perf_counter())
                took[session] = (await exchange(session, call, body, clock=clock, due_s=0.0)).latency_ms
            if number:
                found.append((took[off], took[on]))
                on_done()
    return found


def added_ms(pairs: Sequence[Pair]) -> Estimate:
    """The median with a default less the median without."""
    stretches = [pairs[at : at + STRETCH] for at in range(0, len(pairs), STRETCH)]
    return bootstrap(stretches, _difference)


def _difference(pairs: Sequence[Pair]) -> float:
    return statistics.median(on for _, on in pairs) - statistics.median(off for off, _ in pairs)


def medians_ms(pairs: Sequence[Pair]) -> Mapping[str, float]:
    return {
        "without": statistics.median(off for off, _ in pairs),
        "with": statistics.median(on for _, on in pairs),
    }
