"""Rate limits: requests and tokens by minute, hour and day, and requests in flight, of a key, a person, tags, a project
and a workspace, all or nothing."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary

from billing.caller import EACH_PERSON, NO_LIMITS, Caller, LimitState, WindowState
from billing.errors import LimitPeriod, LimitsUnavailable, RateLimited
from billing.rate_limits.counters import (
    KINDS,
    WINDOW_S,
    Answer,
    Ask,
    Charge,
    CountedLimit,
    Counters,
    MemoryCounters,
    Window,
    retry_after_s,
)


def counted_for(caller: Caller) -> dict[str, Caller]:
    """By its scope, the narrowest first, each that has limits and that the caller's requests count for: the same caller
    as one that the counters know by it."""
    project, of_label = caller.project_id, caller.label_limits
    found = {"key": (f"key:{caller.limits_key_id}", caller.key_limits)}
    if caller.person is not None:
        found["person"] = f"{project}:{caller.person}", of_label.get(EACH_PERSON, NO_LIMITS)
    for tag in caller.tags:
        found[f"tag {tag}"] = f"{project}:tag:{tag}", of_label.get(tag, NO_LIMITS)
    found["project"] = project, caller.limits
    found["workspace"] = caller.workspace_id, caller.workspace_limits
    return {
        scope: replace(caller, project_id=subject, limits=limits)
        for scope, (subject, limits) in found.items()
        if not limits.unlimited
    }


log = logging.getLogger(__name__)
NO_STATE = LimitState(requests=None, tokens=None)
SHARED_SCHEMES = ("redis", "rediss", "unix")
# After the store failed: how long this server counts on its own before it asks the store again.
PAUSE_S = 1.0
_MINUTE: tuple[LimitPeriod, ...] = ("minute",)
# Counted in the ledger, shortest first.
_LONGER: tuple[LimitPeriod, ...] = ("hour", "day")

CountTokens = Callable[[], Awaitable[int]]
OutagePolicy = Literal["refuse", "allow"]


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a store has counted, with the windows as they are by that."""

    counters: Counters
    ask: Ask
    state: LimitState

    async def done(self, actual_tokens: int) -> None:
        await self._give_back(
            {
                charge.kind: charge.amount - actual_tokens
                for charge in self.ask.charges
                if charge.kind == "tokens" and charge.amount != actual_tokens
            }
        )

    async def undo(self) -> None:
        """As if the request had never been counted."""
        await self._give_back({charge.kind: charge.amount for charge in self.ask.charges})

    async def _give_back(self, unused: Mapping[CountedLimit, int]) -> None:
        try:
            await self.counters.give_back(self.ask, unused)
        except LimitsUnavailable as error:
            log.warning("unused tokens of project %s are still counted: %s", self.ask.project_id, error)


class Admission:
    """A request that was let in. Call `done` once the request is over, in `finally`."""

    def __init__(self, minute: Sequence[_Taken], longer: Sequence[_Taken]) -> None:
        # Clients are told of limits by hour and day where there are none a minute.
        told, others = (_tightest(taken.state for taken in some) for some in (minute, longer))
        self.headers_state = LimitState(told.requests or others.requests, told.tokens or others.tokens)
        self._taken = [*minute, *longer]

    async def done(self, actual_tokens: int) -> None:
        """Ends the request. Tokens that were counted at admission and not used are given back."""
        taken, self._taken = self._taken, []
        async with AsyncExitStack() as all_of_them:
            for one in taken:
                all_of_them.push_async_callback(one.done, actual_tokens)


