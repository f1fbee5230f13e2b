"""The files that HTTP processes count in, one set for each process; it must be prepared before prometheus_client is
imported, so this module imports it last.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from serve.config.settings import Settings
from serve.metrics.families import FAMILIES, Families
from serve.processes.registry import enrol

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.mmap_dict import MmapedDict

# What prometheus_client reads when it is imported, to count in files instead of in memory.
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# One for each kind of metric that is made. A mebibyte holds some 4,000 series.
RESERVED_BYTES = {
    "counter": 2**20,
    "histogram": 2**20,
    **{f"gauge_{row.merging}": 2**16 for row in FAMILIES.values() if row.kind == "gauge"},
}
DROPPED = FAMILIES["pith_log_lines_dropped"]
logger = logging.getLogger("pith.metrics")


def metrics_folder(settings: Settings) -> Path | None:
    """The folder in which this server's processes count, or None if metrics are off. The port tells servers apart."""
    return settings.state_dir / "metrics" / str(settings.ops.port) if settings.ops.port else None


def metrics_environment(settings: Settings) -> dict[str, str]:
    """The environment that a process that is to count is started with."""
    folder = metrics_folder(settings)
    return {} if folder is None else {FOLDER_VARIABLE: str(folder)}


def reserve(folder: Path, owner: str) -> None:
    """Make the files of a process (`owner` is its id) with their blocks on disk. Raises `OSError` where that fails.

    They are written through memory: with a hole in a file, a full disk would end the process at its next count.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for kind, size in RESERVED_BYTES.items():
        made = folder / f"{kind}_{owner}.making"
        with made.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        # Whole or not there: a scrape may come at any time.
        made.rename(made.with_suffix(".db"))


def count_in_files(settings: Settings, role: str = "ingress", *, model: str = "") -> None:
    """Prepare this process, which was started with `FOLDER_VARIABLE`; without files its counts are not shown. `role`,
    and the `model` that it works for, are what it is on the roll."""
    folder = metrics_folder(settings)
    if folder is None:
        return
    try:
        reserve(folder, str(os.getpid()))
        enrol(folder, role, os.getpid(), model=model)
    except OSError as error:
        logger.error("this process's metrics are not shown: no files for them in %s: %s", folder, error)
        os.environ.pop(FOLDER_VARIABLE, None)
        return
    from prometheus_client import values

    # It asks the system for the process id at each count, for servers that fork; a replica does not.
    pid = os.getpid()
    values.ValueClass = values.MultiProcessValue(lambda: pid)


def count_dropped_lines(registry: CollectorRegistry) -> Callable[[int], None]:
    """A counter of lines that were not written, to be told how many."""
    counter = Families(registry).counter(DROPPED.name)
    counter.inc(0)
    return counter.inc


@contextmanager
def relayed_lines(folder: Path | None) -> Iterator[Callable[[int], None]]:
    """The same for the process that serves the files in `folder`, and else counts in memory: a scrape has one sum of
    both. None: metrics are off."""
    from prometheus_client.mmap_dict import mmap_key

    values, lock = _file_in(folder), Lock()
    key = mmap_key(DROPPED.name, f"{DROPPED.name}_total", [], [], DROPPED.text)

    def add(count: int) -> None:
        with lock:
            if values is not None and not is_over:
                lost, _ = values.read_value(key)
                values.write_value(key, lost + count, 0.0)

    is_over = False
    try:
        add(0)
        yield add
    finally:
        # Whoever still counts does so in vain.
        with lock:
            is_over = True
            if values is not None:
                values.close()


def _file_in(folder: Path | None) -> MmapedDict | None:
    if folder is None:
        return None
    from prometheus_client.mmap_dict import MmapedDict

    try:
        reserve(folder, str(os.getpid()))
        return MmapedDict(str(folder / f"counter_{os.getpid()}.db"))
    except OSError as error:
        logger.error("lost lines of the log are not counted: no files for that in %s: %s", folder, error)
        return None
