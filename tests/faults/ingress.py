"""The real HTTP server in a process of its own, without Ray and on fake engines: it can be killed at any moment."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import uvloop

from billing.ledger.leases import LeaseTimes
from billing.store.database import open_database
from models.engine import Engine
from serve.app import start_service
from serve.config.settings import Settings
from serve.metrics.counts import Counts
from serve.transparency.sequencing import sequencing
from tests.faults.compressor import FakeSwitchedCompressor
from tests.faults.engine import FakeWitnessedEngine
from tests.faults.ledger_link import FakeForgetfulDatabase, clock_of, follow_wall_clock
from tests.forked import processes

START_S = 300.0
STOP_S = 60.0


@dataclass(frozen=True)
class IngressPlan:
    """What a server is told at its start."""

    settings: Settings
    # Kept in the files of this folder: what the engine generated, the switch that breaks it, and the log.
    folder: Path
    token_s: float
    database_timeout_s: float
    # The soft limit of open files that the process starts with; None: the parent's.
    open_files: int | None = None
    # Where the listening socket is given out; None: each server listens by itself.
    run_folder: Path | None = None
    lease: LeaseTimes = field(default_factory=LeaseTimes)


class ServerProcess(Protocol):
    @property
    def pid(self) -> int | None: ...

    @property
    def exitcode(self) -> int | None: ...

    def kill(self) -> None: ...

    def terminate(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


@dataclass
class Ingress:
    """A started server. It shares its port with its siblings."""

    plan: IngressPlan
    process: ServerProcess = field(init=False)

    async def start(self) -> Ingress:
        ready, tell = processes.Pipe(duplex=False)
        self.process = await asyncio.to_thread(self.spawned, tell)
        tell.close()
        if not await asyncio.to_thread(ready.poll, START_S):
            raise TimeoutError(f"the ingress did not start within {START_S:g} s; see {self.plan.folder}")
        try:
            ready.recv()
        except EOFError:
            raise RuntimeError(f"the ingress died at its start; see {self.plan.folder}") from None
        finally:
            ready.close()
        return self

    def spawned(self, tell: Connection) -> ServerProcess:
        """A process that tells `tell` its id when it serves."""
        process = processes.Process(target=run_ingress, args=(self.plan, tell), daemon=True)
        process.start()
        return process

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        await asyncio.to_thread(self.process.join, STOP_S)

    def terminate(self) -> None:
        self.process.terminate()

    async def ended(self) -> int:
        """The exit status of a server that was told to stop. Raises `TimeoutError`."""
        await asyncio.to_thread(self.process.join, STOP_S)
        if self.process.exitcode is None:
            await self.kill()
            raise TimeoutError(f"the ingress did not stop within {STOP_S:g} s of SIGTERM")
        return self.process.exitcode


def run_ingress(plan: IngressPlan, ready: Connection) -> None:
    log = os.open(plan.folder / "ingress.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, sys.stderr.fileno())
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {os.getpid()} %(name)s %(message)s")
    if plan.open_files is not None:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (plan.open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(plan, ready))


async def _serve(plan: IngressPlan, ready: Connection) -> None:
    """As a replica does: SIGTERM lets running requests end within the drain time."""
    follow_wall_clock(plan.folder)
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    engine = FakeWitnessedEngine(plan.folder, token_s=plan.token_s)
    engines: Mapping[str, Engine] = {model.id: engine for model in plan.settings.models}
    compressor = FakeSwitchedCompressor(plan.folder)
    database = FakeForgetfulDatabase(
        open_database(
            plan.settings.billing.database_url,
            timeout_s=plan.database_timeout_s,
            clock=clock_of(plan.folder),
        ),
        plan.folder,
    )
    service = start_service(
        plan.settings,
        engines=engines,
        compressors={model.id: compressor for model in plan.settings.compression.models},
        retrievers={},
        database=database,
        run_folder=plan.run_folder,
        lease=plan.lease,
    )
    while not service.server.started:
        service.check()
        await asyncio.sleep(0.002)
    ready.send(os.getpid())
    ready.close()
    # Of `pith serve`; the ingress itself stands by, as where that was killed.
    with sequencing(lambda: plan.settings, Counts()):
        await told_to_stop.wait()
        await service.stop()
