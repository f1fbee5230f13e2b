"""Asks a running server to compress, several cases at a time, and waits when it says to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.quality.contexts import Case

ATTEMPTS = 8
BUSY = frozenset({429, 503})


class Refused(RuntimeError):
    """The server refused a case; the message has its status, body and the case's name."""


@dataclass(frozen=True, slots=True)
class Reply:
    case: Case
    ratio: float
    output: str
    receipt: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the compression model to ask; None asks for the server's default."""

    url: str
    key: str
    model: str | None
    clients: int


async def compress(http: httpx.AsyncClient, target: Target, case: Case, ratio: float) -> Reply:
    """One case at one ratio. Raises `Refused`, after having waited where the server was busy."""
    body: dict[str, Any] = {
        "query": case.query, "input": case.context, "compression": {"target_ratio": ratio, "preserve_order": True}
    }  # fmt: skip
    if target.model:
        body["model"] = target.model
    for attempt in range(ATTEMPTS):
        response = await http.post("/v1/compress", json=body)
        if response.status_code == 200:
            answer = response.json()
            return Reply(case, ratio, answer["output"], answer["receipt"])
        if response.status_code not in BUSY:
            break
        await asyncio.sleep(float(response.headers.get("Retry-After", 2**attempt / 10)))
    raise Refused(f"{case.name} at {ratio}: {response.status_code} {response.text[:500]}")


async def replies(target: Target, work: Sequence[tuple[Case, float]]) -> AsyncIterator[Reply]:
    """All the work, as it is done; no more than `target.clients` requests at a time."""
    limit = asyncio.Semaphore(target.clients)
    headers = {"Authorization": f"Bearer {target.key}"}
    async with httpx.AsyncClient(base_url=target.url, headers=headers, timeout=120) as http:

        async def one(case: Case, ratio: float) -> Reply:
            async with limit:
                return await compress(http, target, case, ratio)

        tasks = [asyncio.create_task(one(case, ratio)) for case, ratio in work]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
