"""The size of a KV cache by the shape of a checkpoint, against published shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.training.chat_models.adapter import make_adapter
from serve.config.capacity.fit import check_fit
from serve.config.capacity.memory import (
    BATCHED_TOKENS,
    CacheLayout,
    cache_layout,
    engine_on_cpus,
    engine_on_gpus,
)
from serve.config.chat_models import ModelSettings
from serve.config.engine import EngineSettings
from serve.config.settings import load_settings
from serve.config.values import Node
from tests.serve.served import model_document

ROOT = Path(__file__).resolve().parents[3]
# The fields of the published config.json that a cache goes by.
PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt-oss-120b": {
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
    },
    "qwen3-235b-a22b": {
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
    },
    "glm-4.7-flash": {
        "num_hidden_layers": 47,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    },
    "qwen3-30b-a3b": {
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "use_sliding_window": False,
        "sliding_window": 4096,
    },
}


def layout(fields: dict[str, Any], kind: str = "gpu", **engine: Any) -> CacheLayout:
    return cache_layout(fields, EngineSettings(**engine), kind=kind)


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_the_shipped_file_states_is_what_the_published_shape_makes(name: str) -> None:
    document = yaml.safe_load((ROOT / "configs/gpu.yaml").read_text())
    (model,) = (model for model in document["models"] if model["id"] == name)
    found = layout(PUBLISHED[name], dtype="bfloat16")
    assert round(found.bytes_per_token / 1000) == model["size"]["kv_kb_per_token"]


def test_a_cache_of_one_byte_a_number_is_half_as_large() -> None:
    fields = PUBLISHED["qwen3-30b-a3b"]
    whole = layout(fields, dtype="bfloat16").bytes_per_token
    assert layout(fields, kv_cache_dtype="fp8").bytes_per_token * 2 == whole
    assert layout(fields, kv_cache_dtype="fp8_e4m3").bytes_per_token * 2 == whole
    assert layout(fields, dtype="float32").bytes_per_token == 2 * whole


def test_more_gpus_than_heads_hold_a_head_twice_and_each_holds_all_of_mla() -> None:
    qwen, glm = PUBLISHED["qwen3-30b-a3b"], PUBLISHED["glm-4.7-flash"]
    assert layout(qwen, tensor_parallel_size=4) == layout(qwen)
    assert layout(qwen, tensor_parallel_size=8).bytes_per_token == 2 * layout(qwen).bytes_per_token
    assert layout(glm, tensor_parallel_size=2).bytes_per_token == 2 * layout(glm).bytes_per_token


def test_layers_with_a_window_stop_growing() -> None:
    found = layout(PUBLISHED["gpt-oss-120b"])
    assert (found.windowed_bytes * 2, found.window) == (found.bytes_per_token, 128)
    long, longer = found.request_bytes(65_536), found.request_bytes(131_072)
    assert longer - long == 65_536 * found.bytes_per_token // 2
    assert found.request_bytes(128 + BATCHED_TOKENS) == (128 + BATCHED_TOKENS) * found.bytes_per_token
    plain = layout(PUBLISHED["qwen3-30b-a3b"])
    assert (plain.windowed_bytes, plain.request_bytes(17)) == (0, 32 * plain.bytes_per_token)


def model(**fields: Any) -> ModelSettings:
    return ModelSettings.model_validate(model_document("alpha", **fields))


SIZE = {"weights_gb": 10, "kv_kb_per_token": 100, "activations_gb": 2}


def test_a_cache_of_a_stated_size_is_counted_as_stated() -> None:
    fields = {"size": SIZE, "accelerator": {"kind": "gpu"}, "context_length": 10_000}
    found = engine_on_gpus(model(engine={"kv_cache_memory_bytes": 3 * 10**9}, **fields), 80.0)
    assert (found.cache_gb, found.reserved_gb, found.tokens, found.requests) == (3.0, 15.0, 30_000, 3.0)
    shared = engine_on_gpus(model(engine={"gpu_memory_utilization": 0.5}, **fields), 80.0)
    assert (shared.cache_gb, shared.reserved_gb) == (28.0, 40.0)


def test_adapters_take_places_of_the_largest_rank() -> None:
    base = {"checkpoint": "embedded:pith-mini", "engine": {"dtype": "float32", "max_lora_rank": 8}}
    found = engine_on_cpus(model(**base), adapters=2)
    per_rank = 4 * (128 + 128) + 3 * (128 + 352)
    assert found.adapters_gb * 10**9 == 5 * per_rank * 8 * 2 * 4
    assert engine_on_cpus(model(**base)).adapters_gb == 0


def test_the_check_says_how_many_requests_of_full_context_fit(tmp_path: Path) -> None:
    make_adapter(tmp_path / "loud")
    document = yaml.safe_load((ROOT / "configs/embedded.yaml").read_text())
    document["models"][0]["engine"]["max_num_seqs"] = 8
    adapter = {"id": "loud", "name": "Loud", "blurb": "b", "adapter": {"of": "pith-mini", "source": "./loud"}}
    document["models"].insert(1, {**adapter, "price": document["models"][0]["price"]})
    file = tmp_path / "pith.yaml"
    file.write_text(yaml.safe_dump(document))
    first = check_fit(load_settings(file), [Node(cpus=8, memory_gb=32.0)])[0]
    assert first.fits and first.memory.endswith("209,696 tokens, 12.8 full requests")
    assert "+ adapters 0.0 " in first.memory
