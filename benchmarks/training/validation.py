"""Validation of the trained scorer on held-out cases: units from the best down, as many as the budget holds."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.examples import Example
from compression.features.layout import Group, Layout
from compression.features.network import Network


class Laid(Protocol):
    """What knows the runs of its units: an `Example` or a `Sample`."""

    @property
    def tokens(self) -> NDArray[np.float32]: ...

    @property
    def documents(self) -> NDArray[np.int32]: ...

    @property
    def paragraphs(self) -> NDArray[np.int32]: ...


RATIOS = {"nq": (0.5, 0.25, 0.1, 0.05), "qmsum_val": (0.33, 0.2, 0.1), "xquad": (0.25, 0.1), "kv_75": (0.1,)}


def layout_of(example: Laid) -> Layout:
    """The part of a layout that the network needs."""
    nothing = np.zeros(len(example.tokens), np.int64)
    return Layout(
        Group.by(example.documents.astype(np.int64)), Group.by(example.paragraphs.astype(np.int64)), nothing,
        nothing > 0, nothing > 0,
    )  # fmt: skip


def select(scores: NDArray[np.float32], tokens: NDArray[np.float32], ratio: float) -> NDArray[np.bool_]:
    """The best units that fit, one after the other."""
    left = float(int(tokens.sum() * ratio))
    kept = np.zeros(len(scores), bool)
    for unit in np.argsort(-scores, kind="stable"):
        if tokens[unit] <= left:
            kept[unit] = True
            left -= tokens[unit]
    return kept


def kept_share(example: Example, kept: NDArray[np.bool_]) -> float:
    """Evidence by tokens for meetings; for the others whether any kept unit holds an answer."""
    if example.suite.startswith("qmsum"):
        return float(
            example.tokens[kept & example.wanted].sum() / max(1.0, example.tokens[example.wanted].sum())
        )
    return float((kept & example.holds).any())


def validate(network: Network, examples: Sequence[Example]) -> dict[str, dict[str, float]]:
    """Percent kept by suite and ratio, over the held-out examples."""
    found: dict[str, dict[str, list[float]]] = {}
    for example in examples:
        if not example.is_held_out:
            continue
        logits = network.logits(example.features.astype(np.float32), layout=layout_of(example))
        ratios = RATIOS.get(example.suite) or RATIOS[example.suite.split("_")[0]]
        for ratio in ratios:
            share = kept_share(example, select(logits, example.tokens, ratio))
            found.setdefault(example.suite, {}).setdefault(str(ratio), []).append(share)
    return {
        suite: {ratio: round(100 * float(np.mean(shares)), 2) for ratio, shares in by_ratio.items()}
        for suite, by_ratio in found.items()
    }
