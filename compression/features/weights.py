"""A file of weights as training wrote it: arrays, and the names of the features that they were trained on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class BadWeights(ValueError):
    """A file of weights that this version cannot read."""


def read_arrays(path: Path, what: str, version: int, command: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arrays and the features. `what` is what they are for, `command` makes them.

    Raises `FileNotFoundError`, and `BadWeights` for a file of another version.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no weights of {what} at {path}; make them: {command}")
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found}
        about = json.loads(bytes(arrays.pop("about")).decode())
    except (KeyError, ValueError) as error:
        raise BadWeights(f"{path}: {type(error).__name__}: {error}") from error
    if about["format"] != version:
        raise BadWeights(f"{path}: format {about['format']}, where this version reads {version}")
    return arrays, tuple(about["features"])


def beginning_with(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Those whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
