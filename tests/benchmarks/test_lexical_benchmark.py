"""The benchmark of the lexical compressor: inputs of the size that was asked for, alike in every run."""

from __future__ import annotations

from benchmarks.lexical import TOKENIZER, made_up, measure, of_size, report
from compression.bm25 import BM25Scorer
from compression.build import load_counter
from compression.compressor import Compressor
from compression.settings import CompressionSettings


def test_the_text_is_the_same_in_every_run_and_of_the_size_asked_for() -> None:
    text = made_up(20_000)
    assert text == made_up(20_000)
    counter = load_counter(str(TOKENIZER), name="x")
    for tokens in (500, 20_000):
        assert abs(counter.count(of_size(tokens, text, counter)) - tokens) < 0.05 * tokens


def test_a_row_has_the_receipts_figures() -> None:
    counter = load_counter(str(TOKENIZER), name="x")
    compressor = Compressor(BM25Scorer(), counter, CompressionSettings())
    row = measure(compressor, made_up(4000), 0.25, runs=3)
    assert 0 < row.output_tokens <= 0.25 * row.tokens
    assert 0 < row.p50_ms <= row.p95_ms
    assert f"| {row.tokens:,} | {row.output_tokens:,} |" in report([row])
