"""Counts and requests in flight that several servers share in Redis, with one script for each request.

A script is Redis's transaction, so what is let in is exactly the limit however many servers ask at once.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.maint_notifications import MaintNotificationsConfig

from billing.errors import LimitsUnavailable
from billing.rate_limits.counters import (
    ROUNDING,
    WINDOW_S,
    Answer,
    Ask,
    CountedLimit,
    RemoteCounters,
    Window,
)

T = TypeVar("T")
log = logging.getLogger(__name__)
# Until the minute after its own is over, a counter still has a share in the estimate.
_KEEP_S = 2 * WINDOW_S + 5
_CONNECTIONS = 64

# KEYS: the slots, then the counters of this minute and of the last for each charge. ARGV: the ticket, the lease in
# seconds, the most in flight (0 for no limit), the counters' lifetime, the last minute's share, the rounding, and a
# limit and an amount for each charge. Leases are dated by Redis's clock, which all servers share.
_TAKE = """
local time = redis.call('TIME')
local now, most = time[1] + time[2] / 1e6, tonumber(ARGV[3])
local reply = {1, 0}
if most > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  if redis.call('ZCARD', KEYS[1]) >= most then reply = {0, 1} end
end
for i = 2, #KEYS, 2 do
  local current = tonumber(redis.call('GET', KEYS[i]) or 0)
  local previous = tonumber(redis.call('GET', KEYS[i + 1]) or 0)
  reply[#reply + 1], reply[#reply + 2] = previous, current
  if previous * ARGV[5] + current + ARGV[i + 6] > ARGV[i + 5] + ARGV[6] then reply[1] = 0 end
end
if reply[1] == 0 then return reply end
for i = 2, #KEYS, 2 do
  redis.call('INCRBY', KEYS[i], ARGV[i + 6])
  redis.call('EXPIRE', KEYS[i], ARGV[4])
end
if most > 0 then
  redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] * 1000))
end
return reply
"""
# KEYS: the slots, then counters. ARGV: the ticket, then what each counter gets back. A counter that has expired gets
# nothing: it would begin below zero.
_GIVE_BACK = """
redis.call('ZREM', KEYS[1], ARGV[1])
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('DECRBY', KEYS[i], ARGV[i]) end
end
"""
# KEYS: the slots. ARGV: the lease in seconds, then tickets. XX: a request that ended meanwhile takes no slot again.
_RENEW = """
local time = redis.call('TIME')
local until_s = time[1] + time[2] / 1e6 + ARGV[1]
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', until_s, ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[1] * 1000))
"""


class RedisCounters(RemoteCounters):
    """A slot in flight is a lease, renewed while its request runs: the slots of a dead server free themselves."""

    def __init__(self, url: str, *, timeout_s: float = 2.0, lease_s: float = 30.0) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        self._lease_s = lease_s
        self._client = Redis.from_pool(_pool(url, timeout_s))
        self._take = self._client.register_script(_TAKE)
        self._give_back = self._client.register_script(_GIVE_BACK)
        self._renew = self._client.register_script(_RENEW)
        self._leases: dict[str, str] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await super().close()
        await self._client.aclose()

    async def _taken(self, ask: Ask) -> Answer:
        keys = [_slots(ask.project_id)]
        values: list[str | int | float] = [ask.ticket, self._lease_s, ask.max_in_flight or 0, _KEEP_S]
        values += [repr(1 - ask.elapsed_s / WINDOW_S), ROUNDING]
        for charge in ask.charges:
            keys += [_counter(ask, charge.kind, ask.minute), _counter(ask, charge.kind, ask.minute - 1)]
            values += [charge.limit, charge.amount]
        granted, full, *counts = await self._ask_redis(self._take(keys=keys, args=values))
        if granted and ask.max_in_flight is not None:
            self._keep_lease(ask)
        pairs = zip(ask.charges, counts[::2], counts[1::2], strict=True)
        windows = tuple(
            Window(charge.limit, max(0, previous), max(0, current), ask.elapsed_s)
            for charge, previous, current in pairs
        )
        return Answer(bool(granted), bool(full), windows)

    async def _given_back(self, ask: Ask, unused: Mapping[CountedLimit, int]) -> None:
        self._leases.pop(ask.ticket, None)
        keys = [_slots(ask.project_id), *(_counter(ask, kind, ask.minute) for kind in unused)]
        await self._ask_redis(self._give_back(keys=keys, args=[ask.ticket, *unused.values()]))

    def _keep_lease(self, ask: Ask) -> None:
        self._leases[ask.ticket] = ask.project_id
        # Only `close` cancels it: a task that is cancelled but has not ended would look like one that renews.
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew_leases())

    async def _renew_leases(self) -> None:
        """Ends when it finds none."""
        while self._leases:
            await asyncio.sleep(self._lease_s / 3)
            tickets = defaultdict(list)
            for ticket, project_id in self._leases.items():
                tickets[project_id].append(ticket)
            try:
                for project_id, held in tickets.items():
                    await self._ask_redis(self._renew(keys=[_slots(project_id)], args=[self._lease_s, *held]))
            except LimitsUnavailable as error:
                log.warning("%d leases of requests in flight were not renewed: %s", len(self._leases), error)
            except Exception:
                # Whatever it is, the next look may succeed, and without it every slot would be lost.
                log.exception("%d leases of requests in flight were not renewed", len(self._leases))

    async def _ask_redis(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except (RedisError, OSError) as error:
            # A timeout is an OSError. What the driver says names addresses: it is the log's, not the caller's.
            log.warning("Redis did not answer: %s: %s", type(error).__name__, error)
            raise LimitsUnavailable("the rate-limit storage is unavailable") from error


def _pool(url: str, timeout_s: float) -> BlockingConnectionPool:
    return BlockingConnectionPool.from_url(
        url,
        max_connections=_CONNECTIONS,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        # One retry, for a connection that Redis's restart has cut; a call that timed out may have counted already.
        retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        # A new connection asks its first question at once. What the driver would ask for before it, a Redis that is
        # slow to answer would take longer for than a call may last.
        protocol=2,
        driver_info=None,
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )


def _slots(project_id: str) -> str:
    # The braces keep a project's keys on one node of a Redis cluster.
    return f"pith:{{{project_id}}}:in_flight"


def _counter(ask: Ask, kind: str, minute: int) -> str:
    return f"pith:{{{ask.project_id}}}:{kind}:{minute}"
