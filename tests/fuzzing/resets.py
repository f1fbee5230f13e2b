"""Connections that end at a random byte: of a request that is sent, or of its reply. A server in a process of its own,
with its ledger on SQLite and a fake engine, must settle all of it, leak nothing, log no error, and serve others."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from billing.books.books import Books
from billing.caller import ProjectLimits
from billing.ledger.spool import Spool
from billing.store.database import Database, open_database
from tests.faults.audit import SETTLED_S, settled
from tests.faults.world import Machines, Setup, World, new_world

AT_ONCE = 8
# As many as run at once, and one that behaves: whatever of a slot is not given back shows as a 429.
IN_FLIGHT = AT_ONCE + 1
TIMEOUT_S = 60.0
# After so many cuts a client asks that stays to the end.
BETWEEN = 10
TOKENS = 12
CHAT = [{"role": "user", "content": "r0 Say something."}]
CONTEXT = "The pump ships with a filter.\n\nThe warranty ends after two years.\n\n" * 20
COMPRESSED = {"query": "When does the warranty end?", "input": CONTEXT}
UPLOAD = "/openai/v1/files"
RESET = struct.pack("ii", 1, 0)
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n%s\r\n--b--\r\n'
)
LINE = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"messages": CHAT, "max_tokens": 2},
}


@dataclass(frozen=True)
class Asked:
    """A request as bytes. `whole` is what it is answered with where nobody leaves."""

    name: str
    data: bytes
    whole: int = 200


@dataclass
class Cuts:
    """What was cut, and what became of the others."""

    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    served: int = 0
    troubles: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.sent.total() + self.received.total()


def requests(key: str, file_id: str) -> list[Asked]:
    """Of every dialect, as JSON, as events, as lines, as a form."""

    def post(path: str, body: Any, **headers: str) -> Asked:
        named = f"{path}{' events' if isinstance(body, dict) and body.get('stream') else ''}"
        return Asked(named, as_bytes("POST", path, key, json.dumps(body).encode(), **headers))

    def get(path: str) -> Asked:
        return Asked(path, as_bytes("GET", path, key))

    multipart = {"Content-Type": "multipart/form-data; boundary=b"}
    small, large = FORM % (json.dumps(LINE).encode() + b"\n"), FORM % (b'{"custom_id": "x"}\n' * 20_000)
    chats = [
        post(path, {"messages": CHAT, "max_tokens": TOKENS, "ignore_eos": True, "stream": streams})
        for path in ("/v1/chat/completions", "/openai/v1/chat/completions")
        for streams in (False, True)
    ]
    others = [
        post(path, {**body, "stream": streams})
        for path, body in (
            ("/openai/v1/completions", {"prompt": "r0 Say", "max_tokens": TOKENS, "n": 2}),
            ("/openai/v1/responses", {"input": "r0 Say something."}),
            ("/anthropic/v1/messages", {"messages": CHAT, "max_tokens": TOKENS}),
        )
        for streams in (False, True)
    ]
    batch = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return [
        *chats,
        *others,
        post("/anthropic/v1/messages/count_tokens", {"messages": CHAT}),
        post("/v1/compress", COMPRESSED),
        post("/v1/batch/compress", {"items": [COMPRESSED] * 3}, Accept="application/x-ndjson"),
        post("/openai/v1/batches", batch),
        Asked(UPLOAD, as_bytes("POST", "/openai/v1/files", key, small, **multipart)),
        Asked(f"{UPLOAD} large", as_bytes("POST", "/openai/v1/files", key, large, **multipart)),
        get(f"/openai/v1/files/{file_id}/content"),
        get("/v1/usage"),
        get("/openai/v1/models"),
        get("/log/checkpoint"),
    ]


def as_bytes(method: str, path: str, key: str, body: bytes = b"", **headers: str) -> bytes:
    lines = {
        "Host": "127.0.0.1",
        "Connection": "close",
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def asked(
    port: int, data: bytes, *, sends: int | None = None, reads: int | None = None, resets: bool = False
) -> bytes:
    """What was received: all of it, unless the client leaves after so many bytes sent or read."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = b""
        try:
            writer.write(data[:sends])
            await writer.drain()
            while sends is None and (reads is None or len(found) < reads):
                piece = await reader.read(65_536 if reads is None else reads - len(found))
                if not piece:
                    break
                found += piece
        except (ConnectionResetError, BrokenPipeError):
            # It was answered before all was sent.
            pass
        finally:
            if resets:
                link = writer.get_extra_info("socket")
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort() if resets else writer.close()
        return found


