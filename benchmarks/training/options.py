"""Options that the commands that train share, and the record of how a result came about."""

import argparse
import platform
from pathlib import Path

import numpy as np
import torch


def parser_of(
    prog: str, description: str | None, *, seed: int, epochs: int, networks: int
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/eval"), help="folder of the .jsonl.gz files"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("compression/weights"), help="folder for weights and record"
    )
    parser.add_argument(
        "--teacher", type=Path, help="folder of the sentence encoder; default: the installed package"
    )
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--steps", type=int, default=2000, help="of tuning the embeddings")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--networks", type=int, default=networks, help="how many are averaged")
    parser.add_argument("--workers", type=int, default=2, help="processes that compute features")
    return parser


def read(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options given, once torch is told to be deterministic. Exits where the data folder is missing."""
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"--data {options.data}: no such folder")
    torch.use_deterministic_algorithms(True)
    return options


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
