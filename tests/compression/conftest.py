"""What several tests of compression need: a real tokenizer, and compressors around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import BM25Scorer, LexicalScorer
from compression.source.token_counter import FakeCounter, TokenCounter, TokenizerCounter
from compression.source.units import Segmentation

TOKENIZER = Path(__file__).parents[2] / "models" / "embedded" / "tokenizer"

Compress = Callable[..., CompressionResult]


class FakeScorer:
    """A fake: a unit scores 1 for each of the marked words in it, out of as many as are marked."""

    def __init__(self, *marked: str) -> None:
        self._marked = marked

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        del query
        return [
            sum(word in text.text(unit) for word in self._marked) / max(1, len(self._marked))
            for unit in range(len(text.units))
        ]


@cache
def pith_mini() -> TokenizerCounter:
    """For tests of hypothesis too, where a fixture would be in the way."""
    return TokenizerCounter.from_file(TOKENIZER, name="pith-mini")


@pytest.fixture(scope="session")
def counter() -> TokenizerCounter:
    return pith_mini()


@pytest.fixture(scope="session")
def compress(counter: TokenCounter) -> Compress:
    """Compress `source` for `query`; keep what BM25 ranks best, or what holds the words that are `marked`."""

    def run(
        source: str,
        ratio: float | None = 0.5,
        *,
        query: str = "What did the committee decide about the budget?",
        marked: Sequence[str] = (),
        settings: CompressionSettings | None = None,
        preserve_order: bool = True,
        explain: bool = False,
        keep: float | None = None,
        mark_gaps: bool = False,
    ) -> CompressionResult:
        scorer = FakeScorer(*marked) if marked else BM25Scorer()
        compressor = Compressor(scorer, Pipeline(counter, settings or CompressionSettings()))
        return compressor.compress(
            CompressionRequest(query, source, ratio, preserve_order, explain, keep, mark_gaps)
        )

    return run


@pytest.fixture(scope="session")
def lexical() -> Compressor:
    """The embedded default, which counts words."""
    return Compressor(LexicalScorer.load(), Pipeline(FakeCounter(), CompressionSettings()))
