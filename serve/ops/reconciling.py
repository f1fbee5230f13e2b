"""Reconciliations asked for over HTTP: one at a time in the background, each within a bounded time."""

import asyncio
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from billing.errors import BillingError
from billing.ledger.spool import Spool
from billing.store.database import open_database
from serve.money.ledger_setup import REPORT_TIMEOUT_S
from serve.operator.operator import Operator
from serve.operator.view import stamp

DEADLINE_S = 1800.0
MOST_KEPT = 16
log = logging.getLogger("pith.ops")
T = TypeVar("T")


class UnknownJob(BillingError, LookupError):
    """No reconciliation has this id; the last `MOST_KEPT` of this server are known."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no reconciliation has the id {job_id[:80]!r}")


class AnotherRuns(BillingError):
    """A reconciliation runs that was asked for otherwise."""

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"reconciliation {job_id} runs, which is not of the same options: wait until it ends"
        )


@dataclass(frozen=True, slots=True)
class Options:
    """`full` reads every event again; `rebuild` first sets every balance to what its rows add up to."""

    full: bool = False
    rebuild: bool = False


class Reconciling:
    """The reconciliations of this process."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._running: asyncio.Task[None] | None = None
        self._options = Options()

    def begin(self, operator: Operator, options: Options) -> dict[str, Any]:
        """A new one, or the same that runs. Raises `AnotherRuns`."""
        if self._running is not None and not self._running.done():
            job = self._jobs[next(reversed(self._jobs))]
            if options != self._options:
                raise AnotherRuns(job["id"])
            return job
        job = {
            "id": f"rec_{secrets.token_hex(8)}",
            "state": "running",
            "full": options.full,
            "rebuild": options.rebuild,
            "began_at": stamp(operator.now),
        }
        self._jobs[job["id"]] = job
        while len(self._jobs) > MOST_KEPT:
            self._jobs.popitem(last=False)
        self._options = options
        self._running = asyncio.create_task(self._run(operator, job, options))
        return job

    def found(self, job_id: str) -> dict[str, Any]:
        """Raises `UnknownJob`."""
        if job_id not in self._jobs:
            raise UnknownJob(job_id)
        return self._jobs[job_id]

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self, operator: Operator, job: dict[str, Any], options: Options) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                result = await apart(lambda: reconciled(operator, job, options))
            job |= {"result": result, "state": "done"}
        except TimeoutError:
            unknown = options.rebuild and "rebuilt" not in job
            said = "; it is unknown whether balances were rebuilt" if unknown else ""
            job |= {"state": "failed", "problem": f"it took longer than {DEADLINE_S:g} s{said}"}
        except BillingError as error:
            job |= {"state": "failed", "problem": str(error)}
        except Exception:
            log.exception("reconciliation %s failed unexpectedly", job["id"])
            job |= {"state": "failed", "problem": "unexpected error; the server's log has it"}
        finally:
            job["ended_at"] = stamp(operator.now)


async def reconciled(operator: Operator, job: dict[str, Any], options: Options) -> dict[str, Any]:
    """Reconcile. Notes in `job` what was rebuilt as soon as it was, whatever follows. On connections of its own,
    since it runs in another event loop than requests do."""
    billing = operator.settings.billing
    database = open_database(billing.database_url, timeout_s=REPORT_TIMEOUT_S, pool_size=2)
    own = replace(operator, database=database, patient=database, spool=Spool(billing.spool_path))
    try:
        if options.rebuild:
            job["rebuilt"] = await own.rebuild()
        return await own.reconcile(full=options.full)
    finally:
        await own.spool.close()
        await database.close()


async def apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` in a thread of its own. When this is cancelled, so is the work, and nobody waits: its thread
    does not keep the process alive."""
    loop, done = asyncio.new_event_loop(), Future[T]()
    # From now on it cannot be cancelled from outside: the work ends it.
    done.set_running_or_notify_cancel()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                done.set_result(runner.run(work()))
            except BaseException as error:
                done.set_exception(error)

    threading.Thread(target=run, name="ops-apart", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    except asyncio.CancelledError:
        # It may have ended just now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_cancel_all, loop)
        raise


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
