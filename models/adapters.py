"""LoRA adapters as PEFT saves them, read before an engine is given one: what is wrong with it is said with its file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# What vLLM 0.29 would read as if it were not there, or refuse without the file's name.
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
}
# Modules whose input is the hidden state.
READ_HIDDEN = tuple(
    f".{name}.lora_A.weight" for name in ("q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj")
)
_LAYER = re.compile(r"\.layers\.(\d+)\.")
# A header is JSON before the tensors; one of a thousand tensors has a hundred kilobytes.
MOST_HEADER_BYTES = 64 * 2**20


class BrokenAdapter(Exception):
    """An adapter that cannot be served; the message has its file and the reason."""


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """An adapter as a configuration names it: a folder, or a repository of the hub at a commit."""

    id: str
    source: str
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        """None for one on the hub."""
        return Path(self.source).expanduser() if self.source.startswith((".", "/", "~")) else None

    def fetch(self) -> Path:
        """Its folder on this machine, fetched from the hub if need be. Raises `BrokenAdapter`."""
        if self.folder is not None:
            return self.folder.resolve()
        from huggingface_hub import snapshot_download

        try:
            # Neither code nor pickles.
            found = snapshot_download(self.source, revision=self.revision, allow_patterns=[CONFIG, WEIGHTS])
        except (OSError, ValueError) as error:
            why = " ".join(str(error).split())
            raise BrokenAdapter(f"{self.id}: {self.source} cannot be fetched from the hub: {why}") from error
        return Path(found)


@dataclass(frozen=True, slots=True)
class Adapter:
    """What its files say of an adapter."""

    rank: int
    weights_bytes: int


def read_adapter(model_id: str, folder: Path, *, max_rank: int, base: Path | None) -> Adapter:
    """Check an adapter of PEFT's; `base` is the folder of its base where that is on this machine.

    Raises `BrokenAdapter`.
    """
    fields = _fields(model_id, folder / CONFIG)
    rank = _rank(model_id, folder / CONFIG, fields, max_rank)
    weights = folder / WEIGHTS
    tensors = _header(model_id, weights)
    _check_tensors(model_id, weights, tensors, rank)
    if base is not None:
        _check_widths(model_id, weights, tensors, base)
    return Adapter(rank, weights.stat().st_size)


def _fields(model_id: str, file: Path) -> Mapping[str, Any]:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BrokenAdapter(f"{model_id}: {file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BrokenAdapter(f"{model_id}: {file}: is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BrokenAdapter(f"{model_id}: {file}: is no JSON object")
    return fields


def _rank(model_id: str, file: Path, fields: Mapping[str, Any], max_rank: int) -> int:
    def broken(why: str) -> BrokenAdapter:
        return BrokenAdapter(f"{model_id}: {file}: {why}")

    if fields.get("peft_type") != "LORA":
        raise broken(f"peft_type is {fields.get('peft_type')!r}, and only LORA is served")
    for name in ("r", "lora_alpha", "target_modules"):
        if not fields.get(name):
            raise broken(f"{name} is missing")
    for name, plain in PLAIN.items():
        if name in fields and fields[name] not in plain:
            raise broken(f"{name}: {json.dumps(fields[name])} is not supported by vLLM")
    rank = fields["r"]
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise broken(f"r must be a positive integer, not {json.dumps(rank)}")
    if rank > max_rank:
        raise broken(f"its rank is {rank}; raise engine.max_lora_rank ({max_rank}) of its base")
    return rank


def _header(model_id: str, file: Path) -> Mapping[str, Any]:
    """The names and shapes of a safetensors file, whose tensors are not read."""
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            if size > min(MOST_HEADER_BYTES, file.stat().st_size):
                raise BrokenAdapter(f"{model_id}: {file}: is not a safetensors file, or was cut off")
            header = json.loads(stream.read(size))
            ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
            is_whole = file.stat().st_size == 8 + size + max(ends, default=0)
    except OSError as error:
        hint = "" if file.exists() else " (weights as a pickle are not read)"
        raise BrokenAdapter(f"{model_id}: {file}: cannot be read: {error.strerror}{hint}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BrokenAdapter(f"{model_id}: {file}: is not a safetensors file") from error
    if not is_whole:
        raise BrokenAdapter(f"{model_id}: {file}: was cut off")
    return {name: one for name, one in header.items() if name != "__metadata__"}


def _check_tensors(model_id: str, file: Path, tensors: Mapping[str, Any], rank: int) -> None:
    """Each pair is there, and of the rank that the configuration says."""
    firsts = [name for name in tensors if ".lora_A." in name]
    if not firsts:
        raise BrokenAdapter(f"{model_id}: {file}: has no tensor named …lora_A.weight")
    for name in firsts:
        second = name.replace(".lora_A.", ".lora_B.")
        if second not in tensors:
            raise BrokenAdapter(f"{model_id}: {file}: {name} has no {second}")
        if ".experts" in name:
            # Those of all experts may be in one tensor.
            continue
        found = tensors[name]["shape"][0], tensors[second]["shape"][-1]
        if found != (rank, rank):
            raise BrokenAdapter(
                f"{model_id}: {file}: {name} is of rank {found[0]}, {second} of {found[1]}, and r of {CONFIG} is {rank}"
            )


def _check_widths(model_id: str, file: Path, tensors: Mapping[str, Any], base: Path) -> None:
    """An adapter of another model than its base: vLLM says so only after minutes, and without a name."""
    try:
        fields = json.loads((base / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    fields = fields.get("text_config", fields)
    hidden, layers = fields.get("hidden_size"), fields.get("num_hidden_layers")
    for name, tensor in tensors.items():
        width = tensor["shape"][-1]
        if name.endswith(READ_HIDDEN) and hidden is not None and width != hidden:
            raise BrokenAdapter(
                f"{model_id}: {file}: {name} is {width} wide, and the hidden size of its base is {hidden}"
            )
        layer = _LAYER.search(name)
        if layer is not None and layers is not None and int(layer[1]) >= layers:
            raise BrokenAdapter(f"{model_id}: {file}: {name} is beyond the {layers} layers of its base")
