"""A LoRA adapter of an embedded model in PEFT's format: `python -m benchmarks.training.chat_models.adapter FOLDER`.

It is not trained: it shifts the model's babble, the same way each time it is made."""

import argparse
import json
from pathlib import Path
from typing import Any

from models.adapters import CONFIG, WEIGHTS
from models.embedded.install import ARTEFACTS

RANK = 8
# Large enough that the likeliest token is another one.
ALPHA = 64.0
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


def make_adapter(folder: Path, *, base: str | Path = "pith-mini", rank: int = RANK, seed: int = 1) -> Path:
    """Write `adapter_config.json` and `adapter_model.safetensors` into `folder`, which is returned. `base`: the folder
    of a checkpoint, or the name of an embedded one."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(_tensors(_fields_of(base), rank, seed), str(folder / WEIGHTS))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(TARGETS),
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return folder


def _fields_of(base: str | Path) -> dict[str, Any]:
    folder = base if isinstance(base, Path) else ARTEFACTS / "checkpoints" / base
    fields: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return fields


def _tensors(fields: dict[str, Any], rank: int, seed: int) -> dict[str, Any]:
    import numpy as np

    hidden, width = fields["hidden_size"], fields["head_dim"]
    query, keys = fields["num_attention_heads"] * width, fields["num_key_value_heads"] * width
    shapes = {
        "q_proj": (hidden, query),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "o_proj": (query, hidden),
    }
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in range(fields["num_hidden_layers"]):
        for name, (into, out) in shapes.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{place}.lora_A.weight"] = _normal(random, (rank, into), into)
            tensors[f"{place}.lora_B.weight"] = _normal(random, (out, rank), out * rank)
    return tensors


def _normal(random: Any, shape: tuple[int, int], parts: int) -> Any:
    import numpy as np

    return (random.standard_normal(shape) / np.sqrt(parts)).astype("float32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base", default="pith-mini", help="embedded model")
    given = parser.parse_args()
    print(make_adapter(given.folder, base=given.base))


if __name__ == "__main__":
    main()
