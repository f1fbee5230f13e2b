"""Rate limits of projects: requests and tokens a minute, and requests in flight, all or nothing."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from limits.aio.storage import Storage
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string

from billing.caller import Caller
from billing.errors import LimitsUnavailable, RateLimited
from billing.window import WINDOW_S, LimitState, Window, retry_after_s

log = logging.getLogger(__name__)
NO_STATE = LimitState(requests=None, tokens=None)
# Until the minute after its own is over, a counter still has a share in the estimate.
_KEEP_S = 2 * WINDOW_S + 5


@dataclass(frozen=True, slots=True)
class _Charge:
    """An amount that is counted against one limit in the minute `minute`."""

    kind: str
    project_id: str
    limit: int
    amount: int
    minute: int
    elapsed_s: float

    def key(self, minute: int) -> str:
        return f"pith:{self.project_id}:{self.kind}:{minute}"


class Admission:
    """A request that was let in. Whoever holds it calls `done` once the request is over, in `finally`."""

    def __init__(self, headers_state: LimitState) -> None:
        self.headers_state = headers_state

    async def done(self, actual_tokens: int) -> None:
        """Ends the request. Tokens that were counted at admission and not used are given back."""


class RateLimits:
    """The limiter of one server. Counters live in `storage_uri`: `memory://`, or `redis://...` for several
    servers. Requests in flight are counted in this process alone."""

    def __init__(self, storage_uri: str = "memory://") -> None:
        self._storage = _open_storage(storage_uri)
        self._in_flight: Counter[str] = Counter()

    async def admit(self, caller: Caller, *, tokens_bound: int, now: datetime) -> Admission:
        """Counts the request, and `tokens_bound` tokens until it is known how many it used.

        Raises `RateLimited`, and then no limit has counted anything, or `LimitsUnavailable`.
        """
        if caller.limits.unlimited:
            return _UNLIMITED
        # The slot is taken before the first await, or two requests could see the same free one.
        self._take_slot(caller)
        try:
            charges = _charges(caller, tokens_bound, now)
            with _translated_errors():
                state = await self._count(charges)
        except BaseException:
            self._free_slot(caller.project_id)
            raise
        return _LimitedAdmission(self, caller.project_id, charges, state)

    def _take_slot(self, caller: Caller) -> None:
        most = caller.limits.max_in_flight
        if most is not None and self._in_flight[caller.project_id] >= most:
            raise RateLimited(which="in_flight", limit=most, retry_after_s=1, state=NO_STATE)
        self._in_flight[caller.project_id] += 1

    def _free_slot(self, project_id: str) -> None:
        self._in_flight[project_id] -= 1
        if self._in_flight[project_id] <= 0:
            del self._in_flight[project_id]

    async def _count(self, charges: list[_Charge]) -> LimitState:
        before = {charge.kind: await self._window(charge) for charge in charges}
        _refuse_what_does_not_fit(charges, before)
        after: dict[str, Window] = {}
        counted: list[_Charge] = []
        try:
            for charge in charges:
                current = await self._add(charge, charge.amount)
                counted.append(charge)
                seen = before[charge.kind]
                after[charge.kind] = Window(seen.limit, seen.previous, current, seen.elapsed_s)
            # Another server may have counted between our reading and our adding.
            _refuse_what_does_not_fit([], after)
        except BaseException:
            await asyncio.shield(self._take_back(counted))
            raise
        return _state(after)

    async def _window(self, charge: _Charge) -> Window:
        previous = await self._storage.get(charge.key(charge.minute - 1))
        current = await self._storage.get(charge.key(charge.minute))
        return Window(charge.limit, max(0, previous), max(0, current), charge.elapsed_s)

    async def _add(self, charge: _Charge, amount: int) -> int:
        return await self._storage.incr(charge.key(charge.minute), _KEEP_S, amount=amount)

    async def _take_back(self, counted: list[_Charge]) -> None:
        for charge in counted:
            await self._add(charge, -charge.amount)

    async def finish(self, project_id: str, charges: list[_Charge], actual_tokens: int) -> None:
        """For `Admission.done`."""
        self._free_slot(project_id)
        for charge in charges:
            if charge.kind == "tokens" and charge.amount != actual_tokens:
                try:
                    with _translated_errors():
                        # In the minute that counted it: elsewhere it would open room that was never taken.
                        await self._add(charge, actual_tokens - charge.amount)
                except LimitsUnavailable as error:
                    log.warning("unused tokens of project %s stay counted: %s", project_id, error)


class _LimitedAdmission(Admission):
    def __init__(
        self, limits: RateLimits, project_id: str, charges: list[_Charge], headers_state: LimitState
    ) -> None:
        super().__init__(headers_state)
        self._limits = limits
        self._project_id = project_id
        self._charges = charges
        self._is_done = False

    async def done(self, actual_tokens: int) -> None:
        if not self._is_done:
            self._is_done = True
            await self._limits.finish(self._project_id, self._charges, actual_tokens)


_UNLIMITED = Admission(NO_STATE)


def _charges(caller: Caller, tokens_bound: int, now: datetime) -> list[_Charge]:
    minute, elapsed_s = divmod(now.timestamp(), WINDOW_S)
    wanted = (
        ("requests", caller.limits.requests_per_minute, 1),
        ("tokens", caller.limits.tokens_per_minute, tokens_bound),
    )
    return [
        _Charge(kind, caller.project_id, limit, amount, int(minute), elapsed_s)
        for kind, limit, amount in wanted
        if limit is not None
    ]


def _refuse_what_does_not_fit(charges: list[_Charge], windows: dict[str, Window]) -> None:
    """Windows hold what is counted; `charges` is what is still to be added to them."""
    amounts = {charge.kind: charge.amount for charge in charges}
    short = [kind for kind, window in windows.items() if not window.admits(amounts.get(kind, 0))]
    if not short:
        return
    waits = {kind: retry_after_s(windows[kind], amounts.get(kind, 0)) for kind in short}
    longest = max(short, key=lambda kind: waits[kind])
    raise RateLimited(
        which="requests" if longest == "requests" else "tokens",
        limit=windows[longest].limit,
        retry_after_s=waits[longest],
        state=_state(windows),
    )


def _state(windows: dict[str, Window]) -> LimitState:
    requests, tokens = windows.get("requests"), windows.get("tokens")
    return LimitState(requests.state if requests else None, tokens.state if tokens else None)


def _open_storage(uri: str) -> Storage:
    try:
        storage = storage_from_string(
            uri if uri.startswith("async+") else f"async+{uri}", wrap_exceptions=True
        )
    except ConfigurationError as error:
        raise ValueError(f"the rate limits' storage {uri.partition('://')[0]!r} is not known") from error
    assert isinstance(storage, Storage)
    return storage


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise LimitsUnavailable(
            f"the rate limits' storage is unavailable: {error.storage_error!r}"
        ) from error
