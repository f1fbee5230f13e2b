"""What a worker does with its socket, until that closes: one job after the other, or several together."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from compression.workers.codec import CANCEL
from compression.workers.message import Message, read, read_from

ID = "id"
_READ_BYTES = 2**20


def work_in_turn(peer: socket.socket, handle: Callable[[Message], Message]) -> None:
    """One at a time: to end a job, kill the process. `handle` must not raise."""
    peer.sendall(_hello().packed())
    while (job := read_from(peer)) is not None:
        peer.sendall(handle(job).packed(id=job.header[ID]))


async def work_together(peer: socket.socket, handle: Callable[[Message], Awaitable[Message]]) -> None:
    """As many as are sent. A job that is cancelled ends when its `handle` does."""
    reader, writer = await asyncio.open_unix_connection(sock=peer, limit=_READ_BYTES)
    writer.write(_hello().packed())
    running: dict[Any, asyncio.Task[None]] = {}

    async def work(job: Message) -> None:
        number = job.header[ID]
        try:
            answer = await handle(job)
        except asyncio.CancelledError:
            answer = Message({})
        writer.write(answer.packed(id=number))
        del running[number]

    while (job := await read(reader)) is not None:
        if job.header["do"] != CANCEL:
            running[job.header[ID]] = asyncio.create_task(work(job))
        elif (cancelled := running.get(job.header[ID])) is not None:
            cancelled.cancel()


def _hello() -> Message:
    return Message({"pid": os.getpid()})
