"""What `/metrics` of a whole server shows beside the counts of its processes' files."""

from collections.abc import Iterator

from prometheus_client.registry import Collector

from serve.cluster.replica_counts import ReplicaCounts
from serve.config.settings import Settings
from serve.metrics.engine_files import ENGINES
from serve.metrics.ledger_metrics import LedgerMetrics
from serve.metrics.machine import BuildInfo, ServerProcesses, StateFolder
from serve.metrics.ops_port import EngineFiles
from serve.metrics.process_files import metrics_folder


def collectors_of(settings: Settings) -> Iterator[Collector]:
    """None where metrics are off."""
    folder = metrics_folder(settings)
    if folder is None:
        return
    yield ReplicaCounts()
    yield EngineFiles(folder / ENGINES)
    yield ServerProcesses(folder)
    yield StateFolder(settings.state_dir)
    yield BuildInfo()
    tenants = settings.metrics.tenants
    yield LedgerMetrics(settings.billing.database_url, tenants=tenants.top if tenants else 0)
