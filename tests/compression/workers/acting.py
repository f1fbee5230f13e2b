"""Programs for workers that do as their jobs say: a real process each, with no model in it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import DecodeError

from compression.pipeline.compression_model import done
from compression.workers.messages import Compress, job_of
from compression.workers.programs import work_in_turn, work_together

IN_TURN = f"{__name__}:in_turn"
TOGETHER = f"{__name__}:together"
BROKEN = f"{__name__}:broken"
PATIENCE_S = 120.0


def in_turn(spec: object) -> Callable[[socket.socket], None]:
    return lambda peer: work_in_turn(peer, act)


def together(spec: object) -> Callable[[socket.socket], None]:
    return lambda peer: asyncio.run(work_together(peer, act_together))


def broken(spec: object) -> Callable[[socket.socket], None]:
    raise ValueError(f"no weights at {spec}")


class Acted(NamedTuple):
    """The process that did as it was told, and what it was sent."""

    pid: int
    niceness: int
    text: str


def act(job: bytes) -> bytes:
    """`spin FILE`: for ever, with the process's id in the file. `die FILE`: killed. Else: what this process is."""
    order, _, path = order_of(job).rstrip().partition(" ")
    if order in ("spin", "die"):
        leave_pid(Path(path))
        while order == "spin":
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return json.dumps(Acted(os.getpid(), os.nice(0), job.decode())).encode()


def order_of(job: bytes) -> str:
    """The line that a pool was given, or the input of a request that a model was."""
    try:
        request = job_of(job)
    except DecodeError:
        return job.decode()
    return request.request.input if isinstance(request, Compress) else ""


async def act_together(job: bytes) -> bytes:
    """As `act`. `wait FILE`: until cancelled, or until there is a file of that name and `.go` after it. `fail`: by an
    error that nobody foresaw."""
    order, _, path = order_of(job).rstrip().partition(" ")
    if order == "fail":
        raise RuntimeError("as it was told")
    if order == "wait":
        leave_pid(Path(path))
        await eventually(Path(f"{path}.go").exists)
    if order == "spin":
        return await done(ThreadPoolExecutor(1).submit(act, job))
    return act(job)


async def eventually(condition: Callable[[], Any]) -> Any:
    """Poll until it returns something true, and return that."""
    until = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < until, "it never came"
        await asyncio.sleep(0.005)
    return found


def leave_pid(path: Path) -> None:
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
