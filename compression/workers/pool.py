"""A model's work in processes: which process runs what and when, what is ended, and what replaces a process that died.

One event loop calls it. It knows asyncio, and workers as something that is sent jobs, answers them, and can be ended.
"""

import asyncio
import itertools
import logging
from collections import Counter

from compression.pipeline.compression_model import JobTerms
from compression.pipeline.errors import (
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
)
from compression.workers.lanes import Job, Lane, LaneName, PoolObserver, PoolPlan, Replaced
from compression.workers.processes import Processes, Start, WorkerProcess

log = logging.getLogger(__name__)
# For a process of several jobs to end a cancelled one by itself, before it is killed with the others' work in it.
GRACE_S = 15.0
# The shortest pause between two looks at a job that may be taking too long.
_LOOK_S = 0.1
NOT_SENT = "this could not be sent to a process"


class Pool:
    """Runs jobs, which are bytes to it. One that is given up, by deadline or by its caller's cancellation, is ended."""

    def __init__(
        self, start: Start, plan: PoolPlan, observer: PoolObserver, *, grace_s: float = GRACE_S
    ) -> None:
        self._plan = plan
        self._observer = observer
        self._grace_s = grace_s
        self._lanes: dict[LaneName, Lane] = {name: Lane(lane) for name, lane in plan.lanes().items()}
        self._processes = Processes(
            start, plan, on_ready=self._fill, on_answer=self._answered, on_death=self._died
        )
        self._numbers = itertools.count()
        self._closed = False

    async def start(self) -> None:
        """Returns when a process is ready. Raises `WorkerCannotStart`."""
        await self._processes.start_first()

    def check(self) -> None:
        """Raises `WorkerCannotStart` where processes have died and no new one can be started."""
        self._processes.check()

    async def run(self, payload: bytes, *, terms: JobTerms) -> bytes:
        """The answer to a job.

        Raises `CompressorOverloaded`, `CompressorUnavailable`, `CompressionTimedOut`, or `CompressorFailed` where the
        process died that worked on it, or it cannot be sent to one.
        """
        job = self._admitted(payload, terms)
        reason: Replaced = "cancelled"
        try:
            self._fill()
            async with asyncio.timeout(job.deadline_s):
                return await job.answer
        except TimeoutError:
            reason = "deadline"
            self._observer.deadline_passed()
            raise CompressionTimedOut(
                f"not done within {job.deadline_s:g} s, waiting included; the work was ended"
            ) from None
        finally:
            self._give_up(job, reason)

    async def close(self) -> None:
        """End every process and fail what waits or runs."""
        self._closed = True
        gone = CompressorUnavailable("the compressor is shut down")
        for lane in self._lanes.values():
            for job in lane.waiting:
                _fail(job, gone)
            lane.waiting.clear()
        for process in self._processes.running:
            for job in process.jobs.values():
                _fail(job, gone)
        await self._processes.close()

    def _admitted(self, payload: bytes, terms: JobTerms) -> Job:
        if self._closed:
            raise CompressorUnavailable("the compressor is shut down")
        self._make_room(terms)
        size, deadline_s = len(payload), min(self._plan.deadline_s, terms.deadline_s or self._plan.deadline_s)
        job = Job(
            number=next(self._numbers),
            payload=payload,
            size=size,
            payer=terms.payer,
            lane="trial" if terms.is_trial else "small" if size <= self._plan.large_bytes else "large",
            deadline_s=deadline_s,
            answer=asyncio.get_running_loop().create_future(),
        )
        self._lanes[job.lane].add(job, self._now())
        return job

    def _make_room(self, terms: JobTerms) -> None:
        """Where all places are taken, the payer with the most waiting jobs loses the last one: many jobs of one payer
        must not keep out few of another. Raises `CompressorOverloaded` where that is the newcomer."""
        waiting = [job for lane in self._lanes.values() for job in lane.waiting]
        count = len(waiting) + sum(lane.running for lane in self._lanes.values())
        if count < self._plan.max_waiting:
            return
        full = CompressorOverloaded(f"{count} compressions are already waiting")
        paid = Counter(job.payer for job in waiting if job.lane != "trial")
        trials = [job for job in waiting if job.lane == "trial"]
        if terms.is_trial or not (trials or paid):
            raise full
        if trials:
            victim = max(trials)
        else:
            payer, most = paid.most_common(1)[0]
            if most <= paid[terms.payer] + 1:
                raise full
            victim = max(job for job in waiting if job.payer == payer)
        self._lanes[victim.lane].remove(victim)
        _fail(victim, full)

    def _fill(self) -> None:
        """Give every process that is free what is first in a lane it works for."""
        if self._closed:
            return
        for name, lane in self._lanes.items():
            while (job := lane.first()) is not None:
                process = self._processes.free_for(name, job)
                if process is None:
                    break
                lane.waiting.pop(0)
                self._begin(job, process, lane)
        self._processes.staff({name: lane.running + len(lane.waiting) for name, lane in self._lanes.items()})
        self._tell()

    def _begin(self, job: Job, process: WorkerProcess, lane: Lane) -> None:
        lane.running += 1
        job.worker = process
        process.jobs[job.number] = job
        try:
            process.worker.send(job.payload, job.number)
        except Exception:
            # Its own failure: the process has nothing of it, and is free for others.
            log.exception("a job could not be sent to worker %d", process.worker.pid)
            del process.jobs[job.number]
            self._ended(job)
            _fail(job, CompressorFailed(NOT_SENT))
            return
        if lane.plan.longest_s is not None:
            job.cpu_began_s = process.worker.cpu_s()
            job.timer = asyncio.get_running_loop().call_later(lane.plan.longest_s, self._look_at, job)

    def _ended(self, job: Job) -> None:
        """It is no longer running, for whatever reason."""
        self._lanes[job.lane].running -= 1
        job.worker = None
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None

    def _answered(self, process: WorkerProcess, number: int, answer: bytes) -> None:
        job = process.jobs.pop(number)
        self._ended(job)
        if not self._processes.is_shared and not self._lanes[job.lane].plan.is_warm:
            self._processes.end(process)
        if job.is_wanted:
            job.answer.set_result(answer)
        self._fill()

    def _give_up(self, job: Job, reason: Replaced) -> None:
        if self._lanes[job.lane].remove(job):
            self._tell()
        elif job.worker is not None and self._processes.is_shared:
            job.answer.cancel()
            job.worker.worker.cancel(job.number)
            asyncio.get_running_loop().call_later(self._grace_s, self._end, job, reason)
        else:
            job.answer.cancel()
            self._end(job, reason)

    def _end(self, job: Job, reason: Replaced) -> None:
        """Kill the process that still works on it. What others had there begins again in a new one."""
        if job.worker is None or self._closed:
            return
        for other in self._killed(job.worker, reason):
            self._lanes[other.lane].add_again(other)
        self._fill()

    def _look_at(self, job: Job) -> None:
        """A job that is as much work as a large one must not occupy a place for small ones. Only its own CPU time
        counts."""
        longest_s = self._lanes[job.lane].plan.longest_s
        if job.worker is None or self._closed or longest_s is None:
            return
        left_s = longest_s - (job.worker.worker.cpu_s() - job.cpu_began_s)
        if left_s > 0:
            pause_s = max(left_s, _LOOK_S)
            job.timer = asyncio.get_running_loop().call_later(pause_s, self._look_at, job)
            return
        self._killed(job.worker, "overlong")
        if job.is_wanted:
            job.lane, job.size = "large", max(job.size, self._plan.large_bytes)
            self._lanes["large"].add(job, self._now())
        self._fill()

    def _killed(self, process: WorkerProcess, reason: Replaced) -> list[Job]:
        """The jobs that are still wanted, of a process that is killed now."""
        self._processes.end(process)
        self._observer.replaced(reason)
        return self._taken_from(process)

    def _died(self, process: WorkerProcess) -> None:
        """It was not asked to end. A job that it worked on alone has failed; of several, each is tried again by itself.
        Where all processes died together, no job caused it."""
        if self._closed:
            return
        log.warning("worker %d died", process.worker.pid)
        self._observer.replaced("died")
        was_alone, innocent = len(process.jobs) == 1, process.worker.died_with_fork_server()
        for job in self._taken_from(process):
            if was_alone and not innocent:
                _fail(job, CompressorFailed("the process that worked on this died"))
            else:
                job.is_suspect = job.is_suspect or not innocent
                self._lanes[job.lane].add_again(job)
        self._fill()

    def _taken_from(self, process: WorkerProcess) -> list[Job]:
        """The jobs of a process that has ended, without those that are no longer wanted."""
        jobs = list(process.jobs.values())
        process.jobs.clear()
        for job in jobs:
            self._ended(job)
        return [job for job in jobs if job.is_wanted]

    def _tell(self) -> None:
        lanes = self._lanes.values()
        self._observer.jobs(
            waiting=sum(len(lane.waiting) for lane in lanes), running=sum(lane.running for lane in lanes)
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _fail(job: Job, error: Exception) -> None:
    if job.is_wanted:
        job.answer.set_exception(error)
