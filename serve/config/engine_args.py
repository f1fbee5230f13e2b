"""Arguments of vLLM's own that `engine.args` may not have: each with the reason, and what to write instead.

All others are vLLM's business: `models.vllm.arguments` asks its class. This needs no vLLM, so that every reader of a
configuration, and every start, refuses the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_KEY = "pith sets it from models.*.{}"
_COPIES = "copies of a model are replicas here, which Ray places: set replicas.min and replicas.max"
_ALONE = "each engine of pith's is reached by its own replica alone; there is nothing at the other end"
_CODE = "code is never loaded by a name in a configuration, nor from a checkpoint's repository"
_ADDRESS = "engines listen nowhere and connect nowhere that pith did not open"
_PATH = "an engine writes, and reads, nothing of the machine but its checkpoint and its caches"
_TURNS = "pith decides whose turn it is"

# By name, at the top of `engine.args`.
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(["model", "model_weights", "tokenizer", "hf_config_path"], _KEY.format("checkpoint")),
    **dict.fromkeys(["revision", "tokenizer_revision", "code_revision"], _KEY.format("revision")),
    "served_model_name": _KEY.format("id"),
    "max_model_len": _KEY.format("context_length"),
    **dict.fromkeys(["runner", "convert"], _KEY.format("kind")),
    **dict.fromkeys(
        ["load_format", "model_loader_extra_config", "pt_load_map_location"],
        "weights are safetensors; what may hold a pickle is never read",
    ),
    **dict.fromkeys(
        ["enable_lora", "default_mm_loras"],
        "an adapter is an entry of models with adapter, and has its own price",
    ),
    **dict.fromkeys(
        ["disable_log_stats", "aggregate_engine_logging"],
        "pith sets it from metrics.engines and tracing.engines",
    ),
    "otlp_traces_endpoint": "pith sets it from tracing",
    "enable_sleep_mode": "pith sets it from turns",
    "enable_log_requests": "customers' prompts are not logged",
    "hf_token": "a secret has no place in a configuration: set HF_TOKEN in the server's environment",
    **dict.fromkeys(
        ["skip_tokenizer_init", "tokens_only"], "prompts are counted and written by the engine's tokenizer"
    ),
    **dict.fromkeys(
        ["enable_prompt_embeds", "enable_mm_embeds"], "tensors of callers are not deserialized in an engine"
    ),
    "allowed_local_media_path": "callers would read files of the machine",
    "prefix_caching_hash_algo": "SHA-256 keeps workspaces apart in the cache; a faster hash can be made to collide",
    "stream_interval": "a client that leaves pays to the token, so each must be known when it is made",
    **dict.fromkeys(["scheduling_policy", "scheduler_cls"], _TURNS),
    **dict.fromkeys(["model_class_overrides", "logits_processors"], _CODE),
    **dict.fromkeys(["spec_method", "spec_model", "spec_tokens"], "write speculative_config"),
    **dict.fromkeys(
        ["attention_backend", "mamba_backend"], "write attention_config or mamba_config: {backend: NAME}"
    ),
    **dict.fromkeys(["nnodes", "node_rank", "device_ids"], "Ray places an engine's workers"),
    "prefill_context_parallel_size": "its GPUs would not be asked of Ray; set engine.tensor_parallel_size",
    **dict.fromkeys(["enable_elastic_ep", "enable_fault_tolerance", "fault_tolerance_config"], _COPIES),
    "kv_events_config": "events carry customers' token ids over a socket without authentication",
    "ec_transfer_config": _ALONE,
    "weight_transfer_config": "weights are the checkpoint's, whose tokens are sold under its name",
}
# By how a name begins or ends, at any depth: an argument of an argument may open a port too.
BEGINNINGS = {"_": "is vLLM's own", "data_parallel_": _COPIES}
ENDS = {"trust_remote_code": _CODE, "_cls": _CODE, "_plugin": _CODE, "module_path": _CODE}
LAST_WORDS = {
    **dict.fromkeys(["host", "port", "ports", "ip", "addr", "address", "url", "endpoint"], _ADDRESS),
    **dict.fromkeys(["path", "dir", "directory", "folder"], _PATH),
}
# Those that keep the cache of an engine for itself, and workspaces apart in it.
CONNECTORS = ("OffloadingConnector", "SimpleCPUOffloadConnector", "LMCacheMPConnector")


def refusals(given: Mapping[str, Any], own: frozenset[str]) -> Iterator[str]:
    """A sentence for each argument that is refused, with its path; `own`: the keys of `engine` itself."""
    for name, value in given.items():
        if name in own:
            yield f"engine.args.{name}: is a key of engine: write engine.{name}"
        elif reason := REFUSED.get(name):
            yield f"engine.args.{name}: {reason}"
        else:
            yield from _by_name(f"engine.args.{name}", name, value)
    if (transfer := given.get("kv_transfer_config")) is not None:
        yield from _of_transfer(transfer)


def _by_name(where: str, name: str, value: Any) -> Iterator[str]:
    if reason := _reason_of(name):
        yield f"{where}: {reason}"
    elif isinstance(value, Mapping):
        for inner, below in value.items():
            yield from _by_name(f"{where}.{inner}", str(inner), below)
    elif isinstance(value, list):
        for at, below in enumerate(value):
            yield from _by_name(f"{where}.{at}", "", below)


def _reason_of(name: str) -> str | None:
    begins = (reason for beginning, reason in BEGINNINGS.items() if name.startswith(beginning))
    ends = (reason for end, reason in ENDS.items() if name.endswith(end))
    return next(begins, None) or next(ends, None) or LAST_WORDS.get(re.split(r"[._]", name)[-1])


def _of_transfer(given: Any) -> Iterator[str]:
    """Of `kv_transfer_config`: what moves a cache to the machine's memory and back, and not to another engine."""
    where = "engine.args.kv_transfer_config"
    if not isinstance(given, Mapping):
        yield f"{where}: must be a mapping"
        return
    if (connector := given.get("kv_connector")) not in CONNECTORS:
        yield f"{where}.kv_connector: must be one of {', '.join(CONNECTORS)}, not {connector!r}: {_ALONE}"
    if given.get("kv_role") != "kv_both":
        yield f"{where}.kv_role: must be kv_both: {_ALONE}"
