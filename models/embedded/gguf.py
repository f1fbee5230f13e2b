"""Reader of GGUF files, the format of llama.cpp: their values, and their tensors as float32.

Only for a file whose SHA-256 is known: what a file says of itself is believed. Kinds of tensors that the model in
`models.embedded.smollm2` has none of are not read.
"""

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Weights that share a scale.
BLOCK = 32

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class UnreadableGguf(Exception):
    """Not a GGUF file, or one with what is not read here."""


@dataclass(frozen=True, slots=True)
class Gguf:
    """A file's values by key, and its tensors by name: rows first, as PyTorch has them."""

    values: Mapping[str, Any]
    tensors: Mapping[str, Floats]


def read_gguf(path: Path) -> Gguf:
    """Raises `UnreadableGguf`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data)
        if data[:4] != MAGIC or cursor.skip(4).scalar("I") != VERSION:
            raise UnreadableGguf(f"{path.name} is no GGUF file of version {VERSION}")
        tensors, values = cursor.scalar("Q"), cursor.scalar("Q")
        found = {cursor.string(): cursor.value(cursor.scalar("I")) for _ in range(values)}
        places = [_place(cursor) for _ in range(tensors)]
        start = -(-cursor.at // ALIGNMENT) * ALIGNMENT
        return Gguf(found, {place.name: _floats(data, place, start) for place in places})


class _Cursor:
    """A place in the file, which moves on with what is read."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = 0

    def skip(self, count: int) -> "_Cursor":
        self.at += count
        return self

    def scalar(self, code: str) -> Any:
        size = struct.calcsize(code)
        (found,) = struct.unpack_from(f"<{code}", self._data, self.at)
        self.at += size
        return found

    def string(self) -> str:
        count = self.scalar("Q")
        self.at += count
        return self._data[self.at - count : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, count = self.scalar("I"), self.scalar("Q")
            return [self.value(of) for _ in range(count)]
        return self.scalar(SCALARS[kind])


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


def _place(cursor: _Cursor) -> _Place:
    name, dimensions = cursor.string(), cursor.scalar("I")
    shape = tuple(cursor.scalar("Q") for _ in range(dimensions))
    return _Place(name, shape[::-1], cursor.scalar("I"), cursor.scalar("Q"))


def _floats(data: mmap.mmap, place: _Place, start: int) -> Floats:
    if place.kind not in _KINDS:
        raise UnreadableGguf(f"{place.name}: tensors of kind {place.kind} are not read")
    weights, size, floats = _KINDS[place.kind]
    count = prod(place.shape) // weights
    raw = np.frombuffer(bytes(data[start + place.offset :][: count * size]), dtype=np.uint8)
    return floats(raw.reshape(count, size)).reshape(place.shape)


def _plain(blocks: Bytes) -> Floats:
    return blocks.view(np.float32)


def _scaled(blocks: Bytes) -> Floats:
    """Q8_0: a scale, and 32 signed bytes."""
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    weights: Floats = scale * blocks[:, 2:].view(np.int8)
    return weights


def _scaled_and_shifted(blocks: Bytes) -> Floats:
    """Q4_1: a scale, the least, and 32 times four bits: the low ones of 16 bytes, then the high ones."""
    scale, least = (blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    steps = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    weights: Floats = scale * steps + least
    return weights


# By the number that stands in the file: weights and bytes of a block, and what makes floats of it.
_KINDS: Mapping[int, tuple[int, int, Callable[[Bytes], Floats]]] = {
    0: (1, 4, _plain),
    3: (BLOCK, 20, _scaled_and_shifted),
    8: (BLOCK, 34, _scaled),
}
