"""A real compressor behind a fake's switches: it takes a while, fails while the engines of the run are broken, and can
be broken by itself."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from compression.pipeline.compression_model import NO_TERMS, CompressionRequest, CompressionResult, JobTerms
from compression.pipeline.errors import (
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
)
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import BM25Scorer
from compression.source.token_counter import FakeCounter
from tests.faults.engine import is_broken

TAKES_S = 0.02
# Some of what is slow comes in time for a chat, and some does not.
SLOW_S = (0.1, 1.0)
# Of a replica that hangs, the pool ends the work.
HANGS_S = 2.0
LOOK_S = 0.02
Trouble = Literal["killed", "refuses", "stopped", "hangs", "slow", "garbage"]
TROUBLES: tuple[Trouble, ...] = ("killed", "refuses", "stopped", "hangs", "slow", "garbage")


class FakeSwitchedCompressor:
    """A fake only in what can go wrong with it: what it answers, and counts, is the compressor's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._switch = _switch(folder)
        self._rng = random.Random(str(folder))
        self._counter = FakeCounter()
        self._compressor = Compressor(BM25Scorer(), Pipeline(self._counter, CompressionSettings()))

    async def ready(self) -> bool:
        return True

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        await self._break_down()
        return self._counter.count(text)

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        await asyncio.sleep(TAKES_S)
        if is_broken(self._folder):
            raise CompressorFailed("the fake compressor was killed")
        trouble = await self._break_down()
        result = self._compressor.compress(request)
        return self._garbage(result) if trouble == "garbage" else result

    async def close(self) -> None:
        """Nothing is open."""

    def _trouble(self) -> str:
        # No file is no trouble, nor is a process without file handles: that is another fault's.
        with suppress(OSError):
            return self._switch.read_text()
        return ""

    async def _break_down(self) -> str:
        trouble = self._trouble()
        if trouble == "killed":
            raise CompressorFailed("the fake compressor was killed")
        if trouble == "refuses":
            raise self._rng.choice((CompressorOverloaded, CompressorUnavailable))("the fake takes nothing")
        if trouble == "hangs":
            await asyncio.sleep(HANGS_S)
            raise CompressionTimedOut("the fake compressor hung")
        if trouble == "slow":
            await asyncio.sleep(self._rng.uniform(*SLOW_S))
        while trouble == "stopped" and self._trouble() == "stopped":  # noqa: ASYNC110 - a file is looked at
            await asyncio.sleep(LOOK_S)
        return trouble

    def _garbage(self, result: CompressionResult) -> Any:
        counts = {
            "original_tokens": self._rng.choice((-1, 10**12)),
            "output_tokens": self._rng.choice((-7, 10**9)),
        }
        nonsense: tuple[Any, ...] = (
            None,
            SimpleNamespace(output="", receipt=None, kept=()),
            replace(result, receipt=replace(result.receipt, **counts)),
        )
        return self._rng.choice(nonsense)


def break_compressor(folder: Path, how: Trouble) -> None:
    """From now on, in every server of the run."""
    fresh = _switch(folder).with_suffix(".new")
    fresh.write_text(how)
    fresh.rename(_switch(folder))


def mend_compressor(folder: Path) -> None:
    _switch(folder).unlink(missing_ok=True)


def _switch(folder: Path) -> Path:
    return folder / "compressor-is-broken"
