"""The files of a checkpoint, checked before an engine loads them; an error names the file and the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "*.safetensors"


class BrokenCheckpoint(Exception):
    """A checkpoint that no engine can load; the message has its file and the reason."""


class FileFault(Exception):
    """A fault of the file that is being read."""


def fault_of(source: str) -> str:
    """What is wrong with the folder at this path; "" where nothing is, and for a name of the hub."""
    folder = Path(source)
    try:
        if folder.is_absolute():
            check_checkpoint(folder)
    except BrokenCheckpoint as error:
        return str(error)
    return ""


def check_checkpoint(folder: Path) -> None:
    """That its configuration can be read, and that its weights are there and whole. No tensor is read, and whether the
    engine knows the architecture is the engine's to say. Raises `BrokenCheckpoint`."""
    file = folder / CONFIG
    try:
        json_fields(file)
        for file in weights_of(folder):
            tensor_shapes(file)
    except FileFault as fault:
        raise BrokenCheckpoint(f"{file}: {fault}") from fault.__cause__


def weights_of(folder: Path) -> Sequence[Path]:
    """Its files of weights: those of its index, where it has one. Raises `BrokenCheckpoint`."""
    index = folder / INDEX
    if index.exists():
        try:
            named = json_fields(index).get("weight_map")
        except FileFault as fault:
            raise BrokenCheckpoint(f"{index}: {fault}") from fault.__cause__
        if not isinstance(named, dict) or not named:
            raise BrokenCheckpoint(f"{index}: has no weight_map")
        return [folder / str(name) for name in sorted(set(map(str, named.values())))]
    found = sorted(folder.glob(WEIGHTS))
    if not found:
        raise BrokenCheckpoint(f"{folder}: has no weights ({WEIGHTS})")
    return found


def json_fields(file: Path) -> Mapping[str, Any]:
    """The fields of a JSON object. Raises `FileFault`."""
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFault(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FileFault(f"is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FileFault("is no JSON object")
    return fields


def tensor_shapes(file: Path) -> Mapping[str, Sequence[int]]:
    """The shapes in a safetensors file by the tensors' names; the tensors are not read. Raises `FileFault`."""
    from safetensors import SafetensorError, safe_open

    try:
        file.stat()
        with safe_open(file, framework="numpy") as tensors:
            return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
    except OSError as error:
        hint = "" if file.exists() else " (weights as a pickle are not read)"
        raise FileFault(f"cannot be read: {error.strerror or error}{hint}") from error
    except SafetensorError as error:
        raise FileFault(f"is not a safetensors file, or was cut off: {error}") from error
