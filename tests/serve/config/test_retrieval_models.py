"""Embedding and rerank models stand in `models` with their kind, and apart from the chat models once loaded."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from models.embedding_backends import EMBEDDING_BACKENDS
from serve.catalog.offered import catalog_of
from serve.config.retrieval_models import HOSTED, RetrievalEngineKind, host_of
from serve.config.settings import ConfigError, Settings, load_settings
from serve.money.ledger_setup import prices_of
from tests.serve.served import settings_document

EMBEDDER = {
    "id": "embedder",
    "kind": "embedding",
    "name": "Embedder",
    "blurb": "For tests.",
    "context_length": 512,
    "price": {"input_usd_per_mtok": "0.02", "minimum_request_usd": "0.000001"},
    "engine": {"kind": "static"},
}
ENCODER = {**EMBEDDER, "id": "encoder", "engine": {"kind": "encoder"}, "checkpoint": "./weights"}
LEXICAL = {"id": "lexical", "name": "L", "blurb": "b", "kind": "lexical"}


def document(folder: Path, *others: dict[str, Any], hosts: bool = True) -> dict[str, Any]:
    found = settings_document(folder, compression={"models": [LEXICAL] if hosts else []})
    found["models"][1:1] = deepcopy(list(others))
    return found


def refusal(folder: Path, given: dict[str, Any]) -> str:
    path = folder / "pith.yaml"
    path.write_text(yaml.safe_dump(given))
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_kind_of_engine_is_hosted_or_an_encoder_or_a_backend() -> None:
    assert sorted(get_args(RetrievalEngineKind)) == sorted({*HOSTED, "encoder", *EMBEDDING_BACKENDS})


def test_each_kind_is_in_its_own_list_and_all_are_priced(tmp_path: Path) -> None:
    settings = Settings.model_validate(document(tmp_path, EMBEDDER, ENCODER))
    assert [model.id for model in settings.models] == ["alpha", "beta", "gamma", "delta"]
    assert [model.id for model in settings.retrieval_models] == ["embedder", "encoder"]
    assert catalog_of(settings).ids == ("alpha", "beta", "gamma", "delta")
    hosts = [host_of(model, settings.compression.models) for model in settings.retrieval_models]
    assert [host and host.id for host in hosts] == ["lexical", None]
    prices = prices_of(catalog_of(settings), settings.compression.models, settings.retrieval_models)
    (price,) = [price for price in prices if price.model_id == "embedder"]
    assert (price.input_micro_usd_per_mtok, price.minimum_nano_usd) == (20_000, 1_000)
    assert price.output_micro_usd_per_mtok == 0


def test_a_relative_checkpoint_is_found_from_the_files_folder(tmp_path: Path) -> None:
    settings = Settings.model_validate(document(tmp_path, ENCODER)).anchored(tmp_path)
    assert settings.retrieval_models[0].checkpoint == str(tmp_path / "weights")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": {"kind": "lexical"}}, "models.1: engine.kind lexical is for models of kind rerank"),
        ({"checkpoint": "x/y"}, "models.1: checkpoint: must not be set for engine.kind static"),
        ({"replicas": {"min": 0}}, "models.1: replicas: engine.kind static runs in the replicas of a comp"),
        (
            {"max_input_bytes": 9},
            "models.1: max_input_bytes: engine.kind static takes what its compression model",
        ),
        ({"engine": {"kind": "encoder"}}, "models.1: checkpoint: must be set for engine.kind encoder"),
        ({"kind": "embeddings"}, "models.1.kind: must be chat, embedding or rerank, not 'embeddings'"),
        ({"price": {"output_usd_per_mtok": 1}}, "models.1.price.input_usd_per_mtok: Field required"),
        ({"id": "alpha"}, "the file: model id 'alpha' is listed twice"),
        ({"id": "lexical"}, "the file: model id 'lexical' is listed twice"),
        ({"capabilities": {}}, "models.1.capabilities: unknown key"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_stands(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    assert words in refusal(tmp_path, document(tmp_path, {**EMBEDDER, **changes}))


def test_a_list_of_their_own_is_no_key_of_a_file(tmp_path: Path) -> None:
    given = {**document(tmp_path), "retrieval_models": [EMBEDDER]}
    assert "retrieval_models: unknown key" in refusal(tmp_path, given)


def test_what_comes_with_pith_needs_a_process_to_run_in(tmp_path: Path) -> None:
    said = refusal(tmp_path, document(tmp_path, EMBEDDER, hosts=False))
    assert "'embedder': engine.kind static runs in the processes of a compression model" in said
