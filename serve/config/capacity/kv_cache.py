"""How large a KV cache is by a checkpoint's `config.json`, as vLLM lays it out: by layer, head and block of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve.config.chat_models import EngineSettings

# Tokens of a block, where the configuration does not say (vLLM 0.29).
BLOCK_TOKENS = {"cpu": 128, "gpu": 16}
# Tokens of a prompt that are computed at once; a layer with a window holds them beside its window.
BATCHED_TOKENS = 8192
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Of one replica on `gpus` in all. `bytes_per_token` is what a token of every layer takes on all of them together;
    of it `windowed_bytes` belong to layers that keep no more than `window` tokens of a request."""

    bytes_per_token: int
    block_tokens: int
    windowed_bytes: int = 0
    window: int = 0

    def tokens(self, cache_bytes: float) -> int:
        """Tokens in whole blocks, of all layers."""
        return int(cache_bytes // (self.bytes_per_token * self.block_tokens)) * self.block_tokens

    def request_bytes(self, tokens: int) -> int:
        """Of one request with so many tokens of prompt and reply: its layers with a window stop growing."""
        kept = min(tokens, self.window + BATCHED_TOKENS) if self.windowed_bytes else tokens
        full = self.bytes_per_token - self.windowed_bytes
        return full * self._whole(tokens) + self.windowed_bytes * self._whole(kept)

    def _whole(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens) * self.block_tokens


def cache_layout(fields: Mapping[str, Any], engine: EngineSettings, *, kind: str) -> CacheLayout:
    """From a checkpoint's `config.json`; `kind` is what the engine runs on. Raises `KeyError`, `TypeError` or
    `ValueError` for one that cannot be read so."""
    fields = fields.get("text_config", fields)
    width = _bytes_each(fields, engine)
    layers = int(fields["num_hidden_layers"])
    per_layer = _values_per_layer(fields, engine.tensor_parallel_size or 1) * width
    windowed, window = _windowed_layers(fields)
    return CacheLayout(
        bytes_per_token=layers * per_layer,
        block_tokens=engine.block_size or BLOCK_TOKENS[kind],
        windowed_bytes=windowed * per_layer,
        window=window,
    )


def _bytes_each(fields: Mapping[str, Any], engine: EngineSettings) -> int:
    """Of one number of the cache."""
    stated = engine.kv_cache_dtype
    if stated is not None and stated != "auto":
        return 1 if stated.startswith(("fp8", "int8")) else _BYTES[stated]
    dtype = engine.dtype if engine.dtype not in (None, "auto") else None
    own = str(dtype or fields.get("dtype") or fields.get("torch_dtype") or "bfloat16")
    # vLLM takes 16 bits for a checkpoint of 32 where it is not told otherwise.
    return _BYTES["float16" if dtype is None and own == "float32" else own]


def _values_per_layer(fields: Mapping[str, Any], shards: int) -> int:
    """Numbers of one token, on all shards together: keys and values of each head, or of MLA what both are made of,
    which every shard has whole. A head is on several shards where there are fewer heads than shards."""
    if fields.get("kv_lora_rank"):
        return shards * (int(fields["kv_lora_rank"]) + int(fields["qk_rope_head_dim"]))
    queries = int(fields["num_attention_heads"])
    width = int(fields.get("head_dim") or int(fields["hidden_size"]) // queries)
    heads = int(fields.get("num_key_value_heads") or queries)
    return 2 * width * max(heads, shards)


def _windowed_layers(fields: Mapping[str, Any]) -> tuple[int, int]:
    """How many layers see a window of tokens alone, and how many tokens that is."""
    window = fields.get("sliding_window")
    if not window or fields.get("use_sliding_window") is False:
        return 0, 0
    kinds = fields.get("layer_types")
    if kinds is None:
        return int(fields["num_hidden_layers"]), int(window)
    return sum(kind == "sliding_attention" for kind in kinds), int(window)
