"""Prints a configuration with one more model, an encoder: `python -m benchmarks.quality.with_encoder [FILE]`.

The encoder is all-MiniLM-L6-v2 from the package that carries it; the model's id is `minilm`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from benchmarks.evaluation.minilm import NoEncoder, encoder_checkpoint

MODEL = "minilm"


def with_encoder(config: str, checkpoint: Path) -> str:
    """The YAML with one more compression model, which starts when it is asked for."""
    settings = yaml.safe_load(config)
    settings["compression"]["models"].append(
        {
            "id": MODEL,
            "name": "MiniLM",
            "blurb": "all-MiniLM-L6-v2 as a bi-encoder, for the quality benchmark.",
            "kind": "encoder",
            "checkpoint": str(checkpoint),
            "replicas": {"min": 0, "max": 1},
        }
    )
    return yaml.safe_dump(settings, sort_keys=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.with_encoder")
    parser.add_argument("config", type=Path, nargs="?", default=Path("configs/tiny.yaml"))
    options = parser.parse_args()
    try:
        sys.stdout.write(with_encoder(options.config.read_text(encoding="utf-8"), encoder_checkpoint()))
    except (NoEncoder, FileNotFoundError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
