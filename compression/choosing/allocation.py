"""Shares a budget among units by relevance: an irrelevant one keeps less than the answer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_HALVINGS = 60
# A score below this share of the highest counts as 0.
_LEAST = 1e-9


def share_budget(scores: Sequence[float], tokens: Sequence[int], total: int) -> list[int]:
    """How many of its tokens each unit may keep: as a share in proportion to its score, at most all of them.

    The shares are as large as `total` allows, and sum to no more. A unit of score 0 keeps nothing, unless there is
    room for everything.
    """
    if len(scores) != len(tokens):
        raise ValueError(f"scores: {len(scores)} for {len(tokens)} units")
    sizes = np.asarray(tokens, np.float64)
    if sizes.sum() <= total:
        return list(tokens)
    weights = np.clip(np.asarray(scores, np.float64), 0.0, None)
    if total <= 0 or not weights.any():
        return [0] * len(sizes)
    weights /= weights.max()
    low, high = 0.0, 1.0 / max(weights[weights > 0].min(), _LEAST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _shares(weights, sizes, middle).sum() <= total else (low, middle)
    return [int(share) for share in _shares(weights, sizes, low)]


def _shares(weights: NDArray[np.float64], sizes: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    # The halvings come near the right scale from below: a hair more, or whole numbers would be missed by one.
    found: NDArray[np.float64] = np.floor(np.minimum(weights * scale, 1.0) * sizes + 1e-6)
    return found
