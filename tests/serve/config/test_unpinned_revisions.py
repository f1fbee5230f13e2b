"""A configuration that takes from the hub what it has on the day says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compression import build
from compression.build import load_counter
from serve.config.compression_models import spec_of
from serve.config.settings import Settings, unpinned_revisions
from tests.serve.served import settings_document

COMMIT = "8b3219a92973c328a8e22fadcfa821b5dc75636a"
WORDS = {"id": "words", "name": "Words", "blurb": "b", "kind": "token_classifier", "checkpoint": "org/words"}


def settings(folder: Path, **compressor: Any) -> Settings:
    document = settings_document(folder, compression={"models": [WORDS | compressor]})
    return Settings.model_validate(document)


@pytest.mark.parametrize("revision", [None, "main", "v1", COMMIT[:7]])
def test_what_is_no_commit_is_warned_of_with_the_key(tmp_path: Path, revision: str | None) -> None:
    (line,) = unpinned_revisions(settings(tmp_path, revision=revision))
    assert "org/words" in line and line.endswith("name a commit in compression.models.words.revision")


def test_a_commit_is_enough_for_a_checkpoint_and_a_tokenizer_wants_its_own(tmp_path: Path) -> None:
    assert unpinned_revisions(settings(tmp_path, revision=COMMIT)) == []
    (line,) = unpinned_revisions(settings(tmp_path, revision=COMMIT, tokenizer="org/tokens"))
    assert line.endswith("compression.models.words.tokenizer_revision")
    pinned = settings(tmp_path, revision=COMMIT, tokenizer="org/tokens", tokenizer_revision=COMMIT)
    assert unpinned_revisions(pinned) == []
    assert spec_of(pinned.compression.models[0]).tokenizer_revision == COMMIT


@pytest.mark.parametrize("reference", ["embedded:small", "./words", "/srv/words", "~/words"])
def test_what_lies_on_this_machine_needs_no_commit(tmp_path: Path, reference: str) -> None:
    assert unpinned_revisions(settings(tmp_path, checkpoint=reference)) == []


def test_the_tokenizer_is_fetched_at_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fetch(repository: str, revision: str | None) -> Path:
        asked.append((repository, revision))
        raise build.TokenizerUnavailable(repository, "not here")

    monkeypatch.setattr(build, "_from_hub", fetch)
    with pytest.raises(build.TokenizerUnavailable):
        load_counter("org/tokens", name="t", revision=COMMIT)
    assert asked == [("org/tokens", COMMIT)]


def test_an_encoder_of_texts_wants_its_commit_too(tmp_path: Path) -> None:
    document = settings_document(tmp_path)
    model = {"id": "e", "kind": "embedding", "name": "E", "blurb": "b", "context_length": 512}
    given = {"price": {"input_usd_per_mtok": 1}, "engine": {"kind": "vllm"}, "checkpoint": "org/e"}
    document["models"].append({**model, **given})
    (line,) = unpinned_revisions(Settings.model_validate(document))
    assert line.endswith("name a commit in models.e.revision")
