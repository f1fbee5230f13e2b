"""Starts workers through a fork server: the only file that knows its socket and process ids."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from compression.workers.messages import CANCEL, Message, read
from compression.workers.processes import WorkerCannotStart

_ROOT = Path(__file__).parents[2]
_READ_BYTES = 2**20
_ENDED_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# A worker has one core. Threads would only compete, and there must be none when workers are forked.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, slots=True)
class Program:
    """A program of workers: `module:function`, its argument, and environment variables to add to this process's."""

    name: str
    spec: Any
    environment: tuple[tuple[str, str], ...] = tuple(_ONE_THREAD.items())


class Worker:
    """One running worker process."""

    def __init__(
        self,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        spawner: Spawner,
    ) -> None:
        self.pid = pid
        self._reader = reader
        self._writer = writer
        self._spawner = spawner
        self._server_pid = spawner.server_pid

    def send(self, message: Message, number: int) -> None:
        # Never awaited: a worker gets no more than the jobs that it may have at once.
        self._writer.write(message.packed(id=number))

    def cancel(self, number: int) -> None:
        """Ask for the end of a job; only a worker of several jobs listens while it works."""
        self.send(Message({"do": CANCEL}), number)

    async def answers(self) -> AsyncIterator[tuple[int, Message]]:
        """Each answer with its job's number, until the process has ended."""
        while (message := await read(self._reader)) is not None:
            yield int(message.header.pop("id")), message

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        self._spawner.kill(self.pid)
        self._writer.transport.abort()

    def cpu_s(self) -> float:
        """CPU seconds that it has used; 0 where that is no longer known."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return 0.0
        # What follows the name in parentheses, which may hold anything.
        fields = stat.rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def died_with_fork_server(self) -> bool:
        """True for one that died where its fork server did, which takes all of them with it."""
        return self._spawner.server_pid != self._server_pid


class Spawner:
    """Workers of one program. `start_s` bounds how long a worker may take until it can work."""

    def __init__(self, program: Program, *, start_s: float) -> None:
        self._program = program
        self._start_s = start_s
        self._orders: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def server_pid(self) -> int | None:
        """The fork server's process, while there is one."""
        return self._server.pid if self._server is not None and self._server.poll() is None else None

    async def start(self, niceness: int) -> Worker:
        """Raises `WorkerCannotStart`, and `OSError` where there is no socket left."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._order({"fork": niceness}, theirs)
            except WorkerCannotStart:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_READ_BYTES)
        try:
            async with asyncio.timeout(self._start_s):
                hello = await read(reader)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, TimeoutError):
                raise WorkerCannotStart(f"not ready within {self._start_s:g} s") from None
            raise
        if hello is None or "pid" not in hello.header:
            writer.transport.abort()
            raise WorkerCannotStart("it died" if hello is None else hello.header["cannot"])
        return Worker(hello.header["pid"], reader, writer, self)

    def close(self) -> None:
        """End the fork server, and so every worker."""
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._server is not None:
            self._server.kill()
            self._server.wait(_ENDED_S)
            self._server = None

    def _order(self, order: dict[str, int], peer: socket.socket | None = None) -> None:
        packet, descriptors = orjson.dumps(order), [] if peer is None else [peer.fileno()]
        for is_last in (False, True):
            try:
                socket.send_fds(self._running(), [packet], descriptors)
                return
            except OSError as error:
                # It died, or does not listen: its workers die with it, and the next one takes the order.
                self.close()
                if is_last:
                    raise WorkerCannotStart(f"the fork server does not take orders: {error}") from error

    def kill(self, pid: int) -> None:
        """End one of the workers."""
        if self._orders is None or self.server_pid is None:
            # The workers died with it.
            return
        try:
            self._orders.send(orjson.dumps({"kill": pid}))
        except OSError:
            self.close()

    def _running(self) -> socket.socket:
        if self._orders is not None and self.server_pid is not None:
            return self._orders
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        ours.send(pickle.dumps((self._program.name, self._program.spec)))
        with theirs:
            self._server = subprocess.Popen(
                # -P: nothing is imported from the folder that this process happens to be in.
                [sys.executable, "-P", "-m", "compression.workers.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=self._environment(),
            )
        self._orders = ours
        return ours

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        return {**os.environ, **dict(self._program.environment), "PYTHONPATH": path}
