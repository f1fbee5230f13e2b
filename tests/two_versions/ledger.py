"""Servers of two versions on one ledger under load, one replaced by the other forth and back, stopped or killed."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

import asyncpg

from tests.faults.adjusting import Adjuster
from tests.faults.administering import administering
from tests.faults.audit import Books, Tally, check, settled, statuses
from tests.faults.engine import witnessed_tokens
from tests.faults.ingress import Ingress, IngressPlan
from tests.faults.ledger_link import set_clock
from tests.faults.load import Load
from tests.faults.world import LedgerKind, Machines, Setup, World, new_world
from tests.two_versions.before import ROOT, environment, run

WAIT_S = 240.0
# Requests that are answered between two replacements.
EACH = 12
MIGRATE = """
import asyncio, sys
from billing.store.migration import upgrade
print(asyncio.run(upgrade(sys.argv[1])))
"""
# Of the version before, which pickles and starts as its own harness does.
SERVE = """
import asyncio, pickle, sys
from multiprocessing.connection import Connection
from billing.store.migration import upgrade
from tests.faults import ingress
plan = pickle.load(sys.stdin.buffer)
asyncio.run(upgrade(plan.settings.billing.database_url))
serve = getattr(ingress, "run_ingress", None) or ingress._run
serve(plan, Connection(int(sys.argv[1])))
"""
RECONCILE = """
import asyncio, pathlib, sys
from billing.books.books import Books
from billing.ledger.spool import Spool
from billing.store.database import open_database

async def reconciled():
    database, spools = open_database(sys.argv[1]), [Spool(pathlib.Path(each)) for each in sys.argv[2:]]
    found = [await Books(database).reconcile(spool, full=True) for spool in spools]
    print("clean" if all(each.is_clean for each in found) else found)

