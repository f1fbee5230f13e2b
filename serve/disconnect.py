"""Notices that a client has gone while the server is working for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive


class ClientGone(Exception):
    """The client closed the connection before the reply was complete."""


@asynccontextmanager
async def cancelled_when_client_leaves(receive: Receive) -> AsyncIterator[None]:
    """Run the block, and raise `ClientGone` in it as soon as the client disconnects.

    The request's body must have been read, since what `receive` yields after it is the disconnect.
    """
    worker = asyncio.current_task()
    assert worker is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        worker.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        # Another cancellation, such as the server's shutdown, must go on as one.
        if gone and worker.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()
