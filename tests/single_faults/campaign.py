"""Each step of a path fails in each way, in a world of its own: in a process that is forked, and one more after it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

from tests.serve.served import at_rest
from tests.single_faults import seam, world
from tests.single_faults.audit import Told, check
from tests.single_faults.paths import PATHS, Trodden
from tests.single_faults.seam import How, Step

RUN_S = 300.0


@dataclass(frozen=True)
class Way:
    """A way to fail: what the step comes to, and whether its process is killed while it waits for it."""

    kind: str
    name: str
    how: How
    is_killed: bool = False


WAYS = (
    Way("error", "fails", How.ERROR),
    Way("error", "is done, and fails", How.LOST),
    Way("timeout", "is done after all have given up", How.TIMEOUT),
    Way("timeout", "hangs until its process is killed", How.TIMEOUT, is_killed=True),
    Way("death", "is not done, since its process dies", How.DEATH_BEFORE),
    Way("death", "is done, and its process dies", How.DEATH_AFTER),
)

KINDS = tuple(dict.fromkeys(way.kind for way in WAYS))
Fault = tuple[Step, Way]


@dataclass
class Result:
    """Of one run. `steps` are all that were taken, `reached` whether the fault was."""

    steps: list[Step]
    reached: bool
    told: Told
    violations: list[str] = field(default_factory=list)


def receiver(place: Path) -> int:
    """The process of a receiver of webhooks, whose address is in the file `receiver`: in `received` it writes down each
    id with its payload."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            payload = self.rfile.read(int(self.headers["content-length"])).decode()
            with (place / "received").open("a") as file:
                file.write(json.dumps([self.headers["webhook-id"], payload]) + "\n")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        (place / "receiver").write_text(f"http://127.0.0.1:{server.server_address[1]}/")
        child = os.fork()
        if child == 0:
            seam.end_with_parent()
            server.serve_forever()
        return child


class Stage:
    """Where the worlds of one path are made, one after another. Its process has no threads, and no event loop: the
    server is built here, and runs in the processes that are forked."""

    def __init__(self, place: Path, path: Trodden) -> None:
        # Faults are no news here.
        logging.disable(logging.CRITICAL)
        self._path = path
        self._template, self._folder = place / "template", place / "world"
        self._told, self._journal, self._received = place / "told", place / "journal", place / "received"
        self._template.mkdir(parents=True)
        self._receiver = receiver(place)
        for trouble in self._fork(self._prepare):
            raise AssertionError(f"{trouble}: {self._told.read_text()}")
        self._renew()
        asyncio.run(self._warm_up())
        self._server = world.build(self._folder)
        gc.freeze()

    def run(self, fault: Fault | None = None) -> Result:
        """The path once, with all its steps well or with one that fails; and then what a server finds afterwards."""
        if fault is None or fault[1].how is not How.TIMEOUT:
            return self._run_within(world.LONG_S, fault)
        # A busy machine may give up before it comes to the step.
        for timeout_s in (world.SHORT_S, world.LONGER_S, world.LONGER_S, world.LONGER_S):
            result = self._run_within(timeout_s, fault)
            if result.reached:
                break
        return result

    def _run_within(self, timeout_s: float, fault: Fault | None) -> Result:
        self._renew()
        troubles = self._fork(partial(self._act, timeout_s, fault))
        steps, reached = seam.steps_of(self._journal)
        told = Told.of(self._told.read_text())
        troubles += self._fork(partial(self._look, told))
        return Result(steps, reached, told, [*troubles, *Told.of(self._told.read_text()).troubles])

    def close(self) -> None:
        os.kill(self._receiver, signal.SIGKILL)
        os.waitpid(self._receiver, 0)

    def _renew(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(self._template, self._folder)
        for file in (self._told, self._journal, self._received):
            file.write_bytes(b"")

    def _fork(self, what: Callable[[], Coroutine[Any, Any, None]]) -> list[str]:
        """What went wrong with the process itself; a death that was meant is nothing wrong."""
        child = os.fork()
        if child == 0:
            self._run(what)
        deadline = time.monotonic() + RUN_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return [f"a process did not end within {RUN_S:g} s"]
            time.sleep(0.002)
        code = os.waitstatus_to_exitcode(ended[1])
        return [] if code in (0, seam.DEAD) else [f"a process ended with {code}"]

    def _run(self, what: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
        code = 1
        try:
            asyncio.run(what())
            code = 0
        except BaseException:
            self._tell({"trouble": traceback.format_exc()})
        finally:
            os._exit(code)

    def _tell(self, what: Mapping[str, Any]) -> None:
        file = os.open(self._told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, json.dumps(what).encode() + b"\n")
        os.close(file)

    async def _prepare(self) -> None:
        await world.make(self._template)
        server = world.build(self._template)
        await self._path.prepare(server)
        await server.close()

    async def _warm_up(self) -> None:
        """The path once, for what Python imports and SQLAlchemy compiles on first use."""
        server = world.build(self._folder)
        await self._path.act(server)
        await server.come_to_rest(self._path.rounds(server), is_new=False)
        await check(server)
        await server.close()

    async def _act(self, timeout_s: float, fault: Fault | None) -> None:
        server = self._server
        server.give_up_after(timeout_s)
        server.tell = self._tell
        if fault is not None:
            seam.arm(fault[0], fault[1].how)
        seam.begin(self._folder, self._journal)
        await self._path.act(server)
        await at_rest()
        if fault is not None and fault[1].is_killed:
            os._exit(seam.DEAD)
        seam.end()
        seam.release()
        server.give_up_after(world.LONG_S)
        for trouble in await server.come_to_rest(self._path.rounds(server), is_new=False):
            self._tell({"trouble": f"the server itself, afterwards: {trouble}"})
        self._tell({"ahead_s": world.CLOCK.ahead_s})
        # It is not closed in order: what it leaves is what any end leaves.
        os._exit(0)

    async def _look(self, told: Told) -> None:
        server = self._server
        world.CLOCK.ahead_s = told.ahead_s
        troubles = await server.come_to_rest(self._path.rounds(server), is_new=True)
        for trouble in [*troubles, *await check(server), *await self._path.check(server, told)]:
            self._tell({"trouble": trouble})
        os._exit(0)


@dataclass(frozen=True)
class Tried:
    """One step that failed in one way."""

    path: str
    step: Step
    way: Way
    result: Result


def sweep(
    place: Path, name: str, kinds: Sequence[str], *, only: Sequence[str] = ("",), every: int = 1
) -> Iterator[list[Step] | Tried]:
    """First all steps of a run in which each goes well; then each of them, failing in each way. `only`: those with
    this in their label; `every` leaves out all but every so many faults, of each way some."""
    with world.statements_kept():
        stage = Stage(place, PATHS[name])
    try:
        clean = stage.run()
        if clean.violations:
            raise AssertionError(f"{name}: without a fault: {clean.violations}")
        yield clean.steps
        faults = [
            (step, way)
            for way in WAYS
            if way.kind in kinds
            for step in clean.steps
            if any(part in step.label for part in only)
        ]
        for fault in faults[::every]:
            result = stage.run(fault)
            if not result.reached:
                result.violations.append("the step was not reached")
            yield Tried(name, *fault, result)
    finally:
        stage.close()
