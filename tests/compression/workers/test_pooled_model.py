"""The lexical model in processes: what a server has of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from compression.build import build_model, load_counter
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.errors import CompressionError, CompressorFailed
from compression.pipeline.spec import ModelSpec
from compression.retrieval.job import RetrievalJob
from compression.workers.lanes import plan_of
from compression.workers.pooled_model import PooledModel, start_model
from compression.workers.processes import WorkerCannotStart
from tests.compression.conftest import TOKENIZER
from tests.compression.workers.acting import eventually

SPEC = ModelSpec("lexical", "lexical", str(TOKENIZER), "pith-mini")
PLAN = plan_of("lexical", workers=1, large_bytes=65_536, max_waiting=64, deadline_s=60)
SOURCE = "The cat sat on the mat. The harbour team won the cup in 1999. It was raining all day in the north."
LONG = "\n\n".join(
    f"In {year} the committee chose harbour {year % 7} for the ferry." for year in range(36_000)
)


@asynccontextmanager
async def lexical() -> AsyncIterator[PooledModel]:
    model = await start_model(SPEC, PLAN)
    try:
        # The fork server, the process for small inputs, and the demo's.
        await eventually(lambda: len(workers()) == 3)
        yield model
    finally:
        await model.close()


def workers() -> list[psutil.Process]:
    """The fork server and its forks, which have its command line; other tests may have left children of their own."""
    return [each for each in psutil.Process().children(recursive=True) if "fork_server" in _command(each)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


async def test_it_answers_as_the_model_does_without_processes() -> None:
    request = CompressionRequest("Who won the cup?", SOURCE, 0.5, explain=True)
    plain = build_model(SPEC)
    expected = await plain.compress(request)
    await plain.close()
    async with lexical() as model:
        found = await model.compress(request)
        assert (found.output, found.kept, found.unit_scores) == (
            expected.output,
            expected.kept,
            expected.unit_scores,
        )
        assert found.receipt.risk_flags == expected.receipt.risk_flags
        assert await model.count_tokens(SOURCE) == found.receipt.original_tokens


async def test_a_refusal_names_its_field_and_ends_nothing() -> None:
    async with lexical() as model:
        before = {each.pid for each in workers()}
        for request, field in (
            (CompressionRequest("Who?", "", 0.5), "input"),
            (CompressionRequest("q" * 30_000, SOURCE, 0.5), "query"),
            (CompressionRequest("Who?", "half \ud800 of a pair", 0.5), "input"),
        ):
            with pytest.raises(CompressionError) as refused:
                await model.compress(request)
            assert refused.value.field == field
        assert before <= {each.pid for each in workers()}


async def test_no_process_of_the_lexical_model_has_torch() -> None:
    async with lexical() as model:
        await model.compress(CompressionRequest("Who won the cup?", SOURCE, 0.5))
        found = workers()
        assert len(found) == 3
        mapped = [each.path for process in found for each in process.memory_maps()]
        assert any("numpy" in path for path in mapped) and not any("torch" in path for path in mapped)


async def test_a_model_that_cannot_be_built_says_why(tmp_path: Path) -> None:
    broken = ModelSpec("lexical", "lexical", str(tmp_path), "none")
    with pytest.raises(WorkerCannotStart, match=r"holds no tokenizer\.json"):
        await start_model(broken, PLAN)
    assert workers() == []


async def test_counting_megabytes_is_a_large_job() -> None:
    async with lexical() as model:
        warm = {each.pid for each in workers()}
        counting = asyncio.create_task(model.count_tokens(LONG))
        await eventually(lambda: counting.done() or any(each.pid not in warm for each in workers()))
        assert await counting == load_counter(str(TOKENIZER), name="mini").count(LONG)


async def test_what_no_frame_can_say_takes_no_process_and_the_next_is_answered() -> None:
    async with lexical() as model:
        before = {each.pid for each in workers()}
        for text, dimensions in (("hello", 2**64), ("\ud800", None)):
            with pytest.raises(CompressorFailed, match="could not be sent"):
                await model.retrieve(RetrievalJob("embed", (text,), 100, dimensions=dimensions))
        assert (await model.retrieve(RetrievalJob("embed", ("hello",), 100))).tokens
        assert {each.pid for each in workers()} == before
