"""Each neural kind as a server meets it: exact budgets, the source's own words, and refusals that a server knows."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.sample_checkpoints import Architecture
from compression.build import build_model
from compression.neural.batching import CheckpointRefused, Floats, Job, NeuralService, Window
from compression.neural.llmlingua import LLMLingua2
from compression.neural.models import Running, ScoredModel
from compression.neural.networks import Placement
from compression.pipeline.compression_model import (
    BuiltModel,
    CompressionModel,
    CompressionRequest,
    CompressionResult,
)
from compression.pipeline.errors import (
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
)
from compression.pipeline.pipeline import Pipeline
from compression.pipeline.spec import CompressionSettings, ModelSpec
from compression.scorers.kinds import Blend
from compression.scorers.lexical import LexicalScorer
from compression.source.token_counter import TokenizerCounter
from compression.source.units import Segmentation, join
from tests.compression.conftest import TOKENIZER

SMALL = Path(__file__).parents[3] / "compression" / "neural" / "small"
QUERY = "When did the harbour freeze?"
TOPICS = ("harbour", "council", "orchestra", "railway", "garden", "library")
PROSE = "\n\n".join(
    f"The {topic} has been described by many visitors as a rather quiet and pleasant place. In the winter of "
    f"{1900 + at}, the {topic} froze over for the first time that anyone could remember. It was not opened again."
    for at, topic in enumerate(TOPICS)
)
MIXED = (
    PROSE
    + "\n\n```python\ndef thaw(harbour, hours=3):\n    return harbour.warm(hours)\n```\n\n"
    + "| place | frozen |\n|---|---|\n| harbour | 1900 |\n| railway | 1903 |\n"
)
RECORDS = json.dumps({f"place {at}": {"note": PROSE, "year": 1900 + at} for at in range(3)})
RATIOS = (0.02, 0.1, 0.3, 0.5, 0.8)


def spec(kind: str, checkpoint: Path, **fields: Any) -> ModelSpec:
    return ModelSpec("model", kind, str(TOKENIZER), "pith-mini", str(checkpoint), **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=["encoder", "query_classifier", "token_classifier", "faithful"])
def any_spec(
    request: pytest.FixtureRequest,
    checkpoints: dict[Architecture, Path],
    query_checkpoints: dict[str, Path],
) -> Iterator[ModelSpec]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "encoder":
            yield spec("encoder", request.getfixturevalue("minilm"))
        elif request.param == "query_classifier":
            yield spec("query_classifier", query_checkpoints["modernbert"], overlap=16)
        elif request.param == "token_classifier":
            yield spec("token_classifier", SMALL)
        else:
            count_by_characters(patch)
            yield spec("token_classifier", checkpoints["bert"], fidelity="llmlingua2")


@pytest.fixture(scope="module")
def any_model(any_spec: ModelSpec) -> Iterator[BuiltModel]:
    model = build_model(any_spec)
    yield model
    asyncio.run(model.close())


@pytest.fixture(scope="module")
def words() -> Iterator[BuiltModel]:
    model = build_model(spec("token_classifier", SMALL))
    yield model
    asyncio.run(model.close())


def count_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake of tiktoken's encoding, whose file is downloaded: a token for every four characters."""

    class FakeEncoding:
        def encode(self, text: str) -> list[int]:
            return [0] * (-(-len(text) // 4))

    tiktoken = pytest.importorskip("tiktoken")
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda _: FakeEncoding())


async def asked(model: CompressionModel, source: str, ratio: float, **fields: Any) -> CompressionResult:
    return await model.compress(CompressionRequest(fields.pop("query", QUERY), source, ratio, **fields))


@pytest.mark.parametrize(
    "source",
    [
        PROSE,
        MIXED,
        *(
            pytest.param(source, marks=pytest.mark.long)
            for source in (RECORDS, "短い文です。" * 60, "one " * 300, "x" * 3000)
        ),
    ],
)
async def test_every_kind_keeps_within_the_budget_and_slices_of_the_source(
    any_model: BuiltModel, source: str
) -> None:
    for ratio in RATIOS:
        result = await asked(any_model, source, ratio)
        assert result.receipt.compression_ratio <= ratio
        assert result.output == join(source, result.kept)


async def test_every_kind_counts_the_marks_of_gaps(any_model: BuiltModel) -> None:
    for ratio in RATIOS:
        result = await asked(any_model, PROSE, ratio, mark_gaps=True)
        assert result.receipt.compression_ratio <= ratio
        unmarked = "".join(result.output.replace("[…]", "").split())
        assert unmarked == "".join(join(PROSE, result.kept).split())


async def test_a_ratio_of_one_gives_the_input_back(any_model: BuiltModel) -> None:
    result = await asked(any_model, MIXED, 1.0)
    assert result.output == MIXED and result.receipt.compression_ratio == 1.0


async def test_no_query_and_no_words_are_no_failure(any_model: BuiltModel) -> None:
    result = await asked(any_model, PROSE, 0.4, query=" ")
    assert "query_missing" in {flag.code for flag in result.receipt.risk_flags}
    assert result.receipt.compression_ratio <= 0.4
    assert (await asked(any_model, "\n" * 500, 0.4)).receipt.compression_ratio <= 0.4


async def test_requests_at_once_get_what_they_get_alone(any_model: BuiltModel) -> None:
    sources = [PROSE, MIXED, PROSE[:400]]
    alone = [(await asked(any_model, source, 0.4)).output for source in sources]
    together = await asyncio.gather(*(asked(any_model, source, 0.4) for source in sources))
    assert [result.output for result in together] == alone


async def test_other_orders_keep_within_the_budget_too(any_model: BuiltModel) -> None:
    result = await asked(any_model, PROSE, 0.4, preserve_order=False, explain=True)
    assert result.receipt.compression_ratio <= 0.4
    assert any(unit.kept for unit in result.unit_scores)


async def test_a_closed_model_is_unavailable(any_spec: ModelSpec) -> None:
    model = build_model(any_spec)
    await model.close()
    with pytest.raises(CompressorUnavailable):
        await asked(model, PROSE, 0.5)


async def test_an_encoder_finds_what_shares_no_word_with_the_question(minilm: Path) -> None:
    source = "\n\n".join(
        [
            "The recipe needs two eggs and a cup of flour.",
            "Paris is where the government of France has its seat.",
            "The striker scored twice in the second half.",
            "Rain is expected along the coast on Tuesday.",
        ]
    )
    model = build_model(spec("encoder", minilm))
    result = await asked(
        model, source, 0.4, query="What is the capital city of the French republic?", explain=True
    )
    assert result.output == "Paris is where the government of France has its seat."
    assert all(0 <= unit.score <= 1 for unit in result.unit_scores)
    await model.close()


async def test_a_blend_weighs_what_it_is_told_to(minilm: Path) -> None:
    source = "harbour freeze when harbour freeze.\n\nIce closed the port in January 1900.\n\nBread is made of flour."
    by_words = build_model(spec("encoder", minilm, blend=Blend(1.0, 0.0)))
    by_meaning = build_model(spec("encoder", minilm, blend=Blend(0.0, 10.0)))
    scores = [
        [unit.score for unit in (await asked(model, source, 0.5, explain=True)).unit_scores]
        for model in (by_words, by_meaning)
    ]
    expected = LexicalScorer.load().score(QUERY, _segmented(source))
    assert scores[0] == pytest.approx(list(expected), abs=1e-5) and scores[0] != scores[1]
    await by_words.close()
    await by_meaning.close()


def _segmented(source: str) -> Segmentation:
    counter = TokenizerCounter.from_file(TOKENIZER, name="mini")
    return Pipeline(counter, CompressionSettings()).prepare(CompressionRequest(QUERY, source, 0.5)).text


async def test_a_token_classifier_cuts_inside_prose_and_keeps_words_whole() -> None:
    model = build_model(spec("token_classifier", SMALL, steered_by="bm25"))
    result = await asked(
        model, PROSE, 0.6, query="harbour council orchestra railway garden library froze winter"
    )
    sentences = set(re.split(r"(?<=\.)\s+", PROSE))
    assert any(sentence not in sentences for sentence in re.split(r"(?<=\.)\s+", result.output))
    assert set(re.findall(r"\w+", result.output)) <= set(re.findall(r"\w+", PROSE))
    assert result.receipt.compression_ratio > 0.5
    await model.close()


async def test_a_token_classifier_cuts_neither_json_nor_code_nor_tables(words: BuiltModel) -> None:
    for ratio in RATIOS[1:]:
        json.loads((await asked(words, RECORDS, ratio)).output)
        lines = (
            await asked(words, MIXED, ratio, query="thaw harbour hours, place frozen")
        ).output.splitlines()
        assert all(line in MIXED.splitlines() for line in lines if "|" in line or "    " in line)


async def test_numbers_stay_in_what_is_left_of_a_sentence(words: BuiltModel) -> None:
    result = await asked(words, PROSE, 0.5, query="winter froze")
    for sentence in re.split(r"(?<=\.)\s+", result.output):
        assert "froze" not in sentence or re.search(r"\b19\d\d\b", sentence)


async def test_without_a_query_all_parts_keep_about_as_much(words: BuiltModel) -> None:
    output = (await asked(words, PROSE, 0.5, query="")).output
    assert sum(topic in output for topic in TOPICS) >= len(TOPICS) - 1


async def test_fidelity_keeps_the_very_words(
    checkpoints: dict[Architecture, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    count_by_characters(monkeypatch)
    model = build_model(spec("token_classifier", checkpoints["bert"], fidelity="llmlingua2"))
    original = LLMLingua2.load(str(checkpoints["bert"]), Placement())
    words = [PROSE[start:end] for start, end in original.kept(PROSE, 0.6)]
    result = await asked(model, PROSE, 0.6)
    assert "".join(result.output.split()) == "".join(words)
    await model.close()


async def test_a_query_that_leaves_no_room_is_refused_by_its_field(
    query_checkpoints: dict[str, Path],
) -> None:
    model = build_model(spec("query_classifier", query_checkpoints["modernbert"]))
    with pytest.raises(RefusedRequest, match="leave room for context") as caught:
        await asked(model, PROSE, 0.5, query="freeze " * 2000)
    assert caught.value.field == "query" and not caught.value.message.startswith("query")
    await model.close()


async def test_a_model_that_may_let_nothing_wait_refuses(any_spec: ModelSpec) -> None:
    model = build_model(replace(any_spec, max_waiting=0))
    with pytest.raises(CompressorOverloaded):
        await asked(model, PROSE, 0.5)
    await model.close()


class FakeBrokenNetwork:
    """A fake: fails as torch does for want of memory."""

    def run(self, batch: Sequence[Window]) -> list[Floats]:
        raise RuntimeError("out of memory")


class FakeScoreJobs:
    """A fake: one window, and as a score of each unit whatever comes out."""

    def score_job(self, query: str, text: Segmentation) -> Job[list[float]]:
        return Job((Window((1, 2)),), lambda outputs: [float(outputs[0][0])] * len(text.units))


class FakeHeldNetwork:
    """A fake: answers when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def run(self, batch: Sequence[Window]) -> list[Floats]:
        assert self.let_go.wait(20)
        return [np.full(2, 0.5, np.float32) for _ in batch]


async def test_a_full_queue_of_the_network_is_told_as_overload(counter: TokenizerCounter) -> None:
    network = FakeHeldNetwork()
    service = NeuralService(network, token_budget=2, max_waiting_tokens=2)
    running = Running(Pipeline(counter, CompressionSettings()), service, 9)
    model = ScoredModel(running, FakeScoreJobs(), LexicalScorer.load(), Blend(1, 1))
    asking = [asyncio.ensure_future(asked(model, PROSE, 0.5)) for _ in range(4)]
    # One is in the network, one may wait; the others are refused while these are held.
    await asyncio.wait_for(asyncio.wait(asking, return_when=asyncio.FIRST_EXCEPTION), 120)
    network.let_go.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(result) for result in results} == {CompressorOverloaded, CompressionResult}
    await model.close()


async def test_a_network_that_fails_is_told_as_the_compressor_failing(counter: TokenizerCounter) -> None:
    service = NeuralService(FakeBrokenNetwork(), token_budget=64, max_waiting_tokens=64)
    running = Running(Pipeline(counter, CompressionSettings()), service, 4)
    model = ScoredModel(running, FakeScoreJobs(), LexicalScorer.load(), Blend(1, 1))
    with pytest.raises(CompressorFailed, match="RuntimeError: out of memory"):
        await asked(model, PROSE, 0.5)
    await model.close()


def test_a_checkpoint_that_is_nowhere_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointRefused, match=re.escape(str(tmp_path))):
        build_model(spec("encoder", tmp_path))


def test_a_device_that_is_missing_is_named() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    with pytest.raises(CheckpointRefused, match="does not load on cuda"):
        build_model(spec("token_classifier", SMALL, device="cuda"))
