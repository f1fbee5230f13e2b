"""The engine that a configuration names, its features, and the warning about revisions that are not pinned."""

from __future__ import annotations

import ast
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from compression import build
from compression.build import load_counter
from models.engine_kinds import SPIN_VARIABLE
from serve.cluster.lineup import warn_of_fake_engines
from serve.cluster.progress import Progress
from serve.config.chat_models import ModelSettings
from serve.config.compression_models import spec_of
from serve.config.engine import CPU_BLOCKS, QUANTIZATIONS, WITH_A_MODEL, EngineSettings
from serve.config.settings import Settings, load_settings, unpinned_revisions
from tests.serve.served import model_document, settings_document
from tests.vendor_source import source, text

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))


def test_vllm_is_the_engine_of_a_model_that_names_none() -> None:
    assert EngineSettings().kind == "vllm"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kind": "sglang"}, "sglang"),
        ({"options": {"dtype": "auto"}}, "options"),
        ({"kind": "fake", "max_num_seqs": 4}, "max_num_seqs"),
    ],
)
def test_what_does_not_fit_the_kind_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        EngineSettings(**given)


@pytest.mark.parametrize(
    ("engine", "accelerator", "spins"),
    [({}, "cpu", "0.0"), ({}, "gpu", None), ({"spin_s": 0.5}, "cpu", "0.5"), ({"spin_s": 0}, "gpu", "0.0")],
)
def test_engines_on_cpus_do_not_spin_unless_they_are_told_to(
    engine: dict[str, Any], accelerator: str, spins: str | None
) -> None:
    fields = {**yaml.safe_load(CONFIGS[0].read_text())["models"][0], "accelerator": {"kind": accelerator}}
    model = ModelSettings.model_validate(fields | {"engine": engine, "capabilities": {}})
    assert model.engine_environment().get(SPIN_VARIABLE) == spins
    assert model.engine.vllm_arguments() == {}


def test_only_vllms_own_arguments_reach_vllm() -> None:
    assert EngineSettings(dtype="auto", max_num_seqs=4).vllm_arguments() == {
        "dtype": "auto",
        "max_num_seqs": 4,
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_no_shipped_configuration_names_the_fake(path: Path) -> None:
    assert {model.engine.kind for model in load_settings(path).models} == {"vllm"}


def test_the_start_names_each_model_whose_engine_computes_nothing() -> None:
    given = yaml.safe_load(CONFIGS[0].read_text())
    given["models"][0]["engine"] = {"kind": "fake"}
    out = StringIO()
    warn_of_fake_engines(Settings(**given).models, Progress(out))
    (line,) = out.getvalue().splitlines()
    assert "WARNING" in line and given["models"][0]["id"] in line and "fake" in line


NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}


def model(*, kind: str = "gpu", environment: dict[str, str] | None = None, **engine: Any) -> ModelSettings:
    fields: dict[str, Any] = {"engine": engine, "accelerator": {"kind": kind}}
    if environment:
        fields["environment"] = environment
    return ModelSettings.model_validate(model_document("alpha", **fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quantization": "fp9"}, "engine.quantization: vLLM has no 'fp9'"),
        ({"data_parallel_size": 2}, "engine.data_parallel_size: copies of a model are replicas here"),
        ({"kind": "cpu", "kv_offloading_size": 4}, "kv_offloading_size: vLLM moves a cache out of a GPU's"),
        ({"kv_offloading_backend": "native"}, "has no effect without engine.kv_offloading_size"),
        ({"kv_offloading_size": 4, "enable_prefix_caching": False}, "needs the prefix cache"),
        ({"speculative_config": {}}, "names no method"),
        ({"speculative_config": {"method": "ngram"}}, "num_speculative_tokens: must be a positive integer"),
        ({"speculative_config": {**NGRAM, "num_speculative_tokens": 0}}, "must be a positive integer"),
        ({"speculative_config": {**NGRAM, "num_speculative_tokens": True}}, "must be a positive integer"),
        ({"speculative_config": {**NGRAM, "method": "eagle3"}}, "eagle3 needs a checkpoint of its own"),
        ({"speculative_config": {**NGRAM, "trust_remote_code": True}}, "is never run"),
        ({"kind": "cpu", "environment": {"VLLM_CPU_KVCACHE_SPACE": "0.5"}}, "a whole number of GiB"),
        ({"kind": "cpu", "block_size": 16}, "engine.block_size: must be a multiple of 32 on CPUs"),
    ],
)
def test_what_cannot_be_had_is_refused_with_its_key(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model(**fields)
    assert words in str(caught.value)


def test_replicas_on_vllm_have_no_bound_by_node_and_others_may() -> None:
    fields: dict[str, Any] = {"replicas": {"per_node": 2}}
    with pytest.raises(ValidationError, match=r"replicas\.per_node: Ray Serve has no such bound"):
        ModelSettings.model_validate(model_document("alpha", **fields))
    fake = model_document("alpha", engine={"kind": "fake"}, **fields)
    assert ModelSettings.model_validate(fake).replicas.per_node == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"speculative_config": NGRAM},
        {"kind": "cpu", "speculative_config": NGRAM},
        {"speculative_config": {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}},
        {"quantization": "fp8", "kv_cache_dtype": "fp8"},
        {"kv_offloading_size": 64, "kv_offloading_backend": "lmcache"},
        {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "data_parallel_size": 1},
        {"kind": "cpu", "environment": {"VLLM_CPU_KVCACHE_SPACE": "2"}, "block_size": 64},
        {"block_size": 16},
    ],
)
def test_what_can_be_had_is_taken(fields: dict[str, Any]) -> None:
    assert model(**fields).id == "alpha"


def literal(module: str, name: str) -> set[str]:
    """The texts of a `Literal` at the top of a module."""
    (found,) = (
        node.value
        for node in source(module).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return {node.value for node in ast.walk(found) if isinstance(node, ast.Constant)}  # type: ignore[misc]


def test_blocks_on_cpus_are_those_that_the_pinned_vllm_takes() -> None:
    backend = "vllm.v1.attention.backends.cpu_attn"
    sizes = text(backend, "CPUAttentionBackend.get_supported_kernel_block_sizes")
    assert f"return [MultipleOf({CPU_BLOCKS})]" in sizes


def test_the_methods_are_those_of_the_pinned_vllm() -> None:
    assert literal("vllm.model_executor.layers.quantization", "QuantizationMethods") == QUANTIZATIONS
    methods = literal("vllm.config.speculative", "SpeculativeMethod")
    methods |= literal("vllm.config.speculative", "EagleModelTypes")
    assert {*WITH_A_MODEL, "ngram"} <= methods
    assert literal("vllm.config.cache", "KVOffloadingBackend") == {"native", "lmcache"}


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
