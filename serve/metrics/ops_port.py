"""The ops port: `/metrics` of the whole service, served by the process that started it, from its processes' files."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from operator import add
from pathlib import Path
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import make_wsgi_app
from prometheus_client.registry import Collector

from billing.errors import BillingError
from billing.ledger.spool import Spool
from serve.config.settings import Settings
from serve.metrics.counts import NAMES, VALUES, Counts, Series, metrics_folder, read_series
from serve.metrics.families import collected_gauge
from serve.processes.registry import started_at

# Stands for a process id in the name of the file that keeps what ended processes had counted.
ENDED = "ended"
Listen = Callable[[Settings, CollectorRegistry], Callable[[], None]]
logger = logging.getLogger("pith.metrics")


@contextmanager
def ops_port(
    settings: Settings, listen: Listen, *also: Collector, anew: bool = True
) -> Iterator[Callable[[], None]]:
    """Serve `/metrics`, with `also` what else is collected, until the block ends. Yields what is to be called now and
    then, to take in ended processes. `listen` serves what is registered by then, and returns what ends that. Without
    `anew` the counts outlive this process: those that are there stay, and are left there.

    Raises `OSError` where it cannot listen, or cannot make its folder.
    """
    folder = metrics_folder(settings)
    if folder is None:
        yield lambda: None
        return
    registry = CollectorRegistry()
    # The port first: who holds it owns the folder.
    close = listen(settings, registry)
    try:
        if anew:
            shutil.rmtree(folder, ignore_errors=True)
        processes = CountedFiles(folder, keeps_ended=True)
        registry.register(processes)
        registry.register(SpoolGauges(settings.billing.spool_path))
        for collector in also:
            registry.register(collector)
        yield processes.take_in_ended
    finally:
        close()
        if anew:
            shutil.rmtree(folder, ignore_errors=True)


class CountedFiles(Collector):
    """Adds up what processes count in the files of a folder, at each scrape: it asks no process, so one that hangs
    holds up nothing. `keeps_ended`: what an ended process had counted stays, and its share of a gauge goes; else it
    takes its series along, and the next of its number counts from zero, as after a restart. Raises `OSError`."""

    def __init__(self, folder: Path, *, keeps_ended: bool) -> None:
        self._folder = folder
        self._lock = Lock()
        self._ended = Counts(folder, ENDED, goes_on=True) if keeps_ended else None

    def collect(self) -> Iterable[Metric]:
        self.take_in_ended()
        sums: dict[tuple[str, ...], tuple[Series, Sequence[float]]] = {}
        with self._lock:
            for names in self._folder.glob(f"*{NAMES}"):
                try:
                    for series, values in read_series(names):
                        _, before = sums.get(series.key, (series, [0.0] * len(values)))
                        sums[series.key] = series, _merged(series, before, values)
                except (OSError, ValueError) as error:
                    logger.warning("the metrics of process %s cannot be read: %s", names.stem, error)
        return families_of(sums.values())

    def take_in_ended(self) -> None:
        """Add the counts of ended processes to one file and drop theirs, so that restarts do not fill the disk."""
        with self._lock:
            try:
                for names in self._folder.glob(f"*{NAMES}"):
                    if names.stem != ENDED and started_at(int(names.stem)) is None:
                        self._take_in(names)
            except OSError as error:
                logger.warning("the metrics of ended processes cannot be added up: %s", error)

    def _take_in(self, names: Path) -> None:
        if self._ended is not None:
            for series, values in read_series(names):
                self._ended.add(series, values)
        names.unlink(missing_ok=True)
        names.with_suffix(VALUES).unlink(missing_ok=True)


def _merged(series: Series, before: Sequence[float], values: Sequence[float]) -> Sequence[float]:
    merge = max if series.family.merging == "livemax" else add
    return [merge(one, other) for one, other in zip(before, values, strict=False)]


def families_of(found: Iterable[tuple[Series, Sequence[float]]]) -> Iterable[Metric]:
    """As `prometheus_client` shows them."""
    families: dict[str, Metric] = {}
    for series, values in found:
        add_series(families, series, values)
    return families.values()


def add_series(families: dict[str, Metric], series: Series, values: Sequence[float]) -> None:
    name, kind = series.family.name, series.family.kind
    family = families.get(name)
    if family is None:
        family = families[name] = Metric(name, series.family.text, kind)
    labels = dict(series.labels)
    if kind == "histogram":
        *counts, total = values
        *below, all_of_them = accumulate(counts)
        for bound, count in zip(series.family.buckets, below, strict=True):
            family.add_sample(f"{name}_bucket", labels | {"le": str(bound)}, count)
        family.add_sample(f"{name}_bucket", labels | {"le": "+Inf"}, all_of_them)
        family.add_sample(f"{name}_count", labels, all_of_them)
        family.add_sample(f"{name}_sum", labels, total)
    else:
        family.add_sample(name + ("_total" if kind == "counter" else ""), labels, values[0])


class SpoolGauges(Collector):
    """The usage that waits in the spool, read when asked: it is one file, no matter which process wrote to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def collect(self) -> Iterable[Metric]:
        try:
            waiting, refused = asyncio.run(self._count())
        except BillingError as error:
            logger.warning("the spool's metrics are missing: %s", error)
            return
        yield collected_gauge("pith_spool_waiting_events", waiting)
        yield collected_gauge("pith_spool_refused_events", refused)

    async def _count(self) -> tuple[int, int]:
        spool = Spool(self._path)
        try:
            return await spool.count_waiting(), await spool.count_refused()
        finally:
            await spool.close()


Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
# Prometheus asks for OpenMetrics first, in which `prometheus_client` turns the colons of names into underscores.
TEXT = "text/plain;version=0.0.4"


def scrape_app(registry: CollectorRegistry) -> Wsgi:
    """A WSGI application that answers in the text format, whatever is asked for, and compressed where that is."""
    app: Wsgi = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return app({**environ, "HTTP_ACCEPT": TEXT}, start_response)

    return answer
