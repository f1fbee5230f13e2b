"""Registry of a server's processes on one machine, and the number of each, which the next of its kind takes over."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROLL, LOCK = "roll.json", "roll.lock"


@dataclass(frozen=True, slots=True)
class Member:
    """One process. `number` is the lowest that no running process of the same role and model has, so that numbers are
    as few as processes, however often these are replaced. `started`: seconds since 1970."""

    role: str
    model: str
    number: int
    pid: int
    started: float

    @property
    def is_running(self) -> bool:
        return started_at(self.pid) == self.started


def enrol(folder: Path, role: str, pid: int, *, model: str = "") -> Member:
    """Enter a running process. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        running = [member for member in members(folder) if member.is_running and member.pid != pid]
        taken = {member.number for member in running if (member.role, member.model) == (role, model)}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        member = Member(role, model, number, pid, started_at(pid) or 0.0)
        _write(folder, [*running, member])
    return member


def members(folder: Path) -> list[Member]:
    """All that enrolled, those that have ended included; none where nobody has."""
    try:
        return [Member(**found) for found in json.loads((folder / ROLL).read_bytes())]
    except FileNotFoundError:
        return []


def started_at(pid: int) -> float | None:
    """When a process began, in seconds since 1970; None of one that has ended."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def _write(folder: Path, found: list[Member]) -> None:
    making = folder / f"{ROLL}.making"
    making.write_text(json.dumps([asdict(member) for member in found]))
    # Whole or as it was: it is read at any time.
    making.rename(folder / ROLL)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
