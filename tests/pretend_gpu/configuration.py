"""`configs/gpu.yaml` on stand-ins: its models but some, shares, sizes of tensor parallel groups and compressors as they
are, with checkpoints of some thousand weights, short contexts, and engines that compute on CPUs."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.sample_checkpoints import config_of, make_checkpoint, make_query_classifier, train_tokenizer
from models.embedded.install import ensure_checkpoints
from tests.integration.running import ROOT, free_port
from tests.pretend_gpu.plugin import VARIABLE

GPUS, KIND = 8, "H100"
# On two GPUs; and those that share one, the compressors on its rest.
GROUP, PART, TEXTS = "gpt-oss-120b", "qwen3-30b-a3b", "qwen3-embedding-0.6b"
CHECKPOINTS = {
    # Four heads and four of keys and values, which a group can share.
    GROUP: "embedded:pith-mini",
    "glm-4.7-flash": "embedded:pith-wide",
    PART: "embedded:pith-base",
}
# A GPU of its own, and no other model waits for it.
ON_DEMAND, IDLE_S = "glm-4.7-flash", 8
# They take turns on one of the GPUs of the model that is left out. With checkpoints that answer otherwise.
IN_TURNS = {"first-in-turn": "embedded:pith-mini", "second-in-turn": "embedded:pith-base"}
TURNS = {"models": [*IN_TURNS], "min_stay_s": 1, "longest_wait_s": 1, "finish_s": 0}
# The four workers of the first would show what two do, and the second what the embedding model does.
LEFT_OUT = ("qwen3-235b-a22b", "bge-reranker-v2-m3")
CONTEXT = 2048
# What is said in a turn has to be longer than what a busy machine makes before the other model is asked.
CONTEXT_IN_TURNS = 16384
ENVIRONMENT = {
    "TORCH_COMPILE_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def plugin_path(folder: Path) -> Path:
    """A folder for `PYTHONPATH` with which vLLM finds the pretend GPU, by the metadata of a package, and with which a
    fifth of the time goes that each process takes to import vLLM: collections of garbage that find none."""
    metadata = folder / "pretend_gpu-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pretend-gpu\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(
        "[vllm.platform_plugins]\npretend_gpu = tests.pretend_gpu.plugin:chosen\n"
    )
    (folder / "sitecustomize.py").write_text("import gc\n\ngc.set_threshold(100_000, 20, 100)\n")
    return folder


def with_gpus(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of a Ray node that has them, as far as Ray and vLLM are told."""
    resources = {"GPU": GPUS, f"accelerator_type:{KIND}": 1}
    path = os.pathsep.join([str(ROOT), str(plugin_path(folder))])
    return {**environment, "RAY_OVERRIDE_RESOURCES": json.dumps(resources), "PYTHONPATH": path}


def write_gpu_config(state_dir: Path, models: Collection[str], **also: Any) -> Path:
    """The file, with its state in `state_dir`, these models and, beside `PART`, the compressors."""
    given = yaml.safe_load((ROOT / "configs/gpu.yaml").read_text())
    folders = make_checkpoints(state_dir / "made")
    every = [_stand_in(model, folders) for model in given["models"] if model["id"] not in LEFT_OUT]
    like = next(model for model in every if model["id"] == ON_DEMAND)
    given["models"] = [model for model in every if model["id"] in models]
    given["turns"] = []
    if {*IN_TURNS} <= {*models}:
        given["models"] += [_in_turns(like, model, checkpoint) for model, checkpoint in IN_TURNS.items()]
        given["turns"] = [TURNS]
    if PART not in models:
        given["compression"] = {}
    for compressor in given["compression"].get("models", ()):
        _stand_in_compressor(compressor, folders)
    given |= {
        "state_dir": str(state_dir),
        "billing": {
            "database_url": f"sqlite:///{state_dir}/pith.db",
            "spool_path": str(state_dir / "spool.db"),
        },
        "demo": {"enabled": True, "key_path": str(state_dir / "demo-key")},
        "ops": {"port": free_port()},
        # Each more is a process at the start and at each reload.
        "server": {"ingress_replicas": 1},
        **also,
    }
    path = state_dir / "config.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


def make_checkpoints(folder: Path) -> dict[str, Path]:
    """By what each is for."""
    from transformers import AutoModel

    encoder = folder / "encoder"
    torch.manual_seed(3)
    tokenizer = train_tokenizer("bert")
    AutoModel.from_config(config_of("bert", tokenizer, layers=2, width=64)).save_pretrained(str(encoder))
    tokenizer.save_pretrained(str(encoder))
    return {
        "encoder": encoder,
        "tokens": make_checkpoint(folder / "tokens", "xlm-roberta"),
        "query": make_query_classifier(folder / "query", "modernbert"),
        "embedder": ensure_checkpoints(folder / "embedded")["pith-base"],
    }


def _stand_in(model: dict[str, Any], folders: Mapping[str, Path]) -> dict[str, Any]:
    """Of one model: nothing else is changed than what its checkpoint and the CPUs behind the GPU want otherwise."""
    model = {**model, "context_length": CONTEXT, "environment": {VARIABLE: model["id"], **ENVIRONMENT}}
    for key in ("revision", "size", "weights_gb"):
        model.pop(key, None)
    engine = model["engine"] = {**model["engine"], "dtype": "float32"}
    engine["kv_cache_memory_bytes"] = 2**27
    eager = {"enforce_eager": True}
    # An embedding or rerank model has it as a key of its own.
    engine |= eager if "kind" in model else {"args": {**engine.get("args", {}), **eager}}
    if model.get("kind", "chat") == "chat":
        model["checkpoint"] = CHECKPOINTS[model["id"]]
        # The parsers of the models' own dialects look for tokens that the stand-ins lack.
        engine["tool_call_parser"] = "hermes"
        engine.pop("reasoning_parser", None)
    else:
        model["checkpoint"] = str(folders["embedder"])
    if model["id"] == ON_DEMAND:
        model["replicas"] = {**model["replicas"], "min": 0, "idle_s": IDLE_S}
    return model


def _in_turns(like: dict[str, Any], model: str, checkpoint: str) -> dict[str, Any]:
    """The environment is that of all that share a GPU, and so tells the processes of both from others'."""
    environment = {VARIABLE: "+".join(IN_TURNS), **ENVIRONMENT}
    replicas = {**like["replicas"], "min": 1}
    own = {"checkpoint": checkpoint, "context_length": CONTEXT_IN_TURNS, "environment": environment}
    return {**like, **own, "id": model, "replicas": replicas}


def _stand_in_compressor(compressor: dict[str, Any], folders: Mapping[str, Path]) -> None:
    by_kind = {"query_classifier": "query", "encoder": "encoder", "token_classifier": "tokens"}
    for key in ("tokenizer", "tokenizer_revision", "tokenizer_name", "revision", "weights_gb", "overlap"):
        compressor.pop(key, None)
    if compressor["kind"] in by_kind:
        # Ray gives it its share all the same.
        compressor |= {"checkpoint": str(folders[by_kind[compressor["kind"]]]), "device": "cpu", "threads": 1}
        compressor["dtype"] = "float32"
