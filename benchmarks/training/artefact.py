"""Writes the weights to one file, and next to it the record of how they were made."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compression.features.meaning import TokenEmbeddings
from compression.scorers.lexical import FORMAT
from compression.second_look.rounds import FORMAT as SECOND_LOOK_FORMAT
from compression.second_look.rounds import ROUNDS

LARGEST_BYTES = 6_000_000


def write_weights(
    path: Path, vocabulary: Sequence[str], embeddings: TokenEmbeddings, network: Mapping[str, NDArray[np.float32]],
    features: Sequence[str],
) -> None:  # fmt: skip
    """One .npz without compression: it is read in milliseconds, and the same content gives the same bytes."""
    about = json.dumps({"format": FORMAT, "features": list(features)}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
        "about": np.frombuffer(about, np.uint8),
        "vocabulary": np.frombuffer("\n".join(vocabulary).encode(), np.uint8),
        "rows": embeddings.rows,
        "scales": embeddings.scales.astype(np.float16),
        "weights": embeddings.weights.astype(np.float16),
        **{f"net.{name}": value.astype(np.float32) for name, value in network.items()},
    }
    np.savez(path, **arrays)
    if path.stat().st_size > LARGEST_BYTES:
        raise ValueError(f"{path}: {path.stat().st_size} bytes, where at most {LARGEST_BYTES} are committed")


def write_second_look(
    path: Path, rounds: Sequence[Mapping[str, NDArray[np.float32]]], features: Sequence[str]
) -> None:
    """The networks of each round, in the order of `ROUNDS`; half precision would change which unit is best."""
    about = json.dumps({"format": SECOND_LOOK_FORMAT, "features": list(features)}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"about": np.frombuffer(about, np.uint8)}
    for name, network in zip(ROUNDS, rounds, strict=True):
        arrays.update({f"{name}.{key}": value.astype(np.float32) for key, value in network.items()})
    np.savez(path, **arrays)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_record(path: Path, data: Path, weights: Path, facts: Mapping[str, Any]) -> None:
    """Hashes of what went in, and what came out."""
    files = {file.name: sha256(file) for file in sorted(data.glob("*.jsonl.gz"))}
    record = {"weights": {"file": weights.name, "sha256": sha256(weights)}, "data": files, **facts}
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
