"""Batches of embeddings and of compressions: the replies that the routes give, at a part of the price."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types import CreateEmbeddingResponse
from sqlalchemy import text

from billing.books.books import Books
from serve.batches import endpoints
from serve.money import admission
from tests.serve.batches.uploading import ended, jsonl, lines_of, made
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.retrieval.serving import LEXICAL, MODELS, FakeRetrieval
from tests.serve.served import Served, model_document, serving


def line(custom_id: str, url: str, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


async def charged(served: Served) -> list[tuple[str, str, int]]:
    """Routes, models and what these were paid, by event."""
    statement = text("SELECT route, model_id, cost_nano_usd FROM usage_events ORDER BY event_id")
    return [tuple(row) for row in await served.database.read(lambda c: c.execute(statement).all())]


async def test_embeddings_and_compressions_are_run_written_and_charged(tmp_path: Path) -> None:
    models = [model_document("alpha"), *MODELS]
    async with serving(
        tmp_path,
        models=models,
        compression={"models": [{**LEXICAL, "price_usd_per_mtok_input": "10"}]},
        retrievers={model["id"]: FakeRetrieval() for model in MODELS},
        compressors={"lexical": ReadyModel(local_model())},
    ) as service:
        served = await service.renewed()
        vectors, compressed = "/v1/embeddings", "/v1/compress"
        lines = [line("a", vectors, model="small", input=["two words", "one"]), line("b", vectors, input=[])]
        done = await ended(served, await made(served, jsonl(lines), endpoint=vectors))
        (good,) = await lines_of(served, done.output_file_id)
        (bad,) = await lines_of(served, done.error_file_id)
        reply = CreateEmbeddingResponse.model_validate(good["response"]["body"], strict=True)
        assert [item.index for item in reply.data] == [0, 1]
        assert (bad["custom_id"], bad["response"]["status_code"]) == ("b", 400)
        assert await charged(served) == [("batch:embeddings", "small", 3 * 50_000 // 2)]

        source = "Marie Curie discovered radium. The weather is fine. Her notes are kept in lead boxes."
        lines = [
            line("a", compressed, query="who discovered radium?", input=source),
            line("b", compressed, query="q", input=source, compression={"retain_s": 60}),
        ]
        done = await ended(served, await made(served, jsonl(lines), endpoint=compressed))
        (good,) = await lines_of(served, done.output_file_id)
        (bad,) = await lines_of(served, done.error_file_id)
        assert (
            good["response"]["body"]["object"] == "compression"
            and "radium" in good["response"]["body"]["output"]
        )
        tokens = good["response"]["body"]["receipt"]["original_tokens"]
        assert bad["response"]["body"]["error"]["param"] == "compression.retain_s"
        assert (await charged(served))[1:] == [("batch:compress", "lexical", tokens * 10_000 // 2)]
        assert (await Books(served.database).reconcile(served.spool)).is_clean
        await served.assert_nothing_is_left_open()


async def test_embeddings_that_could_not_be_kept_are_refused_before_they_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes = {model["id"]: FakeRetrieval() for model in MODELS}
    async with serving(
        tmp_path,
        models=[model_document("alpha"), *MODELS],
        compression={"models": [LEXICAL]},
        retrievers=fakes,
    ) as service:
        served, url = await service.renewed(), "/v1/embeddings"
        lines = [
            line("first", url, model="small", input=["one"]),
            line("many", url, model="small", input=["one"] * 100),
        ]
        monkeypatch.setattr(endpoints, "MOST_RECORDED_BYTES", 4 * 4 * 99)
        served.batches.runner._pace = replace(served.batches.runner._pace, alone=1, beside=1)
        batch = await made(served, jsonl(lines), endpoint=url)
        await served.batches.jobs.once()
        await served.batches.runner.once()
        done = await ended(served, batch)
        (good,) = await lines_of(served, done.output_file_id)
        (bad,) = await lines_of(served, done.error_file_id)
        assert (good["custom_id"], bad["custom_id"]) == ("first", "many")
        assert bad["response"]["body"]["error"]["param"] == "input"
        assert max(len(job.texts) for fake in fakes.values() for job in fake.jobs) == 1


async def test_embeddings_whose_width_nobody_knew_are_charged_even_where_they_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(
        tmp_path,
        models=[model_document("alpha"), *MODELS],
        compression={"models": [LEXICAL]},
        retrievers={model["id"]: FakeRetrieval() for model in MODELS},
    ) as service:
        served, url = await service.renewed(), "/v1/embeddings"
        monkeypatch.setattr(admission, "MOST_RECORDED_BYTES", 10)
        done = await ended(
            served, await made(served, jsonl([line("a", url, model="small", input="one")]), endpoint=url)
        )
        (bad,) = await lines_of(served, done.error_file_id)
        assert bad["response"]["body"]["error"]["code"] == "result_too_large"
        assert await charged(served) == [("batch:embeddings", "small", 50_000 // 2)]
        await served.assert_nothing_is_left_open()
