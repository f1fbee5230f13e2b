"""CPU time of each stage of a compression: looked at every millisecond, so that nothing is slowed by it."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERVAL_S = 0.001
# The innermost of these that is running says what is done.
STAGES = {
    "segment": "segmentation",
    "TokenizerCounter.count_many": "counting tokens",
    "prepare": "words and meaning",
    "extract": "features",
    "Network.logits": "networks",
    "view": "second look",
    "relations": "second look",
    "read_salience": "salience",
    "diversify": "diversity",
    "Pipeline._select": "choosing and assembling",
    "Pipeline._estimate": "calibration",
    "check": "flags",
}
OTHER = "else"


@contextmanager
def sampled() -> Iterator[Counter[str]]:
    """Samples by stage of what this thread does meanwhile; only in the main thread."""
    found: Counter[str] = Counter()

    def look(_number: int, frame: FrameType | None) -> None:
        found[stage_of(frame)] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def stage_of(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_qualname
        if name in STAGES and frame.f_globals.get("__name__", "").startswith("compression."):
            return STAGES[name]
        frame = frame.f_back
    return OTHER


def shares(found: Counter[str]) -> str:
    """A table, the largest first."""
    total = max(1, found.total())
    rows = [f"| {stage} | {100 * count / total:.0f} |" for stage, count in found.most_common()]
    return "\n".join(["| stage | share of CPU time (%) |", "|---|---|", *rows])
