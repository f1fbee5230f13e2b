"""What the model of ingress replicas says: the nearest of the replicas', the machine's and the ledger's limits."""

from __future__ import annotations

import pytest

from tests.ingress_scale.model import Measured, model_of

# One replica that takes 0.8 ms of a core, and half of the machine's time beside it.
ALONE = Measured(
    replicas=1,
    requests_per_s=1000,
    cpu_ms={"ingress": 0.8, "load generator": 0.2},
    p50_ms=10,
    p99_ms=20,
    writer_ms=0.6,
    writer_cpu_ms=0.25,
    group=8,
)


@pytest.mark.parametrize(
    ("replicas", "cores", "expected"),
    [
        (1, 16, (1000, "replicas")),
        (2, 16, (2000, "replicas")),
        (2, 1, (1000, "cores")),
        (4, 2, (2000, "cores")),
        (8, 16, (4000, "SQLite's writer")),
    ],
)
def test_the_nearest_limit_counts(replicas: int, cores: float, expected: tuple[float, str]) -> None:
    reached, limit = model_of(ALONE).requests_per_s(replicas, cores)
    assert (round(reached), limit) == expected


def test_a_database_server_has_no_writer_of_its_own_to_wait_for() -> None:
    model = model_of(
        Measured(1, 1000, {"ingress": 0.8, "database": 0.4}, 10, 20, writer_ms=0, writer_cpu_ms=0, group=0)
    )
    assert model.limits(4, 3) == pytest.approx({"replicas": 4000, "cores": 2500})
