"""One run: load, a fault at a random moment, its repair, and the audit when all has settled."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from billing.caller import NO_LIMITS, ProjectLimits
from billing.errors import BillingError
from tests.faults.adjusting import Adjuster
from tests.faults.administering import administering
from tests.faults.archiving import Archivist, archiving_under_load
from tests.faults.audit import Tally, check, settled, statuses
from tests.faults.disk import SpoolDisk, spool_disk
from tests.faults.fault import Fault
from tests.faults.faults import FAULTS
from tests.faults.load import Load
from tests.faults.watch import Watcher
from tests.faults.world import Machines, Setup, World, new_world

Mode = Literal["JSON", "SSE"]
MODES: tuple[Mode, ...] = ("JSON", "SSE")
# Never reached: they only make each request count in Redis.
WIDE_LIMITS = ProjectLimits(requests_per_minute=10**6, tokens_per_minute=10**9, max_in_flight=10**4)
COMPLETED_BEFORE, COMPLETED_AFTER = 3, 5
RECOVERY_S = 120.0
# What a few requests of the dearest model hold.
LIMIT_NANO_USD = (20_000_000, 300_000_000)


@dataclass(frozen=True)
class Case:
    """What a run does, wholly drawn from its fault, its mode and its seed."""

    fault: type[Fault]
    mode: Mode
    seed: int

    @property
    def name(self) -> str:
        return f"{self.fault.name}, {self.mode}, seed {self.seed}"


def cases(runs: int, seed: int) -> list[Case]:
    """Every fault in both modes in turn, so that any number of runs is spread evenly."""
    kinds = [(fault, mode) for fault in FAULTS for mode in MODES]
    return [Case(*kinds[index % len(kinds)], seed + index // len(kinds)) for index in range(runs)]


async def run_case(
    case: Case,
    machines: Machines,
    *,
    adjusts: bool = False,
    administers: bool = False,
    archives: bool = False,
) -> tuple[Tally, str]:
    """The figures, and a line on how the requests ended. What goes wrong is a violation, and is not raised. With
    `adjusts`, credits, adjustments and refunds go on all the while; with `administers`, changes of keys; with
    `archives`, the load goes on until old months are archived."""
    rng = random.Random(f"{case.fault.name} {case.mode} {case.seed}")
    fault = case.fault(rng)
    setup = Setup(
        ledger=fault.ledgers[case.seed % len(fault.ledgers)],
        ingresses=rng.choice((1, 2)),
        lease=fault.lease,
        drain_s=fault.drain_s,
        database_timeout_s=fault.database_timeout_s,
        limits=WIDE_LIMITS if fault.on_redis else NO_LIMITS,
        on_redis=fault.on_redis,
        allowance_usd=fault.allowances[case.seed % len(fault.allowances)],
        others=_others(rng),
        own_spools=rng.random() < 0.5,
        collects=fault.collects,
        slow_link=fault.slow_link,
    )
    with _disk(fault) as disk:
        async with new_world(setup, machines, disk) as world:
            load = _load(case, fault, world, rng)
            watcher = Watcher(
                world.plan.settings.billing.database_url, [each.workspace_id for each in world.customers]
            )
            watching = asyncio.create_task(watcher.watch())
            async with (
                _adjusting(world, rng, adjusts) as troubles_of_adjustments,
                _administering(world, rng, administers) as troubles_of_keys,
                _archiving(world, rng, archives) as archivist,
            ):
                trouble = await _under_load(fault, world, load, archivist)
            # Whoever else writes to the ledger has ended by now, so that what is settled stays settled.
            trouble = trouble or await _ended(world)
            watcher.stop()
            await watching
            try:
                tally = await check(
                    world.books(),
                    load.answers,
                    everyone_lives=fault.everyone_lives,
                    may_err=fault.may_err,
                    chats_may_fail=fault.chats_may_fail,
                )
            except BillingError as error:
                tally = Tally(runs=1, violations=[f"the ledger cannot be read: {error}"])
            log = (world.folder / "ingress.log").read_text()
    tally.looks = watcher.looks
    tally.violations += watcher.violations + troubles_of_adjustments + troubles_of_keys
    tally.violations += archivist.troubles if archivist else []
    if trouble:
        tally.violations.append(trouble)
    ended = f"{setup.ledger}, {setup.ingresses} ingress: {statuses(load.answers)}"
    if tally.violations:
        ended += f"\n{log[-6000:]}"
    return tally, ended


@asynccontextmanager
async def _adjusting(world: World, rng: random.Random, adjusts: bool) -> AsyncIterator[list[str]]:
    """Its list has what was wrong with the adjustments, once it has ended."""
    troubles: list[str] = []
    if not adjusts:
        yield troubles
        return
    workspaces = [each.workspace_id for each in world.customers]
    adjuster = Adjuster(world.plan.settings.billing.database_url, workspaces, rng)
    going_on = asyncio.create_task(adjuster.adjust())
    try:
        yield troubles
    finally:
        adjuster.stop()
        await going_on
    troubles += await adjuster.troubles()
    if not adjuster.made:
        troubles.append("no adjustment was made")


@asynccontextmanager
async def _administering(world: World, rng: random.Random, administers: bool) -> AsyncIterator[list[str]]:
    """Its list has what was wrong with the keys, once it has ended."""
    if not administers:
        yield []
        return
    workspaces = [each.workspace_id for each in world.customers]
    keys = [each.key for each in world.customers]
    async with administering(world.plan.settings, workspaces, keys, rng) as troubles:
        yield troubles


@asynccontextmanager
async def _archiving(world: World, rng: random.Random, archives: bool) -> AsyncIterator[Archivist | None]:
    if not archives:
        yield None
        return
    async with archiving_under_load(world.plan.settings, rng) as archivist:
        yield archivist


def _others(rng: random.Random) -> tuple[tuple[int | None, int | None], ...]:
    """Beside a workspace without limits, one that reaches its limit and one that reaches its month's."""
    return (rng.randrange(*LIMIT_NANO_USD), None), (None, rng.randrange(*LIMIT_NANO_USD))


