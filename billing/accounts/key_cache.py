"""Remembers for a few seconds what the database said about a key, so that authentication costs no query and a
revocation still takes effect within a bound that can be published."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from cachetools import LRUCache

from billing.accounts.key_sql import StoredKey, note_uses
from billing.errors import LedgerUnavailable
from billing.store.database import Database, PatientWork

# During an outage of the ledger: how long known keys are trusted before one of them is looked up again.
PAUSE = timedelta(seconds=1)
Fetch = Callable[[str], Awaitable[StoredKey | None]]


@dataclass(frozen=True, slots=True)
class KeyCacheTimes:
    """`ttl_s` bounds how long a revoked key still works. While the ledger is down, a key that worked before
    goes on working for `outage_s` after it was last read."""

    ttl_s: float = 5.0
    negative_ttl_s: float = 1.0
    outage_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Entry:
    key: StoredKey | None
    read_at: datetime

    def key_at(self, now: datetime) -> StoredKey | None:
        """The key as it is by then: one that has expired since it was read has ended, with or without the ledger."""
        key = self.key
        if key is None or key.expires_in_s is None or not key.active:
            return key
        has_expired = (now - self.read_at).total_seconds() >= key.expires_in_s
        return replace(key, active=False) if has_expired else key


class KeyCache:
    """A bounded cache by key id with one database read at a time for each key."""

    def __init__(self, fetch: Fetch, times: KeyCacheTimes, *, max_entries: int = 10_000) -> None:
        self._fetch = fetch
        self._times = times
        self._entries: LRUCache[str, _Entry] = LRUCache(max_entries)
        self._reads: dict[str, asyncio.Task[_Entry]] = {}
        self._generation = 0
        self._away_until: datetime | None = None

    async def get(self, key_id: str, now: datetime) -> StoredKey | None:
        """Raises `LedgerUnavailable` when the key must be read and cannot be."""
        entry = self._entries.get(key_id)
        if entry is not None and self._is_fresh(entry, now):
            return entry.key_at(now)
        if entry is None or not self._survives_an_outage(entry, now):
            return (await self._read_once(key_id, now)).key
        if self._away_until is not None:
            if now < self._away_until:
                return entry.key_at(now)
            # One request asks; the others need not wait with it where the ledger hangs.
            self._away_until = now + PAUSE
        try:
            return (await self._read_once(key_id, now)).key
        except LedgerUnavailable:
            self._away_until = now + PAUSE
            return entry.key_at(now)

    def clear(self) -> None:
        """Forgets everything, including reads in progress: they may have begun before the change."""
        self._generation += 1
        self._entries.clear()
        self._reads.clear()

    async def _read_once(self, key_id: str, now: datetime) -> _Entry:
        reading = self._reads.get(key_id)
        if reading is None:
            reading = asyncio.create_task(self._read(key_id, now))
            self._reads[key_id] = reading
            reading.add_done_callback(lambda done: self._forget_read(key_id, done))
        # Shielded: the first caller's disconnect must not fail the others who wait for the same key.
        return await asyncio.shield(reading)

    def _forget_read(self, key_id: str, done: asyncio.Task[_Entry]) -> None:
        if self._reads.get(key_id) is done:
            del self._reads[key_id]

    async def _read(self, key_id: str, now: datetime) -> _Entry:
        generation = self._generation
        # Dated at the start of the read: a key that is revoked meanwhile must not work for longer than the TTL.
        entry = _Entry(await self._fetch(key_id), now)
        self._away_until = None
        if generation == self._generation:
            self._entries[key_id] = entry
        return entry

    def _is_fresh(self, entry: _Entry, now: datetime) -> bool:
        works = entry.key is not None and entry.key.active
        ttl_s = self._times.ttl_s if works else self._times.negative_ttl_s
        return timedelta(0) <= now - entry.read_at < timedelta(seconds=ttl_s)

    def _survives_an_outage(self, entry: _Entry, now: datetime) -> bool:
        works = entry.key is not None and entry.key.active
        return works and now - entry.read_at < timedelta(seconds=self._times.outage_s)


# In one transaction.
AT_ONCE = 500
# Of those used most recently; a use beyond them is not noted.
MAX_KEYS = 10_000


class KeyUses:
    """The keys that were seen. What a process has seen and not written is lost when it dies: a use shows late, or the
    next one does."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def add(self, key_id: str) -> None:
        if key_id in self._seen or len(self._seen) < MAX_KEYS:
            self._seen[key_id] = None

    async def note(self, database: Database) -> None:
        """Write down what was seen since. Raises `LedgerUnavailable`, and then it is kept for the next time."""
        while self._seen:
            some = list(self._seen)[:AT_ONCE]
            for key_id in some:
                del self._seen[key_id]
            try:
                await database.write(PatientWork(partial(note_uses, key_ids=some)), durable=False)
            except BaseException:
                for key_id in some:
                    self.add(key_id)
                raise
