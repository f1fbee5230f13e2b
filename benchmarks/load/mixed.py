"""All that clients do, at a fixed rate: chats, streams that are left, files, batches, bad input, administration."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from benchmarks.load.exchange import DONE, EXCERPT, Clock, Failed, bearer
from benchmarks.load.loop import Target, Window
from benchmarks.load.sample import Figures, Run, Sample
from benchmarks.load.text import QUERY, made_up

CHAT, EMBED, RERANK = "pith-mini", "pith-embed", "pith-rerank"
MOST_UNDER_WAY = 64
# More failures than this are one failure many times.
MOST_FAILURES = 200
BATCH_S, POLL_S = 300.0, 1.0
RETAIN_S = 300
ENDED = {"completed", "failed", "expired", "cancelled"}
CONTEXTS = [made_up(3000, seed) for seed in range(24)]
WRONG_KEY = "pith_" + "0" * 40


@dataclass(frozen=True, slots=True)
class Ops:
    """The admin API of a server: its address and its key."""

    url: str
    key: str


@dataclass(slots=True)
class Deliveries:
    """What came to the receiver of webhooks; every tenth is refused once, so that it is sent again."""

    seen: Counter[str] = field(default_factory=Counter)
    url: str = ""

    async def take(self, request: web.Request) -> web.Response:
        event = request.headers["webhook-id"]
        self.seen[event] += 1
        await request.read()
        is_refused = self.seen[event] == 1 and len(self.seen) % 10 == 0
        return web.Response(status=503 if is_refused else 204)


@asynccontextmanager
async def receiver() -> AsyncIterator[Deliveries]:
    deliveries = Deliveries()
    app = web.Application()
    app.router.add_post("/hook", deliveries.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    deliveries.url = f"http://127.0.0.1:{port}/hook"
    try:
        yield deliveries
    finally:
        await runner.cleanup()


class Client:
    """Sends what the kinds of load consist of, and says which replies were not as they must be."""

    def __init__(
        self, url: str, public: aiohttp.ClientSession, ops: aiohttp.ClientSession, seed: int
    ) -> None:
        self.url, self.public, self.ops = URL(url), public, ops
        self.rng = random.Random(seed)
        # Its own, on a server that may have been asked before.
        self.workspace = f"soak-{secrets.token_hex(4)}"
        self.project = self.poor_key = self.webhook = ""
        self.statuses: Counter[str] = Counter()

    async def send(
        self, method: str, path: str, *, expected: int = 200, ops: bool = False, **given: Any
    ) -> bytes:
        """The reply's body. Raises `Failed` for another status."""
        session = self.ops if ops else self.public
        async with session.request(method, path, **given) as reply:
            body = await reply.read()
            self.statuses[str(reply.status)] += 1
            if reply.status != expected:
                said = body[:EXCERPT].decode(errors="replace")
                raise Failed(f"{method} {path}: {reply.status} instead of {expected}: {said}")
            return body

    async def asked(self, path: str, body: Mapping[str, Any], **given: Any) -> Any:
        return orjson.loads(await self.send("POST", path, json=body, **given))

    async def admin(self, method: str, path: str, *, expected: int = 200, **given: Any) -> Any:
        return orjson.loads(
            await self.send(method, f"/admin/v1/{path}", ops=True, expected=expected, **given)
        )

    def chat_body(self, tokens: int, **fields: Any) -> dict[str, Any]:
        question = f"Story {self.rng.randrange(10**6)}: tell me about the river."
        messages = [{"role": "user", "content": question}]
        return {"model": CHAT, "messages": messages, "max_tokens": tokens, "ignore_eos": True, **fields}

    async def set_up(self, hook: str) -> str:
        """A workspace with a key, which it returns, one without money, and a webhook."""
        keys = []
        for name, limit in ((self.workspace, "1000"), (f"{self.workspace}-poor", "0")):
            await self.admin(
                "POST", "workspaces", json={"name": name, "spend_limit_usd": limit}, expected=201
            )
            project = {"workspace": name, "name": "main", "proof": True, "requests_per_minute": 10**6}
            made = await self.admin(
                "POST", "projects", json=project | {"tokens_per_minute": 10**9}, expected=201
            )
            self.project = self.project or made["id"]
            keys.append(
                (await self.admin("POST", "keys", json={"project": f"{name}/main"}, expected=201))["key"]
            )
        key, self.poor_key = keys
        self.webhook = (await self.admin("POST", "webhooks", json={"url": hook}, expected=201))["id"]
        return str(key)


