"""The retrieval routes without Ray: the real API, ledger and limits, and a fake model that can be told what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from models.embedding_backends import Computed, RetrievalJob
from tests.serve.served import Client, Served, model_document, serving

WIDTH = 8
INPUT_NANO_USD = 50_000
PRICE = {"input_usd_per_mtok": "50"}
# Of a query this long with a thousand texts there would be more tokens than a price is defined for.
MOST_BYTES = 1_100_000
LEXICAL = {"id": "lexical", "name": "L", "blurb": "b", "kind": "lexical", "max_input_bytes": MOST_BYTES}


def model(model_id: str, kind: str, engine: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": model_id,
        "kind": kind,
        "name": model_id.title(),
        "blurb": "For tests.",
        "context_length": 32,
        "price": PRICE,
        "engine": engine,
        **fields,
    }


# Of the models that run in pith's own processes it is proven how many tokens a byte can be; of the others it is not.
MODELS = [
    model("small", "embedding", {"kind": "static"}, matryoshka=True),
    model("far", "embedding", {"kind": "encoder"}, checkpoint="org/far", max_input_bytes=1_150_000),
    model("order", "rerank", {"kind": "lexical"}),
    model("wide", "rerank", {"kind": "lexical"}, context_length=10_000_000),
]


def words_of(text: str | tuple[int, ...]) -> int:
    return len(text.split()) if isinstance(text, str) else len(text)


class FakeRetrieval:
    """A fake: a word is a token, a vector says how long its text is, and a text scores by the words of its query that
    it has. It can fail, wait, or answer nonsense."""

    def __init__(self) -> None:
        self.jobs: list[RetrievalJob] = []
        self.payers: list[str] = []
        self.cancelled = 0
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.answers: Computed | None = None

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed:
        self.jobs.append(job)
        self.payers.append(payer)
        try:
            if self.gate is not None and not job.only_counts:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        return self.answers or _computed(job)

    async def ready(self) -> bool:
        return True


def _computed(job: RetrievalJob) -> Computed:
    times = len(job.texts) if len(job.queries) == 1 else 1
    tokens = sum(min(words_of(text), job.cut or 1000) for text in job.texts)
    tokens += times * sum(words_of(query) for query in job.queries)
    if job.only_counts:
        return Computed(tokens)
    if job.does == "embed":
        width = job.dimensions or WIDTH
        rows = np.array([[len(text) + at / 7 for at in range(width)] for text in job.texts], "<f4")
        return Computed(tokens, width, rows.tobytes())
    queries = job.queries * times
    shares = [
        len(set(str(text).split()) & set(query.split())) / len(query.split())
        for query, text in zip(queries, job.texts, strict=True)
    ]
    return Computed(tokens, 1, np.array(shares, "<f4").tobytes())


class Retrieving:
    """The service with one fake behind all of its models."""

    def __init__(self, served: Served, fake: FakeRetrieval) -> None:
        self.served = served
        self.fake = fake

    async def renewed(self) -> Retrieving:
        vars(self.fake).update(vars(FakeRetrieval()))
        return Retrieving(await self.served.renewed(), self.fake)

    def post(self, path: str, *, key: str | None = None, raw: bytes | None = None, **body: Any) -> Client:
        headers = {
            "Authorization": f"Bearer {key or self.served.key}",
            "Content-Type": "application/json",
            "X-Request-ID": "retrieval",
        }
        content = json.dumps(body).encode() if raw is None else raw
        return Client(self.served.api, f"/openai/v1/{path}", "POST", headers, (content,))

    async def refusal(self, path: str, *, status: int = 400, **body: Any) -> str:
        """What is said of a bad request, which costs nothing."""
        client = await self.post(path, **body).run()
        assert client.status == status, client.body
        assert self.fake.jobs == [] and await self.served.events() == []
        return str(client.json()["error"]["message"])

    async def costs(self) -> list[tuple[str, int, int]]:
        """Outcome, tokens and nano-dollars of each usage event."""
        return [
            (event.outcome, event.prompt_tokens, event.cost_nano_usd) for event in await self.served.events()
        ]


@asynccontextmanager
async def retrieving(folder: Path) -> AsyncIterator[Retrieving]:
    fake = FakeRetrieval()
    fields: dict[str, Any] = {
        "server": {"max_body_bytes": 8 * 1024 * 1024},
        "compression": {"models": [LEXICAL]},
        "models": [model_document("alpha"), *MODELS],
    }
    retrievers = {found["id"]: fake for found in MODELS}
    async with serving(folder, retrievers=retrievers, **fields) as served:
        yield Retrieving(await served.renewed(), fake)
