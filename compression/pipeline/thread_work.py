"""Awaits work in a thread, which cannot be ended: a cancellation is passed on once the thread is done."""

import asyncio
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def done(running: Future[Result]) -> Result:
    """The result. When cancelled, it raises at once if the work has not begun, and otherwise when it is over, so that
    the canceller knows that nothing is still running."""
    awaited = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(awaited)
    except asyncio.CancelledError:
        if not running.cancel():
            await asyncio.wait((awaited,))
        if not awaited.cancelled():
            # Retrieved, so that asyncio does not report it as never retrieved.
            awaited.exception()
        raise
