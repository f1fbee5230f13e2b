"""Savings of compression inside chat: `python -m benchmarks.savings --data ../shared/eval`.

Replays agents' sessions and questions over twenty passages against a `pith serve` of its own, with and without
compression in turns: clients that know nothing of it, projects with a default and one without. What is measured is
kept in --out, so that parts may be measured one by one; --page fills docs/savings.md with all of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from benchmarks.load import machine
from benchmarks.load.arguments import count
from benchmarks.load.report import no_report_on_failure
from benchmarks.quality.samples.page import filled
from benchmarks.savings.measured import read
from benchmarks.savings.measuring import PARTS, measure
from benchmarks.savings.prices import SCENARIOS
from benchmarks.savings.report import blocks, report


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.savings", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    parser.add_argument("--data", type=Path, default=Path("../shared/eval"), help="folder of .jsonl.gz files")
    parser.add_argument("--parts", type=_some_of(PARTS), default=PARTS, help=f"default: {','.join(PARTS)}")
    parser.add_argument(
        "--prices", type=_some_of([*SCENARIOS]), default=tuple(SCENARIOS), help=f"default: {','.join(SCENARIOS)}"
    )  # fmt: skip
    parser.add_argument(
        "--without-system", action="store_true", help="sessions without their system message only"
    )
    parser.add_argument("--sessions", type=count, help="default: all")
    parser.add_argument(
        "--fewer", type=count, default=25, help="sessions with their system message, and under other prices"
    )
    parser.add_argument("--questions", type=count, default=150, help="of each shape")
    parser.add_argument("--pairs", type=count, default=3000, help="of requests with nothing to compress")
    parser.add_argument(
        "--block-size", type=count, help="tokens of a block of the engine's cache; default: the engine's"
    )
    parser.add_argument("--add", action="store_true", help="to what --out has already")
    parser.add_argument("--nothing", action="store_true", help="measure nothing: report what --out has")
    parser.add_argument("--out", type=Path, default=Path("var/bench-savings"), help="folder for the report")
    parser.add_argument(
        "--page", type=Path, help="page to fill, such as docs/savings.md; its picture lies beside it"
    )
    return parser.parse_args(words)


def _some_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        if unknown := [name for name in text.split(",") if name not in names]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(names)}")
        return tuple(text.split(","))

    return parse


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.savings")
    measured = read(options.out) if options.add or options.nothing else read(Path("nowhere"))
    if not options.nothing:
        with no_report_on_failure():
            found = uvloop.run(measure(options))
        found.runs.append(facts)
        measured.add(found)
        measured.write(options.out)
    made = report(measured, facts)
    made.publish(options.out)
    if options.page is not None:
        page = {name: "\n".join(lines) for name, lines in blocks(measured).items()}
        options.page.write_text(filled(options.page.read_text(encoding="utf-8"), page), encoding="utf-8")
        made.draw(options.page.parent)


if __name__ == "__main__":
    main()
