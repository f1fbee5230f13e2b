"""Interval for the mean of bounded samples that holds at every look: one may look after each sample, and stop at any.

The empirical Bernstein supermartingale of Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting" (JRSS B 86, 2024, section 3.2; the inequality behind it is that of Fan, Grama and Liu, 2015). For samples x
within 0 and 1, each with the mean that it has given those before it, and a guess g of each that is made before it,

    exp(l * sum(x - mean) - (-log(1 - l) - l) * sum((x - g)^2))

is at no time expected above 1, for each l of [0, 1). The paper chooses an l for each sample, and so estimates a mean in
which early samples weigh more. Here fixed ones are mixed (Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform,
nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49, 2021, theorem 4 and section 3.4): all
samples weigh alike, so the interval is of the average of their means also where that drifts. By Ville's inequality the
mixture ever reaches 1/a with probability a at the most. It is wide where there are few: below a hundred it says little.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, inf, isnan, log, log1p

# Each l is best for another sum of squares, four times that of the one before.
_BETS = tuple(0.9 * 0.5**at for at in range(16))
_COSTS = tuple(-log1p(-bet) - bet for bet in _BETS)
# Shares of the mixture, 1/((n + 1)(n + 2)): together they are below 1.
_LOG_SHARES = tuple(-log((at + 1) * (at + 2)) for at in range(len(_BETS)))
_HALVINGS = 50


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the ends of its interval; without a sample, all that is possible, around its middle."""

    mean: float
    low: float
    high: float


class ConfidenceSequence:
    """The interval of the samples so far, in memory and time that do not grow with them.

    A sample outside `low` to `high` counts as the nearer of the two, so the interval is of the mean of samples so cut.
    Raises `ValueError` for bounds out of order, a confidence outside 0 to 1, and a sample that is no number.
    """

    def __init__(self, low: float, high: float, confidence: float) -> None:
        if not -inf < low < high < inf:
            raise ValueError(f"{low} to {high} is no range")
        if not 0 < confidence < 1:
            raise ValueError(f"a confidence is between 0 and 1, not {confidence}")
        self._low, self._width = low, high - low
        self._log_limit = log(2 / (1 - confidence))
        self.count = 0
        # Of the samples, scaled to 0 to 1: their sum, and the squares of what each was off the guess before it.
        self._sum = self._squares = 0.0

    def add(self, sample: float) -> None:
        if isnan(sample):
            raise ValueError("a sample is not a number")
        scaled = min(1.0, max(0.0, (sample - self._low) / self._width))
        guess = (self._sum + 0.5) / (self.count + 1)
        self._squares += (scaled - guess) ** 2
        self._sum += scaled
        self.count += 1

    def contains(self, mean: float) -> bool:
        """True if the interval has this mean; cheaper than to compute it."""
        scaled = (mean - self._low) / self._width
        return 0 <= scaled <= 1 and self._log_wealth(abs(self._sum - self.count * scaled)) < self._log_limit

    @property
    def interval(self) -> Interval:
        if not self.count:
            return Interval(self._low + self._width / 2, self._low, self._low + self._width)
        mean = self._sum / self.count
        reach = self._reach() / self.count
        low, high = max(0.0, mean - reach), min(1.0, mean + reach)
        return Interval(*(self._low + self._width * value for value in (mean, low, high)))

    def _log_wealth(self, off: float) -> float:
        """The log of the mixture, where the sum of the samples is `off` that of their means."""
        logs = [
            bet * off - cost * self._squares + share
            for bet, cost, share in zip(_BETS, _COSTS, _LOG_SHARES, strict=True)
        ]
        largest = max(logs)
        return largest + log(sum(exp(each - largest) for each in logs))

    def _reach(self) -> float:
        """How far the sum may be off, to one side: the mixture grows with it. No further than the count."""
        low, high = 0.0, float(self.count)
        if self._log_wealth(high) < self._log_limit:
            return high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._log_wealth(middle) < self._log_limit:
                low = middle
            else:
                high = middle
        return high


def interval(samples: Iterable[float], low: float, high: float, confidence: float) -> Interval:
    """Of all the samples, in the order in which they came."""
    sequence = ConfidenceSequence(low, high, confidence)
    for sample in samples:
        sequence.add(sample)
    return sequence.interval
