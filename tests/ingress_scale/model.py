"""What so many ingress replicas reach on so many cores, from CPU time a request and from the ledger's one writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """One number of replicas under a load that none of them could keep up with; times are milliseconds a request."""

    replicas: int
    requests_per_s: float
    cpu_ms: Mapping[str, float]
    p50_ms: float
    p99_ms: float
    # Of SQLite's writers together: in transactions by the clock, waits included, and CPU; 0 for another ledger.
    writer_ms: float
    writer_cpu_ms: float
    group: float

    @property
    def total_cpu_ms(self) -> float:
        return sum(self.cpu_ms.values())


@dataclass(frozen=True)
class Model:
    """From one replica alone: what each request takes of the machine, of its replica, and of the ledger's writer.

    A replica is one interpreter, so that it can use little more than a core: `replica_per_s` is what one reached.
    SQLite lets one process write at a time: together they cannot do more than the CPU time of their transactions
    allows, and do less where a transaction waits for the disk or for its interpreter.
    """

    cpu_ms: float
    replica_per_s: float
    writer_cpu_ms: float

    def limits(self, replicas: int, cores: float) -> dict[str, float]:
        """Requests a second at which each of them ends."""
        found = {"replicas": replicas * self.replica_per_s, "cores": 1000 * cores / self.cpu_ms}
        if self.writer_cpu_ms:
            found["SQLite's writer"] = 1000 / self.writer_cpu_ms
        return found

    def requests_per_s(self, replicas: int, cores: float) -> tuple[float, str]:
        """What they reach, and what limits it."""
        limits = self.limits(replicas, cores)
        least = min(limits, key=lambda name: limits[name])
        return limits[least], least


def model_of(alone: Measured) -> Model:
    return Model(alone.total_cpu_ms, alone.requests_per_s, alone.writer_cpu_ms)
