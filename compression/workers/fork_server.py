"""The process that workers are forked from, and its other side, which starts it and gives it orders.

    python -m compression.workers.fork_server DESCRIPTOR

It has loaded what workers share and has one thread, so that forking is safe.
A new worker costs a fork, some milliseconds, where a new interpreter with its packages and weights takes half a second.
The descriptor is a socket of packets from the process that gives the work. When that closes, this process ends, and
the kernel kills the workers with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from compression.workers.messages import Frame, Hello, hello_of, packed, read
from compression.workers.processes import WorkerCannotStart

_PR_SET_PDEATHSIG = 1
# Of 1000. A kernel that is out of memory is to end a worker before it ends the server.
_OOM_SCORE = 500
_libc: ctypes.CDLL | None = None


def load_prctl() -> None:
    """Before the fork, so that it is there after it."""
    global _libc
    _libc = ctypes.CDLL(None, use_errno=True)


def became_worker(parent: int, niceness: int) -> None:
    """To be called in the child at once. `parent` is the process that forked it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the death signal was set.
        os._exit(1)
    os.nice(niceness)
    try:
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    except OSError:
        # A sandbox without it has its own rules for memory.
        return


# What a program returns: what a worker runs with its socket.
Run = Callable[[socket.socket], None]
_LONGEST_PACKET = 2**16
# With a worker's socket: start one of this niceness. Without: kill the one of this process id.
_ORDER = struct.Struct("<i")


class ForkServer:
    """Carries out orders: fork a worker around a socket, or kill one."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._workers: set[int] = set()
        self._run: Run | None = None
        self._fault = ""

    def load(self) -> None:
        """Load the program that the first packet names; if that fails, each request for a worker gets the reason."""
        # Plain values, from the process that started this one.
        program, spec = pickle.loads(self._orders.recv(_LONGEST_PACKET))
        module, _, function = program.partition(":")
        try:
            self._run = getattr(importlib.import_module(module), function)(spec)
        except Exception as error:
            self._fault = f"{type(error).__name__}: {error}"
        load_prctl()
        # The collector would write to every object, and so copy what the workers share.
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, self._on_child_ended)
        while True:
            packet, descriptors, _, _ = socket.recv_fds(self._orders, _LONGEST_PACKET, 1)
            if not packet:
                return
            (number,) = _ORDER.unpack(packet)
            if descriptors:
                self._fork(socket.socket(fileno=descriptors[0]), niceness=number)
            elif number in self._workers:
                # Not reaped yet, so the number cannot be another process's.
                os.kill(number, signal.SIGKILL)

    def _fork(self, peer: socket.socket, *, niceness: int) -> None:
        with peer:
            if self._run is None:
                return _refuse(peer, self._fault)
            # A worker that ends at once must not be reaped before it is known.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            try:
                server, pid = os.getpid(), os.fork()
                if pid == 0:
                    self._orders.close()
                    become_worker_and_exit(self._run, peer, parent=server, niceness=niceness)
                self._workers.add(pid)
            except OSError as error:
                _refuse(peer, f"cannot fork: {error}")
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def _on_child_ended(self, number: int, frame: FrameType | None) -> None:
        while self._workers:
            try:
                pid, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._workers.discard(pid)


def become_worker_and_exit(run: Run, peer: socket.socket, *, parent: int, niceness: int) -> None:
    """In the child: end this process with what it runs, and never return into the fork server's code."""
    code = 1
    try:
        became_worker(parent, niceness)
        run(peer)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _refuse(peer: socket.socket, reason: str) -> None:
    peer.sendall(Frame(0, packed(Hello(os.getpid(), reason))).packed())


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C in a terminal goes to every process in it; the server decides when work ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = ForkServer(orders)
    server.load()
    server.serve()


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

    def send(self, payload: bytes, number: int) -> None:
        # Never awaited: a worker gets no more than the jobs that it may have at once.
        self._writer.write(Frame(number, payload).packed())

    def cancel(self, number: int) -> None:
        """Ask for the end of a job; only a worker of several jobs listens while it works."""
        self.send(b"", number)

    async def answers(self) -> AsyncIterator[Frame]:
        """Each answer with its job's number, until the process has ended."""
        while (answer := await read(self._reader)) is not None:
            yield answer

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
                self._order_worker(niceness, theirs)
            except WorkerCannotStart:
                ours.close()
                raise
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_READ_BYTES)
        try:
            async with asyncio.timeout(self._start_s):
                first = await read(reader)
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, TimeoutError):
                raise WorkerCannotStart(f"not ready within {self._start_s:g} s") from None
            raise
        hello = Hello(0, "it died") if first is None else hello_of(first.payload)
        if hello.cannot is not None:
            writer.transport.abort()
            raise WorkerCannotStart(hello.cannot)
        return Worker(hello.pid, reader, writer, self)

    def close(self) -> None:
        """End the fork server, and so every worker."""
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._server is not None:
            self._server.kill()
            self._server.wait(_ENDED_S)
            self._server = None

    def _order_worker(self, niceness: int, peer: socket.socket) -> None:
        for is_last in (False, True):
            try:
                socket.send_fds(self._running(), [_ORDER.pack(niceness)], [peer.fileno()])
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
            self._orders.send(_ORDER.pack(pid))
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


if __name__ == "__main__":
    main()
