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
from serve.config.engine import CPU_BLOCKS, WITH_A_MODEL, EngineSettings
from serve.config.engine_args import CONNECTORS, REFUSED
from serve.config.settings import Settings, load_settings, unpinned_revisions
from tests.serve.served import model_document, settings_document
from tests.vendor_source import found, source, text

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


@pytest.mark.parametrize(
    ("flags", "precisions"),
    [
        ("flags : fpu avx avx2 fma", {None: "float32", "auto": "float32", "bfloat16": "bfloat16"}),
        ("flags : fpu avx512f avx512_bf16", {None: None, "auto": None, "float32": "float32"}),
        ("Features : fp asimd bf16", {None: None, "auto": None}),
        (None, {None: None, "auto": None}),
    ],
)
def test_cpus_that_are_slow_in_bfloat16_compute_in_float32_unless_told_otherwise(
    flags: str | None, precisions: dict[Any, str | None], tmp_path: Path
) -> None:
    machine = tmp_path / "cpuinfo"
    if flags is not None:
        machine.write_text(f"model name : bf160\n{flags} rdseed\n")
    for given, used in precisions.items():
        assert EngineSettings(dtype=given).dtype_on("cpu", machine=machine) == used
    assert EngineSettings(dtype="auto").dtype_on("gpu", machine=machine) is None


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


TRANSFER = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"data_parallel_size": 2}, "engine.args.data_parallel_size: copies of a model are replicas here"),
    ({"model": "org/other"}, "engine.args.model: pith sets it from models.*.checkpoint"),
    ({"max_model_len": 1}, "pith sets it from models.*.context_length"),
    ({"trust_remote_code": False}, "engine.args.trust_remote_code: code is never loaded"),
    ({"scheduler_cls": "theirs.Scheduler"}, "pith decides whose turn it is"),
    ({"worker_cls": "theirs.Worker"}, "engine.args.worker_cls: code is never loaded"),
    ({"reasoning_parser_plugin": "x.py"}, "engine.args.reasoning_parser_plugin: code is never loaded"),
    ({"master_port": 1}, "engine.args.master_port: engines listen nowhere"),
    ({"master_addr": "h"}, "engine.args.master_addr: engines listen nowhere"),
    ({"download_dir": "/tmp"}, "engine.args.download_dir: an engine writes, and reads, nothing"),
    ({"compilation_config": {"cache_dir": "/tmp"}}, "engine.args.compilation_config.cache_dir: an engine"),
    ({"additional_config": {"a": [{"port": 1}]}}, "engine.args.additional_config.a.0.port: engines listen"),
    ({"kv_events_config": {"enable_kv_cache_events": True}}, "engine.args.kv_events_config: events carry"),
    ({"kv_transfer_config": "x"}, "kv_transfer_config: must be a mapping"),
    ({"kv_transfer_config": {**TRANSFER, "kv_ip": "::"}}, "kv_transfer_config.kv_ip: engines listen nowhere"),
    ({"kv_transfer_config": {**TRANSFER, "kv_role": "kv_producer"}}, "kv_role: must be kv_both"),
    ({"kv_transfer_config": {**TRANSFER, "kv_connector": "NixlConnector"}}, "not 'NixlConnector'"),
    (
        {"kv_transfer_config": {**TRANSFER, "kv_connector_extra_config": {"lmcache.mp.host": "h"}}},
        "engine.args.kv_transfer_config.kv_connector_extra_config.lmcache.mp.host: engines listen nowhere",
    ),
]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"distributed_executor_backend": "theirs.Executor", "kind": "cpu"}, "distributed_executor_backend"),
        *[({"args": given}, words) for given, words in REFUSALS],
        (
            {"kind": "cpu", "args": {"kv_offloading_size": 4}},
            "kv_offloading_size: vLLM moves a cache out of a GPU's",
        ),
        (
            {"kind": "cpu", "args": {"kv_transfer_config": TRANSFER}},
            "vLLM moves a cache out of a GPU's memory",
        ),
        (
            {"kind": "cpu", "args": {"enable_expert_parallel": True}},
            "enable_expert_parallel: vLLM's kernels for CPUs take every expert for their own",
        ),
        (
            {"args": {"kv_offloading_backend": "native"}},
            "has no effect without engine.args.kv_offloading_size",
        ),
        ({"args": {"kv_offloading_size": 4, "enable_prefix_caching": False}}, "needs the prefix cache"),
        ({"args": {"speculative_config": {}}}, "names no method"),
        (
            {"args": {"speculative_config": {"method": "ngram"}}},
            "num_speculative_tokens: must be a positive integer",
        ),
        (
            {"args": {"speculative_config": {**NGRAM, "num_speculative_tokens": 0}}},
            "must be a positive integer",
        ),
        (
            {"args": {"speculative_config": {**NGRAM, "num_speculative_tokens": True}}},
            "must be a positive integer",
        ),
        (
            {"args": {"speculative_config": {**NGRAM, "method": "eagle3"}}},
            "eagle3 needs a checkpoint of its own",
        ),
        ({"args": {"speculative_config": {**NGRAM, "trust_remote_code": True}}}, "code is never loaded"),
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
        {"args": {"speculative_config": NGRAM}},
        {"kind": "cpu", "args": {"speculative_config": NGRAM}},
        {
            "args": {
                "speculative_config": {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
            }
        },
        {"args": {"quantization": "fp8"}, "kv_cache_dtype": "fp8"},
        {"args": {"kv_offloading_size": 64, "kv_offloading_backend": "lmcache"}},
        {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "args": {"enable_expert_parallel": True}},
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
    methods = literal("vllm.config.speculative", "SpeculativeMethod")
    methods |= literal("vllm.config.speculative", "EagleModelTypes")
    assert {*WITH_A_MODEL, "ngram"} <= methods


def test_what_is_refused_by_name_is_an_argument_of_the_pinned_vllm() -> None:
    for class_name in ("EngineArgs", "AsyncEngineArgs"):
        body = found("vllm.engine.arg_utils", class_name)
        assert isinstance(body, ast.ClassDef)
        names = {ast.unparse(each.target) for each in body.body if isinstance(each, ast.AnnAssign)}
        if class_name == "EngineArgs":
            engine = names
    assert set(REFUSED) <= engine | names


def test_connectors_are_those_of_the_pinned_vllm() -> None:
    factory = "vllm.distributed.kv_transfer.kv_connector.factory"
    names = {node.value for node in ast.walk(source(factory)) if isinstance(node, ast.Constant)}
    assert set(CONNECTORS) <= names


def test_arguments_in_args_reach_vllm_and_an_own_key_may_not_be_doubled() -> None:
    assert EngineSettings(dtype="auto", args={"seed": 1}).vllm_arguments() == {"dtype": "auto", "seed": 1}
    with pytest.raises(ValidationError, match=r"args\.dtype: is a key of engine: write engine\.dtype"):
        model(args={"dtype": "auto"})


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
