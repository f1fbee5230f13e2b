"""`Idempotency-Key`: a request that makes something and is sent again is answered with what it made.

Answers are kept in this process, for a day and no more than `MOST_KEPT`, since some hold a secret that is kept nowhere
else. What must be made once whatever happens, money, has its key in the ledger (`billing.adjustments`).
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header

from billing.errors import BillingError

MOST_KEPT = 1000
KEPT_S = 86_400.0
MAX_CHARS = 128
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_CHARS,
        description="The same key with the same body is answered with what the first made.",
    ),
]


class IdempotencyKeyReused(BillingError):
    """The key came before, with another request."""

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key was used for another request")


@dataclass(frozen=True, slots=True)
class _Kept:
    request: bytes
    since_s: float
    answer: asyncio.Task[dict[str, Any]]


class Made:
    """What was made for each key: the last `MOST_KEPT`, of the last `KEPT_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def once(
        self, key: str | None, request: str, make: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """What `make` returns, or returned for this key before. One that failed may be tried again. Raises
        `IdempotencyKeyReused`, and what `make` raises."""
        if key is None:
            return await make()
        digest = hashlib.sha256(request.encode()).digest()
        self._forget_old()
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.popitem(last=False)
            kept = self._kept[key] = _Kept(digest, self._clock(), asyncio.ensure_future(_run(make)))
        elif kept.request != digest:
            raise IdempotencyKeyReused
        try:
            # Shielded: who sent it first may leave before the answer.
            return await asyncio.shield(kept.answer)
        except Exception:
            self._kept.pop(key, None)
            raise

    def _forget_old(self) -> None:
        until_s = self._clock() - KEPT_S
        while self._kept and next(iter(self._kept.values())).since_s <= until_s:
            self._kept.popitem(last=False)


async def _run(make: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    return await make()
