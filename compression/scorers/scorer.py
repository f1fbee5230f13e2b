"""What a scorer offers: a score for each unit, and where it looks twice, a first look that others can join."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from compression.features.matrix import Context
from compression.features.runs import Floats
from compression.source.units import Segmentation


class Scorer(Protocol):
    """Says how much each unit matters to a query."""

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        """One score a unit, in [0, 1], comparable over the whole source. Deterministic."""
        ...


@dataclass(frozen=True)
class Glance:
    """A text and what the first look makes of it: `features` are (units, features), `logits` one a unit.

    `muted` units only repeat the query.
    """

    query: str
    context: Context
    muted: NDArray[np.bool_]
    names: list[str]
    features: Floats
    logits: Floats


class TwoLookScorer(Scorer, Protocol):
    """A scorer that looks at its own scores again. The scores of a network can join those of its first look."""

    def glance(self, query: str, text: Segmentation) -> Glance:
        """The first look. The text has a unit."""
        ...

    def look_again(self, glance: Glance, logits: Floats) -> Floats:
        """The second look, over the logits of the first or of any other scorer: (units,)."""
        ...
