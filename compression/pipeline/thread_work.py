"""Awaits work in a thread, which nobody can end: a cancellation is passed on when the thread is free of it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def done(running: Future[Result]) -> Result:
    """The result. Cancelled, it raises at once where the work has not begun, and else when it is over: who has
    cancelled can tell work that goes on."""
    awaited = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(awaited)
    except asyncio.CancelledError:
        if not running.cancel():
            await asyncio.wait((awaited,))
        if not awaited.cancelled():
            # Looked at, so that it is not reported as forgotten.
            awaited.exception()
        raise
