"""Rate limits of projects: requests and tokens a minute, and requests in flight, all or nothing."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal
from weakref import WeakValueDictionary

from billing.caller import Caller, LimitState, WindowState
from billing.errors import LimitsUnavailable, RateLimited
from billing.rate_limits.counters import (
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


class KeyRateLimited(RateLimited):
    """A limit of the key is used up. No limit has counted the request."""

    scope: ClassVar[str] = "key"

    def __init__(self, refused: RateLimited) -> None:
        Exception.__init__(self, str(refused).replace("project rate limit", "API key rate limit", 1))
        self.which = refused.which
        self.limit = refused.limit
        self.retry_after_s = refused.retry_after_s
        self.state = refused.state


def counted_by_key(caller: Caller) -> Caller:
    """The same caller as one that the counters know by its key."""
    return replace(caller, project_id=f"key:{caller.limits_key_id}", limits=caller.key_limits)


def tighter(one: LimitState, other: LimitState) -> LimitState:
    """The one of each limit that leaves less."""
    return LimitState(_less(one.requests, other.requests), _less(one.tokens, other.tokens))


def _less(one: WindowState | None, other: WindowState | None) -> WindowState | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda window: window.remaining)


log = logging.getLogger(__name__)
NO_STATE = LimitState(requests=None, tokens=None)
SHARED_SCHEMES = ("redis", "rediss", "unix")
# After the store failed: how long this server counts on its own before it asks the store again.
PAUSE_S = 1.0

CountTokens = Callable[[], Awaitable[int]]
OutagePolicy = Literal["refuse", "allow"]


class Admission:
    """A request that was let in. Call `done` once the request is over, in `finally`."""

    def __init__(self, headers_state: LimitState) -> None:
        self.headers_state = headers_state

    async def done(self, actual_tokens: int) -> None:
        """Ends the request. Tokens that were counted at admission and not used are given back."""

    async def undo(self) -> None:
        """As if the request had never been counted."""


class RateLimits:
    """The limiter of one server. Its counts are its own unless `counters` are of a store that several share.

    While that store is down, `on_outage` decides: requests with a limit are refused, or each server counts on its own.
    """

    def __init__(self, counters: Counters | None = None, *, on_outage: OutagePolicy = "refuse") -> None:
        self._counters = counters or MemoryCounters()
        self._own = MemoryCounters() if on_outage == "allow" else None
        self._ask_again_at = 0.0
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
        Raises `RateLimited`, and then nothing was counted, `LimitsUnavailable`, or what `count_tokens` raises.
        """
        asked = _Asked(caller, tokens_bound, tokens_least or tokens_bound, count_tokens, now)
        if caller.key_limits.unlimited:
            return await self._counted_by(asked)
        try:
            of_key = await self._counted_by(replace(asked, caller=counted_by_key(caller)))
        except RateLimited as refused:
            raise KeyRateLimited(refused) from None
        try:
            of_project = await self._counted_by(asked)
        except BaseException:
            await of_key.undo()
            raise
        return _BothAdmissions(of_key, of_project)

    async def _counted_by(self, asked: _Asked) -> Admission:
        if asked.caller.limits.unlimited:
            return _UNLIMITED
        if self._own is None:
            return await self._admitted(self._counters, asked)
        if time.monotonic() >= self._ask_again_at:
            try:
                return await self._admitted(self._counters, asked)
            except LimitsUnavailable as error:
                log.warning("this server counts on its own for now: %s", error)
                self._ask_again_at = time.monotonic() + PAUSE_S
        return await self._admitted(self._own, asked)

    async def state(self, caller: Caller, *, now: datetime) -> LimitState:
        """The rest of the caller's limits; nothing is counted. Raises `LimitsUnavailable`."""
        asked = _ask(caller, 0, now)
        if not asked.charges:
            return NO_STATE
        # More than the limit is never granted, so this counts nothing and takes no place in flight.
        charges = tuple(replace(charge, amount=charge.limit + 1) for charge in asked.charges)
        answer = await self._counters.take(replace(asked, charges=charges, max_in_flight=None))
        windows = zip(charges, answer.windows, strict=True)
        return _state({charge.kind: window for charge, window in windows})

    async def _admitted(self, counters: Counters, asked: _Asked) -> Admission:
        ask = _ask(asked.caller, asked.tokens_bound, asked.now)
        answer = await counters.take(ask)
        if answer.granted:
            return _admission(counters, ask, answer)
        least = _ask(asked.caller, asked.tokens_least, asked.now)
        if asked.count is None or _refuses(least, answer):
            raise _refusal(least, answer)
        loop = asyncio.get_running_loop()
        began = loop.time()
        exact = await self._counted(asked.caller.project_id, asked.count)
        ask = _ask(asked.caller, exact, asked.now + timedelta(seconds=loop.time() - began))
        answer = await counters.take(ask)
        if not answer.granted:
            raise _refusal(ask, answer)
        return _admission(counters, ask, answer)

    async def _counted(self, project_id: str, count: CountTokens) -> int:
        """One count at a time for each project, so that a flood of requests about to be refused costs little."""
        lock = self._counting.get(project_id)
        if lock is None:
            lock = self._counting[project_id] = asyncio.Lock()
        async with lock:
            return await count()

    async def close(self) -> None:
        await self._counters.close()


