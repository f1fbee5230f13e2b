"""The ops port: `/metrics` of the whole service, served by the process that started it, from its processes' files."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import psutil
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from billing.errors import BillingError
from billing.spool.spool import Spool
from serve.config.settings import Settings
from serve.metrics.process_files import metrics_folder, reserve

# Stands for a process id in the names of the files that keep what ended processes had counted.
ENDED = "ended"
SPOOLED = "pith_spool_waiting_events"
SET_ASIDE = "pith_spool_refused_events"
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


class SpoolGauges(Collector):
    """How much usage waits in the spool, read when asked: it is one file, no matter which process wrote to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def collect(self) -> Iterable[Metric]:
        try:
            waiting, refused = asyncio.run(self._count())
        except BillingError as error:
            logger.warning("the spool's metrics are missing: %s", error)
            return
        yield GaugeMetricFamily(SPOOLED, "Usage events in the spool that wait for the ledger.", waiting)
        yield GaugeMetricFamily(SET_ASIDE, "Usage events that the ledger refused for good.", refused)

    async def _count(self) -> tuple[int, int]:
        spool = Spool(self._path)
        try:
            return await spool.count_waiting(), await spool.count_refused()
        finally:
            await spool.close()
