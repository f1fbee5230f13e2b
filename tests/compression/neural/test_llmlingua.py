"""`fidelity: llmlingua2`, which runs the library itself on a checkpoint of random weights."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sample_checkpoints import TEXTS, Architecture
from compression.neural.batching import CheckpointRefused, LLMLinguaUnavailable
from compression.neural.llmlingua import LLMLingua2
from compression.neural.networks import Placement
from compression.pipeline.errors import RefusedRequest

ARCHITECTURES: tuple[Architecture, ...] = ("bert", "xlm-roberta")
WORD, LABEL = "\x1f", "\x1e"
# Several chunks, one of them without a sentence's end in it, so that the silent cut at 512 happens too.
LONG = " ".join(TEXTS * 4) + " word" * 1200 + " " + " ".join(TEXTS)


class FakeEncoding:
    """A fake of tiktoken's encoding, whose file is downloaded: a token for every four characters of a word."""

    def encode(self, text: str) -> list[int]:
        return [0 for word in re.findall(r"\S+", text) for _ in range(0, len(word), 4)]


@pytest.fixture
def encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda _: FakeEncoding())


@pytest.fixture(autouse=True)
def _its_warnings() -> Any:
    """What it warns of is its own business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("llmlingua", reason="the library is not installed")
        yield


def original(folder: Path) -> Any:
    from llmlingua import PromptCompressor

    return PromptCompressor(
        str(folder), device_map="cpu", use_llmlingua2=True, model_config={"trust_remote_code": False}
    )


def its_words(compressor: Any, text: str, rate: float) -> list[str]:
    found: str = compressor.compress_prompt_llmlingua2(
        [text], rate=rate, return_word_label=True, word_sep=WORD, label_sep=LABEL
    )["fn_labeled_original_prompt"]
    entries = [entry.rpartition(LABEL) for entry in found.split(WORD)]
    return [word for word, _, label in entries if label == "1" and word in text]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_kept_are_the_librarys_words_at_places_of_the_source(
    architecture: Architecture, checkpoints: dict[Architecture, Path], encoding: None
) -> None:
    theirs = original(checkpoints[architecture])
    ours = LLMLingua2(theirs)
    placed = said = 0
    for text in (TEXTS[0], LONG):
        for rate in (0.33, 0.8, 1.0):
            slices = ours.kept(text, rate)
            found, words = [text[start:end] for start, end in slices], its_words(theirs, text, rate)
            # Where it cuts a word between two chunks, it says marks that the text does not have there.
            rest = iter(words)
            assert all(word in rest for word in found), "another word, or another order"
            assert all(before.end <= after.start for before, after in pairwise(slices))
            placed, said = placed + len(found), said + sum(map(bool, words))
    assert placed >= 0.97 * said > 1000, "what keeps nothing proves nothing"


def test_a_checkpoint_of_another_name_is_of_the_family_of_its_model_type(
    checkpoints: dict[Architecture, Path], encoding: None, tmp_path: Path
) -> None:
    other = tmp_path / "ours"
    other.symlink_to(checkpoints["xlm-roberta"])
    named = LLMLingua2.load(str(checkpoints["xlm-roberta"]), Placement())
    assert LLMLingua2.load(str(other), Placement()).kept(TEXTS[0], 0.5) == named.kept(TEXTS[0], 0.5)


class FakePromptCompressor:
    """A fake: labels what it is given, or fails on it."""

    def __init__(self, *labelled: tuple[str, int]) -> None:
        self._found = WORD.join(f"{word}{LABEL}{label}" for word, label in labelled)

    def compress_prompt_llmlingua2(self, texts: list[str], **options: Any) -> dict[str, str]:
        if "<|endoftext|>" in texts[0]:
            raise ValueError("disallowed special token")
        return {"fn_labeled_original_prompt": self._found}


def test_words_that_its_tokenizer_changed_or_lost_cost_only_themselves() -> None:
    lost = "\u0f40" * 5000
    text = f"one \u00bd two {lost} three four five"
    labelled = [("one", 1), ("1\u20442", 1), ("two", 0), ("rd", 1), ("three", 0), ("four", 1), ("five", 1)]
    kept = LLMLingua2(FakePromptCompressor(*labelled)).kept(text, 0.5)
    assert [text[start:end] for start, end in kept] == ["one", "four", "five"]


def test_a_text_that_it_fails_on_is_refused_by_its_field() -> None:
    with pytest.raises(RefusedRequest) as caught:
        LLMLingua2(FakePromptCompressor()).kept("a <|endoftext|>", 0.5)
    assert caught.value.field == "input"


def test_a_family_that_it_does_not_know_is_refused(checkpoints: dict[Architecture, Path]) -> None:
    with pytest.raises(CheckpointRefused, match="knows bert and xlm-roberta, not modernbert"):
        LLMLingua2.load(str(checkpoints["modernbert"]), Placement())


def test_without_the_encodings_file_it_says_what_is_missing(
    checkpoints: dict[Architecture, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiktoken = pytest.importorskip("tiktoken")

    def refuse(_: str) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(tiktoken, "encoding_for_model", refuse)
    with pytest.raises(LLMLinguaUnavailable, match="TIKTOKEN_CACHE_DIR"):
        LLMLingua2.load(str(checkpoints["bert"]), Placement())
