"""Counts of one process: numbers in files that are mapped into memory, which the ops port reads and adds up."""

from __future__ import annotations

import json
import logging
import mmap
import os
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Generic, TypeVar

from serve.config.settings import Settings
from serve.metrics.families import FAMILIES, Family
from serve.processes.registry import enrol

NAMES, VALUES = ".series", ".values"
# An engine of vLLM has some 900 numbers, an HTTP process of fifty models some 10,000.
MOST_VALUES = 65_536
# Past them: where a series without room counts, and nobody reads.
SCRATCH_VALUES = 512
BYTES = 8
NO_LABELS: Mapping[str, str] = MappingProxyType({})
logger = logging.getLogger("pith.metrics")


@dataclass(frozen=True, slots=True)
class Series:
    """One family with its labels. `first` is where its value is, or the counts of its buckets; the count above the last
    bound follows, and the sum."""

    family: Family
    labels: Mapping[str, str]
    first: int

    @property
    def length(self) -> int:
        return len(self.family.buckets) + 2 if self.family.kind == "histogram" else 1

    @property
    def key(self) -> tuple[str, ...]:
        return self.family.name, *(f"{name}={value}" for name, value in sorted(self.labels.items()))


class Counts:
    """The series of one process: in memory, or in the files of `owner`, its id, in `folder`. `labels` are added to
    each. Where it `goes_on`, what is in the files already stays. Raises `OSError`.

    One thread at a time may count in a series. `prometheus_client`'s own files take a lock and several microseconds for
    each number, which would be paid for each token of each request.
    """

    def __init__(
        self,
        folder: Path | None = None,
        owner: int | str = "",
        labels: Mapping[str, str] = NO_LABELS,
        *,
        goes_on: bool = False,
    ) -> None:
        self._labels = dict(labels)
        self._known: dict[tuple[str, ...], Series] = {}
        self._next = 0
        self._making = Lock()
        size = (MOST_VALUES + SCRATCH_VALUES) * BYTES
        self._names = None if folder is None else folder / f"{owner}{NAMES}"
        if folder is None or self._names is None:
            self.values = memoryview(bytearray(size)).cast("d")
            return
        folder.mkdir(parents=True, exist_ok=True)
        values = self._names.with_suffix(VALUES)
        if not goes_on:
            self._names.unlink(missing_ok=True)
            values.unlink(missing_ok=True)
        with values.open("ab+") as file:
            # With a hole in the file, a full disk would end this process at its next count.
            os.posix_fallocate(file.fileno(), 0, size)
            self.values = memoryview(mmap.mmap(file.fileno(), size)).cast("d")
        self._names.touch()
        for series, _ in read_series(self._names):
            self._note(series)

    def series(self, family: Family, labels: Mapping[str, str]) -> Series:
        """Its place, the same one for the same labels: what an engine that is started again counts goes on."""
        wanted = Series(family, {**labels, **self._labels}, self._next)
        with self._making:
            return self._known.get(wanted.key) or self._made(wanted)

    def _made(self, wanted: Series) -> Series:
        family = wanted.family
        made = Series(family, wanted.labels, self._next)
        if self._next + made.length > MOST_VALUES:
            logger.error("no room for the series %s: it is not shown", family.name)
            bounds = family.buckets[: SCRATCH_VALUES - 2]
            return Series(Family(family.name, family.kind, "", (), bounds), made.labels, MOST_VALUES)
        if self._names is not None:
            known = [family.name, family.kind, family.text, made.labels, made.first, family.buckets]
            with self._names.open("a") as names:
                names.write(json.dumps(known) + "\n")
        self._note(made)
        return made

    def _note(self, series: Series) -> None:
        self._known[series.key] = series
        self._next = series.first + series.length

    def read(self) -> Iterable[tuple[Series, Sequence[float]]]:
        """Each series with its numbers."""
        for series in list(self._known.values()):
            yield series, self.values[series.first : series.first + series.length].tolist()

    def add(self, series: Series, values: Sequence[float]) -> None:
        """Count what another process has counted. Of a gauge nothing: it stays, at 0, since what is not there raises no
        alarm."""
        mine = self.series(series.family, series.labels)
        if series.family.kind == "gauge" or mine.family.buckets != series.family.buckets:
            return
        for at, value in enumerate(values, mine.first):
            self.values[at] += value


