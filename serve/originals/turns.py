"""Spaces out the writes of originals: one at a time, and after each as long a pause as it took."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# The longest pause, however long the write took.
LONGEST_PAUSE_S = 0.1


class Turns:
    """Writes wait for each other, and pause as long as they took: the slower the database, the fewer the writes."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Turns come in order of arrival. The next one waits for the pause after this one."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            loop.call_later(min(loop.time() - began, LONGEST_PAUSE_S), self._free.release)
