"""The journal of a run: every change that processes made below a folder, in order, and what their callers were told."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CREATE, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, LINK = range(1, 9)
# Written by the run itself: what somebody was told, as JSON.
TOLD = 100
FOLDER, JOURNAL = "POWER_LOSS_FOLDER", "POWER_LOSS_JOURNAL"
_HEAD = struct.Struct("<IIIIQQ")
_SOURCE = Path(__file__).with_name("recorder.c")


class NoCompiler(Exception):
    """The recorder cannot be built here; the message says how to get what is missing."""


@dataclass(frozen=True, slots=True)
class Record:
    """One change: `name` is absolute, `data` what was written; a `TRUNCATE` has its size in `offset`."""

    kind: int
    name: str
    other_name: str
    inode: int
    offset: int
    data: bytes

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


def build_recorder(folder: Path) -> Path:
    """The library to preload. Raises `NoCompiler`."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompiler("gcc was not found; install it (Debian: apt-get install gcc)")
    library = folder / "recorder.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def recorded_environment(library: Path, folder: Path, journal: Path) -> dict[str, str]:
    """The environment in which a process, and all that it starts, writes down its changes below `folder`."""
    return {**os.environ, "LD_PRELOAD": str(library), FOLDER: str(folder), JOURNAL: str(journal)}


class Witness:
    """Notes what callers were told, in the same order as the changes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._file = os.open(environment[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def tell(self, **what: Any) -> None:
        data = json.dumps(what).encode()
        os.write(self._file, _HEAD.pack(TOLD, 0, 0, len(data), 0, 0) + data)


def read(journal: Path) -> Iterator[Record]:
    with journal.open("rb") as file:
        while head := file.read(_HEAD.size):
            kind, first, second, size, inode, offset = _HEAD.unpack(head)
            name, other, data = file.read(first), file.read(second), file.read(size)
            assert len(data) == size, "the journal ends within a record"
            yield Record(kind, os.fsdecode(name), os.fsdecode(other), inode, offset, data)
