"""Saving of compressed conversations against those that were left whole, with its 95% interval."""

from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Literal, get_args

Dimension = Literal["workspace", "project", "key", "model", "route", "day", "month", "person", "tag"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
# A comparison is of whole conversations, which neither one key nor one day has.
COMPARED_BY: tuple[Dimension, ...] = ("workspace", "project", "model")
# The lines of a statement.
LINES: tuple[Dimension, ...] = ("project", "model")
# Of what compression changed in replies: in the end by the kind of block.
PreservedBy = Literal["workspace", "project", "model", "kind"]
PRESERVED_BY: tuple[PreservedBy, ...] = get_args(PreservedBy)
PRESERVATION_LINES: tuple[PreservedBy, ...] = ("project", "model", "kind")


CONFIDENCE = 0.95
# On each side. With fewer, the interval misses the truth too often (see `saving_between`).
MIN_CONVERSATIONS = 50
# The effective number of conversations, weighted by size: below it a single one decides the result.
_MIN_EFFECTIVE = 4.0
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison, in sums over its conversations; each conversation's own tokens and cost are sums over
    its requests. Tokens are those of the prompts before compression, cost is in nano-USD."""

    conversations: int = 0
    requests: int = 0
    tokens: int = 0
    cost_nano_usd: int = 0
    # Of each conversation's tokens and cost: the sums of their squares and of their product.
    tokens_squared: float = 0.0
    cost_squared: float = 0.0
    cost_times_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Saving:
    """Shares of what it would have cost: 0.3 is 30% less, and below 0 it cost more."""

    share: float
    low: float
    high: float


def saving_between(treated: Side, holdout: Side) -> Saving | None:
    """The share of each token's cost that the treated side saved, against the held-out one; None: too few to say.

    The estimator is one less the ratio of two ratios, each a side's cost over its original tokens: a token counts
    alike wherever it stands, and a side that happened to get longer conversations is not dearer for it. Requests of a
    conversation resemble each other, so conversations are the units, as they were drawn. The interval is of the log of
    the ratio, by the delta method: a ratio's variance is that of its conversations' residuals, cost less ratio times
    tokens (Cochran, Sampling Techniques, 6.4). It needs sums alone, so a month of millions of requests is added up in
    the database; a bootstrap would need every conversation. Sizes have long tails: the variance is corrected, and the
    degrees of freedom are counted (Welch, Satterthwaite), by the effective number of conversations, (sum)²/sum of
    squares (Kish).

    `tests/billing/books/test_saving_interval.py` simulates how often it has the truth, with `MIN_CONVERSATIONS` held
    out and more: in 91 to 95% where the cost of a token falls with a conversation's length or has nothing to do with
    it. Where cost falls with length and it misses, it mostly claims too much; where cost rises it is too narrow.
    """
    if min(treated.conversations, holdout.conversations) < MIN_CONVERSATIONS:
        return None
    if min(min(side.tokens, side.cost_nano_usd) for side in (treated, holdout)) <= 0:
        return None
    effective = _effective(treated), _effective(holdout)
    if min(effective) <= _MIN_EFFECTIVE:
        return None
    variances = [_variance(side, n) for side, n in zip((treated, holdout), effective, strict=True)]
    error = sqrt(sum(variances))
    reach = _t(_degrees(variances, effective)) * error if error else 0.0
    ratio = log(_rate(treated) / _rate(holdout))
    return Saving(1 - exp(ratio), 1 - exp(ratio + reach), 1 - exp(ratio - reach))


def _rate(side: Side) -> float:
    return side.cost_nano_usd / side.tokens


def _effective(side: Side) -> float:
    by_tokens = side.tokens**2 / side.tokens_squared
    by_cost = side.cost_nano_usd**2 / side.cost_squared
    return min(by_tokens, by_cost)


def _variance(side: Side, effective: float) -> float:
    """Of the log of the side's rate."""
    rate = _rate(side)
    residuals = side.cost_squared - 2 * rate * side.cost_times_tokens + rate**2 * side.tokens_squared
    correction = (effective / (effective - 1)) ** 2
    # The difference of nearly equal sums may fall below zero.
    return max(0.0, residuals) / float(side.cost_nano_usd) ** 2 * correction


def _degrees(variances: list[float], effective: tuple[float, float]) -> float:
    parts = [variance**2 / (n - 1) for variance, n in zip(variances, effective, strict=True)]
    return float(sum(variances) ** 2 / sum(parts))


def _t(degrees: float) -> float:
    """Student's quantile of the confidence, by the expansion of Cornish and Fisher: to 1% from 3 degrees on."""
    z, v = _Z, degrees
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
