"""A suite's cases as rows for `pith tune`: `python -m benchmarks.quality.rows nq --rows 200 --out rows.jsonl`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation.case import Case, seeded
from benchmarks.evaluation.suites import catalogue


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.rows", description=__doc__)
    parser.add_argument("suite", help="such as nq, hotpot_dev, dialogues_nq")
    parser.add_argument("--data", type=Path, default=Path("../shared/eval"), help="folder of .jsonl.gz files")
    parser.add_argument(
        "--rows", type=int, default=200, help="drawn with a fixed seed, held out from training"
    )
    parser.add_argument("--out", type=Path, default=Path("rows.jsonl"), help="file to write")
    return parser.parse_args(words)


def row_of(case: Case) -> dict[str, Any]:
    """All needs as evidence; where a case has none, its answers or the slices of its evidence."""
    row: dict[str, Any] = {"query": case.query, "input": case.context}
    if case.needs:
        return row | {"evidence": [need.text for need in case.needs]}
    if case.answers:
        return row | {"answers": list(case.answers)}
    return row | {"evidence": [case.context[start:end] for start, end in case.evidence]}


def main(words: Sequence[str] | None = None) -> None:
    options = arguments(words)
    makers = catalogue.makers(options.data)
    if options.suite not in makers:
        raise SystemExit(f"{options.suite}: {options.data} has {', '.join(makers) or 'no suite'}")
    cases = [case for case in makers[options.suite]() if case.is_held_out]
    chosen = seeded(f"rows {options.suite}").sample(cases, min(options.rows, len(cases)))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row_of(case), ensure_ascii=False) for case in chosen]
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{options.out}: {len(lines)} rows")


if __name__ == "__main__":
    main()
