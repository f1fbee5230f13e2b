"""The benchmark of the lexical compressor: inputs of the size that was asked for, alike in every run."""

from __future__ import annotations

from collections import Counter

from benchmarks.lexical import TOKENIZER, made_up, measure, of_size, profile, report
from benchmarks.resident import peak_growth_bytes
from benchmarks.stages import OTHER, STAGES, shares
from compression.build import load_counter
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import BM25Scorer


def test_the_text_is_the_same_in_every_run_and_of_the_size_asked_for() -> None:
    text = made_up(20_000)
    assert text == made_up(20_000)
    counter = load_counter(str(TOKENIZER), name="x")
    for tokens in (500, 20_000):
        assert abs(counter.count(of_size(tokens, text, counter)) - tokens) < 0.05 * tokens


def test_a_row_has_the_receipts_figures() -> None:
    counter = load_counter(str(TOKENIZER), name="x")
    compressor = Compressor(BM25Scorer(), Pipeline(counter, CompressionSettings()))
    row = measure(compressor, made_up(4000), 0.25, runs=3)
    assert 0 < row.output_tokens <= 0.25 * row.tokens
    assert 0 < row.p50_ms <= row.p95_ms
    assert f"| {row.tokens:,} | {row.output_tokens:,} |" in report([row])


def test_a_profile_says_which_stages_took_the_time() -> None:
    counter = load_counter(str(TOKENIZER), name="x")
    compressor = Compressor(BM25Scorer(), Pipeline(counter, CompressionSettings()))
    table = profile(compressor, made_up(60_000), 0.25, runs=3)
    stages = {line.split("|")[1].strip() for line in table.splitlines()[2:]}
    assert "segmentation" in stages
    assert stages <= {*STAGES.values(), OTHER}
    assert shares(Counter({"flags": 1, "features": 3})).splitlines()[2:] == [
        "| features | 75 |",
        "| flags | 25 |",
    ]


def test_memory_is_what_a_call_takes_and_gives_back() -> None:
    found = peak_growth_bytes(lambda: bytearray(64 * 1024 * 1024).count(1))
    assert found > 48 * 1024 * 1024
