"""Sums of one side's sessions, next to those of the same sessions whole."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from benchmarks.savings.interval import Estimate, bootstrap
from benchmarks.savings.replay import WHOLE, Session
from benchmarks.savings.reply import NANO, Reply

# Of one session: its replies whole, and those of the side.
Pair = tuple[Sequence[Reply], Sequence[Reply]]


def bill(replies: Sequence[Reply]) -> int:
    """Chat and compression together, in nano-USD."""
    return sum(reply.nano_usd for reply in replies)


def prompt_tokens(replies: Sequence[Reply]) -> int:
    return sum(reply.prompt_tokens for reply in replies)


def hit_rate(replies: Sequence[Reply]) -> float:
    return sum(reply.cached_tokens for reply in replies) / prompt_tokens(replies)


def _flat(pairs: Sequence[Pair], side: int) -> list[Reply]:
    return [reply for pair in pairs for reply in pair[side]]


def share_of_totals(figure: Callable[[Sequence[Reply]], float]) -> Callable[[Sequence[Pair]], float]:
    """Not a number where the sessions whole have none of it."""

    def share(pairs: Sequence[Pair]) -> float:
        whole = figure(_flat(pairs, 0))
        return figure(_flat(pairs, 1)) / whole if whole else math.nan

    return share


def median_share(pairs: Sequence[Pair]) -> float:
    """Of input tokens, session by session."""
    return statistics.median(prompt_tokens(ours) / prompt_tokens(whole) for whole, ours in pairs)


def ttft_ms(replies: Sequence[Reply]) -> float:
    return statistics.median(reply.ttft_ms for reply in replies)


def latency_ms(replies: Sequence[Reply]) -> float:
    return statistics.median(reply.latency_ms for reply in replies)


@dataclass(frozen=True, slots=True)
class Row:
    """A side next to the same sessions whole. Estimates are shares of the sessions whole; `dearer` counts sessions
    whose bill is higher; the rest has both sides, whole first."""

    sessions: int
    requests: int
    dearer: int
    bill: Estimate
    median_tokens: Estimate
    total_tokens: Estimate
    hit_rate: Estimate
    ttft: Estimate
    latency: Estimate
    usd: tuple[float, float]
    compression_usd: float
    hit_rates: tuple[float, float]
    ttft_ms: tuple[float, float]
    latency_ms: tuple[float, float]


def compare(sessions: Sequence[Session], side: str) -> Row:
    pairs: list[list[Pair]] = [
        [(session.replies[WHOLE], session.replies[side]) for session in group]
        for _, group in groupby(sorted(sessions, key=lambda each: each.group), key=lambda each: each.group)
    ]
    flat = [pair for group in pairs for pair in group]
    whole, ours = _flat(flat, 0), _flat(flat, 1)

    def share(figure: Callable[[Sequence[Reply]], float]) -> Estimate:
        return bootstrap(pairs, share_of_totals(figure))

    return Row(
        sessions=len(flat),
        requests=len(ours),
        dearer=sum(bill(ours) > bill(whole) for whole, ours in flat),
        bill=share(bill),
        median_tokens=bootstrap(pairs, median_share),
        total_tokens=share(prompt_tokens),
        hit_rate=share(hit_rate),
        ttft=share(ttft_ms),
        latency=share(latency_ms),
        usd=(bill(whole) / NANO, bill(ours) / NANO),
        compression_usd=sum(reply.compression_nano_usd for reply in ours) / NANO,
        hit_rates=(hit_rate(whole), hit_rate(ours)),
        ttft_ms=(ttft_ms(whole), ttft_ms(ours)),
        latency_ms=(latency_ms(whole), latency_ms(ours)),
    )
