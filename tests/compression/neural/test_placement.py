"""Where a network runs: a process keeps to its part of a GPU that others share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compression.neural.networks import Placement
from serve.config.compression_models import CompressionModelSettings, spec_of

MODEL = {"id": "m", "name": "M", "blurb": "b", "kind": "encoder", "checkpoint": "org/m"}


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int | None]]:
    """What torch is told, on a machine without a GPU."""
    told: list[tuple[float, int | None]] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: told.append((share, device))
    )
    return told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"device": "cuda", "replicas": {"gpus": 0.25}}, [(0.25, None)]),
        ({"device": "cuda:1", "replicas": {"gpus": 0.25}, "workers": 2}, [(0.125, 1)]),
        ({"device": "cuda", "replicas": {"gpus": 1}}, []),
        ({"device": "cpu"}, []),
    ],
)
def test_a_worker_takes_its_part_of_a_gpu(
    bounds: list[tuple[float, int | None]], fields: dict[str, Any], told: list[tuple[float, int | None]]
) -> None:
    Placement.of(spec_of(CompressionModelSettings.model_validate(MODEL | fields))).bound_process()
    assert bounds == told
