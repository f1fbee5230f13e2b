"""Runs one schedule: builds its world from the plan, lets everything happen, and waits for all to come to rest."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from datetime import timedelta

from billing.usage import month_of
from tests.simulation.accounts import Accounts
from tests.simulation.auditor import Auditor, Witness
from tests.simulation.clock import Clock
from tests.simulation.loop import Place, SimulatedLoop, StuckError
from tests.simulation.plan import Plan, ServerPlan, draw
from tests.simulation.request import Request
from tests.simulation.server import Parts, Server, Surroundings
from tests.simulation.store import Store

SERVERS = 3
_ID = re.compile(r"(?:col_|prj_)?[0-9a-f]{20,32}")
# Lets every lease end, and every pause of a retry.
REST_S = 300.0
# A server that nothing troubled for so long has renewed what it carries.
RENEWED_WITHIN_S = 60.0
LOOK_EVERY_S = 5.0


@dataclass
class Result:
    """What became of a schedule. `trace` is empty unless it was asked for."""

    seed: int
    violations: list[str]
    steps: int = 0
    commits: int = 0
    outcomes: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


class Names:
    """Random ids, as the requests that they belong to: two runs of one seed then read alike."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._names = {
            event_id: f"<r{request.plan.number}{what}>"
            for request in requests
            for what, event_id in request.event_ids.items()
        }

    def readable(self, lines: Sequence[str]) -> list[str]:
        return [_ID.sub(self._name, line) for line in lines]

    def _name(self, found: re.Match[str]) -> str:
        return self._names.setdefault(found[0], f"<id {len(self._names) + 1}>")


@dataclass
class Stage:
    """The databases, which schedule after schedule uses again."""

    ledger: Store = field(default_factory=lambda: Store(migrated=True))
    spools: list[Store] = field(default_factory=lambda: [Store(migrated=False) for _ in range(SERVERS)])

    def __post_init__(self) -> None:
        self.accounts = Accounts(self.ledger)
        self.stores = (self.ledger, *self.spools)


