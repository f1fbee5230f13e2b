"""Files and batches for tests, as a project makes them."""

from __future__ import annotations

import secrets

from billing.batches.batch import FileBounds, Home, NewBatch, NewLine, Purpose, StoredFile
from billing.batches.batch_store import BatchStore
from billing.batches.file_store import FileStore
from billing.caller import Caller
from tests.billing.conftest import Books

ROOMY = FileBounds(files=100, bytes=10**9)
DAY_S = 86_400.0


HERE = Home("5" * 32, "ours")


def store_of(books: Books, home: Home = HERE) -> BatchStore:
    async def at_home() -> Home:
        return home

    return BatchStore(books.database, lease_s=30, home=at_home)


def new_file(caller: Caller, size: int = 100, purpose: Purpose = "batch") -> StoredFile:
    return StoredFile(
        f"file-{secrets.token_hex(8)}", caller.project_id, "in.jsonl", purpose, size, 0, 0, HERE.store
    )


async def uploaded(books: Books, caller: Caller, size: int = 100) -> StoredFile:
    files, file = FileStore(books.database), new_file(caller, size)
    await files.begin(file, ROOMY)
    return await files.finish(file.id, size=size, lifetime_s=DAY_S)


def new_batch(caller: Caller, file: StoredFile, **fields: object) -> NewBatch:
    given = {
        "id": f"batch_{secrets.token_hex(8)}",
        "project_id": caller.project_id,
        "key_id": caller.key_id,
        "input_file_id": file.id,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": None,
        "pricing_version": 1,
        "price_ppm": 500_000,
        "window_s": DAY_S,
        **fields,
    }
    return NewBatch(**given)  # type: ignore[arg-type]


def some_lines(count: int) -> list[NewLine]:
    return [NewLine(number, f"line-{number}", number * 10, 9) for number in range(1, count + 1)]


async def running(books: Books, store: BatchStore, caller: Caller, lines: int, **fields: object) -> NewBatch:
    """A batch whose lines may be claimed."""
    new = new_batch(caller, await uploaded(books, caller), **fields)
    await store.make(new)
    job = await store.take_job(["validating"])
    assert job is not None
    assert await store.add_lines(job, some_lines(lines)) == []
    await store.begin(job)
    return new
