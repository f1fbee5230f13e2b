"""Shared by every part: its command line, the file that its rows go to, its attempts, and the timing of work."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def arguments(*kinds: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    if kinds:
        parser.add_argument("kind", choices=kinds)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for what is made on the way")
    return parser.parse_args()


def tell(options: argparse.Namespace, **row: Any) -> None:
    """One more row; those before it are kept whatever comes."""
    with options.rows.open("a", encoding="utf-8") as rows:
        rows.write(json.dumps(row) + "\n")


@dataclass(slots=True)
class Attempts:
    """What a part tries one after another: one that fails stops no other, and is said at the end."""

    failed: list[str] = field(default_factory=list)

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failed.append(f"{what}: {type(error).__name__} {error}")

    def conclude(self) -> None:
        """Ends the process where one failed."""
        if self.failed:
            sys.exit(f"no figures, or not all: {'; '.join(self.failed)}")


def median_s(work: Callable[[], Any], *, rounds: int, done: Callable[[], Any] = lambda: None) -> float:
    """Seconds of one round, after one that warms up. `done` waits until the device has finished."""
    times = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        work()
        done()
        if number:
            times.append(time.perf_counter() - began)
    return statistics.median(times)
