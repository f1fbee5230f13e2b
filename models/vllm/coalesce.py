"""Gathers an engine's many small pieces into few, without holding the first one back.

Each step from one process to another costs about as much as computing a small model's token, so pieces that come within
one interval travel together; the first leaves at once, since the time to it is what a reader feels.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator


async def coalesce(
    source: AsyncIterator[bytes],
    *,
    interval_s: float,
    heartbeat_s: float,
    sign_of_life: asyncio.Future[None] | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of `source`, joined: the first piece at once, later ones at most every `interval_s`.

    When nothing came for `heartbeat_s`, or when `sign_of_life` is done before anything came, an empty piece is yielded,
    so that a listener can tell a slow source from a dead one. What `source` raises is raised after the pieces before
    it. Closing this iterator closes it.
    """
    gathered: list[bytes] = []
    arrived = asyncio.Event()
    if sign_of_life is not None:
        sign_of_life.add_done_callback(lambda _: arrived.set())
    task = asyncio.create_task(_gather(source, gathered, arrived))
    try:
        while True:
            try:
                async with asyncio.timeout(heartbeat_s):
                    await arrived.wait()
            except TimeoutError:
                yield b""
                continue
            arrived.clear()
            if gathered:
                piece = b"".join(gathered)
                gathered.clear()
                yield piece
            elif not task.done():
                yield b""
                continue
            if task.done():
                if not gathered:
                    break
                continue
            await asyncio.wait((task,), timeout=interval_s)
        await task
    finally:
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _gather(source: AsyncIterator[bytes], gathered: list[bytes], arrived: asyncio.Event) -> None:
    try:
        async for piece in source:
            gathered.append(piece)
            arrived.set()
    finally:
        arrived.set()
