"""Counters, gauges and histograms on a `SeriesFile`, called as those of `prometheus_client` are."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Generic, TypeVar

from serve.metrics.engines.series_file import Kind, Series, SeriesFile

C = TypeVar("C")


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


class Family(Generic[C]):
    """A name; `labels` gives what is counted. vLLM asks for the name without `_total`, as `prometheus_client` does."""

    def __init__(
        self,
        file: SeriesFile,
        kind: Kind,
        child: type[C],
        name: str,
        documentation: str,
        labelnames: Sequence[str],
        buckets: Sequence[float] = (),
    ) -> None:
        self._file = file
        self._kind: Kind = kind
        self._child = child
        self._name = name.removesuffix("_total") if kind == "counter" else name
        self._text = documentation
        self._labelnames = tuple(labelnames)
        self._buckets = [float(bound) for bound in buckets if bound != float("inf")]

    def labels(self, *values: object, **named: object) -> C:
        given = dict(zip(self._labelnames, values, strict=False)) | named
        labels = {name: str(given[name]) for name in self._labelnames}
        series = self._file.series(self._name, self._kind, self._text, labels, self._buckets)
        return self._child(self._file, series)  # type: ignore[call-arg]


class Families:
    """Makes them, on one file, with the arguments of `prometheus_client`'s classes."""

    def __init__(self, file: SeriesFile) -> None:
        self._file = file

    def counter(self, name: str, documentation: str, labelnames: Sequence[str] = ()) -> Family[CounterChild]:
        return Family(self._file, "counter", CounterChild, name, documentation, labelnames)

    def gauge(
        self, name: str, documentation: str, labelnames: Sequence[str] = (), multiprocess_mode: str = ""
    ) -> Family[GaugeChild]:
        return Family(self._file, "gauge", GaugeChild, name, documentation, labelnames)

    def histogram(
        self, name: str, documentation: str, labelnames: Sequence[str] = (), buckets: Sequence[float] = ()
    ) -> Family[HistogramChild]:
        return Family(self._file, "histogram", HistogramChild, name, documentation, labelnames, buckets)
