"""Uploads, and batches from their input to their files, by raw ASGI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
from openai.types import Batch, FileObject

from serve.batches.runner import BatchRunner, Pace
from tests.serve.served import HI, Client, Served

FILES, BATCHES = "/openai/v1/files", "/openai/v1/batches"
CHAT = "/v1/chat/completions"


def upload(
    served: Served,
    content: bytes,
    *,
    piece: int = 65_536,
    fields: dict[str, Any] | None = None,
    **given: Any,
) -> Client:
    """As OpenAI's client sends it, in pieces of so many bytes."""
    form = {"purpose": "batch"} if fields is None else fields
    request = httpx.Request(
        "POST", "http://pith" + FILES, data=form, files={"file": ("in.jsonl", content, "application/jsonl")}
    )
    body = request.read()
    pieces = [body[at : at + piece] for at in range(0, len(body), piece)]
    headers = {
        "Authorization": f"Bearer {served.key}",
        "Content-Type": request.headers["content-type"],
        "Content-Length": str(len(body)),
    }
    return Client(served.api, FILES, "POST", headers, pieces, **given)


def call(served: Served, method: str, path: str, *, key: str | None = None, query: str = "") -> Client:
    client = Client(served.api, path, method, {"Authorization": f"Bearer {key or served.key}"})
    scope = client.scope()
    scope["query_string"] = query.encode()
    client.scope = lambda: scope  # type: ignore[method-assign]
    return client


def chat_line(custom_id: str, *, url: str = CHAT, method: str = "POST", **body: Any) -> dict[str, Any]:
    asked = {"model": "alpha", "messages": HI, "max_tokens": 6, **body}
    return {"custom_id": custom_id, "method": method, "url": url, "body": asked}


def jsonl(lines: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def made(served: Served, content: bytes, *, endpoint: str = CHAT, **fields: Any) -> Batch:
    """A batch over a file with this content."""
    file = FileObject.model_validate((await upload(served, content).run()).json(), strict=True)
    asked = {"input_file_id": file.id, "endpoint": endpoint, "completion_window": "24h", **fields}
    client = await served.post(BATCHES, asked).run()
    assert client.status == 200, client.body
    return Batch.model_validate(client.json(), strict=True)


async def looked_at(served: Served, batch: Batch) -> Batch:
    client = await call(served, "GET", f"{BATCHES}/{batch.id}").run()
    return Batch.model_validate(client.json(), strict=True)


def hasty(served: Served) -> BatchRunner:
    """Another process's runner of lines, which tries again at once."""
    runner = served.batches.runner
    lines = replace(runner._lines, first_pause_s=0.0)
    return BatchRunner(runner._store, lines, Pace(runner._pace.interactive, 4, 4))


async def ended(served: Served, batch: Batch) -> Batch:
    """The batch once all that a server does in the background was done."""
    await served.batches.jobs.once()
    for _ in range(10):
        runner = hasty(served)
        await runner.once()
        await served.batches.jobs.once()
        found = await looked_at(served, batch)
        if found.completed_at or found.failed_at or found.cancelled_at or found.expired_at:
            return found
    raise AssertionError(f"not ended: {found!r}")


async def lines_of(served: Served, file_id: str | None) -> list[dict[str, Any]]:
    """A file's lines; none where there is no file."""
    if file_id is None:
        return []
    client = await call(served, "GET", f"{FILES}/{file_id}/content").run()
    assert client.status == 200
    assert client.body.endswith(b"\n")
    return [json.loads(line) for line in client.body.splitlines()]
