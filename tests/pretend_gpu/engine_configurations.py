"""vLLM's whole configuration of engines on a GPU that is pretended, as a replica's process makes it of their arguments.
Reads the arguments of each as JSON, and writes JSON.

Nothing is started: what is checked is that vLLM takes the arguments together, and what it makes of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.pretend_gpu.configuration import ENVIRONMENT, plugin_path
from tests.pretend_gpu.plugin import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
CONTEXT = 1024
# A mixture of experts that a group of four can share, without weights.
SHAPE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": CONTEXT,
}


def made_of(arguments: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """What vLLM makes of each, in a process of its own: a process has one platform."""
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps(SHAPE))
    path = os.pathsep.join([str(ROOT), str(plugin_path(folder / "plugin"))])
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(checkpoint)],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, VARIABLE: "any", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def made(given: dict[str, Any], checkpoint: str) -> dict[str, Any]:
    """Of one; `refused` is what vLLM says where it makes nothing."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    # As Ray Serve LLM starts every engine on GPUs.
    backend = {"distributed_executor_backend": "ray"}
    try:
        config = AsyncEngineArgs(
            model=checkpoint, max_model_len=CONTEXT, **backend, **given
        ).create_engine_config()
    except (ValueError, ImportError) as error:
        return {"refused": str(error)}
    transfer, parallel = config.kv_transfer_config, config.parallel_config
    return {
        "connector": transfer and transfer.kv_connector,
        "role": transfer and transfer.kv_role,
        "policy": transfer and transfer.kv_load_failure_policy,
        "workers": parallel.world_size,
        "expert_parallel": parallel.enable_expert_parallel,
        "quantization": config.model_config.quantization,
    }


if __name__ == "__main__":
    from models.vllm.insides import inspect_models_here

    inspect_models_here()
    print(json.dumps([made(each, sys.argv[1]) for each in json.load(sys.stdin)]))
