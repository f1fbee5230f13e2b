"""Features of an engine that cannot be had, or not together, are refused before anything is started."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from pydantic import ValidationError

from serve.config.chat_models import ModelSettings
from serve.config.engine import CPU_BLOCKS, QUANTIZATIONS, WITH_A_MODEL
from tests.serve.served import model_document
from tests.vendor_source import source, text

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
