"""A histogram that is told of many values at once: what is observed for every token costs an addition in memory."""

from bisect import bisect_left

from prometheus_client import Histogram


class Tally:
    """Gathers what is observed, and adds it to `histogram`, one set of labels, when it is told to. For one thread.

    `Histogram.observe` writes to this process's files: microseconds, for each token of each stream.
    """

    def __init__(self, histogram: Histogram, bounds: tuple[float, ...]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def add_up(self) -> None:
        if not self._sum:
            return
        for at, count in enumerate(self._counts):
            if count:
                self._histogram._buckets[at].inc(count)
                self._counts[at] = 0
        self._histogram._sum.inc(self._sum)
        self._sum = 0.0