def _load(case: Case, fault: Fault, world: World, rng: random.Random) -> Load:
    return Load(
        world.port,
        world.key,
        case.mode == "SSE",
        rng,
        fault.leavers,
        fault.longest_tokens,
        other_keys=tuple(customer.key for customer in world.customers[1:]),
        is_mixed=True,
        dawdlers=fault.dawdlers,
    )


async def _under_load(fault: Fault, world: World, load: Load, archivist: Archivist | None) -> str | None:
    load.start()
    try:
        await load.completed_more(COMPLETED_BEFORE, deadline_s=RECOVERY_S)
        await asyncio.sleep(fault.rng.uniform(0, 0.15))
        await fault.strike(world)
        await asyncio.sleep(fault.rng.uniform(*fault.outage_s))
        await fault.repair(world)
        await load.completed_more(COMPLETED_AFTER, deadline_s=RECOVERY_S)
        if archivist is not None:
            await asyncio.wait([archivist.going_on])
    except (TimeoutError, AssertionError) as error:
        return f"the service did not come back: {error!r}"
    finally:
        await load.stop()
    return None


async def _ended(world: World) -> str | None:
    """What was wrong when all settled and the servers were stopped."""
    try:
        await settled(world.books())
        statuses = await world.stop_servers()
    except TimeoutError as error:
        return str(error)
    return None if not any(statuses) else f"servers ended with {statuses} after SIGTERM"


@contextmanager
def _disk(fault: Fault) -> Iterator[SpoolDisk | None]:
    if not fault.needs_disk:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pith-faults-disk-") as folder:
        disk = spool_disk(Path(folder) / "spool", fault.disk_kib)
        try:
            yield disk
        finally:
            disk.close()
