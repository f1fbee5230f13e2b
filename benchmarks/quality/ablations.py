"""Mechanisms of the pipeline, each of which can be left out, and a table of what that costs.

Left out means that what comes into the mechanism comes out of it unchanged, in a process of the benchmark; the product
has no switch for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from typing import Any

from benchmarks.evaluation.suites.families import family_of
from benchmarks.load.report import table
from benchmarks.quality.scoring import Summary

PIPELINE = "compression.pipeline.pipeline"
LEXICAL = "compression.scorers.lexical"
SEGMENT = "compression.segmentation.segment"
# By name: the module and the function in it, as its caller finds it, and which of its arguments comes out instead.
MECHANISMS: Mapping[str, tuple[str, str, int]] = {
    "second look": (LEXICAL, "SecondLook.logits", 2),
    "records first": (LEXICAL, "by_record", 0),
    "rows of tables": (LEXICAL, "by_row", 0),
    "functions by BM25": (PIPELINE, "with_functions", 1),
    "named code": (PIPELINE, "with_named", 1),
    "causes": (PIPELINE, "with_causes", 1),
    "newest identifiers": (PIPELINE, "rank_history", 1),
    "findings": (PIPELINE, "with_findings", 1),
    "replies": (PIPELINE, "with_replies", 1),
    "threads": (PIPELINE, "with_threads", 1),
    "gist": (PIPELINE, "with_place", 1),
    "noise and repetitions": (PIPELINE, "diversify", 1),
    "definitions": (SEGMENT, "with_code", 2),
}


def leave_out(mechanism: str) -> None:
    """From now on, in this process. Raises `KeyError` for an unknown mechanism."""
    module, path, number = MECHANISMS[mechanism]
    *owners, name = path.split(".")
    owner = attrgetter(".".join(owners))(import_module(module)) if owners else import_module(module)
    if not callable(getattr(owner, name)):
        raise TypeError(f"{module}.{path} is no function")

    def unchanged(*given: Any) -> Any:
        return given[number]

    setattr(owner, name, unchanged)


def selector(kind: str, mechanism: str) -> str:
    return f"{kind} without {mechanism}"


def costs(summaries: Sequence[Summary], kind: str) -> list[str]:
    """A row a mechanism: by suite, in points of the measure that counts most, what each size loses without it."""
    whole = {(one.suite, one.ratio): one for one in summaries if one.selector == kind}
    rows = []
    for mechanism in MECHANISMS:
        lost: dict[str, list[float]] = {}
        for one in summaries:
            if one.selector == selector(kind, mechanism):
                lost.setdefault(one.suite, []).append(_decisive(whole[one.suite, one.ratio]) - _decisive(one))
        changed = [f"{suite} {_points(by_size)}" for suite, by_size in lost.items() if any(by_size)]
        if lost:
            rows.append([mechanism, ", ".join(changed) or "nothing"])
    return table(["without", "loses, in points, by size"], rows)


def _decisive(summary: Summary) -> float:
    return summary.percents[family_of(summary.suite).decisive]


def _points(values: Sequence[float]) -> str:
    """A gain has a minus."""
    return " / ".join(f"{value + 0.0:.0f}" for value in values)
