"""Notices that a client has gone while the server is working for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import Receive


class ClientGone(Exception):
    """The client closed the connection before the reply was complete."""


@dataclass(slots=True)
class Client:
    """Whether it has gone, for who must tell its leaving from another cancellation."""

    gone: bool = False


@asynccontextmanager
async def cancelled_when_client_leaves(receive: Receive) -> AsyncIterator[Client]:
    """Run the block, and raise `ClientGone` in it as soon as the client disconnects.

    The request's body must have been read, since what `receive` yields after it is the disconnect.
    """
    worker = asyncio.current_task()
    assert worker is not None
    client = Client()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        client.gone = True
        worker.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield client
    except asyncio.CancelledError:
        # Another cancellation, such as the server's shutdown, must go on as one.
        if client.gone and worker.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()
