"""The transparency log's sequencer in `pith serve`, which is idle while the HTTP processes answer: in one of these, its
work would take turns with that of requests."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from billing.background.upkeep import Background, Loop, Round
from billing.store.database import Database, open_database
from serve.config.settings import Settings
from serve.metrics.background import UpkeepMetrics
from serve.metrics.counts import Counts
from serve.money.upkeep import log_sequencer, sequence_every_s

TICK_S = 1.0
# Longer than the database waits for its own timeouts.
END_S = 15.0
logger = logging.getLogger("pith.log")


@contextmanager
def sequencing(in_force: Callable[[], Settings], counts: Counts) -> Iterator[None]:
    """In a thread, until the block ends. `in_force` gives the settings as they were last reloaded."""
    ending = threading.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(_until(ending, in_force, counts)), name="log", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(END_S)


async def _until(ending: threading.Event, in_force: Callable[[], Settings], counts: Counts) -> None:
    settings = in_force()
    database = open_database(settings.billing.database_url, pool_size=1)
    round_ = Round("log", _Reloaded(database, in_force).once, sequence_every_s(settings))
    background = Background([Loop(round_, observe=UpkeepMetrics(counts).observe)])
    background.start()
    try:
        is_stuck = False
        while not ending.is_set():
            await asyncio.sleep(TICK_S)
            is_stuck = _reported(background, before=is_stuck)
    finally:
        await background.stop()
        await database.close()


def _reported(background: Background, *, before: bool) -> bool:
    """Whether its round is stuck, which is said once: the HTTP processes take over."""
    try:
        background.check()
    except RuntimeError as error:
        if not before:
            logger.error("%s", error)
        return True
    return False


class _Reloaded:
    """The sequencer of the `log:` in force. It is kept while that stays, since it remembers what it has signed."""

    def __init__(self, database: Database, in_force: Callable[[], Settings]) -> None:
        self._database = database
        self._in_force = in_force
        self._origin = object()

    async def once(self) -> None:
        settings = self._in_force()
        if settings.log.origin != self._origin:
            self._sequencer = log_sequencer(settings, self._database)
            self._origin = settings.log.origin
        await self._sequencer.once()
