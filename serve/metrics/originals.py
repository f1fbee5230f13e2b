"""Metrics of retained originals: outcomes of attempts to keep them, and reads."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter

KeepOutcome = Literal["kept", "extended", "full", "failed"]
ReadOutcome = Literal["served", "unknown"]


class OriginalMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        kept = Counter(
            "pith_originals_kept",
            "Originals that requests asked to have kept, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        reads = Counter(
            "pith_originals_read", "Reads of retained originals, by outcome.", ["outcome"], registry=registry
        )
        self._kept: dict[str, Counter] = {name: kept.labels(name) for name in get_args(KeepOutcome)}
        self._reads: dict[str, Counter] = {name: reads.labels(name) for name in get_args(ReadOutcome)}

    def keep(self, *, kept: int, known: int, full: int, failed: int) -> None:
        """`known` were there already; for `full` the project had no room."""
        counts = {"kept": kept, "extended": known, "full": full, "failed": failed}
        for outcome, count in counts.items():
            self._kept[outcome].inc(count)

    def read(self, outcome: ReadOutcome) -> None:
        self._reads[outcome].inc()