async def chat(client: Client) -> None:
    reply = await client.asked("/v1/chat/completions", client.chat_body(8))
    if reply["usage"]["completion_tokens"] != 8:
        raise Failed(f"{reply['usage']} of a chat of 8 tokens")


async def stream(client: Client) -> None:
    text = await client.send("POST", "/v1/chat/completions", json=client.chat_body(12, stream=True))
    if not text.rstrip().endswith(DONE) or b'"error"' in text:
        raise Failed(f"a stream ended with {text[-EXCERPT:].decode(errors='replace')}")


async def left_stream(client: Client) -> None:
    """Read a few events, and go."""
    body = client.chat_body(200, stream=True)
    reply = await client.public.post("/v1/chat/completions", json=body)
    try:
        client.statuses[str(reply.status)] += 1
        if reply.status != 200:
            raise Failed(f"a stream: {reply.status} {(await reply.text())[:EXCERPT]}")
        for _ in range(client.rng.randrange(1, 8)):
            await reply.content.readline()
    finally:
        reply.close()


async def left_chat(client: Client) -> None:
    """Go before the reply comes."""
    body = client.chat_body(200)
    wait_s = client.rng.uniform(0.002, 0.2)
    asked = asyncio.create_task(client.send("POST", "/v1/chat/completions", json=body))
    await asyncio.wait([asked], timeout=wait_s)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def half_a_request(client: Client) -> None:
    """A connection that ends in its head or its body."""
    _, writer = await asyncio.open_connection(client.url.host, client.url.port)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    whole = head + b'Content-Length: 400\r\n\r\n{"messages": ['
    writer.write(whole[: client.rng.randrange(1, len(whole))])
    await writer.drain()
    writer.transport.abort()


async def compress(client: Client) -> None:
    body = {"query": QUERY, "input": client.rng.choice(CONTEXTS), "compression": {"target_ratio": 0.4}}
    await client.asked("/v1/compress", body)


async def keep(client: Client) -> None:
    """An original that is kept, and read again."""
    text = f"{client.rng.choice(CONTEXTS)} Part {client.rng.randrange(10**9)}."
    options = {"target_ratio": 0.4, "retain_s": RETAIN_S}
    kept = await client.asked("/v1/compress", {"query": QUERY, "input": text, "compression": options})
    found = orjson.loads(await client.send("GET", f"/v1/compress/{kept['id']}/original"))
    if found["text"] != text:
        raise Failed(f"another original than was sent: {found['text'][:EXCERPT]}")


async def compressed_chat(client: Client) -> None:
    part = {"type": "text", "text": client.rng.choice(CONTEXTS), "compress": True}
    body = client.chat_body(4, compression={"target_ratio": 0.4})
    body["messages"] = [{"role": "user", "content": [part, {"type": "text", "text": QUERY}]}]
    await client.asked("/v1/chat/completions", body)


async def embeddings(client: Client) -> None:
    texts = client.rng.sample(CONTEXTS, 2)
    reply = await client.asked("/openai/v1/embeddings", {"model": EMBED, "input": texts})
    if len(reply["data"]) != len(texts):
        raise Failed(f"{len(reply['data'])} vectors of {len(texts)} texts")


async def rerank(client: Client) -> None:
    body = {"model": RERANK, "query": QUERY, "documents": client.rng.sample(CONTEXTS, 3)}
    await client.asked("/openai/v1/rerank", body)


async def other_dialects(client: Client) -> None:
    asked = "Tell me about the river."
    body = {"model": CHAT, "max_output_tokens": 16, "input": asked, "store": client.rng.random() < 0.5}
    await client.asked("/openai/v1/responses", body)
    messages = [{"role": "user", "content": asked}]
    await client.asked("/anthropic/v1/messages", {"model": CHAT, "max_tokens": 4, "messages": messages})
    await client.asked("/openai/v1/completions", {"model": CHAT, "max_tokens": 4, "prompt": asked})