def read_series(names: Path) -> Iterable[tuple[Series, Sequence[float]]]:
    """Each series of the process whose file this is, with its numbers. Raises `OSError`."""
    values = array("d", names.with_suffix(VALUES).read_bytes())
    # The last is empty, or is being written.
    for line in names.read_text().split("\n")[:-1]:
        name, kind, text, labels, first, bounds = json.loads(line)
        family = FAMILIES.get(name)
        if family is None or family.buckets != tuple(bounds):
            family = Family(name, kind, text, tuple(labels), tuple(bounds))
        series = Series(family, labels, first)
        yield series, values[first : first + series.length]


class _Child:
    def __init__(self, counts: Counts, series: Series) -> None:
        self._values = counts.values
        self._at = series.first


class CounterChild(_Child):
    def inc(self, amount: float = 1) -> None:
        self._values[self._at] += amount


class GaugeChild(_Child):
    def __init__(self, counts: Counts, series: Series) -> None:
        super().__init__(counts, series)
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
    def __init__(self, counts: Counts, series: Series) -> None:
        super().__init__(counts, series)
        self._bounds = series.family.buckets
        self._sum = series.first + len(self._bounds) + 1

    def observe(self, value: float, times: int = 1) -> None:
        self._values[self._at + bisect_left(self._bounds, value)] += times
        self._values[self._sum] += value * times


