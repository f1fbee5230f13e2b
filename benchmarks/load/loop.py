"""Sends requests in a closed loop (so many clients) or an open one (so many a second), and keeps what is measured."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

from benchmarks.load.exchange import Call, Clock, Failed, bearer, exchange
from benchmarks.load.processes import Cpu
from benchmarks.load.sample import Run, Sample

TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Target:
    """A server that listens, and the key that it wants ("" for none). With those of other projects it is asked in
    turn."""

    url: str
    key: str = ""
    other_keys: tuple[str, ...] = ()

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            self.url,
            headers=bearer(self.key),
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        )


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds of load that are thrown away, then seconds that are measured."""

    warm_up_s: float
    seconds: float

    @property
    def end_s(self) -> float:
        return self.warm_up_s + self.seconds


@dataclass(slots=True)
class Load:
    """One run in progress. Times count from its start; `finish` moves them to the start of the measurement."""

    session: aiohttp.ClientSession
    call: Call
    window: Window
    clock: Clock = field(default_factory=lambda: Clock(time.perf_counter()))
    samples: list[Sample] = field(default_factory=list)
    on_done: Callable[[Sample], None] = lambda sample: None
    other_keys: tuple[str, ...] = ()
    bodies: Iterator[bytes] = field(init=False)
    keys: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.bodies = itertools.cycle(self.call.bodies)
        # Without one of its own a request has the session's.
        self.keys = itertools.cycle(("", *self.other_keys))

    async def send(self, due_s: float) -> None:
        body, key = next(self.bodies), next(self.keys)
        sample = await exchange(self.session, self.call, body, clock=self.clock, due_s=due_s, key=key)
        self.samples.append(sample)
        self.on_done(sample)

    def finish(self, began_s: float, ended_s: float, cpu_s: dict[str, float]) -> Run:
        """The requests that ended within the measurement. Raises `Failed` when there is none."""
        kept = [s for s in self.samples if began_s <= s.done_s < ended_s]
        if not kept:
            raise Failed(f"POST {self.call.path}: no request ended within {ended_s - began_s:.1f} s")
        moved = (Sample(s.due_s - began_s, s.latency_ms, s.figures, s.arrivals_ms) for s in kept)
        return Run(ended_s - began_s, tuple(moved), cpu_s)


class Pattern(Protocol):
    async def drive(self, load: Load) -> None:
        """Send requests until the window has ended, and return when all have been answered."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Each client sends its next request when its last one has been answered."""

    clients: int

    def __str__(self) -> str:
        return f"{self.clients} client{'s' if self.clients > 1 else ''}"

    async def drive(self, load: Load) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self.clients):
                group.create_task(self._client(load))

    async def _client(self, load: Load) -> None:
        while (now := load.clock.now()) < load.window.end_s:
            await load.send(now)


@dataclass(frozen=True, slots=True)
class Open:
    """A request is due every 1 / `rate` seconds, whether or not the last ones have been answered."""

    rate: float

    def __str__(self) -> str:
        return f"{self.rate:g} requests/s"

    async def drive(self, load: Load) -> None:
        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                due_s = number / self.rate
                if due_s >= load.window.end_s:
                    return
                await asyncio.sleep(max(0.0, due_s - load.clock.now()))
                group.create_task(load.send(due_s))


async def measure(
    target: Target,
    call: Call,
    pattern: Pattern,
    window: Window,
    *,
    cpu: Cpu | None = None,
    on_done: Callable[[Sample], None] = lambda sample: None,
) -> Run:
    """One run: warm-up, then the measurement on the same connections. Raises `Failed` if any request failed,
    in the warm-up too: what is fast because it refuses is no figure."""
    cpu = cpu or Cpu(lambda: [])
    async with target.session() as session:
        load = Load(session, call, window, on_done=on_done, other_keys=target.other_keys)
        driver = asyncio.create_task(pattern.drive(load))
        try:
            await _until(load, window.warm_up_s, driver)
            before, began_s = cpu.seconds(), load.clock.now()
            await _until(load, window.end_s, driver)
            after, ended_s = cpu.seconds(), load.clock.now()
            await driver
        except* Failed as failures:
            raise _first(failures) from failures
        finally:
            driver.cancel()
            await asyncio.gather(driver, return_exceptions=True)
    return load.finish(began_s, ended_s, cpu.between(before, after))


async def _until(load: Load, time_s: float, driver: asyncio.Task[None]) -> None:
    """Wait for a time of the run, or raise at once what made the driver end."""
    done, _ = await asyncio.wait((driver,), timeout=max(0.0, time_s - load.clock.now()))
    if done and driver.exception() is not None:
        driver.result()


def _first(group: BaseExceptionGroup[Failed]) -> Failed:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Failed)
    return error
