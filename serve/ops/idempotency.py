"""`Idempotency-Key`: a request that makes something and is sent again is answered with what it made.

Answers are kept in this process, for a day and no more than `MOST_KEPT`, since some hold a secret that is kept nowhere
else. That something was begun is noted in the ledger: after a restart, or at another server, it is refused and not made
twice. Money has its keys in the ledger with what they made (`billing.adjustments`).
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Header

from billing.accounts import audit_log
from billing.accounts.audit_log import BegunRequest
from billing.errors import BillingError, LedgerUnavailable, RowRefused
from billing.store.database import Database
from serve.operator.operator import Operator

MOST_KEPT = 1000
KEPT_S = audit_log.KEPT_S
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
Make = Callable[[], Awaitable[dict[str, Any]]]


class IdempotencyKeyReused(BillingError):
    """The key came before, with another request."""

    def __init__(self) -> None:
        super().__init__("this Idempotency-Key was used for another request")


class AnswerNotKept(BillingError):
    """The same request was begun before, where its answer is not kept: by another server, or before a restart."""

    def __init__(self) -> None:
        super().__init__(
            "this request was begun before, by another server or before a restart, and its answer is not here: see in "
            "the lists what it made; a new Idempotency-Key makes another"
        )


@dataclass(frozen=True, slots=True)
class _Kept:
    request: BegunRequest
    since_s: float
    answer: asyncio.Task[dict[str, Any]]


class KeptAnswers:
    """Answers by administrator and key: the last `MOST_KEPT`, of the last `KEPT_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    async def once(self, operator: Operator, key: str | None, request: str, make: Make) -> dict[str, Any]:
        """The answer of `make`, now or for this administrator and key before. One that was refused may be tried
        again. Raises `IdempotencyKeyReused`, `AnswerNotKept`, and what `make` raises."""
        if key is None:
            return await make()
        begun = BegunRequest(operator.actor, key, hashlib.sha256(request.encode()).hexdigest())
        self._forget_old()
        kept = self._kept.get((begun.actor, key))
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.popitem(last=False)
            answer = asyncio.ensure_future(_begun(operator.database, begun, make))
            kept = self._kept[begun.actor, key] = _Kept(begun, self._clock(), answer)
        elif kept.request != begun:
            raise IdempotencyKeyReused
        try:
            # Shielded: who sent it first may leave before the answer.
            return await asyncio.shield(kept.answer)
        except Exception:
            self._kept.pop((begun.actor, key), None)
            raise

    def _forget_old(self) -> None:
        until_s = self._clock() - KEPT_S
        while self._kept and next(iter(self._kept.values())).since_s <= until_s:
            self._kept.popitem(last=False)


async def _begun(database: Database, request: BegunRequest, make: Make) -> dict[str, Any]:
    """Made once: noted first, and forgotten where the ledger refused it. Where nobody knows what became of it, it stays
    noted."""
    try:
        before = await database.write(partial(audit_log.begin, request=request))
    except RowRefused:
        # Another server has just noted it.
        before = request.digest
    if before is not None:
        raise AnswerNotKept if before == request.digest else IdempotencyKeyReused
    try:
        return await make()
    except LedgerUnavailable:
        raise
    except (BillingError, ValueError):
        await database.write(partial(audit_log.forget, request=request))
        raise
