"""One server of the simulated world: the real ledger, spool, upkeep and collector, in a process that may die."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from billing.background import upkeep
from billing.background.upkeep import Background, Round
from billing.collections.collection import HookAnswer, HookCommand
from billing.collections.collector import Collector
from billing.errors import HookFailed
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store import migration
from billing.transparency.sequencer import Sequencer
from tests.simulation.clock import Clock
from tests.simulation.database import Link, SimulatedDatabase, Weather
from tests.simulation.loop import Place, SimulatedLoop
from tests.simulation.plan import Plan, ServerPlan
from tests.simulation.store import Store
from tests.simulation.tree import SIGNER

DRAIN_S = 1.0
HOOK = HookCommand(("simulated",), timeout_s=30)


async def _at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Where there are no threads. The server may die before and after it."""
    await asyncio.sleep(0)
    result = work(*arguments)
    await asyncio.sleep(0)
    return result


newest_revision = cache(migration.newest_revision)


@dataclass(frozen=True)
class Parts:
    """What a server is made of. A test that puts a bug back gives another part."""

    ledger: type[Ledger] = Ledger
    sequencer: type[Sequencer] = Sequencer
    spool: type[Spool] = Spool
    collector: type[Collector] = Collector
    upkeep: Any = upkeep
    # Of another version: every second server begins with these, and each start takes the others.
    before: Parts | None = None

    def of(self, server: int, incarnation: int) -> Parts:
        return self if self.before is None or (server + incarnation) % 2 else self.before


@dataclass
class Surroundings:
    """What a server finds: the network to its databases, and the place where those go on without it."""

    loop: SimulatedLoop
    rng: random.Random
    ledger_store: Store
    there: Context
    parts: Parts
    note: Callable[[str], None]


class Server:
    """`incarnation` counts its starts. What it kept on disk, its spool, it finds again."""

    def __init__(
        self,
        name: str,
        plan: ServerPlan,
        schedule: Plan,
        around: Surroundings,
        spool_store: Store,
        clock: Clock,
    ) -> None:
        self.name = name
        self.plan = plan
        self.clock = clock
        self.incarnation = 0
        self.resumed_at = -math.inf
        self.is_stopping = False
        self.place = Place(name)
        self.places: list[Place] = []
        self.backgrounds: list[Background] = []
        self.weather = Weather(around.rng, plan.fault_rate, list(plan.outages))
        self.spool_weather = Weather(around.rng, plan.spool_fault_rate, list(plan.spool_outages), 0.01)
        self._schedule = schedule
        self._around = around
        self.spool_store = spool_store
        self._context: Context | None = None

    def start(self) -> None:
        self.incarnation += 1
        self.is_stopping = False
        self.place = Place(f"{self.name}.{self.incarnation}")
        self.places.append(self.place)
        self._context = self.place.context()
        around = self._around
        ledger_link = Link(f"{self.place.name} to ledger", self.weather, around.there, around.note)
        spool_link = Link(f"{self.place.name} to spool", self.spool_weather, around.there, around.note)
        database = SimulatedDatabase(around.ledger_store, ledger_link)
        spooling = SimulatedDatabase(self.spool_store, spool_link)
        # Any path that exists: what it holds is in the store.
        parts = around.parts.of(int(self.name[1:]), self.incarnation)
        self.spool = parts.spool(Path(__file__), database=spooling)
        self.ledger = parts.ledger(
            database,
            self.spool,
            offline_allowance_nano_usd=self._schedule.allowance_nano_usd,
            owner=self.place.name,
        )
        background = parts.upkeep.Background([parts.upkeep.Loop(of) for of in self._rounds(database, parts)])
        self.backgrounds.append(background)
        self._context.run(background.start)

    def _rounds(self, database: SimulatedDatabase, parts: Parts) -> list[Round]:
        every_s = self._schedule.upkeep_s
        upkeep, sequencer = (
            parts.upkeep,
            parts.sequencer(
                database, SIGNER, revision=newest_revision(), clock=self.clock.now, compute=_at_once
            ),
        )
        rounds = [
            upkeep.replay_round(self.ledger, every_s=every_s),
            upkeep.lease_round(self.ledger, every_s=self._schedule.leases_s),
            upkeep.Round("log", sequencer.once, every_s),
        ]
        if self.plan.collects:
            collector = parts.collector(database, actor="simulation", run=self._run_hook)
            rounds.append(
                upkeep.collection_round(
                    collector, threshold_cents=1, hook=HOOK, every_s=every_s, clock=self.clock.now
                )
            )
        return rounds

    def crash(self) -> None:
        """Between two callbacks everything of it ends, and nothing of it is told."""
        self.place.is_alive = False

    async def stop(self, requests: Sequence[asyncio.Task[None]]) -> None:
        """As `Service.stop`: the requests end, or are cut off; then upkeep, then the ledger."""
        running = [task for task in requests if not task.done()]
        if running:
            _, late = await asyncio.wait(running, timeout=DRAIN_S)
            for task in sorted(late, key=running.index):
                task.cancel()
            await asyncio.wait(running)
        await self.backgrounds[-1].stop()
        await self.ledger.close()

    def could_renew(self, within_s: float) -> bool:
        """Whether nothing kept this incarnation from its leases in the last seconds."""
        healthy_since = max(self.weather.troubled_until, self.resumed_at)
        return self.place.runs and self._around.loop.time() - healthy_since > within_s

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that dies with this incarnation."""
        return self._around.loop.create_task(work, context=self._context)

    async def _run_hook(self, command: HookCommand, request: bytes) -> HookAnswer:
        rng = self._around.rng
        await asyncio.sleep(rng.random() * 2)
        state = rng.choice(("open", "paid", "failed", "trouble", "silence"))
        if state in ("trouble", "silence"):
            raise HookFailed("the simulated payment system fails", timed_out=state == "silence")
        return HookAnswer(state, "reference", "output")
