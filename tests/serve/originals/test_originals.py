"""Originals on real databases: every slice is the text's, for the same project, until its time is over."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
import signal
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import text as sql

from billing.caller import Caller
from billing.errors import LedgerUnavailable, UnknownOriginal
from billing.originals.original_store import GRACE_S, OriginalStore
from billing.store.database import Database, FakeOutageDatabase, PatientWork, Work, open_database
from serve.metrics.background import OriginalMetrics
from serve.metrics.counts import Counts
from serve.originals.originals import CHUNK_CHARACTERS, Original, Originals, Retention
from tests.billing.conftest import Books
from tests.serve.metrics.readings import counting

T = TypeVar("T")
PEPPER = b"p" * 32
ZLIB_HEAD = zlib.compress(b"", 1)[:2]
RETENTION = Retention(max_s=3600, most_bytes=16 * 2**20)
WORDS = [
    "warehouse",
    "invoice",
    "dredging",
    "parliament",
    "chandelier",
    "temperature-sensor",
    "4f1e9c0b-77aa",
]
WORDS += ["Überprüfung", "保証は二年です", "\U0001f600\U0001f680", "postgresql://ledger"]


def long_text(characters: int, seed: int = 1) -> str:
    rng = random.Random(seed)
    words: list[str] = []
    size = 0
    while size < characters:
        words.append(f"{rng.choice(WORDS)} {rng.randrange(10**9)}\n")
        size += len(words[-1])
    return "".join(words)[:characters]


@dataclass
class Shelf:
    """Originals with one caller."""

    books: Books
    originals: Originals
    registry: CollectorRegistry
    caller: Caller

    async def keep(self, text: str, id_: str = "cmp_one", *, retain_s: int = 600) -> int | None:
        kept = await self.originals.keep(self.caller, [Original(id_, text)], retain_s=retain_s)
        return kept.until.get(id_)

    async def later(self, seconds: float) -> None:
        await self.books.at(self.books.clock.moment + timedelta(seconds=seconds))

    def counted(self, outcome: str, what: str = "kept") -> float:
        return self.registry.get_sample_value(f"pith_originals_{what}_total", {"outcome": outcome}) or 0

    async def rows(self, table: str) -> int:
        statement = sql(f"SELECT count(*) FROM {table}")
        return await self.books.database.read(lambda c: int(c.execute(statement).scalar_one()))


def originals_on(database: Database, counts: Counts, **options: Any) -> Originals:
    settings = {"pepper": PEPPER, "retention": RETENTION, **options}
    return Originals(OriginalStore(database), metrics=OriginalMetrics(counts), **settings)


@pytest.fixture
async def shelf(books: Books) -> AsyncIterator[Shelf]:
    counts, registry = counting()
    yield Shelf(books, originals_on(books.database, counts), registry, await books.new_caller())


def with_database(shelf: Shelf, database: Database, **options: Any) -> Shelf:
    counts, registry = counting()
    return replace(shelf, originals=originals_on(database, counts, **options), registry=registry)


async def test_any_slice_is_the_texts_own(shelf: Shelf) -> None:
    rng = random.Random(7)
    lengths = [1, CHUNK_CHARACTERS - 1, CHUNK_CHARACTERS, CHUNK_CHARACTERS + 1, 20 * CHUNK_CHARACTERS + 5]
    for number, length in enumerate(lengths):
        text = long_text(length, seed=number)
        assert await shelf.keep(text, f"cmp_{number}")
        edges = [0, 1, length - 1, length, length + 9, CHUNK_CHARACTERS, CHUNK_CHARACTERS + 1]
        pairs = [(rng.choice(edges), rng.choice(edges)) for _ in range(20)]
        pairs += [(rng.randrange(length + 1), rng.randrange(length + 1)) for _ in range(20)]
        for start, end in pairs:
            found = await shelf.originals.read(shelf.caller, f"cmp_{number}", start, end)
            assert found.text == text[start : max(start, end)]
            assert found.length == length and text[found.start : found.end] == found.text
        assert (await shelf.originals.read(shelf.caller, f"cmp_{number}")).text == text


async def test_a_slice_of_a_long_original_reads_its_own_chunks_alone(shelf: Shelf) -> None:
    text = long_text(40 * CHUNK_CHARACTERS)
    await shelf.keep(text)
    await shelf.books.database.write(
        lambda c: c.execute(sql("DELETE FROM original_chunks WHERE number NOT IN (20, 21)"))
    )
    start = 21 * CHUNK_CHARACTERS - 5
    found = await shelf.originals.read(shelf.caller, "cmp_one", start, start + 10)
    assert found.text == text[start : start + 10]
    with pytest.raises(UnknownOriginal):
        await shelf.originals.read(shelf.caller, "cmp_one", start, start + 2 * CHUNK_CHARACTERS)


async def test_no_longer_than_the_configuration_allows(shelf: Shelf) -> None:
    assert await shelf.keep("the text", retain_s=10**9) == int(shelf.books.clock() + RETENTION.max_s)


@pytest.mark.parametrize("id_", ["", "a b", "ü", "x" * 65, "a\0", "../a", "a'--"])
async def test_what_is_no_id_is_unknown_and_cannot_be_kept(shelf: Shelf, id_: str) -> None:
    with pytest.raises(UnknownOriginal):
        await shelf.originals.read(shelf.caller, id_)
    with pytest.raises(ValueError, match="id"):
        await shelf.keep("the text", id_)


async def test_one_that_is_kept_again_is_not_written_again(shelf: Shelf) -> None:
    first = await shelf.keep("the text", retain_s=100)
    await shelf.later(50)
    assert await shelf.keep("the text", retain_s=100) == (first or 0) + 50
    assert await shelf.keep("the text", retain_s=1) == (first or 0) + 50
    assert await shelf.rows("original_chunks") == 1
    assert (shelf.counted("kept"), shelf.counted("extended")) == (1, 2)


async def test_several_are_kept_together_and_each_id_once(shelf: Shelf) -> None:
    wanted = [Original("a", "one"), Original("b", "two"), Original("a", "one")]
    kept = await shelf.originals.keep(shelf.caller, wanted, retain_s=60)
    assert kept.until.keys() == {"a", "b"}
    assert [(await shelf.originals.read(shelf.caller, id_)).text for id_ in "ab"] == ["one", "two"]


async def test_one_that_two_keep_at_once_is_stored_once_and_both_are_told(shelf: Shelf) -> None:
    text = long_text(60 * CHUNK_CHARACTERS)
    untils = await asyncio.gather(*(shelf.keep(text) for _ in range(4)))
    assert all(untils) and await shelf.rows("originals") == 1
    assert (await shelf.originals.read(shelf.caller, "cmp_one")).text == text


async def test_a_project_without_room_is_told_that_nothing_is_kept(shelf: Shelf) -> None:
    small = with_database(shelf, shelf.books.database, retention=Retention(3600, 5100))
    assert await small.keep("x" * 3000, "a")
    assert await small.keep("x" * 3000, "b") is None
    assert await small.keep("x" * 10**6, "c") is None
    assert await small.keep("x", "d")
    assert await small.keep("x" * 3000, "a")
    assert (small.counted("full"), small.counted("kept"), small.counted("extended")) == (2, 2, 1)


async def test_a_database_that_is_away_is_no_error_and_is_left_alone_for_a_while(shelf: Shelf) -> None:
    outage = FakeOutageDatabase(shelf.books.database)
    outage.is_down = True
    away = with_database(shelf, outage)
    assert await away.keep("the text") is None
    outage.is_down = False
    assert await away.keep("the text") is None
    assert away.counted("failed") == 2
    away.originals._again_at = 0
    assert await away.keep("the text")
    outage.is_down = True
    with pytest.raises(LedgerUnavailable):
        await away.originals.read(shelf.caller, "cmp_one")


class FakeHangingDatabase(FakeOutageDatabase):
    """A fake whose patient writes never end once `left` of them are done."""

    left = 0

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        if isinstance(work, PatientWork):
            self.left -= 1
            if self.left < 0:
                await asyncio.Event().wait()
        return await super().write(work, durable=durable)


@pytest.mark.parametrize("left", [0, 1, 2, 5])
async def test_a_database_that_hangs_costs_a_request_a_bounded_time(shelf: Shelf, left: int) -> None:
    hanging = FakeHangingDatabase(shelf.books.database)
    hanging.left = left
    slow = with_database(shelf, hanging, keep_s=0.2)
    began = asyncio.get_running_loop().time()
    assert await slow.keep(long_text(60 * CHUNK_CHARACTERS)) is None
    assert asyncio.get_running_loop().time() - began < 2
    with pytest.raises(UnknownOriginal):
        await slow.originals.read(shelf.caller, "cmp_one")
    assert slow.counted("failed") == 1


async def test_one_whose_client_left_while_it_was_written_is_given_up_at_once(shelf: Shelf) -> None:
    hanging = FakeHangingDatabase(shelf.books.database)
    hanging.left = 3
    left = with_database(shelf, hanging)
    keeping = asyncio.create_task(left.keep(long_text(60 * CHUNK_CHARACTERS)))
    while hanging.left >= 0:  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.01)
    keeping.cancel()
    hanging.left = 10**6
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert await shelf.rows("original_chunks") > 0
    deleted: list[str] = []
    async with asyncio.timeout(60):
        while "unfinished" not in deleted:
            await OriginalStore(shelf.books.database).delete_expired(
                lambda reason, number: deleted.extend([reason] * number)
            )
    assert (await shelf.rows("originals"), await shelf.rows("original_chunks")) == (0, 0)


async def test_nothing_of_a_text_is_in_the_database_or_the_log(
    shelf: Shelf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = long_text(5 * CHUNK_CHARACTERS)
    await shelf.keep(text)
    await shelf.keep("zebra " * 1000, "cmp_two")
    outage = FakeOutageDatabase(shelf.books.database)
    outage.is_down = True
    await with_database(shelf, outage).keep(text, "cmp_three")
    await with_database(shelf, shelf.books.database, retention=Retention(60, 10)).keep(text, "cmp_four")
    pieces = [word.encode() for word in (*WORDS, "zebra")] + [
        line.encode() for line in text.splitlines()[:99]
    ]
    raw = await raw_bytes(shelf, tmp_path)
    assert shelf.caller.project_id.encode() in raw
    assert not [piece for piece in pieces if piece in raw]
    assert not [piece for piece in pieces if piece in inflated(raw)]
    assert not [piece for piece in pieces if piece in caplog.text.encode()]


def inflated(raw: bytes) -> bytes:
    """What any place in it would be to zlib: a text that is only compressed is not encrypted."""
    found = []
    at = raw.find(ZLIB_HEAD)
    while at >= 0:
        with suppress(zlib.error):
            found.append(zlib.decompressobj().decompress(raw[at : at + 70_000]))
        at = raw.find(ZLIB_HEAD, at + 1)
    return b"".join(found)


async def raw_bytes(shelf: Shelf, folder: Path) -> bytes:
    """The database's files with its write-ahead log; of PostgreSQL, whose files are another user's, what it has in
    its tables and in its log."""
    if shelf.books.url.startswith("sqlite"):
        return await asyncio.to_thread(
            lambda: b"".join(file.read_bytes() for file in folder.glob("ledger.db*"))
        )
    read = sql(
        "SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class WHERE relkind IN ('r', 't', 'i') "
        "AND relname LIKE '%original%' OR oid IN (SELECT reltoastrelid FROM pg_class WHERE relname LIKE '%original%') "
        "UNION ALL SELECT pg_read_binary_file('pg_wal/' || name) FROM pg_ls_waldir()"
    )
    database = open_database(shelf.books.url)
    try:
        async with asyncio.timeout(60):
            await database.read(lambda c: c.execute(sql("CHECKPOINT")))
            return b"".join(await database.read(lambda c: list(c.execute(read).scalars())))
    finally:
        await database.close()


async def test_without_the_pepper_and_from_a_database_that_was_changed_nothing_is_read(shelf: Shelf) -> None:
    await shelf.keep("the text")
    stranger = with_database(shelf, shelf.books.database, pepper=b"q" * 32)
    with pytest.raises(UnknownOriginal):
        await stranger.originals.read(shelf.caller, "cmp_one")
    other = await shelf.books.new_caller()
    await shelf.originals.keep(other, [Original("cmp_one", "another text")], retain_s=60)
    # Who can write to the database gives a project another one's chunks.
    await shelf.books.database.write(
        lambda c: c.execute(
            sql(
                "UPDATE original_chunks SET ciphertext = "
                "(SELECT ciphertext FROM original_chunks ORDER BY generation LIMIT 1)"
            )
        )
    )
    refused = 0
    for caller in (shelf.caller, other):
        try:
            await shelf.originals.read(caller, "cmp_one")
        except UnknownOriginal:
            refused += 1
    assert refused == 1


def die_after(steps: int, url: str, caller: Caller) -> None:
    """Begins to keep a long text, and is killed between two of its writes."""
    asyncio.run(_die_after(steps, url, caller))


async def _die_after(steps: int, url: str, caller: Caller) -> None:
    database: Any = open_database(url, clock=lambda: 1_795_176_000.0)
    write: Callable[..., Any] = database.write
    left = steps

    async def counted(work: Any, *, durable: bool = True) -> Any:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return await write(work, durable=durable)

    database.write = counted
    originals = originals_on(database, Counts())
    await originals.keep(caller, [Original("cmp_one", long_text(60 * CHUNK_CHARACTERS))], retain_s=600)


@pytest.mark.parametrize("steps", [2, 4])
async def test_a_process_that_dies_in_the_middle_leaves_nothing_to_read_and_is_cleaned_up(
    shelf: Shelf, steps: int
) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=die_after, args=(steps, shelf.books.url, shelf.caller)
    )
    process.start()
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -signal.SIGKILL
    assert await shelf.rows("original_chunks") > 0
    with pytest.raises(UnknownOriginal):
        await shelf.originals.read(shelf.caller, "cmp_one")
    await shelf.later(GRACE_S)
    deleted: list[str] = []
    await OriginalStore(shelf.books.database).delete_expired(
        lambda reason, number: deleted.extend([reason] * number)
    )
    assert deleted == ["unfinished"]
    assert (await shelf.rows("originals"), await shelf.rows("original_chunks")) == (0, 0)
    assert await shelf.keep("the text")