def status(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else 0


async def run(count: int, seed: int) -> Cuts:
    """So many connections are cut, each of a request and at a byte that the seed draws."""
    machines, cuts = Machines(), Cuts()
    limits = ProjectLimits(max_in_flight=IN_FLIGHT)
    setup = Setup(ledger="sqlite", limits=limits, token_s=0.002)
    try:
        async with new_world(setup, machines) as world:
            await _cut(world, count, random.Random(seed), cuts)
    finally:
        machines.close()
    return cuts


async def _cut(world: World, count: int, rng: random.Random, cuts: Cuts) -> None:
    upload = next(one for one in requests(world.key, "") if one.name == UPLOAD)
    made = await asked(world.port, upload.data)
    file_id = json.loads(made.rpartition(b"\r\n\r\n")[2])["id"]
    known = requests(world.key, file_id)
    lengths = {}
    for one in known:
        reply = await asked(world.port, one.data)
        lengths[one.name] = len(reply)
        if status(reply) != one.whole:
            cuts.troubles.append(f"{one.name}: {reply[:300]!r}")
    handles = open_handles(world)
    for begin in range(0, count, BETWEEN):
        drawn = [_drawn(rng, known, lengths) for _ in range(min(BETWEEN, count - begin))]
        await _at_once(world, drawn, cuts)
        one = rng.choice(known)
        reply = await asked(world.port, one.data)
        cuts.served += 1
        if status(reply) != one.whole:
            cuts.troubles.append(f"after {begin} cuts, {one.name}: {reply[:300]!r}")
    await settled(world.books())
    # All places of the project at once: none is still taken.
    chat = known[0].data
    replies = await asyncio.gather(*(asked(world.port, chat) for _ in range(IN_FLIGHT)))
    cuts.troubles += [f"in the end: {reply[:300]!r}" for reply in replies if status(reply) != 200]
    await settled(world.books())
    cuts.troubles += await _left_behind(world)
    if (more := open_handles(world) - handles) > AT_ONCE:
        cuts.troubles.append(f"{more} more files are open than before")
    log = (world.folder / "ingress.log").read_text()
    cuts.troubles += [f"logged: {log[at : at + 1500]}" for at in [log.find("Traceback")] if at >= 0]


@dataclass(frozen=True)
class _Cut:
    asked: Asked
    sends: int | None
    reads: int | None
    resets: bool


def _drawn(rng: random.Random, known: Sequence[Asked], lengths: dict[str, int]) -> _Cut:
    one, resets = rng.choice(known), rng.random() < 0.8
    if rng.random() < 0.5:
        # Half of them in the head and what follows it, however long the body is.
        most = min(len(one.data), 600) if rng.random() < 0.5 else len(one.data)
        return _Cut(one, rng.randrange(most), None, resets)
    return _Cut(one, None, rng.randrange(lengths[one.name]), resets)


async def _at_once(world: World, drawn: Sequence[_Cut], cuts: Cuts) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(cut: _Cut) -> None:
        async with room:
            await asked(world.port, cut.asked.data, sends=cut.sends, reads=cut.reads, resets=cut.resets)
        (cuts.received if cut.sends is None else cuts.sent)[cut.asked.name] += 1

    await asyncio.gather(*map(one, drawn))


def open_handles(world: World) -> int:
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in world.pids)


async def _left_behind(world: World) -> list[str]:
    """What is not found to be in order within some time: uploads, the folder of files, the books."""
    billing = world.plan.settings.billing
    database, spool = open_database(billing.database_url), Spool(billing.spool_path)
    folder, deadline = Path(world.plan.settings.state_dir) / "files", time.monotonic() + SETTLED_S
    try:
        while True:
            found = await _wrong_files(database, folder)
            if not found or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        books = await Books(database).reconcile(spool, full=True)
    finally:
        await spool.close()
        await database.close()
    return found if books.is_clean else [*found, f"pith reconcile finds {books!r:.2000}"]


async def _wrong_files(database: Database, folder: Path) -> list[str]:
    """Uploads that have not come to their end, and files without a row, which each has before and after it is there."""
    there = {name for name in await asyncio.to_thread(os.listdir, folder) if name.startswith("file-")}
    rows = text("SELECT id, complete, purpose FROM batch_files")
    known = await database.read(lambda c: c.execute(rows).all())
    found = [
        f"an upload without an end: {row.id}" for row in known if not row.complete and row.purpose == "batch"
    ]
    return found + [f"a file without a row: {one}" for one in sorted(there - {row.id for row in known})]