class RateLimits:
    """The limiter of one server. Its counts are its own unless `counters` are of a store that several share; those by
    hour and day are in `longer`.

    While a store is down, `on_outage` decides: requests with a limit are refused, or each server counts on its own, and
    nothing by hour and day.
    """

    def __init__(
        self,
        counters: Counters | None = None,
        *,
        longer: Counters | None = None,
        on_outage: OutagePolicy = "refuse",
    ) -> None:
        self._stores: dict[tuple[LimitPeriod, ...], Counters | None] = {
            _MINUTE: counters or MemoryCounters(),
            _LONGER: longer,
        }
        self._own = MemoryCounters() if on_outage == "allow" else None
        self._ask_again_at = {_MINUTE: 0.0, _LONGER: 0.0}
        self._counting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def admit(
        self,
        caller: Caller,
        *,
        tokens_bound: int,
        tokens_least: int | None = None,
        count_tokens: CountTokens | None = None,
        now: datetime,
    ) -> Admission:
        """Counts the request, and `tokens_bound` tokens until it is known how many it used.

        If only the token limit lacks room for the bound, but has room for `tokens_least`, the tokens are counted first.
        Of a caller in the background, limits a minute and in flight count nothing.
        Raises `RateLimited`, and then nothing was counted, `LimitsUnavailable`, or what `count_tokens` raises.
        """
        count = count_tokens and partial(self._counted, caller.project_id, count_tokens)
        asked = [
            _Asked(one, tokens_bound, tokens_least or tokens_bound, count, now, scope)
            for scope, one in counted_for(caller).items()
        ]
        found: dict[tuple[LimitPeriod, ...], list[_Taken]] = {_MINUTE: [], _LONGER: []}
        async with AsyncExitStack() as refused:
            for periods, taken in found.items():
                if caller.background and periods is _MINUTE:
                    continue
                for one in asked:
                    if counted := await self._counted_by(replace(one, periods=periods)):
                        refused.push_async_callback(counted.undo)
                        taken.append(counted)
            refused.pop_all()
        return Admission(found[_MINUTE], found[_LONGER])

    async def _counted_by(self, asked: _Asked) -> _Taken | None:
        """None: it has no such limit, or nothing counts them now."""
        ask = asked.ask(asked.tokens_bound)
        if not ask.charges and ask.max_in_flight is None:
            return None
        store = self._stores[asked.periods]
        assert store is not None, "nothing counts limits by hour and day here"
        if self._own is None:
            return await self._take(store, asked, ask)
        if time.monotonic() >= self._ask_again_at[asked.periods]:
            try:
                return await self._take(store, asked, ask)
            except LimitsUnavailable as error:
                log.warning("this server counts on its own for now: %s", error)
                self._ask_again_at[asked.periods] = time.monotonic() + PAUSE_S
        return None if asked.periods is _LONGER else await self._take(self._own, asked, ask)

    async def state(self, caller: Caller, *, now: datetime) -> dict[str, WindowState]:
        """The rest of the limits of one of `counted_for`, by their names; nothing is counted. Raises
        `LimitsUnavailable`."""
        found = {}
        for periods, store in self._stores.items():
            asked = _Asked(caller, 0, 0, None, now, periods=periods).ask(0)
            if asked.charges and store is not None:
                # More than the limit is never granted, so this counts nothing and takes no place in flight.
                charges = tuple(replace(charge, amount=charge.limit + 1) for charge in asked.charges)
                answer = await store.take(replace(asked, charges=charges, max_in_flight=None))
                for charge, window in zip(charges, answer.windows, strict=True):
                    found[f"{charge.kind}_per_{charge.per}"] = window.state
        return found

    async def _take(self, counters: Counters, asked: _Asked, ask: Ask) -> _Taken:
        answer = await counters.take(ask)
        if answer.granted:
            return _Taken(counters, ask, _state_after(ask, answer))
        least = asked.ask(asked.tokens_least)
        if asked.count is None or _refuses(least, answer):
            raise _refusal(least, answer, asked.scope)
        loop = asyncio.get_running_loop()
        began = loop.time()
        exact = await asked.count()
        ask = replace(asked, now=asked.now + timedelta(seconds=loop.time() - began)).ask(exact)
        answer = await counters.take(ask)
        if not answer.granted:
            raise _refusal(ask, answer, asked.scope)
        return _Taken(counters, ask, _state_after(ask, answer))

    async def _counted(self, project_id: str, count: CountTokens) -> int:
        """One count at a time for each project, so that a flood of requests about to be refused costs little."""
        lock = self._counting.get(project_id)
        if lock is None:
            lock = self._counting[project_id] = asyncio.Lock()
        async with lock:
            return await count()

    async def close(self) -> None:
        for store in self._stores.values():
            if store is not None:
                await store.close()


