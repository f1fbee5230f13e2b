"""One process's series, in two files: their names, a line of JSON each, and their values, numbers mapped into memory.

`prometheus_client`'s own files take a lock and several microseconds for each number, which a replica would pay for each
token of each request.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serve.processes.roll import started_at

NAMES, VALUES = ".series", ".values"
# An engine of vLLM has some 900 numbers.
MOST_VALUES = 8192
# Past them: where a series without room counts, and nobody reads.
SCRATCH_VALUES = 512
BYTES = 8
Kind = Literal["counter", "gauge", "histogram"]
logger = logging.getLogger("pith.metrics")


@dataclass(frozen=True, slots=True)
class Series:
    """One name with its labels. `first` is where its value is, or the counts of its buckets, which `bounds` divide;
    the count above the last bound follows, and the sum."""

    family: str
    kind: Kind
    text: str
    labels: Mapping[str, str]
    first: int
    bounds: tuple[float, ...] = ()

    @property
    def length(self) -> int:
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


class SeriesFile:
    """The files of process `pid`; `labels` are added to each series. To be written by one thread. Raises `OSError`."""

    def __init__(self, folder: Path, pid: int, labels: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{pid}{VALUES}"
        with path.open("wb+") as file:
            # With a hole in the file, a full disk would end this process at its next count.
            size = (MOST_VALUES + SCRATCH_VALUES) * BYTES
            os.posix_fallocate(file.fileno(), 0, size)
            self.values = memoryview(mmap.mmap(file.fileno(), size)).cast("d")
        self._names = folder / f"{pid}{NAMES}"
        self._names.write_bytes(b"")
        self._labels = dict(labels)
        self._known: dict[tuple[str, ...], Series] = {}
        self._next = 0

    def series(
        self, family: str, kind: Kind, text: str, labels: Mapping[str, str], bounds: Sequence[float] = ()
    ) -> Series:
        """Its place, the same one for the same labels: what an engine that is started again counts goes on."""
        labels = {**labels, **self._labels}
        key = (family, *(f"{name}={value}" for name, value in sorted(labels.items())))
        found = self._known.get(key)
        if found is None:
            found = Series(family, kind, text, labels, self._next, tuple(bounds))
            if self._next + found.length > MOST_VALUES:
                logger.error("no room for the series %s: it is not shown", family)
                return Series(family, kind, text, labels, MOST_VALUES, found.bounds[: SCRATCH_VALUES - 2])
            self._next += found.length
            line = json.dumps([family, kind, text, labels, found.first, found.bounds])
            with self._names.open("a") as names:
                names.write(line + "\n")
            self._known[key] = found
        return found


def processes_in(folder: Path) -> Iterator[int]:
    """The running processes that have files there; those of others are deleted."""
    for path in folder.glob(f"*{NAMES}"):
        pid = int(path.stem)
        if started_at(pid) is not None:
            yield pid
        else:
            path.unlink(missing_ok=True)
            path.with_suffix(VALUES).unlink(missing_ok=True)


def read_series(folder: Path, pid: int) -> Iterable[tuple[Series, Sequence[float]]]:
    """Each series with its numbers. Raises `OSError`."""
    values = array("d", (folder / f"{pid}{VALUES}").read_bytes())
    lines = (folder / f"{pid}{NAMES}").read_text().split("\n")
    # The last is empty, or is being written.
    for line in lines[:-1]:
        family, kind, text, labels, first, bounds = json.loads(line)
        series = Series(family, kind, text, labels, first, tuple(bounds))
        yield series, values[first : first + series.length]