async def account(client: Client) -> None:
    for path in ("/v1/models", "/v1/catalog", "/v1/usage", "/log/checkpoint"):
        await client.send("GET", path)


def _form(lines: bytes) -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("purpose", "batch")
    form.add_field("file", lines, filename="lines.jsonl", content_type="application/jsonl")
    return form


async def _uploaded(client: Client, lines: bytes) -> str:
    return str(orjson.loads(await client.send("POST", "/openai/v1/files", data=_form(lines)))["id"])


async def files(client: Client) -> None:
    """A file that is uploaded, read and deleted, and an upload that breaks off."""
    lines = orjson.dumps({"a": client.rng.randrange(10**9)}) * client.rng.randrange(1, 2000)
    file_id = await _uploaded(client, lines)
    if await client.send("GET", f"/openai/v1/files/{file_id}/content") != lines:
        raise Failed("a file's content is not what was uploaded")
    await client.send("DELETE", f"/openai/v1/files/{file_id}")


async def batch(client: Client) -> None:
    """A batch of three lines, one of which is wrong; its files are deleted when it has ended."""
    lines = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
        for number, body in enumerate(
            (client.chat_body(4), client.chat_body(4), client.chat_body(4, temperature=9))
        )
    ]
    file_id = await _uploaded(client, b"\n".join(map(orjson.dumps, lines)))
    asked = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    found = await client.asked("/openai/v1/batches", asked)
    until = time.monotonic() + BATCH_S
    while found["status"] not in ENDED:
        if time.monotonic() > until:
            raise Failed(f"a batch is {found['status']} after {BATCH_S:g} s")
        await asyncio.sleep(POLL_S)
        found = orjson.loads(await client.send("GET", f"/openai/v1/batches/{found['id']}"))
    counts = found["request_counts"]
    if (found["status"], counts["completed"], counts["failed"]) != ("completed", 2, 1):
        raise Failed(f"a batch ended as {found['status']} with {counts}")
    for name in ("input_file_id", "output_file_id", "error_file_id"):
        await client.send("DELETE", f"/openai/v1/files/{found[name]}")


async def keys(client: Client) -> None:
    """A key is made, used, bounded, rotated and revoked."""
    made = await client.admin("POST", "keys", json={"project": client.project}, expected=201)
    await client.send("GET", "/v1/models", headers=bearer(made["key"]))
    await client.admin("PATCH", f"keys/{made['id']}", json={"monthly_limit_usd": "5"})
    new = await client.admin("POST", f"keys/{made['id']}/rotate", json={"overlap_s": 60}, expected=201)
    await client.send("GET", "/v1/models", headers=bearer(new["key"]))
    for one in (made, new):
        await client.admin("POST", f"keys/{one['id']}/revoke")


async def limits(client: Client) -> None:
    """Limits change, what was used is read, and a credit is given."""
    limit = str(client.rng.randrange(900, 1100))
    await client.admin("PATCH", f"workspaces/{client.workspace}", json={"spend_limit_usd": limit})
    await client.admin("PATCH", f"projects/{client.project}", json={"max_in_flight": 5000})
    credit = {"kind": "credit", "workspace": client.workspace, "usd": "0.000001", "reason": "soak"}
    await client.admin("POST", "adjustments", json=credit, expected=201)
    await client.admin("GET", f"usage?by=key&workspace={client.workspace}")


async def webhooks(client: Client) -> None:
    await client.admin("POST", f"webhooks/{client.webhook}/test", expected=202)
    await client.admin("GET", f"webhooks/deliveries?webhook={client.webhook}")