class Schedule:
    """One seed's world, from its first request until nothing moves any more."""

    def __init__(self, plan: Plan, stage: Stage, parts: Parts, *, traced: bool) -> None:
        self._plan = plan
        self._stage = stage
        self._parts = parts
        rng = random.Random(plan.seed + 1)
        self._loop = SimulatedLoop(random.Random(plan.seed + 2))
        self._clock = Clock(self._loop, plan.began_at)
        self._database_place = Place("database")
        self._there: Context = self._database_place.context()
        self._around = Surroundings(self._loop, rng, stage.ledger, self._there, parts, self.note)
        self._witness = Witness()
        self._trace: list[str] | None = [] if traced else None
        self._servers: list[Server] = []
        self._requests: list[Request] = []
        self._carried: list[asyncio.Task[None]] = []

    def run(self) -> Result:
        stage, plan = self._stage, self._plan
        stage.ledger.clock = self._clock.now_s
        for store in stage.stores:
            store.begin()
            if self._trace is not None:
                store.trace()
        stage.accounts.limit(plan.workspaces, month_of(plan.began_at))
        auditor = self._auditor = Auditor(stage.ledger, self._witness, self._should_be_held)
        stage.ledger.on_commit = auditor.look
        commits = stage.ledger.commits
        try:
            self._loop.run_until_complete(self._play())
        except StuckError as error:
            auditor.violations.append(str(error))
        finally:
            self._steps = self._loop.steps
            stage.ledger.on_commit = lambda: None
            self._end()
        auditor.violations += [f"the simulation failed: {error!r}" for error in self._loop.errors]
        names = Names(self._requests)
        return Result(
            plan.seed,
            names.readable(auditor.violations),
            self._steps,
            stage.ledger.commits - commits,
            [request.outcome for request in self._requests],
            names.readable(self._trace or []),
        )

    async def _play(self) -> None:
        plan = self._plan
        for number, server_plan in enumerate(plan.servers, 1):
            self._add_server(number, server_plan)
        for request_plan in plan.requests:
            self._loop.call_at(request_plan.starts_at_s, self._arrive, request_plan.number - 1)
        for when, by in plan.database_jumps:
            self._loop.call_at(when, self._jump, "the database", self._clock, by)
        rng = self._around.rng
        for step in plan.cancels_at_steps:
            self._loop.at_step(step, lambda: self._cancel_one(rng))
        await asyncio.sleep(plan.calm_from_s)
        self._calm_down()
        await self._rest()

    def _add_server(self, number: int, plan: ServerPlan) -> None:
        clock = Clock(self._loop, self._plan.began_at, plan.clock_off_by)
        server = Server(
            f"s{number}",
            plan,
            self._plan,
            self._around,
            self._stage.spools[0 if self._plan.one_spool else number - 1],
            clock,
        )
        self._servers.append(server)
        server.start()
        for when, by in plan.clock_jumps:
            self._loop.call_at(when, self._jump, server.name, server.clock, by)
        for begin, end in plan.pauses:
            self._loop.call_at(begin, self._pause, server, end)
        if plan.stops_at_s is not None:
            self._loop.call_at(plan.stops_at_s, self._stop, server)
        for step in plan.crashes_at_steps:
            self._loop.at_step(step, lambda: self._crash(server))

    def _arrive(self, index: int) -> None:
        plan = self._plan.requests[index]
        server = self._servers[plan.server]
        if not server.place.is_alive or server.is_stopping:
            return
        accounts = self._stage.accounts
        caller = replace(accounts.callers[plan.workspace], person=plan.person, tags=plan.tags)
        request = Request(plan, server, caller, accounts.pricing_version, self._witness, self.note)
        request.on_offline = lambda: self._auditor.look_at_allowance(
            server.place.name, server.spool_store, self._allowance_of_a_spool()
        )
        self._requests.append(request)
        task = server.spawn(request.run())
        self._carried.append(task)
        if plan.shape == "client leaves":
            self._loop.call_later(plan.leaves_after_s, self._leave, plan.number, task)

    def _leave(self, number: int, task: asyncio.Task[None]) -> None:
        if not task.done():
            self.note(f"the client of r{number} leaves")
            task.cancel()

    def _cancel_one(self, rng: random.Random) -> None:
        under_way = [
            (request.plan.number, task)
            for request, task in zip(self._requests, self._carried, strict=True)
            if not task.done()
        ]
        if under_way:
            self._leave(*rng.choice(under_way))

    def _jump(self, whose: str, clock: Clock, by: timedelta) -> None:
        clock.off_by += by
        self.note(f"the clock of {whose} jumps by {by}")

    def _pause(self, server: Server, until: float) -> None:
        place = server.place
        if not place.is_alive or place.is_paused:
            return
        self.note(f"{server.name} pauses until {until:.3f}")
        place.is_paused = True
        self._loop.call_at(until, self._resume, server, place)

    def _resume(self, server: Server, place: Place) -> None:
        if place.is_paused:
            self.note(f"{server.name} goes on")
            server.resumed_at = self._loop.time()
            self._loop.resume(place)

    def _crash(self, server: Server) -> None:
        if not server.place.is_alive or self._is_calm:
            return
        self.note(f"{server.name} dies")
        server.crash()
        for request in self._requests:
            if self._servers[request.plan.server] is server and request.incarnation == server.incarnation:
                self._witness.running.difference_update(request.event_ids.values())
        self._loop.call_later(server.plan.back_after_s, self._restart, server, server.incarnation)

    def _stop(self, server: Server) -> None:
        if server.place.runs and not server.is_stopping and not self._is_calm:
            self.note(f"{server.name} is told to stop")
            server.is_stopping = True
            server.spawn(self._stop_and_return(server))

    async def _stop_and_return(self, server: Server) -> None:
        incarnation = server.incarnation
        mine = [
            task
            for request, task in zip(self._requests, self._carried, strict=True)
            if self._servers[request.plan.server] is server and request.incarnation == incarnation
        ]
        await server.stop(mine)
        if self._stage.ledger.is_closed:
            # It died in the midst of this, and is only cleaned up.
            return
        self.note(f"{server.name} has stopped")
        server.crash()
        back_after_s = 0.0 if self._is_calm else server.plan.back_after_s
        self._loop.call_later(back_after_s, self._restart, server, incarnation, context=self._there)

    def _restart(self, server: Server, incarnation: int) -> None:
        if server.incarnation == incarnation:
            self.note(f"{server.name} starts again")
            server.start()

    _is_calm = False

    def _calm_down(self) -> None:
        self.note("from here on nothing goes wrong")
        self._is_calm = True
        for server in self._servers:
            server.weather.clear_up()
            server.spool_weather.clear_up()
            self._resume(server, server.place)
            if not server.place.is_alive:
                self._restart(server, server.incarnation)

    async def _rest(self) -> None:
        longest_s = max((request.longest_s for request in self._plan.requests), default=0.0)
        deadline = self._loop.time() + longest_s + REST_S
        while self._loop.time() < deadline and not self._is_at_rest():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)
        self._auditor.look()
        self._auditor.look_at_rest(self._spooled())

    def _is_at_rest(self) -> bool:
        if any(
            not task.done()
            for task, request in zip(self._carried, self._requests, strict=True)
            if self._lives(request)
        ):
            return False
        (holds,) = self._stage.ledger.driver.execute("SELECT count(*) FROM holds").fetchone()
        (waiting,) = self._stage.ledger.driver.execute("SELECT count(*) FROM log_pending").fetchone()
        return holds == waiting == 0 and not self._spooled()

    def _allowance_of_a_spool(self) -> int:
        """What may wait in one spool: each server that shares it counts for itself."""
        sharing = len(self._servers) if self._plan.one_spool else 1
        return self._plan.allowance_nano_usd * sharing

    def _should_be_held(self, event_id: str) -> bool:
        """Whether the server that carries the request could keep its lease."""
        request = next(each for each in self._requests if event_id in each.event_ids.values())
        return self._servers[request.plan.server].could_renew(RENEWED_WITHIN_S)

    def _lives(self, request: Request) -> bool:
        server = self._servers[request.plan.server]
        return server.incarnation == request.incarnation

    def _spooled(self) -> list[str]:
        found = []
        for store in self._stage.spools:
            if store.driver.execute("SELECT 1 FROM sqlite_master WHERE name = 'spooled_events'").fetchone():
                found += [row[0] for row in store.driver.execute("SELECT event_id FROM spooled_events")]
        return found

    def note(self, what: str) -> None:
        if self._trace is not None:
            self._trace.append(f"{self._loop.time():9.3f}  {what}")

    def _end(self) -> None:
        """Every task ends, of the dead servers too, and none reaches a database any more."""
        loop = self._loop
        for store in self._stage.stores:
            store.is_closed = True
        for server in self._servers:
            for place in server.places:
                loop.revive(place)
            for background in server.backgrounds:
                loop.run_until_complete(background.stop())
        for _ in range(20):
            tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=1000.0))
        for store in self._stage.stores:
            store.is_closed = False
            store.forget()
        loop.close()


def run_seed(
    seed: int,
    stage: Stage,
    *,
    parts: Parts | None = None,
    traced: bool = False,
) -> Result:
    """The same seed, climate and parts give the same schedule."""
    schedule = Schedule(draw(seed), stage, parts or Parts(), traced=traced)
    if not traced:
        return schedule.run()
    log, noting = logging.getLogger("billing"), Noting(schedule.note)
    log.addHandler(noting)
    try:
        return schedule.run()
    finally:
        log.removeHandler(noting)


class Noting(logging.Handler):
    """What the servers log, as lines of the trace."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(f"log: {record.getMessage()}")
