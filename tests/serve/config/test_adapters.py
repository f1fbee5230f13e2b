"""An adapter is an entry of the catalog with a price of its own, and has all else of its base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.training.chat_models.adapter import make_adapter
from models.catalog import ChatModel
from serve.catalog.offered import catalog_of
from serve.config.capacity.fit import check_fit
from serve.config.chat_models import broken_adapters, check_folders, lora_arguments
from serve.config.paths import ConfigError
from serve.config.settings import Settings, unpinned_revisions
from serve.config.values import Node
from tests.serve.served import model_document, settings_document


def adapter_document(model_id: str = "loud", of: str = "alpha", **fields: Any) -> dict[str, Any]:
    price = {"input_usd_per_mtok": "7", "output_usd_per_mtok": "9", "minimum_request_usd": "0.5"}
    return {
        "id": model_id,
        "name": "Loud",
        "blurb": "An adapter.",
        "adapter": {"of": of, "source": "./loud"},
        "price": price,
        **fields,
    }


def document(folder: Path, *adapters: dict[str, Any], **base: Any) -> dict[str, Any]:
    found = settings_document(folder)
    found["models"] = [model_document("alpha", **base), model_document("beta"), *adapters]
    return found


def settings(folder: Path, *adapters: dict[str, Any], **base: Any) -> Settings:
    return Settings.model_validate(document(folder, *adapters, **base))


def refusal(folder: Path, *adapters: dict[str, Any], **base: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        settings(folder, *adapters, **base)
    return str(caught.value)


def test_an_adapter_has_its_own_price_and_its_bases_rest(tmp_path: Path) -> None:
    tools = {"tools": "ignore"}
    found = settings(tmp_path, adapter_document(), capabilities=tools, engine={"max_num_seqs": 7})
    loud: ChatModel = catalog_of(found).get("loud")
    assert (loud.input_micro_usd_per_mtok, loud.output_micro_usd_per_mtok) == (7_000_000, 9_000_000)
    assert (loud.minimum_nano_usd, loud.context_length, loud.adapter_of) == (500_000_000, 4096, "alpha")
    assert loud.capabilities.tools == "ignore" and not loud.is_default
    (entry,) = found.adapters_of("alpha")
    assert entry.engine.max_num_seqs == 7 and entry.checkpoint == "embedded:none"
    assert [model.id for model in found.engine_models] == ["alpha", "beta"]


def test_an_adapter_may_have_other_capabilities(tmp_path: Path) -> None:
    given = adapter_document(capabilities={"template_roles": ["user"]})
    loud = catalog_of(settings(tmp_path, given, capabilities={"tools": "ignore"})).get("loud")
    assert (loud.capabilities.tools, loud.capabilities.template_roles) == (False, frozenset({"user"}))


def test_an_adapter_may_come_first_and_be_the_default(tmp_path: Path) -> None:
    given = document(tmp_path, adapter_document())
    given["models"].reverse()
    assert catalog_of(Settings.model_validate(given)).default.id == "loud"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"checkpoint": "x/y"}, "checkpoint: an adapter has those of its base, 'alpha'"),
        # The engine would take prompts of its base's length, and less be held for them.
        ({"context_length": 100}, "context_length: an adapter has those of its base"),
        ({"engine": {}, "replicas": {}}, "engine, replicas: an adapter"),
        ({"adapter": {"of": "gamma", "source": "./x"}}, "adapter.of: 'gamma' is no chat model of this file"),
        ({"adapter": {"of": "loud", "source": "./x"}}, "adapter.of: 'loud' is an adapter itself"),
        ({"adapter": {"of": "alpha"}}, "adapter.source"),
        ({"adapter": {"of": "alpha", "source": "./x", "rank": 3}}, "adapter.rank"),
        ({"adapter": "loud"}, "models.2.adapter"),
        ({"id": "beta"}, "'beta' is listed twice"),
    ],
)
def test_what_makes_no_adapter_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    assert words in refusal(tmp_path, {**adapter_document(), **fields})


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"max_lora_rank": 9}, "max_lora_rank"),
        ({"max_loras": 4, "max_cpu_loras": 2}, "max_cpu_loras must not be below max_loras"),
    ],
)
def test_what_vllm_would_refuse_of_its_engine_is_refused(
    tmp_path: Path, engine: dict[str, Any], words: str
) -> None:
    assert words in refusal(tmp_path, adapter_document(), engine=engine)


def test_places_for_adapters_where_there_are_none_are_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, engine={"max_lora_rank": 32})
    assert "alpha: engine.max_lora_rank is for a model that has an adapter" in said
    assert "engine.max_loras makes room" in said


def test_an_engine_with_room_is_started_with_it_before_there_is_an_adapter(tmp_path: Path) -> None:
    base = settings(tmp_path, engine={"max_loras": 2}).models[0]
    assert lora_arguments(base, 0) == {
        "enable_lora": True,
        "max_loras": 2,
        "max_cpu_loras": 2,
        "max_lora_rank": 16,
    }


def test_an_adapter_has_its_folder_in_the_catalog(tmp_path: Path) -> None:
    found = catalog_of(settings(tmp_path, adapter_document()).anchored(tmp_path))
    assert found.get("loud").adapter_folder == f"{tmp_path}/loud"
    assert found.get("alpha").adapter_folder == ""


def test_all_adapters_have_a_place_unless_they_are_many(tmp_path: Path) -> None:
    base = settings(tmp_path, adapter_document()).models[0]
    assert lora_arguments(base, 0) == {}
    few, many = lora_arguments(base, 3), lora_arguments(base, 20)
    assert (few["max_loras"], few["max_cpu_loras"], few["max_lora_rank"]) == (3, 3, 16)
    assert (many["max_loras"], many["max_cpu_loras"], many["enable_lora"]) == (8, 20, True)
    stated = settings(tmp_path, adapter_document(), engine={"max_loras": 2, "max_cpu_loras": 5}).models[0]
    assert (lora_arguments(stated, 20)["max_loras"], lora_arguments(stated, 20)["max_cpu_loras"]) == (2, 5)


def test_a_base_is_placed_once(tmp_path: Path) -> None:
    base = {"size": {"weights_gb": 1, "kv_kb_per_token": 1}}
    found = settings(tmp_path, adapter_document(), adapter_document("louder"), **base)
    applications = [verdict.application for verdict in check_fit(found, [Node(cpus=8, memory_gb=64.0)])]
    assert applications.count("model:alpha") == 1 and "model:loud" not in applications


def test_a_folder_is_relative_to_the_file_and_looked_at(tmp_path: Path) -> None:
    found = settings(tmp_path, adapter_document()).anchored(tmp_path)
    with pytest.raises(ConfigError, match=f"^loud: {tmp_path}/loud/adapter_config.json: cannot be read"):
        check_folders(found.models)
    assert broken_adapters(found.models).keys() == {"loud"}
    make_adapter(tmp_path / "loud")
    check_folders(found.models)


def test_an_adapter_of_the_hub_without_a_commit_is_warned_of(tmp_path: Path) -> None:
    given = adapter_document(adapter={"of": "alpha", "source": "acme/loud"})
    (said,) = unpinned_revisions(settings(tmp_path, given))
    assert "acme/loud" in said and "models.loud.adapter.revision" in said
