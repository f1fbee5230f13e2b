"""A slow way to a server: whatever it answers arrives late, by as much as the link is told at the moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.faults.postgres import free_port

READ_BYTES = 65536


class SlowLink:
    """A port of loopback that leads to another one. Answers are late by `delay_s`, one after the other."""

    def __init__(self, to_port: int) -> None:
        self.port = free_port()
        self.delay_s = 0.0
        # Answers that were late.
        self.delayed = 0
        self._to_port = to_port
        self._carrying: set[asyncio.Task[None]] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            answers, asked = await asyncio.open_connection("127.0.0.1", self._to_port)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, asked, is_late=False))
                both.create_task(self._copy(answers, writer, is_late=True))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            # One of the two is gone, or the link.
            pass
        finally:
            writer.transport.abort()
            self._carrying.discard(task)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_late: bool
    ) -> None:
        try:
            while piece := await reader.read(READ_BYTES):
                if is_late and self.delay_s:
                    self.delayed += 1
                    await asyncio.sleep(self.delay_s)
                writer.write(piece)
                await writer.drain()
        finally:
            with suppress(OSError):
                writer.close()

    async def close(self) -> None:
        for task in list(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)


@asynccontextmanager
async def slow_link(to_port: int) -> AsyncIterator[SlowLink]:
    link = SlowLink(to_port)
    server = await asyncio.start_server(link.carry, "127.0.0.1", link.port)
    try:
        yield link
    finally:
        server.close()
        await link.close()
