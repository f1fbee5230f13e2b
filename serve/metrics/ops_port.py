"""The ops port: `/metrics` of the whole service, served by the process that started it, from its processes' files."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import psutil
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import make_wsgi_app
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from billing.errors import BillingError
from billing.ledger.spool import Spool
from serve.config.settings import Settings
from serve.metrics.engine_files import Series, processes_in, read_series
from serve.metrics.families import collected_gauge
from serve.metrics.process_files import metrics_folder, reserve

# Stands for a process id in the names of the files that keep what ended processes had counted.
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
        if anew or not list(folder.glob(f"*_{ENDED}.db")):
            reserve(folder, ENDED)
        processes = ProcessFiles(folder)
        registry.register(processes)
        registry.register(SpoolGauges(settings.billing.spool_path))
        for collector in also:
            registry.register(collector)
        yield processes.take_in_ended
    finally:
        close()
        if anew:
            shutil.rmtree(folder, ignore_errors=True)


class ProcessFiles(Collector):
    """Adds up the files in a folder. What an ended process had counted stays; its share of a gauge goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()

    def collect(self) -> Iterable[Metric]:
        self.take_in_ended()
        with self._lock:
            metrics: Iterable[Metric] = MultiProcessCollector(None, path=str(self._folder)).collect()
            return list(metrics)

    def take_in_ended(self) -> None:
        """Add the counts of ended processes to one file and drop theirs, so that restarts do not fill the disk."""
        with self._lock:
            try:
                for path in self._folder.glob("*.db"):
                    self._take_in(path)
            except OSError as error:
                logger.warning("the metrics of ended processes cannot be added up: %s", error)

    def _take_in(self, path: Path) -> None:
        kind, _, owner = path.stem.rpartition("_")
        if owner == ENDED or is_running(int(owner)):
            return
        # A gauge stays, at 0: what is not there raises no alarm.
        add_values(path, self._folder / f"{kind}_{ENDED}.db", share=0 if kind.startswith("gauge") else 1)
        path.unlink()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def add_values(source: Path, target: Path, *, share: int) -> None:
    """Add every value of one file, times `share`, to another's."""
    values = MmapedDict(str(target))
    try:
        for key, value, _, _ in MmapedDict.read_all_values_from_file(str(source)):
            kept, _ = values.read_value(key)
            values.write_value(key, kept + share * value, 0.0)
    finally:
        values.close()


class EngineFiles(Collector):
    """Reads the files of a folder at each scrape: it asks no replica, so one that hangs holds up nothing. A replica
    that has ended takes its series along; the next of its number counts from zero, as after a restart."""

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
