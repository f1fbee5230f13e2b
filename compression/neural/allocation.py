"""Shares a budget among units by how much each matters: an irrelevant one keeps less than the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_HALVINGS = 50


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
    low, high = 0.0, 1.0 / weights[weights > 0].min()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        within = np.floor(np.minimum(weights * middle, 1.0) * sizes).sum() <= total
        low, high = (middle, high) if within else (low, middle)
    return [int(share) for share in np.floor(np.minimum(weights * low, 1.0) * sizes)]