def open_counters(uri: str) -> Counters:
    """By URI: `memory://`, or a Redis as `redis://`, `rediss://` or `unix://`. Connects on first use.

    Raises `ValueError` for another scheme, and repeats nothing else of the URI: it may hold a password.
    """
    scheme = uri.partition("://")[0]
    if scheme == "memory":
        return MemoryCounters()
    if scheme not in SHARED_SCHEMES:
        raise ValueError(f"unknown rate-limit storage {scheme!r}")
    # Imported here, so that a server that counts in memory never loads the client.
    from billing.rate_limits.redis_counters import RedisCounters

    return RedisCounters(uri)


@dataclass(frozen=True, slots=True)
class _Asked:
    caller: Caller
    tokens_bound: int
    tokens_least: int
    count: CountTokens | None
    now: datetime
    scope: str = ""
    periods: tuple[LimitPeriod, ...] = _MINUTE

    def ask(self, tokens: int) -> Ask:
        """With so many tokens, what is asked of the store of these periods."""
        limits, amounts = self.caller.limits, {"requests": 1, "tokens": tokens}
        minute, elapsed_s = divmod(self.now.timestamp(), WINDOW_S)
        return Ask(
            ticket=secrets.token_hex(8),
            project_id=self.caller.project_id,
            minute=int(minute),
            elapsed_s=elapsed_s,
            charges=tuple(
                Charge(kind, limit, amounts[kind], per)
                for kind in KINDS
                for per in self.periods
                if (limit := getattr(limits, f"{kind}_per_{per}")) is not None
            ),
            max_in_flight=limits.max_in_flight if self.periods is _MINUTE else None,
            workspace_id=self.caller.workspace_id,
        )


def _state_after(ask: Ask, answer: Answer) -> LimitState:
    """Of windows that have counted what was asked."""
    pairs = zip(ask.charges, answer.windows, strict=True)
    return _state(
        (charge, replace(window, current=window.current + charge.amount)) for charge, window in pairs
    )


def _refuses(ask: Ask, answer: Answer) -> bool:
    """Whether the counts leave no room for `ask`, which may be smaller than what they were asked for."""
    pairs = zip(ask.charges, answer.windows, strict=True)
    return answer.in_flight_full or not all(window.admits(charge.amount) for charge, window in pairs)


def _refusal(ask: Ask, answer: Answer, scope: str) -> RateLimited:
    """Names the limit that takes longest to have room, with the counts as they are without this request."""
    asked = list(zip(ask.charges, answer.windows, strict=True))
    full = [pair for pair in asked if not pair[1].admits(pair[0].amount)]
    # Of windows of one kind, clients are told of the one that they have to wait for.
    full.sort(key=lambda pair: -retry_after_s(pair[1], pair[0].amount))
    state = _state([*full, *asked])
    waits = [retry_after_s(window, charge.amount) for charge, window in full]
    if answer.in_flight_full or not full:
        wait_s = max([1, *waits])
        most = ask.max_in_flight or 0
        return RateLimited(which="in_flight", limit=most, retry_after_s=wait_s, state=state, scope=scope)
    charge, window = full[0]
    return RateLimited(
        which=charge.kind,
        limit=window.limit,
        amount=charge.amount,
        retry_after_s=waits[0],
        state=state,
        per=charge.per,
        scope=scope,
    )


def _tightest(states: Iterable[LimitState]) -> LimitState:
    """The window of each kind that leaves least."""
    found = list(states)

    def least(windows: Iterable[WindowState | None]) -> WindowState | None:
        return min(filter(None, windows), key=lambda window: window.remaining, default=None)

    return LimitState(least(one.requests for one in found), least(one.tokens for one in found))


def _state(windows: Iterable[tuple[Charge, Window]]) -> LimitState:
    """The first of each kind."""
    found: dict[CountedLimit, WindowState] = {}
    for charge, window in windows:
        found.setdefault(charge.kind, window.state)
    return LimitState(found.get("requests"), found.get("tokens"))
