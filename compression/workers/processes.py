"""The processes of a pool: how many there are for each lane, and a replacement for each that is gone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from compression.workers.lanes import Job, LaneName, PoolPlan


class WorkerCannotStart(RuntimeError):
    """A worker process cannot be started; the message says why."""


log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
# After this many failures in a row the model's replica reports itself unhealthy.
_FAILURES = 5


class RunningWorker(Protocol):
    """A process that receives jobs and answers them."""

    pid: int

    def send(self, payload: bytes, number: int) -> None: ...

    def cancel(self, number: int) -> None: ...

    def cpu_s(self) -> float:
        """CPU seconds that it has used."""
        ...

    def died_with_fork_server(self) -> bool:
        """True for one that died where its fork server died, and all its siblings with it."""
        ...

    def answers(self) -> AsyncIterator[tuple[int, bytes]]: ...

    def end(self) -> None: ...


# Starts a worker of that niceness. Raises `WorkerCannotStart`, or `OSError` where no descriptors are left.
Start = Callable[[int], Awaitable[RunningWorker]]


@dataclass(eq=False, slots=True)
class WorkerProcess:
    """One process at work. `lane` is the lane whose jobs it takes; None means all."""

    worker: RunningWorker
    lane: LaneName | None
    jobs: dict[int, Job] = field(default_factory=dict)
    listening: asyncio.Task[None] | None = None


class Processes:
    """Keeps as many processes as the plan and the jobs need. `on_death` is called for those that ended unasked."""

    def __init__(
        self,
        start: Start,
        plan: PoolPlan,
        *,
        on_ready: Callable[[], None],
        on_answer: Callable[[WorkerProcess, int, bytes], None],
        on_death: Callable[[WorkerProcess], None],
    ) -> None:
        self._start = start
        self._plan = plan
        self._lanes = plan.lanes()
        self._on_ready = on_ready
        self._on_answer = on_answer
        self._on_death = on_death
        self.running: list[WorkerProcess] = []
        self._starting: dict[asyncio.Task[None], LaneName | None] = {}
        self._failures = 0
        self._reason = ""

    @property
    def is_shared(self) -> bool:
        """True where a process works on several jobs at once, so that ending one by force ends its neighbours' too."""
        return self._plan.shared > 0

    def check(self) -> None:
        if self._failures >= _FAILURES:
            raise WorkerCannotStart(f"{self._failures} tries in a row: {self._reason}")

    async def start_first(self) -> None:
        """Starts the first process; returns when it is ready. Raises `WorkerCannotStart`."""
        lane: LaneName | None = None if self.is_shared else "small"
        self._take_on(await self._start(self._lanes["small"].niceness), lane)
        self._on_ready()

    def free_for(self, lane: LaneName, job: Job) -> WorkerProcess | None:
        """The least busy process that may take the job; one under suspicion gets a process to itself."""
        able = [
            process for process in self.running if process.lane in (None, lane) and _may_take(process, job)
        ]
        if not self.is_shared:
            able = [process for process in able if not process.jobs]
        return min(able, key=lambda process: len(process.jobs), default=None)

    def staff(self, jobs: Mapping[LaneName, int]) -> None:
        """Start what is missing, for so many jobs in each lane."""
        if self.is_shared:
            self._start_up_to(None, self._plan.shared)
            return
        for name, lane in self._lanes.items():
            self._start_up_to(name, lane.slots if lane.is_warm else min(lane.slots, jobs[name]))

    def end(self, process: WorkerProcess) -> None:
        """Kill a process; its jobs are the caller's to handle."""
        self.running.remove(process)
        if process.listening is not None:
            process.listening.cancel()
        process.worker.end()

    async def close(self) -> None:
        tasks = [
            *self._starting,
            *(process.listening for process in self.running if process.listening is not None),
        ]
        for task in tasks:
            task.cancel()
        for process in [*self.running]:
            self.end(process)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_up_to(self, lane: LaneName | None, count: int) -> None:
        there = sum(process.lane == lane for process in self.running)
        there += sum(starting == lane for starting in self._starting.values())
        for _ in range(count - there):
            task = asyncio.create_task(self._bring_up(lane))
            self._starting[task] = lane

    async def _bring_up(self, lane: LaneName | None) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                worker = await self._start(self._lanes[lane or "small"].niceness)
                break
            except (WorkerCannotStart, OSError) as error:
                self._failures += 1
                self._reason = str(error)
                log.error("a worker does not start: %s", error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._failures = 0
        self._starting = {
            task: of for task, of in self._starting.items() if task is not asyncio.current_task()
        }
        self._take_on(worker, lane)
        self._on_ready()

    def _take_on(self, worker: RunningWorker, lane: LaneName | None) -> None:
        process = WorkerProcess(worker, lane)
        self.running.append(process)
        process.listening = asyncio.create_task(self._listen(process))

    async def _listen(self, process: WorkerProcess) -> None:
        try:
            async for number, answer in process.worker.answers():
                self._on_answer(process, number, answer)
        except Exception:
            log.exception("worker %d sent an invalid answer", process.worker.pid)
        self.running.remove(process)
        process.worker.end()
        self._on_death(process)


def _may_take(process: WorkerProcess, job: Job) -> bool:
    if job.is_suspect:
        return not process.jobs
    return not any(other.is_suspect for other in process.jobs.values())
