"""Retained originals on each database: what is there, until when, how much of it, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from billing.errors import LedgerUnavailable, OriginalsFull, RowRefused, UnknownAccount
from billing.originals.original_sql import (
    CHUNKS_AT_ONCE,
    OVERHEAD_BYTES,
    Head,
    Retained,
    delete_some,
    of_project,
)
from billing.originals.original_store import GRACE_S, OriginalStore
from billing.store.database import FakeOutageDatabase

if TYPE_CHECKING:
    from tests.billing.conftest import Books

MOST = 10**6
ORPHANS = "SELECT count(*) FROM original_chunks WHERE generation NOT IN (SELECT generation FROM originals)"
WRONG_TOTALS = (
    "SELECT count(*) FROM original_totals t WHERE t.bytes <> "
    "(SELECT coalesce(sum(o.bytes), 0) FROM originals o WHERE o.project_id = t.project_id)"
)


@dataclass
class Kept:
    """A store with one project."""

    books: Books
    store: OriginalStore
    project: str
    deleted: Counter[str] = field(default_factory=Counter)

    def head(self, id_: str = "one", *, chunks: int = 1, size: int = 100, project: str | None = None) -> Head:
        return Head(project or self.project, id_, f"{id_} {project or ''}"[:32], 10, chunks, size)

    async def keep(self, head: Head, *, retain_s: int = 600, most_bytes: int = MOST) -> float | None:
        """All of it, one chunk a step."""
        first, *rest = [(number, b"%d" % number) for number in range(head.chunks)]
        step = await self.store.begin(head, [first], retain_s=retain_s, most_bytes=most_bytes)
        assert step.begun == "begun"
        for chunk in rest:
            await self.store.add(head, [chunk])
        return step.until or await self.store.finish(head, retain_s=retain_s)

    async def later(self, seconds: float) -> None:
        await self.books.at(self.books.clock.moment + timedelta(seconds=seconds))

    async def delete_expired(self) -> Counter[str]:
        """How many went, and why."""
        self.deleted = Counter()
        await self.store.delete_expired(self._count)
        return +self.deleted

    def _count(self, reason: str, number: int) -> None:
        self.deleted[reason] += number

    async def count(self, table: str) -> int:
        return await self._number(f"SELECT count(*) FROM {table}")

    async def is_consistent(self) -> bool:
        return (await self._number(ORPHANS), await self._number(WRONG_TOTALS)) == (0, 0)

    async def _number(self, statement: str) -> int:
        return await self.books.database.read(lambda c: int(c.execute(text(statement)).scalar_one()))


@pytest.fixture
async def kept(books: Books) -> AsyncIterator[Kept]:
    caller = await books.new_caller()
    found = Kept(books, OriginalStore(books.database), caller.project_id)
    yield found
    assert await found.is_consistent()


async def test_what_was_written_is_there_until_its_time_is_over(kept: Kept) -> None:
    head = kept.head(chunks=3)
    now = kept.books.clock()
    assert await kept.keep(head) == now + 600
    assert await kept.store.find(kept.project, "one") == head
    assert await kept.store.chunks(head, 0, 2) == [b"0", b"1", b"2"]
    assert await kept.store.chunks(head, 1, 1) == [b"1"]
    await kept.later(599)
    assert await kept.store.find(kept.project, "one") == head
    await kept.later(1)
    assert await kept.store.find(kept.project, "one") is None


async def test_nothing_is_there_before_it_is_complete(kept: Kept) -> None:
    head = kept.head(chunks=2)
    await kept.store.begin(head, [(0, b"0")], retain_s=600, most_bytes=MOST)
    assert await kept.store.find(kept.project, "one") is None
    assert await kept.store.extend(kept.project, ["one"], 600) == {}
    await kept.store.add(head, [(1, b"1")])
    assert await kept.store.find(kept.project, "one") is None
    await kept.store.finish(head, retain_s=600)
    assert await kept.store.find(kept.project, "one") == head


async def test_one_that_is_kept_again_is_kept_longer_and_never_shorter(kept: Kept) -> None:
    await kept.keep(kept.head("a"), retain_s=100)
    now = kept.books.clock()
    assert await kept.store.extend(kept.project, ["a", "unknown"], 300) == {"a": now + 300}
    assert await kept.store.extend(kept.project, ["a"], 10) == {"a": now + 300}
    await kept.later(300)
    assert await kept.store.extend(kept.project, ["a"], 10) == {}


async def test_a_second_writer_waits_for_the_first_and_replaces_what_expired(kept: Kept) -> None:
    head, other = kept.head(chunks=2), replace(kept.head(chunks=2), generation="other")
    await kept.store.begin(head, [(0, b"0")], retain_s=600, most_bytes=MOST)
    step = await kept.store.begin(other, [(0, b"0")], retain_s=600, most_bytes=MOST)
    assert step.begun == "busy"
    await kept.store.abandon(head)
    step = await kept.store.begin(other, [(0, b"0")], retain_s=600, most_bytes=MOST)
    assert step.begun == "expired"
    await kept.store.delete_rest(kept.project, "one")
    assert await kept.keep(other) is not None
    with pytest.raises(RowRefused):
        await kept.store.add(head, [(1, b"1")])
    assert await kept.store.finish(head, retain_s=600) is None
    assert await kept.store.find(kept.project, "one") == other


async def test_a_writer_that_died_leaves_nothing_to_read_and_is_cleaned_up(kept: Kept) -> None:
    head = kept.head(chunks=3)
    await kept.store.begin(head, [(0, b"0")], retain_s=10_000, most_bytes=MOST)
    await kept.store.add(head, [(1, b"1")])
    await kept.later(GRACE_S - 1)
    assert await kept.delete_expired() == {}
    await kept.later(1)
    assert await kept.delete_expired() == {"unfinished": 1}
    assert (await kept.count("originals"), await kept.count("original_chunks")) == (0, 0)
    with pytest.raises(RowRefused):
        await kept.store.add(head, [(2, b"2")])


async def test_a_writer_that_is_too_slow_does_not_finish(kept: Kept) -> None:
    head = kept.head(chunks=2)
    await kept.store.begin(head, [(0, b"0")], retain_s=600, most_bytes=MOST)
    await kept.later(GRACE_S)
    await kept.store.add(head, [(1, b"1")])
    assert await kept.store.finish(head, retain_s=600) is None
    assert await kept.delete_expired() == {"unfinished": 1}


async def test_a_project_has_so_many_bytes_and_no_more(kept: Kept) -> None:
    most = 3 * (100 + OVERHEAD_BYTES)
    for id_ in "abc":
        assert await kept.keep(kept.head(id_), most_bytes=most)
    for too_much in (kept.head("d"), kept.head("e", size=10**9)):
        with pytest.raises(OriginalsFull):
            await kept.keep(too_much, most_bytes=most)
    assert await kept.count("originals") == 3
    other = await kept.books.new_caller()
    assert await kept.keep(kept.head("d", project=other.project_id), most_bytes=most)
    await kept.later(600)
    await kept.delete_expired()
    assert await kept.keep(kept.head("d"), most_bytes=most)


async def test_writers_at_once_do_not_pass_the_bound_together(kept: Kept) -> None:
    most = 3 * (100 + OVERHEAD_BYTES)
    heads = [kept.head(f"id{number}") for number in range(10)]
    results = await asyncio.gather(
        *(kept.keep(head, most_bytes=most) for head in heads), return_exceptions=True
    )
    assert sum(isinstance(result, OriginalsFull) for result in results) == 7
    assert await kept.count("originals") == 3


async def test_of_two_projects_each_has_its_own_of_the_same_id(kept: Kept) -> None:
    other = (await kept.books.new_caller()).project_id
    mine, theirs = kept.head(), replace(kept.head(project=other), characters=99)
    await kept.keep(mine)
    assert await kept.store.find(other, "one") is None
    await kept.keep(theirs)
    assert await kept.store.find(kept.project, "one") == mine
    assert await kept.store.find(other, "one") == theirs


async def test_what_expired_is_deleted_and_nothing_else(kept: Kept) -> None:
    for number in range(150):
        await kept.keep(kept.head(f"short{number}"), retain_s=10)
    await kept.keep(kept.head("large", chunks=3 * CHUNKS_AT_ONCE + 1), retain_s=10)
    await kept.keep(kept.head("long"), retain_s=1000)
    await kept.later(10)
    assert await kept.delete_expired() == {"expired": 151}
    assert (await kept.count("originals"), await kept.count("original_chunks")) == (1, 1)
    assert await kept.store.find(kept.project, "long")


async def test_a_large_one_is_deleted_in_steps_and_cannot_be_read_after_the_first(kept: Kept) -> None:
    await kept.keep(kept.head(chunks=2 * CHUNKS_AT_ONCE))
    counts = []
    for _ in range(3):
        await kept.books.database.write(lambda c: delete_some(c, of_project(kept.project), waits=True))
        assert await kept.store.find(kept.project, "one") is None
        counts.append(await kept.count("original_chunks"))
    assert counts == [CHUNKS_AT_ONCE, 0, 0] and await kept.count("originals") == 0


@pytest.mark.parametrize("kind", ["project", "workspace"])
async def test_what_a_revoked_project_had_is_deleted(kept: Kept, kind: str) -> None:
    other = await kept.books.new_caller()
    await kept.keep(kept.head())
    await kept.keep(kept.head(project=other.project_id))
    accounts, now = kept.books.accounts, kept.books.now
    if kind == "project":
        await accounts.revoke_project(other.project_id, now=now)
    else:
        await accounts.revoke_workspace(other.workspace_id, now=now)
    assert await kept.delete_expired() == {"revoked": 1}
    assert await kept.store.find(other.project_id, "one") is None
    assert await kept.store.find(kept.project, "one")


async def test_an_operator_deletes_all_of_a_project_at_once_and_the_audit_log_says_so(kept: Kept) -> None:
    other = await kept.books.new_caller()
    await kept.keep(kept.head("a"))
    await kept.keep(kept.head("b", chunks=CHUNKS_AT_ONCE + 1))
    await kept.store.begin(kept.head("c", chunks=2), [(0, b"0")], retain_s=9, most_bytes=MOST)
    await kept.keep(kept.head(project=other.project_id))
    had = await kept.store.forget(kept.project, actor="cli:test", now=kept.books.now)
    assert had == Retained(3, 3 * (100 + OVERHEAD_BYTES))
    assert await kept.count("originals") == 1
    assert await kept.store.find(other.project_id, "one")
    rows = await kept.books.database.read(
        lambda c: c.execute(text("SELECT * FROM audit_log WHERE action = 'project.forget'")).all()
    )
    assert [(row.actor, row.subject, row.details) for row in rows] == [
        ("cli:test", kept.project, '{"originals":3,"bytes":3372}')
    ]
    with pytest.raises(UnknownAccount):
        await kept.store.forget("nobody/nothing", actor="cli:test", now=kept.books.now)


async def test_two_servers_that_clean_up_at_once_delete_each_original_once(kept: Kept) -> None:
    for number in range(100):
        await kept.keep(kept.head(f"id{number}"), retain_s=1)
    await kept.later(1)
    await asyncio.gather(*(kept.store.delete_expired(kept._count) for _ in range(3)))
    assert kept.deleted["expired"] == 100 and await kept.count("originals") == 0


async def test_while_the_database_is_away_every_method_says_so(kept: Kept) -> None:
    outage = FakeOutageDatabase(kept.books.database)
    store = OriginalStore(outage)
    outage.is_down = True
    for call in (
        store.extend(kept.project, ["a"], 1),
        store.begin(kept.head(), [(0, b"0")], retain_s=1, most_bytes=MOST),
        store.find(kept.project, "a"),
        store.delete_expired(kept._count),
        store.forget(kept.project, actor="a", now=kept.books.now),
    ):
        with pytest.raises(LedgerUnavailable):
            await call