class Families:
    """The families of the table, counted in `counts`. The values of a family's labels are given in its order."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def counter(self, name: str, *labels: str) -> CounterChild:
        return CounterChild(self._counts, self._series(name, labels))

    def gauge(self, name: str, *labels: str) -> GaugeChild:
        return GaugeChild(self._counts, self._series(name, labels))

    def histogram(self, name: str, *labels: str) -> HistogramChild:
        return HistogramChild(self._counts, self._series(name, labels))

    def counters(self, name: str, *first: str, last: Iterable[str]) -> dict[str, CounterChild]:
        """A counter for each value of the last label; all are shown from the start, at 0."""
        return {value: self.counter(name, *first, value) for value in last}

    def _series(self, name: str, labels: Sequence[str]) -> Series:
        return self._counts.series(FAMILIES[name], dict(zip(FAMILIES[name].labels, labels, strict=True)))


C = TypeVar("C", bound=_Child)
Names = Sequence[str]


class EngineFamily(Generic[C]):
    """A name; `labels` gives what is counted. vLLM asks for the name without `_total`, as `prometheus_client` does."""

    def __init__(self, counts: Counts, child: type[C], family: Family, also: Mapping[str, str]) -> None:
        self._counts = counts
        self._child = child
        self._family = family
        self._also = also

    def labels(self, *values: object, **named: object) -> C:
        given = dict(zip(self._family.labels, values, strict=False)) | named
        labels = {name: str(given[name]) for name in self._family.labels}
        return self._child(self._counts, self._counts.series(self._family, {**labels, **self._also}))


class EngineFamilies:
    """An engine's own, made with the arguments of `prometheus_client`'s classes. `also`: labels of each."""

    def __init__(self, counts: Counts, also: Mapping[str, str] = NO_LABELS) -> None:
        self._counts = counts
        self._also = also

    def counter(self, name: str, documentation: str, labelnames: Names = ()) -> EngineFamily[CounterChild]:
        family = Family(name.removesuffix("_total"), "counter", documentation, tuple(labelnames))
        return EngineFamily(self._counts, CounterChild, family, self._also)

    def gauge(
        self, name: str, documentation: str, labelnames: Names = (), multiprocess_mode: str = ""
    ) -> EngineFamily[GaugeChild]:
        family = Family(name, "gauge", documentation, tuple(labelnames))
        return EngineFamily(self._counts, GaugeChild, family, self._also)

    def histogram(
        self, name: str, documentation: str, labelnames: Names = (), buckets: Sequence[float] = ()
    ) -> EngineFamily[HistogramChild]:
        bounds = tuple(float(bound) for bound in buckets if bound != float("inf"))
        family = Family(name, "histogram", documentation, tuple(labelnames), bounds)
        return EngineFamily(self._counts, HistogramChild, family, self._also)


ENGINES = "engines"
CHAT_REPLICA = "replica"


class ReplicaMetrics:
    """Metrics of a chat model's replica; `families` is for the engine's own."""

    def __init__(self, counts: Counts, model_id: str, number: str) -> None:
        self.families = EngineFamilies(counts, {"model": model_id})
        families = Families(counts)
        self._waiting = families.gauge("pith_replica_requests_waiting", model_id, number)
        self._running = families.gauge("pith_replica_requests_running", model_id, number)
        self._queue = families.histogram("pith_replica_queue_seconds", model_id, number)
        self._restarts = families.counter("pith_engine_restarts", model_id, number)

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


class TurnMetrics:
    """Metrics of the models of one replica that take turns on its GPUs."""

    def __init__(self, counts: Counts, models: Iterable[str], number: str) -> None:
        families = Families(counts)
        self._awake = {model: families.gauge("pith_model_awake", model, number) for model in models}
        self._waiting = {
            model: families.gauge("pith_model_turn_requests_waiting", model, number) for model in models
        }
        self._swaps = {
            model: families.histogram("pith_model_swap_seconds", model, number) for model in models
        }

    def wait(self, model: str, change: int) -> None:
        self._waiting[model].inc(change)

    def woke(self, model: str, took_s: float) -> None:
        for other, gauge in self._awake.items():
            gauge.set(other == model)
        if took_s:
            self._swaps[model].observe(took_s)


# By model; and of the turns of several.
OpenMetrics = tuple[Mapping[str, ReplicaMetrics], TurnMetrics | None]


def open_replica_metrics(folder: Path | None, models: Sequence[str]) -> OpenMetrics:
    """This process's metrics by model, in the server's `folder` of metrics, and those of their turns, if there are
    several; nothing without one, or if nothing can be written."""
    if folder is None:
        return {}, None
    try:
        number = str(enrol(folder, CHAT_REPLICA, os.getpid(), model="+".join(models)).number)
        counts = Counts(folder / ENGINES, os.getpid(), {"replica": number})
    except OSError as error:
        logger.error("this replica's metrics are not shown: no files for them in %s: %s", folder, error)
        return {}, None
    turns = TurnMetrics(counts, models, number) if len(models) > 1 else None
    return {model: ReplicaMetrics(counts, model, number) for model in models}, turns


def metrics_folder(settings: Settings) -> Path | None:
    """The folder in which this server's processes count, or None if metrics are off. The port tells servers apart."""
    return settings.state_dir / "metrics" / str(settings.ops.port) if settings.ops.port else None


def open_counts(settings: Settings, role: str | None = "ingress", *, model: str = "") -> Counts:
    """This process's, in memory where metrics are off or no files can be had. `role`, and the `model` that it works
    for, are what it is on the roll; None: it is not on it."""
    folder = metrics_folder(settings)
    if folder is None:
        return Counts()
    try:
        counts = Counts(folder, os.getpid())
        if role is not None:
            enrol(folder, role, os.getpid(), model=model)
        return counts
    except OSError as error:
        logger.error("this process's metrics are not shown: no files for them in %s: %s", folder, error)
        return Counts()


def count_dropped_lines(counts: Counts) -> Callable[[int], None]:
    """A counter of lines that were not written, to be told how many, in any thread."""
    counter, lock = Families(counts).counter("pith_log_lines_dropped"), Lock()

    def add(count: int) -> None:
        with lock:
            counter.inc(count)

    return add
