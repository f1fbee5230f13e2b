"""A real compressor behind a fake's switch: it takes a while, and fails while the engines of the run are broken."""

from __future__ import annotations

import asyncio
from pathlib import Path

from compression.counting.counter import FakeCounter
from compression.pipeline.compressor import Compressor
from compression.pipeline.errors import CompressorFailed
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.served import NO_TERMS, JobTerms
from compression.pipeline.settings import CompressionSettings
from compression.scorers.bm25 import BM25Scorer
from tests.faults.engine import is_broken

TAKES_S = 0.02


class FakeSwitchedCompressor:
    """A fake only in what can go wrong with it: what it answers, and counts, is the compressor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counter = FakeCounter()
        self._compressor = Compressor(BM25Scorer(), self._counter, CompressionSettings())

    async def ready(self) -> bool:
        return True

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        return self._counter.count(text)

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        await asyncio.sleep(TAKES_S)
        if is_broken(self._folder):
            raise CompressorFailed("the fake compressor was killed")
        return self._compressor.compress(request)

    async def close(self) -> None:
        """Nothing is open."""