async def bad_input(client: Client) -> None:
    """One of the ways to ask wrongly, and the status that each must get."""
    json_type = {"Content-Type": "application/json"}
    chat_path, long = "/v1/chat/completions", {"role": "user", "content": "word " * 40_000}
    ways: list[tuple[str, int, dict[str, Any]]] = [
        (chat_path, 422, {"data": b'{"messages": [', "headers": json_type}),
        (chat_path, 422, {"data": b"\0" * 100, "headers": json_type}),
        (chat_path, 422, {"data": b"[" * 50_000, "headers": json_type}),
        (chat_path, 422, {"json": client.chat_body(4, temperature=9)}),
        (chat_path, 422, {"json": {**client.chat_body(4), "model": "none"}}),
        (chat_path, 422, {"json": {**client.chat_body(4), "messages": []}}),
        (chat_path, 422, {"json": {**client.chat_body(4), "messages": [long]}}),
        (chat_path, 422, {"data": BytesIO(orjson.dumps({"filler": "x" * 9 * 2**20})), "headers": json_type}),
        (chat_path, 400, {"json": client.chat_body(4, web_search_options={})}),
        (chat_path, 403, {"json": client.chat_body(4), "headers": bearer(WRONG_KEY)}),
        (chat_path, 402, {"json": client.chat_body(4), "headers": bearer(client.poor_key)}),
        ("/openai/v1/embeddings", 400, {"json": {"model": EMBED, "input": "word " * 9000}}),
        ("/v1/compress", 422, {"json": {"query": 1}}),
        ("/no/such/path", 404, {"json": {}}),
        ("/v1/models", 405, {"json": {}}),
        ("/openai/v1/files", 400, {"data": b"no form", "headers": {"Content-Type": "multipart/form-data; boundary=a"}}),
    ]  # fmt: skip
    path, status, given = client.rng.choice(ways)
    await client.send("POST", path, expected=status, **given)


Kind = Callable[[Client], Awaitable[None]]
# In hundredths of what is sent.
SHARES: tuple[tuple[Kind, int], ...] = (
    (chat, 18), (stream, 18), (left_stream, 8), (left_chat, 5), (half_a_request, 3), (compress, 9), (keep, 6),
    (compressed_chat, 4), (embeddings, 6), (rerank, 2), (other_dialects, 3), (account, 2), (files, 3), (batch, 2),
    (keys, 2), (limits, 1), (webhooks, 1), (bad_input, 7),
)  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """What was sent and what came of it."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    # No `Counter`: `asdict` cannot copy one.
    statuses: dict[str, int] = field(default_factory=dict)
    delivered: int = 0
    sent_again: int = 0

    def runs(self, seconds: float) -> dict[str, Run]:
        return {kind: Run(seconds, tuple(samples)) for kind, samples in sorted(self.samples.items())}


@asynccontextmanager
async def prepared(target: Target, ops: Ops, seed: int) -> AsyncIterator[tuple[Client, Deliveries]]:
    """A client with a workspace of its own and a receiver of webhooks."""
    async with AsyncExitStack() as stack:
        deliveries = await stack.enter_async_context(receiver())
        admin = await stack.enter_async_context(Target(ops.url, ops.key).session())
        client = Client(target.url, admin, admin, seed)
        key = await client.set_up(deliveries.url)
        client.public = await stack.enter_async_context(Target(target.url, key).session())
        yield client, deliveries


async def drive(
    client: Client, outcome: Outcome, rate: float, window: Window, on_done: Callable[[object], None]
) -> None:
    """Send at that rate until the window ends or too much has failed; return when all has been answered."""
    kinds, shares = zip(*SHARES, strict=True)
    clock, room = Clock(time.perf_counter()), asyncio.Semaphore(MOST_UNDER_WAY)

    async def one(kind: Kind, due_s: float) -> None:
        try:
            await kind(client)
        except (Failed, aiohttp.ClientError, TimeoutError, OSError, KeyError) as error:
            outcome.failures.append(f"{due_s:.0f} s: {kind.__name__}: {error!r}")
        else:
            took_ms = 1000 * (clock.now() - due_s)
            outcome.samples.setdefault(kind.__name__, []).append(Sample(due_s, took_ms, Figures(0)))
        finally:
            room.release()
            on_done(kind)

    async with asyncio.TaskGroup() as group:
        number = 0
        while (due_s := number / rate) < window.end_s and len(outcome.failures) < MOST_FAILURES:
            await asyncio.sleep(max(0.0, due_s - clock.now()))
            await room.acquire()
            (kind,) = client.rng.choices(kinds, shares)
            group.create_task(one(kind, due_s))
            number += 1
    outcome.statuses = dict(client.statuses)
