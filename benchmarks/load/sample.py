"""Measurements of one request, and the sums of a run of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Figures:
    """What a reply says of itself: tokens made (a chat) or taken in (a compression), ratio, the server's own time, and
    the prompt's tokens with those of them that were found in a cache."""

    tokens: int
    ratio: float | None = None
    server_ms: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One request that succeeded. `due_s` counts from the start of the measurement; times count from when it was due.

    In a closed loop a request is due when it is sent; in an open loop waiting for the client counts as well, or a
    slow server would hide its own queue. `arrivals_ms` are the events of a stream that carried text.
    """

    due_s: float
    latency_ms: float
    figures: Figures
    arrivals_ms: tuple[float, ...] = ()

    @property
    def done_s(self) -> float:
        return self.due_s + self.latency_ms / 1000

    @property
    def ttft_ms(self) -> float | None:
        return self.arrivals_ms[0] if self.arrivals_ms else None

    @property
    def per_token_ms(self) -> float | None:
        """Mean time from one token to the next: events may carry several."""
        if not self.arrivals_ms or self.figures.tokens < 2:
            return None
        return (self.arrivals_ms[-1] - self.arrivals_ms[0]) / (self.figures.tokens - 1)

    @property
    def gaps_ms(self) -> list[float]:
        """From one arrival to the next, as a reader sees them: events that came in one piece are one arrival."""
        moments = sorted(set(self.arrivals_ms))
        return [after - before for before, after in pairwise(moments)]


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: the requests that ended in its `seconds`, and CPU seconds of all processes by role."""

    seconds: float
    samples: tuple[Sample, ...]
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        return len(self.samples) / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return sum(sample.figures.tokens for sample in self.samples) / self.seconds

    def latencies_ms(self) -> list[float]:
        return [sample.latency_ms for sample in self.samples]

    def ttfts_ms(self) -> list[float]:
        return [sample.ttft_ms for sample in self.samples if sample.ttft_ms is not None]

    def gaps_ms(self) -> list[float]:
        return [gap for sample in self.samples for gap in sample.gaps_ms]

    def per_token_ms(self) -> list[float]:
        return [sample.per_token_ms for sample in self.samples if sample.per_token_ms is not None]

    def cpu_ms_per_request(self) -> dict[str, float]:
        return {role: 1000 * seconds / len(self.samples) for role, seconds in self.cpu_s.items()}


def percentile(samples: Sequence[float], percent: int) -> float:
    """Between 1 and 99, of at least one sample."""
    if len(samples) == 1:
        return samples[0]
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def mean_tokens_per_s(runs: Sequence[Run]) -> float:
    """All tokens of the runs in all of their time: the one rate that tables, plots and titles give."""
    return sum(run.tokens_per_s * run.seconds for run in runs) / sum(run.seconds for run in runs)
