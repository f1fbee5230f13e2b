"""A fake outage for tests: a real database that can be told to go away, before or after it commits."""

from typing import TypeVar

from billing.errors import LedgerUnavailable
from billing.store.database import Database, Work

T = TypeVar("T")


class FakeOutageDatabase(Database):
    """Passes everything to `inner` until `is_down`; with `loses_answers`, a write is committed and then fails,
    as when the connection breaks between the commit and its answer."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.is_down = False
        self.loses_answers = False
        self.reads = 0

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        if self.is_down:
            raise LedgerUnavailable("the fake outage is on")
        result = await self._inner.write(work, durable=durable)
        if self.loses_answers:
            raise LedgerUnavailable("the fake outage lost the answer")
        return result

    async def read(self, work: Work[T]) -> T:
        self.reads += 1
        if self.is_down:
            raise LedgerUnavailable("the fake outage is on")
        return await self._inner.read(work)

    async def close(self) -> None:
        await self._inner.close()
