"""What is counted of the log: lines that were lost."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from serve.metrics.process_files import reserve

logger = logging.getLogger("pith.metrics")
DROPPED = "pith_log_lines_dropped"
SAID = "Lines of the log that were not written, since what reads them is slow or gone."


def count_dropped_lines(registry: CollectorRegistry) -> Callable[[int], None]:
    """What is to be told how many lines were not written."""
    counter = Counter(DROPPED, SAID, registry=registry)
    counter.inc(0)
    return counter.inc


@contextmanager
def relayed_lines(folder: Path | None) -> Iterator[Callable[[int], None]]:
    """The same for the process that serves the files in `folder`, and else counts in memory: a scrape has one sum of
    both. None: metrics are off."""
    values, lock = _file_in(folder), Lock()
    key = mmap_key(DROPPED, f"{DROPPED}_total", [], [], SAID)

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
    try:
        reserve(folder, str(os.getpid()))
        return MmapedDict(str(folder / f"counter_{os.getpid()}.db"))
    except OSError as error:
        logger.error("lost lines of the log are not counted: no files for that in %s: %s", folder, error)
        return None
