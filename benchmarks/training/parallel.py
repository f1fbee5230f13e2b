"""The same work on many cases, in several processes."""

from collections.abc import Callable, Iterable
from multiprocessing import get_context
from typing import Any, TypeVar

from rich.progress import track

from benchmarks.evaluation.case import Case

Made = TypeVar("Made")
_make: Callable[[Case], Any] | None = None


def _made(case: Case) -> Any:
    assert _make is not None
    return _make(case)


def make_all(make: Callable[[Case], Made], cases: Iterable[Case], workers: int) -> list[Made]:
    """What `make` gives for each case, in their order."""
    global _make
    _make = make
    ready = list(cases)
    # Forked, so that the tables that `make` holds are shared and not sent; the workers use numpy alone.
    with get_context("fork").Pool(workers) as pool:
        return list(track(pool.imap(_made, ready, chunksize=8), "features", total=len(ready)))