class _BothAdmissions(Admission):
    """By the key's limits and by the project's."""

    def __init__(self, of_key: Admission, of_project: Admission) -> None:
        super().__init__(tighter(of_key.headers_state, of_project.headers_state))
        self._admissions = of_key, of_project

    async def done(self, actual_tokens: int) -> None:
        of_key, of_project = self._admissions
        try:
            await of_key.done(actual_tokens)
        finally:
            await of_project.done(actual_tokens)


class _LimitedAdmission(Admission):
    def __init__(self, counters: Counters, ask: Ask, headers_state: LimitState) -> None:
        super().__init__(headers_state)
        self._counters = counters
        self._ask = ask
        self._is_done = False

    async def done(self, actual_tokens: int) -> None:
        if self._is_done:
            return
        self._is_done = True
        await self._give_back(
            {
                charge.kind: charge.amount - actual_tokens
                for charge in self._ask.charges
                if charge.kind == "tokens" and charge.amount != actual_tokens
            }
        )

    async def undo(self) -> None:
        if not self._is_done:
            self._is_done = True
            await self._give_back({charge.kind: charge.amount for charge in self._ask.charges})

    async def _give_back(self, unused: Mapping[CountedLimit, int]) -> None:
        try:
            await self._counters.give_back(self._ask, unused)
        except LimitsUnavailable as error:
            log.warning("unused tokens of project %s are still counted: %s", self._ask.project_id, error)


_UNLIMITED = Admission(NO_STATE)


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


def _ask(caller: Caller, tokens_bound: int, now: datetime) -> Ask:
    minute, elapsed_s = divmod(now.timestamp(), WINDOW_S)
    charges = []
    if caller.limits.requests_per_minute is not None:
        charges.append(Charge("requests", caller.limits.requests_per_minute, 1))
    if caller.limits.tokens_per_minute is not None:
        charges.append(Charge("tokens", caller.limits.tokens_per_minute, tokens_bound))
    return Ask(
        ticket=secrets.token_hex(8),
        project_id=caller.project_id,
        minute=int(minute),
        elapsed_s=elapsed_s,
        charges=tuple(charges),
        max_in_flight=caller.limits.max_in_flight,
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    caller: Caller
    tokens_bound: int
    tokens_least: int
    count: CountTokens | None
    now: datetime


def _admission(counters: Counters, ask: Ask, answer: Answer) -> Admission:
    after = {
        charge.kind: Window(window.limit, window.previous, window.current + charge.amount, window.elapsed_s)
        for charge, window in zip(ask.charges, answer.windows, strict=True)
    }
    return _LimitedAdmission(counters, ask, _state(after))


def _refuses(ask: Ask, answer: Answer) -> bool:
    """Whether the counts leave no room for `ask`, which may be smaller than what they were asked for."""
    pairs = zip(ask.charges, answer.windows, strict=True)
    return answer.in_flight_full or not all(window.admits(charge.amount) for charge, window in pairs)


def _refusal(ask: Ask, answer: Answer) -> RateLimited:
    """Names the limit that takes longest to have room, with the counts as they are without this request."""
    asked = {
        charge.kind: (window, charge.amount)
        for charge, window in zip(ask.charges, answer.windows, strict=True)
    }
    state = _state({kind: window for kind, (window, _) in asked.items()})
    waits = {
        kind: retry_after_s(window, amount)
        for kind, (window, amount) in asked.items()
        if not window.admits(amount)
    }
    if answer.in_flight_full or not waits:
        wait_s = max([1, *waits.values()])
        return RateLimited(which="in_flight", limit=ask.max_in_flight or 0, retry_after_s=wait_s, state=state)
    longest = max(waits, key=lambda kind: waits[kind])
    window, amount = asked[longest]
    return RateLimited(
        which=longest, limit=window.limit, amount=amount, retry_after_s=waits[longest], state=state
    )


def _state(windows: Mapping[CountedLimit, Window]) -> LimitState:
    requests, tokens = windows.get("requests"), windows.get("tokens")
    return LimitState(requests.state if requests else None, tokens.state if tokens else None)
