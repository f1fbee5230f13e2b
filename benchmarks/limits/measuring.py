"""Runs a row in a process of its own, so that one that never ends can be ended and its memory is its own."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.limits.row import Cost, Measured, Row

START_S = 60.0


def measure(row: Row, find: Callable[[str], Row], *, scale: float, deadline_s: float) -> Measured:
    """Each of the three sizes once. `find` gives the row by its name in the other process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, find, row.name), daemon=True)
    child.start()
    theirs.close()
    costs: list[Cost] = []
    ended = ""
    try:
        if not ours.poll(START_S):
            return Measured(row, [], "its process did not start")
        ours.recv()
        for size in row.sizes(scale):
            ours.send(size)
            if not ours.poll(deadline_s):
                ended = f"over {deadline_s:g} s at {size:,}"
                break
            found = ours.recv()
            if isinstance(found, str):
                ended = f"{found} at {size:,}"
                break
            costs.append(found)
    except (EOFError, ConnectionError):
        child.join(5)
        ended = f"the process ended ({child.exitcode})"
    finally:
        child.kill()
        child.join()
    return Measured(row, costs, ended)


def _serve(pipe: Connection, find: Callable[[str], Row], name: str) -> None:
    row = find(name)
    pipe.send("ready")
    while True:
        size = pipe.recv()
        try:
            pipe.send(_cost(row, size))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def _cost(row: Row, size: int) -> Cost:
    work = row.prepare(size)
    before = _resident_mb()
    _forget_peak()
    started = time.perf_counter()
    work()
    return Cost(size, time.perf_counter() - started, max(0.0, _peak_mb() - before))


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    return _status_mb("VmHWM")


def _resident_mb() -> float:
    return _status_mb("VmRSS")


def _status_mb(field: str) -> float:
    """From Linux's own account of this process; elsewhere the most that it ever held."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for line in status.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"{status}: no {field}")