asyncio.run(reconciled())
"""


@dataclass
class Program:
    """A process of another version, as `multiprocessing` has one of this."""

    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def exitcode(self) -> int | None:
        return self.popen.poll()

    def kill(self) -> None:
        self.popen.kill()

    def terminate(self) -> None:
        self.popen.terminate()

    def join(self, timeout: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(timeout)


@dataclass
class IngressBefore(Ingress):
    """A server of the code in this folder."""

    code: Path = field(default_factory=Path)

    def spawned(self, tell: Connection) -> Program:
        popen = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, str(tell.fileno())],
            cwd=self.code,
            env=environment(self.code),
            stdin=subprocess.PIPE,
            pass_fds=[tell.fileno()],
        )
        assert popen.stdin is not None
        with popen.stdin as given:
            pickle.dump(self.plan, given)
        return Program(popen)


@dataclass
class MachinesBefore(Machines):
    """A new ledger for each run, migrated by the code in this folder."""

    code: Path = field(default_factory=Path)
    ledgers: int = 0

    async def ledger_url(self, kind: LedgerKind, folder: Path) -> str:
        url = f"sqlite:///{folder / 'ledger.db'}"
        if kind == "postgresql":
            server, name = self.running_postgres(), f"two_versions_{self.ledgers}"
            self.ledgers += 1
            connection = await asyncpg.connect(server.url("postgres").replace("+asyncpg", ""))
            await connection.execute(f"CREATE DATABASE {name}")
            await connection.close()
            url = server.url(name)
        await asyncio.to_thread(run, self.code, MIGRATE, url)
        return url


@dataclass
class Versions:
    """Makes servers of one version or the other. Those of the one before have a folder of their own, which says what
    they did."""

    code: Path
    is_before: bool = True

    def __call__(self, plan: IngressPlan) -> Ingress:
        if not self.is_before:
            return Ingress(plan)
        folder = of_before(plan.folder)
        if not folder.exists():
            folder.mkdir()
            set_clock(folder, 0)
        return IngressBefore(replace(plan, folder=folder), code=self.code)


def of_before(folder: Path) -> Path:
    return folder / "before"


@dataclass
class Outcome:
    """`carried`: requests whose tokens were made by the version before, and by this one."""

    tally: Tally
    ended: str
    replaced: int
    killed: int
    carried: tuple[int, int]


async def run_both(
    code: Path, ledger: LedgerKind, seed: int, *, rounds: int, machines: MachinesBefore
) -> Outcome:
    """Two servers of the version before become two of this one and then two of the former again, one after the other,
    `rounds` times."""
    rng = random.Random(f"two versions {ledger} {seed}")
    versions = Versions(code)
    setup = Setup(ledger=ledger, ingresses=2, own_spools=True, others=((None, None),))
    async with new_world(setup, machines, ingress=versions) as world:
        load = Load(
            world.port,
            world.key,
            stream=bool(seed % 2),
            rng=rng,
            leavers=0.1,
            most=1000,
            other_keys=tuple(customer.key for customer in world.customers[1:]),
            is_mixed=True,
        )
        ends, trouble = list[bool](), []
        async with _changing(world, rng) as troubles:
            load.start()
            try:
                await load.completed_more(EACH, deadline_s=WAIT_S)
                for number in range(4 * rounds):
                    versions.is_before = number // 2 % 2 == 1
                    ends.append(await _replace(world, rng))
                    await load.completed_more(EACH, deadline_s=WAIT_S)
            except (TimeoutError, RuntimeError) as error:
                trouble.append(f"the service did not go on: {error!r}")
            finally:
                await load.stop()
        books = _books(world)
        tally, ended = await _judged(world, books, load)
        tally.violations += trouble + troubles
        carried = [len(witnessed_tokens(each)) for each in (of_before(world.folder), world.folder)]
        for version in (code, None):
            tally.violations += await _reconciled(version, books)
        if tally.violations:
            logs = [folder / "ingress.log" for folder in (of_before(world.folder), world.folder)]
            ended += "\n".join(log.read_text()[-4000:] for log in logs if log.exists())
        return Outcome(tally, ended, len(ends), sum(ends), (carried[0], carried[1]))


async def _replace(world: World, rng: random.Random) -> bool:
    """The oldest server by a new one, once it has ended; and whether it was killed."""
    leaving, kills = world.servers.pop(0), rng.random() < 0.5
    if kills:
        await leaving.kill()
    else:
        leaving.terminate()
        status = await leaving.ended()
        if status:
            raise RuntimeError(f"a server ended with {status} after SIGTERM")
    await world.start_server()
    return kills


@asynccontextmanager
async def _changing(world: World, rng: random.Random) -> AsyncIterator[list[str]]:
    """Money is adjusted, and keys and limits are changed, all the while. Its list has what was wrong, at the end."""
    workspaces = [each.workspace_id for each in world.customers]
    settings = world.plan.settings
    adjuster, troubles = Adjuster(settings.billing.database_url, workspaces, rng), list[str]()
    async with administering(settings, workspaces, [each.key for each in world.customers], rng) as of_keys:
        going_on = asyncio.create_task(adjuster.adjust())
        try:
            yield troubles
        finally:
            adjuster.stop()
            await going_on
    troubles += of_keys + await adjuster.troubles()


def _books(world: World) -> Books:
    made = witnessed_tokens(world.folder)
    for request_id, tokens in witnessed_tokens(of_before(world.folder)).items():
        made[request_id] = max(made.get(request_id, 0), tokens)
    return replace(world.books(), generated=lambda request_id: made.get(request_id, 0))


async def _judged(world: World, books: Books, load: Load) -> tuple[Tally, str]:
    trouble = []
    try:
        await settled(books, within_s=WAIT_S)
        if any(ends := await world.stop_servers()):
            trouble.append(f"servers ended with {ends} after SIGTERM")
    except TimeoutError as error:
        trouble.append(str(error))
    tally = await check(books, load.answers, everyone_lives=False)
    tally.violations += trouble
    return tally, statuses(load.answers)


async def _reconciled(code: Path | None, books: Books) -> list[str]:
    """By the code in this folder, or by this one."""
    spools = [str(path) for path in books.spool_paths]
    said = await asyncio.to_thread(run, code or ROOT, RECONCILE, books.database_url, *spools)
    whose = "the version before" if code else "this version"
    return [] if said.strip() == b"clean" else [f"{whose} reconciles: {said.decode()[:2000]}"]
