"""A spec becomes a model that answers; what a spec gets wrong is said before anything runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from compression.build import TokenizerUnavailable, build_model, load_counter
from compression.pipeline.compression_model import CompressionRequest, CompressionResult, LocalModel
from compression.pipeline.errors import CompressorOverloaded
from compression.pipeline.spec import CompressionSettings, ModelSpec
from compression.scorers.kinds import KINDS, Blend
from tests.compression.conftest import TOKENIZER

LEXICAL = ModelSpec("lexical", "lexical", str(TOKENIZER), "pith-mini")
SOURCE = "The cat sat on the mat. The harbour team won the cup in 1999. It was raining all day in the north."


async def test_a_lexical_model_keeps_what_is_asked_for() -> None:
    model = build_model(LEXICAL)
    result = await model.compress(CompressionRequest("Who won the cup?", SOURCE, 0.5))
    await model.close()
    assert result.output == "The harbour team won the cup in 1999."
    assert result.receipt.tokenizer == "pith-mini"


async def test_the_settings_of_the_spec_are_those_of_the_model() -> None:
    model = build_model(replace(LEXICAL, settings=CompressionSettings(lowest_ratio=0.4)))
    with pytest.raises(ValueError, match=r"at least 0\.4"):
        await model.compress(CompressionRequest("Who won?", SOURCE, 0.3))
    await model.close()


async def test_a_model_that_may_let_nothing_wait_refuses() -> None:
    model = build_model(replace(LEXICAL, max_waiting=0))
    assert isinstance(model, LocalModel)
    with pytest.raises(CompressorOverloaded):
        await model.compress(CompressionRequest("Who won?", SOURCE, 0.5))
    await model.close()


class FakeHeldCompressor:
    """A fake: works until it may end."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def compress(self, request: CompressionRequest) -> CompressionResult:
        self.began.set()
        assert self.may_end.wait(60)
        raise RuntimeError("it was not wanted any more")


async def test_work_that_is_cancelled_is_over_only_when_its_thread_is_free() -> None:
    compressor = FakeHeldCompressor()
    model = LocalModel(compressor, max_waiting=1)
    asked = asyncio.create_task(model.compress(CompressionRequest("Who won?", SOURCE, 0.5)))
    await asyncio.to_thread(compressor.began.wait, 60)
    asked.cancel()
    done, _ = await asyncio.wait((asked,), timeout=0.05)
    assert not done
    compressor.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await model.close()


def test_building_a_lexical_model_imports_no_torch() -> None:
    code = (
        "import sys; from compression.build import build_model; from compression.pipeline.spec import ModelSpec;"
        f"build_model(ModelSpec('l', 'lexical', {str(TOKENIZER)!r}, 'mini'));"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, timeout=60).returncode == 0


@pytest.mark.parametrize("where", [TOKENIZER, TOKENIZER / "tokenizer.json"], ids=["folder", "file"])
def test_a_tokenizer_is_a_file_or_its_folder(where: Path) -> None:
    assert load_counter(str(where), name="mine").count("a word") > 0


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerUnavailable, match=r"holds no tokenizer\.json") as caught:
        load_counter(str(tmp_path), name="mine")
    assert caught.value.tokenizer == str(tmp_path)


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerUnavailable, match="cannot be read"):
        load_counter(str(tmp_path), name="mine")


def test_what_can_be_no_repository_is_refused_without_asking_the_hub() -> None:
    with pytest.raises(TokenizerUnavailable, match="no such path"):
        load_counter("not/a/repository/at all", name="mine")


def test_a_kind_with_weights_of_its_own_takes_no_checkpoint_and_the_others_need_one() -> None:
    with pytest.raises(ValueError, match="lexical: checkpoint: must not be set for kind lexical"):
        replace(LEXICAL, checkpoint="some/model")
    with pytest.raises(ValueError, match="checkpoint: must be set for kind encoder"):
        replace(LEXICAL, kind="encoder")


def test_only_what_blends_takes_a_blend_and_has_one_by_default() -> None:
    with pytest.raises(ValueError, match="does not use blend"):
        replace(LEXICAL, blend=Blend(1, 1))
    encoder = replace(LEXICAL, kind="encoder", checkpoint="some/model")
    assert encoder.blend_used == KINDS["encoder"].blend and LEXICAL.blend_used is None
    assert replace(encoder, blend=Blend(1, 2)).blend_used == Blend(1, 2)


@pytest.mark.parametrize(("lexical", "neural"), [(-1, 1), (1, -1), (0, 0)])
def test_weights_that_would_turn_scores_round_are_refused(lexical: float, neural: float) -> None:
    with pytest.raises(ValueError, match="blend"):
        Blend(lexical, neural)


def test_the_fidelity_of_one_kind_is_no_other_kinds() -> None:
    with pytest.raises(ValueError, match="token classifiers only"):
        replace(LEXICAL, fidelity="llmlingua2")
    words = replace(LEXICAL, kind="token_classifier", checkpoint="somewhere", fidelity="llmlingua2")
    with pytest.raises(ValueError, match="runs in float32, not in bfloat16"):
        replace(words, dtype="bfloat16")
