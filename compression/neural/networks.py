"""The forward passes: the only file of compression that runs torch when serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.utils.logging import disable_progress_bar

from compression.neural.batching import CheckpointRefused, Floats, Window
from compression.neural.checkpoints import read_json
from compression.pipeline.spec import Dtype as Dtype
from compression.pipeline.spec import ModelSpec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Placement:
    """Device and precision of a network. `threads` (CPU, whole process): None leaves torch's own number.
    `memory_share` (GPU, whole process): part of the GPU's memory that torch may take."""

    device: str = "cpu"
    dtype: Dtype = "float32"
    threads: int | None = None
    memory_share: float = 1.0

    @classmethod
    def of(cls, spec: ModelSpec) -> Placement:
        return cls(spec.device, spec.dtype, spec.threads, spec.memory_share)

    def bound_process(self) -> None:
        """Keep torch within its threads, and within its part of a GPU that others share."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        device = torch.device(self.device)
        if device.type == "cuda" and self.memory_share < 1:
            torch.cuda.set_per_process_memory_fraction(self.memory_share, device.index)


class TorchNetwork:
    """A transformer and what it does with a batch: padded to its longest window, never further."""

    def __init__(self, model: Any, placement: Placement, pad_id: int) -> None:
        placement.bound_process()
        if placement.dtype == "bfloat16" and torch.device(placement.device).type == "cpu":
            self.model = _with_bf16_products(model).eval()
        else:
            self.model = model.to(device=placement.device, dtype=DTYPES[placement.dtype]).eval()
        self.device = torch.device(placement.device)
        self.pad_id = pad_id
        self.wants_types = getattr(model.config, "type_vocab_size", 0) > 1

    @property
    def longest_window(self) -> int:
        """Tokens of the longest window that the position embeddings allow."""
        config = self.model.config
        limit = int(getattr(config, "max_position_embeddings", 512))
        # RoBERTa's positions begin after the padding index.
        return limit - config.pad_token_id - 1 if "roberta" in config.model_type else limit

    def window_of(self, checkpoint: str, asked: int | None, said: object = None) -> int:
        """Tokens of a window: as asked for, else as the checkpoint says. Raises CheckpointRefused for too many."""
        window = asked or min(int(str(said or 512)), self.longest_window)
        if window > self.longest_window:
            raise CheckpointRefused(
                checkpoint, f"window: {window} tokens, more than the {self.longest_window} that it takes"
            )
        return window

    def run(self, batch: Sequence[Window]) -> list[Floats]:
        """One output a window; see the subclass."""
        if not batch:
            return []
        width = max(map(len, batch))
        with torch.inference_mode():
            inputs = self._inputs(batch, width)
            found = self._outputs(inputs, [len(window) for window in batch])
        return [np.ascontiguousarray(one, np.float32) for one in found]

    def _inputs(self, batch: Sequence[Window], width: int) -> dict[str, Any]:
        ids = np.full((len(batch), width), self.pad_id, np.int64)
        for row, window in enumerate(batch):
            ids[row, : len(window)] = window.ids
        inputs = {"input_ids": torch.from_numpy(ids).to(self.device)}
        if any(len(window) < width for window in batch):
            lengths = np.array([len(window) for window in batch])
            mask = np.arange(width)[None, :] < lengths[:, None]
            inputs["attention_mask"] = torch.from_numpy(mask).to(self.device)
        if self.wants_types and any(window.types for window in batch):
            types = np.zeros((len(batch), width), np.int64)
            for row, window in enumerate(batch):
                types[row, : len(window)] = window.types or 0
            inputs["token_type_ids"] = torch.from_numpy(types).to(self.device)
        return inputs

    def _outputs(self, inputs: dict[str, Any], lengths: Sequence[int]) -> list[Floats]:
        raise NotImplementedError


class TokenClassifierNetwork(TorchNetwork):
    """The probability of label 1, keep, for each token of a window: shape (tokens,)."""

    @classmethod
    def load(cls, folder: Path, placement: Placement, pad_id: int) -> TokenClassifierNetwork:
        model = _load(AutoModelForTokenClassification, folder)
        if model.config.num_labels != 2:
            raise CheckpointRefused(
                str(folder), f"has {model.config.num_labels} labels a token, not drop and keep"
            )
        return cls(model, placement, pad_id)

    def _outputs(self, inputs: dict[str, Any], lengths: Sequence[int]) -> list[Floats]:
        kept = torch.softmax(self.model(**inputs).logits.float(), dim=-1)[..., 1].cpu().numpy()
        return [row[:length] for row, length in zip(kept, lengths, strict=True)]


class EncoderNetwork(TorchNetwork):
    """A vector of length one for each window: shape (width,)."""

    def __init__(
        self, model: Any, placement: Placement, pad_id: int, pooling: Pooling, dense: Sequence[Dense]
    ) -> None:
        super().__init__(model, placement, pad_id)
        self.pooling = pooling
        self.dense = [layer.to(placement.device) for layer in dense]

    @classmethod
    def load(
        cls, folder: Path, placement: Placement, pad_id: int, pooling: Pooling, dense: Sequence[Dense]
    ) -> EncoderNetwork:
        return cls(_load(AutoModel, folder), placement, pad_id, pooling, dense)

    def _outputs(self, inputs: dict[str, Any], lengths: Sequence[int]) -> list[Floats]:
        states = self.model(**inputs).last_hidden_state.float()
        vectors = self.pooling.pool(states, torch.tensor(lengths, device=self.device))
        for layer in self.dense:
            vectors = layer.apply(vectors)
        return list(torch.nn.functional.normalize(vectors, dim=-1).cpu().numpy())


class CrossEncoderNetwork(TorchNetwork):
    """The match of the two texts of a window, in [0, 1]: shape (1,)."""

    @classmethod
    def load(cls, folder: Path, placement: Placement, pad_id: int) -> CrossEncoderNetwork:
        model = _load(AutoModelForSequenceClassification, folder, pools=True)
        if model.config.num_labels > 2:
            raise CheckpointRefused(str(folder), f"has {model.config.num_labels} labels: it does not rank")
        return cls(model, placement, pad_id)

    def _outputs(self, inputs: dict[str, Any], lengths: Sequence[int]) -> list[Floats]:
        return list(_relevance(self.model(**inputs).logits).cpu().numpy()[:, None])


class QueryClassifierNetwork(TorchNetwork):
    """First the window's relevance, then each token's keep probability, all in [0, 1]: shape (1 + tokens,)."""

    def __init__(
        self, model: Any, placement: Placement, pad_id: int, head: Dense, *, before_norm: bool
    ) -> None:
        super().__init__(model, placement, pad_id)
        self.head = head.to(placement.device)
        self._before_norm: list[Any] = []
        self._taps_norm = before_norm and hasattr(model.base_model, "final_norm")
        if self._taps_norm:
            model.base_model.final_norm.register_forward_pre_hook(
                lambda _, inputs: self._before_norm.append(inputs[0])
            )

    @classmethod
    def load(
        cls, folder: Path, placement: Placement, pad_id: int, *, before_norm: bool | None
    ) -> QueryClassifierNetwork:
        """See `query_classifier` for the format. `before_norm` None: as the transformers that saved it had it."""
        config = read_json(folder / "config.json")
        base = dict(config.get("base_model_config") or {})
        if "model_type" not in base:
            raise CheckpointRefused(
                str(folder), "config.json: base_model_config with its model_type is missing"
            )
        base_config = AutoConfig.for_model(base.pop("model_type"), **base)
        base_config.num_labels = int(config.get("num_labels") or 1)
        model = AutoModelForSequenceClassification.from_config(base_config)
        head = load_weights(folder, model)
        if before_norm is None:
            before_norm = int(str(config.get("transformers_version") or "4").split(".")[0]) < 5
        return cls(model, placement, pad_id, head, before_norm=before_norm)

    def _outputs(self, inputs: dict[str, Any], lengths: Sequence[int]) -> list[Floats]:
        self._before_norm.clear()
        found = self.model(**inputs, output_hidden_states=not self._taps_norm)
        states = self._before_norm.pop() if self._taps_norm else found.hidden_states[-1]
        kept = torch.softmax(self.head.apply(states.float()), dim=-1)[..., 1].cpu().numpy()
        relevance = _relevance(found.logits).cpu().numpy()
        return [np.concatenate([[relevance[row]], kept[row, :length]]) for row, length in enumerate(lengths)]


def _relevance(logits: Any) -> Any:
    logits = logits.float()
    return torch.sigmoid(logits[:, 0]) if logits.shape[-1] == 1 else torch.softmax(logits, dim=-1)[:, 1]


def _load(kind: Any, folder: Path, *, pools: bool = False) -> Any:
    """Safetensors only, nothing from the checkpoint is run, and every weight that the model uses is in it.

    A pooler is often missing, and missed only where `pools`.
    """
    config = read_json(folder / "config.json")
    if "auto_map" in config and config.get("model_type") not in _known_types():
        raise CheckpointRefused(
            str(folder), f"model_type {config.get('model_type')!r} loads only by running its code"
        )
    disable_progress_bar()
    try:
        model, info = kind.from_pretrained(
            str(folder),
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointRefused(str(folder), f"its model does not load: {error}") from error
    missing = sorted(name for name in info["missing_keys"] if pools or "pooler" not in name)
    if missing:
        raise CheckpointRefused(
            str(folder), f"lacks weights of a {type(model).__name__}: {', '.join(missing[:5])}"
        )
    return model


def _with_bf16_products(model: Any) -> Any:
    """The matrix products in bf16, the residual stream and the norms in fp32.

    As fast on a CPU as all in bf16, and of the keep decisions that differ from fp32's more than half are saved.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "classifier" not in name:
            module.weight.data = module.weight.data.bfloat16()
            bias = None if module.bias is None else module.bias.data.bfloat16()
            # What is rounded to bf16 before the next product anyway stays in it.
            widened = not name.endswith(("intermediate.dense", "self.query", "self.key", "self.value"))
            module.forward = _bf16_product(module.weight, bias, widened)
    return model


def _bf16_product(weight: Any, bias: Any, widened: bool) -> Callable[[Any], Any]:
    def product(states: Any) -> Any:
        found = torch.nn.functional.linear(states.bfloat16(), weight, bias)
        return found.float() if widened else found

    return product


def _known_types() -> set[str]:
    return set(CONFIG_MAPPING_NAMES)


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
