"""Cost of an upload and of the lines of a batch's input: streamed to disk, and checked one by one."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.limits.row import Row, Work
from billing.accounts.accounts import Accounts
from billing.batches.batch import FileBounds
from billing.batches.file_store import FileFolder, FileStore
from billing.caller import Caller
from billing.store.database import open_database
from billing.store.migration import upgrade
from serve.batches.files import Files, FileTerms, FormReader
from serve.batches.validation import asked_of, chunks_of, raw_lines

LARGEST = 200 * 2**20
# As uvicorn hands them on.
PIECE = bytes(65_536)
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
TAIL = b'\r\n--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n'
FORM = "multipart/form-data; boundary=b"
ROOMY = FileBounds(files=1000, bytes=10**12)


def temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="pith-limits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def uploading(size: int) -> Work:
    folder = temporary()
    url = f"sqlite:///{folder / 'ledger.db'}"
    asyncio.run(upgrade(url))
    return lambda: asyncio.run(_upload(folder, url, size))


async def _upload(folder: Path, url: str, size: int) -> None:
    database = open_database(url)
    try:
        caller = await _caller(Accounts(database, pepper=b"a pepper for a benchmark"))
        files = Files(FileStore(database), FileFolder(folder / "files"), FileTerms(LARGEST, ROOMY, 60.0))
        await files.upload(caller, FormReader(FORM), _body(size), size)
    finally:
        await database.close()


async def _caller(accounts: Accounts) -> Caller:
    now = datetime.now(UTC)
    await accounts.create_workspace("w", now=now)
    await accounts.create_project("w", "p", now=now)
    _, token = await accounts.keys.create("w/p", "k", now=now)
    return await accounts.authenticate(token, now=now)


async def _body(size: int) -> AsyncIterator[bytes]:
    yield HEAD
    for _ in range(size // len(PIECE)):
        yield PIECE
    yield TAIL


def checking(line_bytes: int, size: int) -> Work:
    body = '{"messages":[{"role":"user","content":"' + "x" * line_bytes + '"}]}'
    line = f'{{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{body}}}\n'.encode()
    path = temporary() / "in.jsonl"
    with path.open("wb") as file:
        for _ in range(size // len(line)):
            file.write(line)
    return partial(_check, path)


def _check(path: Path) -> None:
    with path.open("rb") as file:
        for chunk in chunks_of(raw_lines(file, 8 * 2**20)):
            for raw in chunk:
                assert raw.content is not None
                asked_of(raw.content)


FILES: tuple[Row, ...] = (
    Row("files", "an upload to disk", "batches.max_file_mb", LARGEST, uploading),
    Row("files", "lines of 4 KiB, checked", "50,000 of them", LARGEST, partial(checking, 4000)),
    Row("files", "lines of 1 MiB, checked", "batches.max_file_mb", LARGEST, partial(checking, 2**20)),
)
