"""The estimate of a calibration and what a pipeline asks of one. A server's own process loads this without numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from compression.choosing.selection import SelectionSettings
from compression.source.units import Segmentation


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration that an estimate rests on: `sha256` is the hash of its file, in hexadecimal."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """The probability that the output holds the evidence, if the source does and is like what was calibrated on.

    `probability` is None where nothing was scored or asked. Below the probabilities of `at_risk` the flag is critical,
    a warning, or for information. `outside` says what of the request is not like the calibration: any of `query`,
    `kind`, `script`, `length`.
    """

    probability: float | None
    at_risk: tuple[float, float, float] = (0.0, 0.0, 0.0)
    outside: tuple[str, ...] = ()


NO_ESTIMATE = Estimate(None)


Slices = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A query to a text, the score of each unit (None where nothing was scored), and the tokens of the source."""

    query: str
    text: Segmentation
    scores: Sequence[float] | None
    tokens: int


class Estimator(Protocol):
    """Says how probable it is that the evidence was kept, and what it takes to keep it. Safe to share."""

    @property
    def about(self) -> Calibration: ...

    def estimate(self, scored: ScoredText, slices: Slices, output_tokens: int) -> Estimate:
        """`slices` of the source were kept; they may be in any order."""
        ...

    def smallest_ratio(
        self, keep: float, scored: ScoredText, costs: Sequence[int], settings: SelectionSettings
    ) -> float:
        """The ratio at which the evidence is kept with probability `keep`, as the units are chosen best first.

        It never falls as `keep` rises. 1 where nothing less will do. `costs` are the tokens of each unit.
        """
        ...
