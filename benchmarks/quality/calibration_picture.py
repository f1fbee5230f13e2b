"""Draws the diagram of docs/calibration.md: `python -m benchmarks.quality.calibration_picture`.

What it shows was written by `python -m benchmarks.training.calibration --report docs`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import orjson

from benchmarks.load import plots


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.calibration_picture")
    parser.add_argument("figures", type=Path, nargs="?", default=Path("var/calibration/reliability.json"))
    parser.add_argument("--out", type=Path, default=Path("docs/calibration.png"), help="picture to write")
    options = parser.parse_args(words)
    if not options.figures.is_file():
        raise SystemExit(f"{options.figures}: no such file; write it with benchmarks.training.calibration")
    picture = plots.calibrations(**orjson.loads(options.figures.read_bytes()))
    print(plots.draw(options.out, picture.panels, title=picture.title))


if __name__ == "__main__":
    main()
