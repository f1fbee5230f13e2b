"""What a pipeline asks of a calibration. A server's own process loads this without numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compression.calibration.estimate import Calibration, Estimate
from compression.choosing.selection import SelectionSettings
from compression.source.units import Segmentation


class Estimator(Protocol):
    """Says how probable it is that the evidence was kept, and what it takes to keep it. Safe to share."""

    @property
    def about(self) -> Calibration: ...

    def estimate(
        self,
        query: str,
        text: Segmentation,
        scores: Sequence[float] | None,
        slices: Sequence[tuple[int, int]],
        tokens: tuple[int, int],
    ) -> Estimate:
        """`scores`: one a unit, or None where nothing was scored. `slices`: what of the source was kept, in any order.
        `tokens`: of the source and of the output."""
        ...

    def smallest_ratio(
        self,
        keep: float,
        query: str,
        text: Segmentation,
        scores: Sequence[float],
        costs: Sequence[int],
        *,
        tokens: int,
        settings: SelectionSettings,
    ) -> float:
        """The ratio at which the evidence is kept with probability `keep`, as the units are chosen best first.

        It never falls as `keep` rises. 1 where nothing less will do. `costs` and `tokens` are of the units and the
        source.
        """
        ...
