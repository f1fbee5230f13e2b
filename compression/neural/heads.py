"""The small layers on top of a transformer, read from the formats that sentence-transformers and OpenProvence write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file

from compression.neural.checkpoints import read_json
from compression.neural.windows import CheckpointRefused

Mode = Literal["cls", "mean", "max", "mean_sqrt_len", "lasttoken"]
_FLAGS: dict[str, Mode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {
    "Tanh": torch.tanh,
    "Identity": lambda x: x,
    "GELU": torch.nn.functional.gelu,
    "ReLU": torch.relu,
}
HEAD = "pruning_head.classifier."


@dataclass(frozen=True, slots=True)
class Pooling:
    """Pooling of a window's states into one vector; those of several modes are concatenated."""

    modes: tuple[Mode, ...]

    @classmethod
    def read(cls, folder: Path) -> Pooling:
        """From `1_Pooling/config.json`. Raises CheckpointRefused for a mode that is not known."""
        config = read_json(folder / "config.json")
        named = config.get("pooling_mode")
        on = [named] if isinstance(named, str) else []
        on += [
            _FLAGS.get(key, key) for key, value in config.items() if key.startswith("pooling_mode_") and value
        ]
        unknown = [mode for mode in on if mode not in _FLAGS.values()]
        if unknown or not on:
            raise CheckpointRefused(
                str(folder), f"pooling {', '.join(unknown) or 'missing'} is not one of {list(_FLAGS)}"
            )
        return cls(tuple(mode for mode in _FLAGS.values() if mode in on))

    def pool(self, states: Any, lengths: Any) -> Any:
        """(batch, tokens, width) and (batch,) to (batch, width * modes)."""
        mask = torch.arange(states.shape[1], device=states.device)[None, :, None] < lengths[:, None, None]
        return torch.cat([_pool(mode, states, mask, lengths) for mode in self.modes], dim=-1)


def _pool(mode: Mode, states: Any, mask: Any, lengths: Any) -> Any:
    if mode == "cls":
        return states[:, 0]
    if mode == "lasttoken":
        return states[torch.arange(len(states), device=states.device), lengths - 1]
    if mode == "max":
        return states.masked_fill(~mask, float("-inf")).amax(dim=1)
    total = (states * mask).sum(dim=1)
    count = lengths[:, None].to(total.dtype)
    return total / (count if mode == "mean" else count.sqrt())


@dataclass(frozen=True)
class Dense:
    """A linear layer in fp32 and what follows it."""

    weight: Any
    bias: Any
    activation: str = "Identity"

    @classmethod
    def read(cls, folder: Path) -> Dense:
        """A `Dense` module of sentence-transformers."""
        config, file = read_json(folder / "config.json"), folder / "model.safetensors"
        if not file.is_file():
            raise CheckpointRefused(str(folder), "holds no model.safetensors")
        activation = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
        if activation not in _ACTIVATIONS:
            raise CheckpointRefused(
                str(folder), f"activation {activation} is not one of {list(_ACTIVATIONS)}"
            )
        weights = load_file(file)
        return cls(
            weights["linear.weight"].float(),
            _bias(weights.get("linear.bias"), weights["linear.weight"]),
            activation,
        )

    def to(self, device: str) -> Dense:
        return replace(self, weight=self.weight.to(device), bias=self.bias.to(device))

    def apply(self, vectors: Any) -> Any:
        return _ACTIVATIONS[self.activation](torch.nn.functional.linear(vectors, self.weight, self.bias))


def _bias(bias: Any, weight: Any) -> Any:
    return torch.zeros(len(weight)) if bias is None else bias.float()


def load_weights(folder: Path, model: Any) -> Dense:
    """Fills `model` from an OpenProvence checkpoint and gives its head. Raises CheckpointRefused if any is missing.

    Weights are named `ranking_model.<name in the reranker>` (in older checkpoints without that prefix) and
    `pruning_head.classifier.{weight,bias}`.
    """
    weights: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights.update(load_file(file))
    head = {name.removeprefix(HEAD): weights.pop(name) for name in list(weights) if name.startswith(HEAD)}
    if set(head) != {"weight", "bias"} or head["weight"].shape[0] != 2:
        raise CheckpointRefused(str(folder), f"{HEAD}weight of two rows and {HEAD}bias are not both in it")
    ranking = {name.removeprefix("ranking_model."): value for name, value in weights.items()}
    try:
        found = model.load_state_dict(ranking, strict=False)
    except RuntimeError as error:
        raise CheckpointRefused(str(folder), f"its weights do not fit base_model_config: {error}") from error
    missing = [name for name in found.missing_keys if "position_ids" not in name and "pooler" not in name]
    if missing:
        raise CheckpointRefused(str(folder), f"lacks weights of its reranker: {', '.join(missing[:5])}")
    return Dense(head["weight"].float(), head["bias"].float())
