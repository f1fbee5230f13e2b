"""Room on the disk under the server's folder."""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class StateFolder(Collector):
    """Of the file system that has `folder`: the ledger (SQLite), the spool, files of batches, logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return
        block = found.f_frsize
        yield GaugeMetricFamily(
            "pith_state_dir_size_bytes", "Size of the file system of state_dir.", found.f_blocks * block
        )
        yield GaugeMetricFamily(
            "pith_state_dir_free_bytes", "Free there, for the server's user.", found.f_bavail * block
        )
        if found.f_files:
            # Some file systems make them as they are needed, and say 0.
            yield GaugeMetricFamily("pith_state_dir_inodes", "Files that it can have.", found.f_files)
            yield GaugeMetricFamily("pith_state_dir_free_inodes", "Files that can be made.", found.f_favail)
