"""The fidelity mode against the original itself, on the same weights."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks.sample_checkpoints import TEXTS, Architecture
from compression.neural.llmlingua2 import LLMLingua2, gpt35_counter
from compression.neural.networks import Placement
from compression.neural.windows import TokenCounterUnavailable, run_job

ARCHITECTURES: tuple[Architecture, ...] = ("bert", "xlm-roberta", "modernbert")
WORD, LABEL = "\x1f", "\x1e"
# Several chunks, one of them without a sentence's end in it, so that the silent cut at 512 happens too.
LONG = " ".join(TEXTS * 4) + " word" * 1200 + " " + " ".join(TEXTS)


class FakeEncoding:
    """A fake of tiktoken's encoding, whose file is downloaded: a token for every four characters of a word."""

    def encode(self, text: str) -> list[int]:
        return [0 for word in re.findall(r"\S+", text) for _ in range(0, len(word), 4)]


@pytest.fixture
def encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs count words by the fake."""
    tiktoken = pytest.importorskip("tiktoken")
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda _: FakeEncoding())


@pytest.fixture
def original(encoding: None) -> Any:
    """Makes the original on a checkpoint. It warns of what is its own business, and reseeds global generators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("llmlingua", reason="the original is not installed")

    def make(folder: Path) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return module.PromptCompressor(
                str(folder), device_map="cpu", use_llmlingua2=True, model_config={"trust_remote_code": False}
            )

    return make


def its_mask(compressor: Any, text: str, rate: float) -> list[tuple[str, bool]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compressor.compress_prompt_llmlingua2(
            [text], rate=rate, return_word_label=True, word_sep=WORD, label_sep=LABEL
        )["fn_labeled_original_prompt"]
    return [(entry.rsplit(LABEL, 1)[0], entry.endswith("1")) for entry in found.split(WORD)] if found else []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_keep_mask_is_the_originals_word_for_word(
    architecture: Architecture, checkpoints: dict[Architecture, Path], original: Any
) -> None:
    folder = checkpoints[architecture]
    theirs, ours = original(folder), LLMLingua2.load(str(folder), Placement())
    kept = total = 0
    for text in (*TEXTS, LONG):
        for rate in (0.1, 0.33, 0.5, 0.8, 1.0):
            expected, mask = its_mask(theirs, text, rate), ours.mask(text, rate)
            assert list(zip(mask.words, mask.kept, strict=True)) == expected, (text[:40], rate)
            kept, total = kept + sum(mask.kept), total + len(expected)
    assert 0.2 * total < kept < 0.8 * total, "a mask that keeps all or nothing proves nothing"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batched_with_others_it_decides_nearly_all_words_alike(
    architecture: Architecture, checkpoints: dict[Architecture, Path], encoding: None
) -> None:
    ours = LLMLingua2.load(str(checkpoints[architecture]), Placement())
    exact, batched = ours.mask(LONG, 0.5), run_job(ours.network, ours.job(LONG, 0.5), 2048)
    assert exact.words == batched.words
    same = sum(a == b for a, b in zip(exact.kept, batched.kept, strict=True))
    assert same >= 0.995 * len(exact.kept)


def test_words_have_their_places_in_the_source(checkpoints: dict[Architecture, Path], encoding: None) -> None:
    mask = LLMLingua2.load(str(checkpoints["bert"]), Placement()).mask(TEXTS[0], 0.5)
    assert [TEXTS[0][slice(*span)] for span in mask.spans if span] == list(mask.words)


def test_without_the_encodings_file_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")

    def refuse(_: str) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(tiktoken, "encoding_for_model", refuse)
    with pytest.raises(TokenCounterUnavailable, match="TIKTOKEN_CACHE_DIR"):
        gpt35_counter()
