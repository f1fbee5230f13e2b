"""Compresses tickets and traces with `pith compress`, to be read by eye, and fills the page that shows them.

python -m benchmarks.quality.samples --ratio 0.3 --out OUTPUTS [--checkout ANOTHER_COMMITS_TREE]
python -m benchmarks.quality.samples --before ANOTHER_COMMITS_TREE --page docs/compression-examples.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.quality.samples.page import blocks_of, filled
from benchmarks.quality.samples.sample import ROOT, SAMPLES, Reading, load_samples, read


def main() -> None:
    """Print a row for each sample; write outputs and the page where that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ratio", type=float, default=0.3)
    parser.add_argument("--samples", type=Path, default=SAMPLES)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="a tree of this project, of any commit")
    parser.add_argument("--out", type=Path, help="folder for the outputs")
    parser.add_argument("--mark-gaps", action="store_true")
    parser.add_argument("--before", type=Path, help="another tree, to compare with")
    parser.add_argument("--page", type=Path, help="page to fill")
    asked = parser.parse_args()
    after = readings(asked, asked.checkout)
    before = readings(asked, asked.before) if asked.before is not None else []
    if asked.page is not None:
        asked.page.write_text(filled(asked.page.read_text("utf-8"), blocks_of(before, after)), "utf-8")
    if asked.out is not None:
        for reading in after:
            place = asked.out / reading.sample.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(reading.output, "utf-8")


def readings(asked: argparse.Namespace, checkout: Path) -> list[Reading]:
    """All samples with the code of that tree, each printed when it is done."""
    options = ("--mark-gaps",) if asked.mark_gaps else ()
    found = []
    for sample in load_samples(asked.samples):
        reading = read(sample, asked.ratio, checkout=checkout.resolve(), options=options)
        ratio = reading.receipt["compression_ratio"]
        print(f"| `{sample.name}` | {ratio:.3f} | {reading.kept} | {reading.warnings} |", flush=True)
        found.append(reading)
    return found


if __name__ == "__main__":
    main()
