"""`billing.accounts.key_cache`: what was read before a change does not outlive it, and memory has a bound."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from billing.accounts.key_cache import KeyCache, KeyCacheTimes
from billing.accounts.key_sql import StoredKey
from billing.caller import NO_LIMITS, Caller

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def stored(*, active: bool) -> StoredKey:
    return StoredKey("digest", active, Caller("w", "p", "k", metered=True, limits=NO_LIMITS))


async def test_a_read_that_began_before_a_revocation_is_not_kept() -> None:
    answers = [stored(active=True), stored(active=False)]
    may_answer = asyncio.Event()

    async def fetch(key_id: str) -> StoredKey:
        answer = answers.pop(0)
        await may_answer.wait()
        return answer

    cache = KeyCache(fetch, KeyCacheTimes())
    early = asyncio.create_task(cache.get("k", NOW))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.clear()
    late = asyncio.create_task(cache.get("k", NOW))
    await asyncio.sleep(0)
    may_answer.set()
    assert (await early) == stored(active=True)
    assert (await late) == stored(active=False)
    assert (await cache.get("k", NOW)) == stored(active=False)


async def test_an_answer_is_as_old_as_the_beginning_of_its_read() -> None:
    reads = 0
    may_answer = asyncio.Event()

    async def fetch(key_id: str) -> StoredKey:
        nonlocal reads
        reads += 1
        await may_answer.wait()
        return stored(active=True)

    cache = KeyCache(fetch, KeyCacheTimes(ttl_s=5))
    slow = asyncio.create_task(cache.get("k", NOW))
    await asyncio.sleep(0)
    may_answer.set()
    await slow
    await cache.get("k", NOW + timedelta(seconds=4.9))
    assert reads == 1
    await cache.get("k", NOW + timedelta(seconds=5))
    assert reads == 2


async def test_a_clock_that_was_set_back_does_not_keep_an_answer() -> None:
    reads = 0

    async def fetch(key_id: str) -> StoredKey:
        nonlocal reads
        reads += 1
        return stored(active=True)

    cache = KeyCache(fetch, KeyCacheTimes())
    await cache.get("k", NOW)
    await cache.get("k", NOW - timedelta(hours=1))
    assert reads == 2


async def test_the_cache_is_bounded() -> None:
    reads: list[str] = []

    async def fetch(key_id: str) -> None:
        reads.append(key_id)

    cache = KeyCache(fetch, KeyCacheTimes(), max_entries=3)
    for key_id in ("a", "b", "c", "d", "d", "a"):
        await cache.get(key_id, NOW)
    assert reads == ["a", "b", "c", "d", "a"]
