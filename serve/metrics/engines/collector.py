"""What the running engines' replicas count, for who reads `/metrics`. A replica that has ended takes its series along;
the one that takes its number over counts from zero, which Prometheus knows as a restart.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from serve.metrics.engines.series_file import Series, processes_in, read_series

logger = logging.getLogger("pith.metrics")


class EngineFiles(Collector):
    """Reads the files of a folder at each scrape: it asks no replica, so one that hangs holds up nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for pid in processes_in(self._folder):
            try:
                for series, values in read_series(self._folder, pid):
                    add_series(families, series, values)
            except (OSError, ValueError) as error:
                logger.warning("the metrics of process %d cannot be read: %s", pid, error)
        return families.values()


def add_series(families: dict[str, Metric], series: Series, values: Sequence[float]) -> None:
    family = families.get(series.family)
    if family is None:
        family = families[series.family] = Metric(series.family, series.text, series.kind)
    labels = dict(series.labels)
    if series.kind == "histogram":
        *counts, total = values
        *below, all_of_them = accumulate(counts)
        for bound, count in zip(series.bounds, below, strict=True):
            family.add_sample(f"{series.family}_bucket", labels | {"le": str(bound)}, count)
        family.add_sample(f"{series.family}_bucket", labels | {"le": "+Inf"}, all_of_them)
        family.add_sample(f"{series.family}_count", labels, all_of_them)
        family.add_sample(f"{series.family}_sum", labels, total)
    else:
        suffix = "_total" if series.kind == "counter" else ""
        family.add_sample(series.family + suffix, labels, values[0])
