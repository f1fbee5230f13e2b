"""`billing.background.upkeep`: no error ends a server's work beside its requests, and what fails can be seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from billing.background.upkeep import Background, Loop, Round, collection_round, replay_round
from billing.collections.collection import HookAnswer, HookCommand
from billing.collections.collector import Collector
from billing.errors import LedgerUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool

if TYPE_CHECKING:
    from tests.billing.conftest import Books


class Work:
    """Fails as it is told to, and counts."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.rounds = 0

    async def __call__(self) -> None:
        self.rounds += 1
        if self.errors:
            raise self.errors.pop(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(*loops: Loop) -> AsyncIterator[Background]:
    background = Background(loops)
    background.start()
    try:
        yield background
    finally:
        await background.stop()


def loop(once: Callable[[], Awaitable[object]], told: list[tuple[str, bool]] | None = None) -> Loop:
    def observe(name: str, failing_s: float) -> None:
        if told is not None:
            told.append((name, failing_s > 0))

    return Loop(Round("work", once, 0.01), observe=observe)


@pytest.mark.parametrize(
    "error",
    [
        OSError("no space"),
        PermissionError(13, "denied"),
        RuntimeError("a bug"),
        LedgerUnavailable("away"),
        asyncio.CancelledError(),
        KeyError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_no_error_ends_it(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    work, told = Work(error), []
    with caplog.at_level(logging.WARNING):
        async with running(loop(work, told)):
            await until(lambda: len(told) >= 2)
    assert told[:2] == [("work", True), ("work", False)]
    assert "work failed and is tried again" in caplog.text and "work succeeds again" in caplog.text


async def test_a_task_that_was_cancelled_from_outside_is_begun_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work()
    async with running(loop(work)) as background:
        await until(lambda: work.rounds >= 1)
        (task,) = background._tasks.values()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        before = work.rounds
        await until(lambda: work.rounds > before)
    assert "was cancelled; it is restarted" in caplog.text


async def test_a_stopped_one_is_not_begun_again() -> None:
    work = Work()
    async with running(loop(work)) as background:
        await until(lambda: work.rounds >= 1)
    rounds = work.rounds
    await asyncio.sleep(0.05)
    assert work.rounds == rounds and all(task.done() for task in background._tasks.values())


async def test_what_fails_says_since_when_and_is_no_reason_to_replace_the_process() -> None:
    work, told = Work(*[LedgerUnavailable("away")] * 10_000), []
    async with running(loop(work, told)) as background:
        await until(lambda: work.rounds >= 3)
        assert told[-1] == ("work", True)
        background.check()


async def test_a_round_that_hangs_is_a_reason_to_replace_the_process() -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    async with running(Loop(Round("work", hangs, 0.01, stuck_s=0.05))) as background:
        with pytest.raises(RuntimeError, match="'work' has been stuck for"):
            async with asyncio.timeout(60):
                while True:
                    background.check()
                    await asyncio.sleep(0.01)


async def test_an_error_of_the_machine_in_the_hook_does_not_end_collecting(books: Books) -> None:
    """The review's: one OSError in the hook, and no collection was handed over any more."""
    caller = await books.new_caller()
    await books.settle(await books.hold(caller, 10**9), 10**9)
    errors: list[Exception] = [OSError(24, "Too many open files")]

    async def run(command: HookCommand, request: bytes) -> HookAnswer:
        if errors:
            raise errors.pop()
        return HookAnswer("paid", "pi_1", "")

    moments = iter(range(10**6))
    mine = Collector(books.database, actor="upkeep", run=run)

    def later() -> datetime:
        # A claim of the round that failed ends.
        return books.now + timedelta(minutes=next(moments))

    work = collection_round(mine, threshold_cents=1, hook=HookCommand(["pay"], 1), every_s=0.01, clock=later)
    async with running(Loop(work)):
        async with asyncio.timeout(60):
            while not await mine.listed(state="paid"):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)


async def test_a_spool_that_cannot_be_looked_at_does_not_end_the_replay(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The review's: one OSError of `Path.exists`, and nothing was replayed or swept any more."""
    exists, failures = Path.exists, [PermissionError(13, "Permission denied")]

    def refuse(self: Path, **options: bool) -> bool:
        if failures and self.name == "spool.db":
            raise failures.pop()
        return exists(self, **options)

    monkeypatch.setattr(Path, "exists", refuse)
    ledger = Ledger(books.database, Spool(books.spool_path))
    told: list[bool] = []
    work = replay_round(ledger, every_s=0.01)
    async with running(Loop(work, observe=lambda _, seconds: told.append(seconds > 0))):
        await until(lambda: len(told) >= 2)
    assert told[:2] == [True, False]


async def test_the_spool_says_what_it_cannot_read(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, **options: bool) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    for reading in (
        books.spool.waiting,
        books.spool.count_waiting,
        books.spool.costs_by_workspace,
        books.spool.waiting_ids,
    ):
        with pytest.raises(LedgerUnavailable, match="spool cannot be read: Permission denied"):
            await reading()


async def test_a_task_that_ends_again_at_once_does_not_take_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work()

    def observe(name: str, seconds: float) -> None:
        raise KeyError(name)

    async with running(Loop(Round("forgotten", work, every_s=1), observe=observe)):
        for _ in range(100):
            await asyncio.sleep(0)
        assert work.rounds == 1 and "ended: KeyError('forgotten'); it is restarted" in caplog.text
        await until(lambda: work.rounds == 2)
