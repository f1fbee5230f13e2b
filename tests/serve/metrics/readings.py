"""What metrics say, as numbers by name and labels, and what changed between two readings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from serve.metrics.counts import Counts
from serve.metrics.ops_port import families_of

Readings = dict[str, float]


class _Shown(Collector):
    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        return families_of(self._counts.read())


def counting() -> tuple[Counts, CollectorRegistry]:
    """Counts in memory, and what they show."""
    counts, registry = Counts(), CollectorRegistry()
    registry.register(_Shown(counts))
    return counts, registry


def named(name: str, labels: dict[str, str]) -> str:
    """`name{label="value"}` with the labels in order; every label of a name counts."""
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name


def of_families(families: Iterable[Metric]) -> Readings:
    found = [
        (named(sample.name, sample.labels), sample.value)
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    assert not [name for name, times in Counter(name for name, _ in found).items() if times > 1]
    return dict(found)


def of_registry(registry: CollectorRegistry) -> Readings:
    return of_families(registry.collect())


def of_text(text: str) -> Readings:
    return of_families(text_string_to_metric_families(text))


def grown(before: Readings, after: Readings, prefix: str) -> Readings:
    """What changed among the names that begin with `prefix`; buckets and sums of seconds apart, which vary."""
    return {
        name: round(value - before.get(name, 0), 12)
        for name, value in after.items()
        if name.startswith(prefix)
        and value != before.get(name, 0)
        and "_bucket{" not in name
        and "_seconds_sum" not in name
    }
