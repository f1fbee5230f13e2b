"""LoRA adapters as PEFT saves them, checked before an engine loads one; an error names the file and the reason."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.checkpoint import FileFault, json_fields, tensor_shapes

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
logger = logging.getLogger("pith.engine")
_LAYER = re.compile(r"\.layers\.(\d+)\.")


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
    """An adapter as its files describe it."""

    rank: int
    weights_bytes: int


def read_adapter(model_id: str, folder: Path, *, max_rank: int, base: Path | None) -> Adapter:
    """Check an adapter of PEFT's; `base` is the folder of its base where that is on this machine.

    Raises `BrokenAdapter`.
    """
    file, weights = folder / CONFIG, folder / WEIGHTS
    try:
        rank = _rank(json_fields(file), max_rank)
        file = weights
        shapes = tensor_shapes(weights)
        _check_ranks(shapes, rank)
        if base is not None:
            _check_widths(shapes, base)
    except FileFault as fault:
        raise BrokenAdapter(f"{model_id}: {file}: {fault}") from fault.__cause__
    return Adapter(rank, weights.stat().st_size)


def whole_folders(sources: Iterable[AdapterSource], *, max_rank: int, base: Path) -> dict[str, Path]:
    """Folders of adapters here, by id, but for those that are broken: a request has its adapter loaded once its folder
    is whole. Raises `BrokenAdapter` for one of the hub, which no request can name."""
    folders = {}
    for source in sources:
        folder = source.fetch()
        try:
            read_adapter(source.id, folder, max_rank=max_rank, base=base)
        except BrokenAdapter as error:
            if source.folder is None:
                raise
            logger.error("an adapter is left out: %s", error)
        else:
            folders[source.id] = folder
    return folders


def _rank(fields: Mapping[str, Any], max_rank: int) -> int:
    if fields.get("peft_type") != "LORA":
        raise FileFault(f"peft_type is {fields.get('peft_type')!r}, and only LORA is served")
    for name in ("r", "lora_alpha", "target_modules"):
        if not fields.get(name):
            raise FileFault(f"{name} is missing")
    for name, plain in PLAIN.items():
        if name in fields and fields[name] not in plain:
            raise FileFault(f"{name}: {json.dumps(fields[name])} is not supported by vLLM")
    rank = fields["r"]
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise FileFault(f"r must be a positive integer, not {json.dumps(rank)}")
    if rank > max_rank:
        raise FileFault(f"its rank is {rank}; raise engine.max_lora_rank ({max_rank}) of its base")
    return rank


def _check_ranks(shapes: Mapping[str, Sequence[int]], rank: int) -> None:
    """Each pair is there, and of the rank that the configuration says."""
    firsts = [name for name in shapes if ".lora_A." in name]
    if not firsts:
        raise FileFault("has no tensor named …lora_A.weight")
    for name in firsts:
        second = name.replace(".lora_A.", ".lora_B.")
        if second not in shapes:
            raise FileFault(f"{name} has no {second}")
        if ".experts" in name:
            # Those of all experts may be in one tensor.
            continue
        found = shapes[name][0], shapes[second][-1]
        if found != (rank, rank):
            raise FileFault(
                f"{name} is of rank {found[0]}, {second} of {found[1]}, and r of {CONFIG} is {rank}"
            )


def _check_widths(shapes: Mapping[str, Sequence[int]], base: Path) -> None:
    """An adapter of another model than its base: vLLM says so only after minutes, and without a name."""
    try:
        fields = json.loads((base / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    fields = fields.get("text_config", fields)
    hidden, layers = fields.get("hidden_size"), fields.get("num_hidden_layers")
    for name, shape in shapes.items():
        if name.endswith(READ_HIDDEN) and hidden is not None and shape[-1] != hidden:
            raise FileFault(f"{name} is {shape[-1]} wide, and the hidden size of its base is {hidden}")
        layer = _LAYER.search(name)
        if layer is not None and layers is not None and int(layer[1]) >= layers:
            raise FileFault(f"{name} is beyond the {layers} layers of its base")
