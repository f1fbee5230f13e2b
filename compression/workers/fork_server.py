"""The process that workers are forked from: it has loaded what they share and has one thread, so that forking is safe.

    python -m compression.workers.fork_server DESCRIPTOR PARENT

A new worker costs a fork, some milliseconds, where a new interpreter with its packages and weights takes half a second.
The descriptor is a socket of packets from the process that gives the work. When that closes, this process ends, and
the kernel kills the workers with it.
"""

import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import orjson

from compression.workers.messages import Message

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
_LONGEST_ORDER = 2**16


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
        program, spec = pickle.loads(self._orders.recv(_LONGEST_ORDER))
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
            packet, descriptors, _, _ = socket.recv_fds(self._orders, _LONGEST_ORDER, 1)
            if not packet:
                return
            order = orjson.loads(packet)
            if descriptors:
                self._fork(socket.socket(fileno=descriptors[0]), niceness=order["fork"])
            elif order["kill"] in self._workers:
                # Not reaped yet, so the number cannot be another process's.
                os.kill(order["kill"], signal.SIGKILL)

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
    peer.sendall(Message({"cannot": reason}).packed())


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C in a terminal goes to every process in it; the server decides when work ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = ForkServer(orders)
    server.load()
    server.serve()


if __name__ == "__main__":
    main()
