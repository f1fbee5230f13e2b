"""Which requests are traced. No caller decides that: neither by a flag, beyond a rate, nor by a trace id."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from time import monotonic

from serve.tracing.traceparent import RemoteParent


class Sampling:
    """`ratio` of all requests, drawn by chance; and of those that their callers trace, `callers_per_s` a second."""

    def __init__(
        self,
        ratio: float,
        callers_per_s: float,
        *,
        draw: Callable[[], float] = random,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ratio = ratio
        self._per_s = callers_per_s
        self._draw = draw
        self._clock = clock
        # A second's worth may come at once, and one where that is less.
        self._most = max(1.0, callers_per_s)
        self._left = self._most if callers_per_s else 0.0
        self._filled_at = clock()

    def takes(self, parent: RemoteParent | None) -> bool:
        if self._ratio and self._draw() < self._ratio:
            return True
        return parent is not None and parent.is_sampled and self._has_left()

    def _has_left(self) -> bool:
        if not self._per_s:
            return False
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._filled_at) * self._per_s)
        self._filled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
