"""Compresses the tickets and traces of `tests/samples` with `pith compress`, to be read by eye: what is left of each,
and how many of the facts that its question needs.

    python -m benchmarks.quality.samples --ratio 0.3 --out OUTPUTS [--checkout ANOTHER_COMMITS_TREE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "samples"


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, a question to it, and words of the text that an answer needs."""

    file: Path
    query: str
    facts: tuple[str, ...]

    @property
    def is_json(self) -> bool:
        return self.file.suffix == ".json"


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of a sample."""

    sample: Sample
    output: str
    receipt: dict[str, Any]

    @property
    def plain(self) -> str:
        """The output without JSON's escapes, where it is JSON."""
        try:
            return (
                json.dumps(json.loads(self.output), ensure_ascii=False)
                if self.sample.is_json
                else self.output
            )
        except ValueError:
            return self.output

    @property
    def lost(self) -> list[str]:
        """The facts that it does not hold any more."""
        return [fact for fact in self.sample.facts if fact not in self.plain]

    def row(self) -> str:
        """One row of the table."""
        facts, receipt = len(self.sample.facts), self.receipt
        cells = (
            f"`{self.sample.file.parent.name}/{self.sample.file.name}`",
            str(receipt["original_tokens"]),
            f"{receipt['compression_ratio']:.3f}",
            f"{facts - len(self.lost)} of {facts}",
            ", ".join(flag["code"] for flag in receipt["risk_flags"]),
        )
        return f"| {' | '.join(cells)} |"


def load_samples(folder: Path) -> list[Sample]:
    """The samples that `samples.json` lists."""
    listed = json.loads((folder / "samples.json").read_text("utf-8"))
    return [Sample(folder / each["file"], each["query"], tuple(each["facts"])) for each in listed]


def read(sample: Sample, ratio: float, *, checkout: Path, options: tuple[str, ...] = ()) -> Reading:
    """Compress it with the code in `checkout`. Raises `CalledProcessError`."""
    command = [
        sys.executable,
        "-c",
        "from serve.cli import main; main()",
        "compress",
        str(sample.file.resolve()),
    ]
    asked = ["--query", sample.query, "--ratio", str(ratio), "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [*command, *asked], cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE
    )
    found = json.loads(done.stdout)
    return Reading(sample, found["output"], found["receipt"])


def main() -> None:
    """Print a table, and write the outputs where they can be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratio", type=float, default=0.3)
    parser.add_argument("--samples", type=Path, default=SAMPLES)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="a tree of this project, of any commit")
    parser.add_argument("--out", type=Path, help="folder for the outputs")
    parser.add_argument("--mark-gaps", action="store_true")
    asked = parser.parse_args()
    options = ("--mark-gaps",) if asked.mark_gaps else ()
    print("| sample | tokens | ratio | facts kept | flags |\n|---|---|---|---|---|")
    for sample in load_samples(asked.samples):
        reading = read(sample, asked.ratio, checkout=asked.checkout.resolve(), options=options)
        print(reading.row(), flush=True)
        if asked.out is not None:
            place = asked.out / sample.file.relative_to(asked.samples)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(reading.output, "utf-8")


if __name__ == "__main__":
    main()
