"""What is read of a GGUF file is what was written, weight for weight."""

import struct
from pathlib import Path

import numpy as np
import pytest

from models.embedded.gguf import UnreadableGguf, read_gguf

F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
UINT32, STRING, ARRAY = 4, 8, 9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(values: dict[str, bytes], tensors: dict[str, tuple[tuple[int, ...], int, bytes]]) -> bytes:
    """A file with these, each value as its kind and its bytes; shapes are rows first."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(text(key) + value for key, value in values.items())
    body = b""
    for name, (shape, kind, data) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + body


def block_of(*, scale: float, least: float, steps: list[int]) -> bytes:
    """Of Q4_1: the first 16 steps in the low halves of the bytes, the others in the high ones."""
    halves = [low | high << 4 for low, high in zip(steps[:16], steps[16:], strict=True)]
    return np.array([scale, least], np.float16).tobytes() + bytes(halves)


def test_values_of_every_kind_that_is_needed_are_read(tmp_path: Path) -> None:
    names = struct.pack("<IIQ", ARRAY, STRING, 2) + text("Ġt") + text("b")
    values = {
        "heads": struct.pack("<II", UINT32, 9),
        "names": names,
        "who": struct.pack("<I", STRING) + text("é"),
    }
    (tmp_path / "file.gguf").write_bytes(gguf(values, {}))
    assert read_gguf(tmp_path / "file.gguf").values == {"heads": 9, "names": ["Ġt", "b"], "who": "é"}


def test_tensors_of_each_kind_have_the_weights_that_were_stored(tmp_path: Path) -> None:
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    steps = [*range(16), *reversed(range(16))]
    signed = np.arange(-16, 16, dtype=np.int8)
    tensors = {
        "plain": ((2, 3), F32, plain.tobytes()),
        "four": (
            (2, 32),
            Q4_1,
            block_of(scale=0.5, least=-2, steps=steps) + block_of(scale=2, least=1, steps=steps),
        ),
        "eight": ((1, 32), Q8_0, np.float16(0.25).tobytes() + signed.tobytes()),
    }
    (tmp_path / "file.gguf").write_bytes(gguf({}, tensors))
    found = read_gguf(tmp_path / "file.gguf").tensors
    assert found["plain"].tolist() == plain.tolist()
    assert found["four"].tolist() == [[0.5 * step - 2 for step in steps], [2.0 * step + 1 for step in steps]]
    assert found["eight"].tolist() == [[0.25 * step for step in range(-16, 16)]]


def test_another_file_and_a_tensor_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"GGML" + bytes(64))
    with pytest.raises(UnreadableGguf, match=r"other\.gguf is no GGUF file of version 3"):
        read_gguf(tmp_path / "other.gguf")
    (tmp_path / "halves.gguf").write_bytes(gguf({}, {"w": ((1, 32), F16, bytes(64))}))
    with pytest.raises(UnreadableGguf, match="w: tensors of kind 1 are not read"):
        read_gguf(tmp_path / "halves.gguf")
