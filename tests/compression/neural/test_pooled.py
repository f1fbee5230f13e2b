"""A kind with a network in a process of its own: batches across requests, and an end for what is given up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from compression.build import build_model
from compression.pipeline.compression_model import CompressionRequest, JobTerms
from compression.pipeline.errors import CompressionTimedOut
from compression.pipeline.spec import ModelSpec
from compression.workers.lanes import plan_of
from compression.workers.pooled_model import PooledModel, start_model
from compression.workers.processes import WorkerCannotStart
from tests.compression.conftest import TOKENIZER
from tests.compression.neural.test_build import PROSE, QUERY, SMALL
from tests.compression.workers.acting import eventually
from tests.compression.workers.conftest import is_gone

SPEC = ModelSpec("words", "token_classifier", str(TOKENIZER), "pith-mini", str(SMALL), threads=1)
PLAN = plan_of("token_classifier", workers=None, large_bytes=65_536, max_waiting=64, deadline_s=120)
LONG = "\n\n".join(f"{PROSE} {number}." for number in range(150))


@asynccontextmanager
async def words() -> AsyncIterator[PooledModel]:
    model = await start_model(SPEC, PLAN)
    try:
        yield model
    finally:
        await model.close()


def worker() -> psutil.Process | None:
    """The process with the network: a child of the fork server. Other children of these tests have children too."""
    for server in psutil.Process().children():
        if not any("fork_server" in each for each in server.cmdline()):
            continue
        for child in server.children():
            return child
    return None


async def test_it_answers_as_the_model_does_without_processes() -> None:
    requests = [CompressionRequest(QUERY, PROSE, ratio) for ratio in (0.1, 0.3, 0.5, 0.8)]
    plain = build_model(SPEC)
    expected = [(await plain.compress(request)).output for request in requests]
    await plain.close()
    async with words() as model:
        found = await asyncio.gather(*(model.compress(request) for request in requests))
        assert [result.output for result in found] == expected
        assert await model.count_tokens(PROSE) == found[0].receipt.original_tokens


async def test_a_request_that_is_given_up_costs_its_neighbours_nothing() -> None:
    async with words() as model:
        process = worker()
        assert process is not None
        with pytest.raises(CompressionTimedOut):
            await model.compress(CompressionRequest(QUERY, LONG, 0.5), JobTerms(deadline_s=0.05))
        assert (await model.compress(CompressionRequest(QUERY, PROSE, 0.5))).output
        found = worker()
        assert found is not None and found.pid == process.pid


async def test_a_network_whose_process_is_killed_is_loaded_anew(caplog: pytest.LogCaptureFixture) -> None:
    async with words() as model:
        process = worker()
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        # Gone and noticed: a request that is sent to it in between fails with it.
        await eventually(lambda: is_gone(process.pid) and f"worker {process.pid} died" in caplog.text)
        assert (await model.compress(CompressionRequest(QUERY, PROSE, 0.5))).output


async def test_a_checkpoint_that_does_not_load_says_why() -> None:
    broken = ModelSpec("words", "token_classifier", str(TOKENIZER), "pith-mini", str(TOKENIZER))
    with pytest.raises(WorkerCannotStart, match="CheckpointRefused"):
        await start_model(broken, PLAN)
