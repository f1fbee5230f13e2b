"""A witness as C2SP's tlog-witness describes it, over HTTP on loopback; it knows one log."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from billing.transparency import notes, verify
from tests.billing.transparency.proof_files import Witness as Cosigner


@dataclass
class SpecWitness:
    """`requests` are the bodies. `hangs`, `answers`: what it does otherwise than the specification has it."""

    log: notes.Verifier
    key: Cosigner = field(default_factory=Cosigner)
    size: int = 0
    root: bytes = b""
    requests: list[str] = field(default_factory=list)
    url: str = ""
    hangs: asyncio.Event | None = None
    answers: web.Response | None = None
    statuses: list[int] = field(default_factory=list)
    arrived: asyncio.Queue[None] = field(default_factory=asyncio.Queue)

    async def add_checkpoint(self, request: web.Request) -> web.Response:
        text = (await request.read()).decode()
        self.requests.append(text)
        self.arrived.put_nowait(None)
        if self.hangs is not None:
            await self.hangs.wait()
        answer = self.answers or self._answer(text)
        self.statuses.append(answer.status)
        return answer

    def _answer(self, text: str) -> web.Response:
        head, _, note = text.partition("\n\n")
        old, *path = head.split("\n")
        try:
            found = notes.checkpoint(notes.opened(note, self.log))
        except notes.BadNote:
            return web.Response(status=403 if note.startswith(self.log.name) else 404)
        size = int(old.removeprefix("old "))
        if size > found.size or len(path) > 63:
            return web.Response(status=400)
        if size != self.size or (size == found.size and self.root != found.root):
            return web.Response(status=409, text=f"{self.size}\n", content_type="text/x.tlog.size")
        proof = iter([b64decode(line, validate=True) for line in path])
        known = verify.is_beginning(size, self.root, found.size, found.root, proof)
        if not known:
            return web.Response(status=422)
        self.size, self.root = found.size, found.root
        cosigned = self.key.cosigned(note, datetime.now(UTC))
        lines = cosigned.removeprefix(note)
        return web.Response(text=f"— other.example AAAAAAAA\n{lines}")


@asynccontextmanager
async def witnessing(log: notes.Verifier) -> AsyncIterator[SpecWitness]:
    found = SpecWitness(log)
    app = web.Application()
    app.router.add_post("/w/add-checkpoint", found.add_checkpoint)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/w"
    try:
        yield found
    finally:
        await runner.cleanup()
