"""What is wrong with a checkpoint's files, said before an engine is started."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from models.checkpoint import CONFIG, INDEX, fault_of
from models.embedded.install import ensure_checkpoints

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A whole checkpoint that comes with pith."""
    return next(iter(ensure_checkpoints(tmp_path).values()))


def cut(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size - 1)


def cut_short(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, 100)


def index_of(folder: Path, *names: str) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": {str(at): name for at, name in enumerate(names)}}))


BROKEN: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda folder: shutil.rmtree(folder), CONFIG, "cannot be read: No such file"),
    (lambda folder: (folder / CONFIG).unlink(), CONFIG, "cannot be read: No such file"),
    (lambda folder: (folder / CONFIG).write_text('{"model_type": '), CONFIG, "is not JSON"),
    (lambda folder: (folder / CONFIG).write_text("[]"), CONFIG, "is no JSON object"),
    (lambda folder: (folder / WEIGHTS).unlink(), "", "has no weights"),
    (cut, WEIGHTS, "was cut off"),
    (cut_short, WEIGHTS, "was cut off"),
    (lambda folder: (folder / WEIGHTS).write_bytes(b""), WEIGHTS, "was cut off"),
    (
        lambda folder: index_of(folder, WEIGHTS, "model-2.safetensors"),
        "model-2.safetensors",
        "cannot be read",
    ),
    (lambda folder: (folder / INDEX).write_text("{}"), INDEX, "has no weight_map"),
]


@pytest.mark.parametrize(("breaks", "file", "said"), BROKEN)
def test_the_file_and_the_reason_are_named(
    folder: Path, breaks: Callable[[Path], object], file: str, said: str
) -> None:
    breaks(folder)
    fault = fault_of(str(folder))
    assert fault.startswith(str(folder / file)) and said in fault, fault


def test_nothing_is_wrong_with_a_whole_one_or_one_of_the_hub(folder: Path) -> None:
    assert fault_of(str(folder)) == ""
    index_of(folder, WEIGHTS)
    assert fault_of(str(folder)) == ""
    assert fault_of("acme/large") == ""
