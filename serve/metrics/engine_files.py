"""Metrics of a chat model's replica, vLLM's own among them: numbers in a file mapped into memory."""

from __future__ import annotations

import json
import logging
import mmap
import os
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from serve.metrics.families import FAMILIES, SECONDS, Family
from serve.processes.registry import enrol, started_at

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
    """The files of process `pid`; `labels` are added to each series. To be written by one thread. Raises `OSError`.

    `prometheus_client`'s own files take a lock and several microseconds for each number, which a replica would pay for
    each token of each request.
    """

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


C = TypeVar("C")
Names = Sequence[str]


class _Child:
    def __init__(self, file: SeriesFile, series: Series) -> None:
        self._values = file.values
        self._at = series.first


class CounterChild(_Child):
    def inc(self, amount: float = 1) -> None:
        self._values[self._at] += amount


class GaugeChild(_Child):
    def __init__(self, file: SeriesFile, series: Series) -> None:
        super().__init__(file, series)
        # What the engine before it had left there.
        self.set(0)

    def set(self, value: float) -> None:
        self._values[self._at] = value

    def inc(self, amount: float = 1) -> None:
        self._values[self._at] += amount

    def dec(self, amount: float = 1) -> None:
        self._values[self._at] -= amount

    def set_to_current_time(self) -> None:
        self.set(time.time())


class HistogramChild(_Child):
    def __init__(self, file: SeriesFile, series: Series) -> None:
        super().__init__(file, series)
        self._bounds = series.bounds
        self._sum = series.first + len(series.bounds) + 1

    def observe(self, value: float) -> None:
        self._values[self._at + bisect_left(self._bounds, value)] += 1
        self._values[self._sum] += value


class FileFamily(Generic[C]):
    """A name; `labels` gives what is counted. vLLM asks for the name without `_total`, as `prometheus_client` does."""

    def __init__(self, file: SeriesFile, child: type[C], family: Family) -> None:
        self._file = file
        self._child = child
        self._family = family

    def labels(self, *values: object, **named: object) -> C:
        family = self._family
        given = dict(zip(family.labels, values, strict=False)) | named
        labels = {name: str(given[name]) for name in family.labels}
        series = self._file.series(family.name, family.kind, family.text, labels, family.buckets)
        return self._child(self._file, series)  # type: ignore[call-arg]


class FileFamilies:
    """Makes them, on one file, with the arguments of `prometheus_client`'s classes."""

    def __init__(self, file: SeriesFile) -> None:
        self._file = file

    def counter(self, name: str, documentation: str, labelnames: Names = ()) -> FileFamily[CounterChild]:
        family = Family(name.removesuffix("_total"), "counter", documentation, tuple(labelnames))
        return FileFamily(self._file, CounterChild, family)

    def gauge(
        self, name: str, documentation: str, labelnames: Names = (), multiprocess_mode: str = ""
    ) -> FileFamily[GaugeChild]:
        family = Family(name, "gauge", documentation, tuple(labelnames))
        return FileFamily(self._file, GaugeChild, family)

    def histogram(
        self, name: str, documentation: str, labelnames: Names = (), buckets: Sequence[float] = ()
    ) -> FileFamily[HistogramChild]:
        bounds = tuple(float(bound) for bound in buckets if bound != float("inf"))
        family = Family(name, "histogram", documentation, tuple(labelnames), bounds)
        return FileFamily(self._file, HistogramChild, family)


ENGINES = "engines"
CHAT_REPLICA = "replica"


class ReplicaMetrics:
    """`families` is for the engine's own."""

    def __init__(self, families: FileFamilies) -> None:
        self.families = families
        self._waiting = families.gauge(*_described("pith_replica_requests_waiting")).labels()
        self._running = families.gauge(*_described("pith_replica_requests_running")).labels()
        self._queue = families.histogram(*_described("pith_replica_queue_seconds"), buckets=SECONDS).labels()
        self._restarts = families.counter(*_described("pith_engine_restarts")).labels()

    def wait(self) -> None:
        self._waiting.inc()

    def give_up(self) -> None:
        """It waits no longer, and was not begun."""
        self._waiting.dec()

    def begin(self, waited_s: float) -> None:
        self._waiting.dec()
        self._running.inc()
        self._queue.observe(waited_s)

    def end(self) -> None:
        self._running.dec()

    def restart(self) -> None:
        self._restarts.inc()


def _described(name: str) -> tuple[str, str]:
    return name, FAMILIES[name].text


def open_replica_metrics(folder: Path | None, model_id: str) -> ReplicaMetrics | None:
    """This process's metrics, in the server's `folder` of metrics; None without one, or if nothing can be written."""
    if folder is None:
        return None
    try:
        number = enrol(folder, CHAT_REPLICA, os.getpid(), model=model_id).number
        file = SeriesFile(folder / ENGINES, os.getpid(), {"model": model_id, "replica": str(number)})
    except OSError as error:
        logger.error("this replica's metrics are not shown: no files for them in %s: %s", folder, error)
        return None
    return ReplicaMetrics(FileFamilies(file))
