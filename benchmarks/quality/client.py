"""Asks a running server to compress, several cases at a time, and waits when it says to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.evaluation.case import Task
from benchmarks.quality.scoring import Told

ATTEMPTS = 8
BUSY = frozenset({429, 503})


class Refused(RuntimeError):
    """The server refused a task; the message has its status, body and the case's name."""

    def __init__(self, task: Task, status: int, body: str) -> None:
        super().__init__(f"{task.case.name} at {task.size}: {status} {body[:500]}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Reply:
    task: Task
    output: str
    receipt: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the compression model to ask; None asks for the server's default."""

    url: str
    key: str
    model: str | None
    clients: int


def told_by(receipt: dict[str, Any]) -> Told:
    """Raises `KeyError` for a receipt that the contract does not know."""
    flags = {flag["code"]: flag["severity"] for flag in receipt["risk_flags"]}
    probability = receipt.get("evidence_kept_probability")
    return Told(receipt["compression_ratio"], receipt["latency_ms"], flags, probability)


async def compress(http: httpx.AsyncClient, target: Target, task: Task) -> Reply:
    """One task. Raises `Refused`, after having waited where the server was busy."""
    size = {"keep": task.keep} if task.ratio is None else {"target_ratio": task.ratio}
    body: dict[str, Any] = {
        "query": task.case.query, "input": task.case.context, "compression": {**size, "preserve_order": True}
    }  # fmt: skip
    if target.model:
        body["model"] = target.model
    for attempt in range(ATTEMPTS):
        response = await http.post("/v1/compress", json=body)
        if response.status_code == 200:
            answer = response.json()
            return Reply(task, answer["output"], answer["receipt"])
        if response.status_code not in BUSY:
            break
        await asyncio.sleep(float(response.headers.get("Retry-After", 2**attempt / 10)))
    raise Refused(task, response.status_code, response.text)


async def replies(target: Target, work: Sequence[Task]) -> AsyncIterator[Reply]:
    """All the work, as it is done; no more than `target.clients` requests at a time."""
    limit = asyncio.Semaphore(target.clients)
    headers = {"Authorization": f"Bearer {target.key}"}
    async with httpx.AsyncClient(base_url=target.url, headers=headers, timeout=120) as http:

        async def one(task: Task) -> Reply:
            async with limit:
                return await compress(http, target, task)

        tasks = [asyncio.create_task(one(task)) for task in work]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
