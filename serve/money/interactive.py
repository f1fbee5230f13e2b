"""How busy this process is with requests that somebody waits for, so that others can make room for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from billing.caller import Caller


@dataclass(slots=True)
class Interactive:
    """To be used in one event loop."""

    under_way: int = field(default=0, init=False)
    _last: float = field(default=float("-inf"), init=False)

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        """Of a request in the background nothing is counted."""
        if caller.background:
            yield
            return
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self._last = asyncio.get_running_loop().time()

    def quiet_s(self) -> float:
        """Seconds since the last one ended; 0 while one is under way."""
        return 0.0 if self.under_way else asyncio.get_running_loop().time() - self._last
