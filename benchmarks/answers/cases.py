"""Cases of the comparison: of several suites by turns, so that a run that is cut has as many of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from benchmarks.answers.arms import gold_of
from benchmarks.evaluation.case import Case, seeded
from benchmarks.evaluation.suites.catalogue import Maker

# By whether training of pith's saw the row.
ROWS: Mapping[str, Callable[[Case], bool]] = {
    "held-out": lambda case: case.is_held_out,
    "trained": lambda case: not case.is_held_out,
    "all": lambda case: True,
}


# Its evidence is an answer; elsewhere in the third suite it is a sentence or a row that has one somewhere.
ANSWERS_AS_EVIDENCE = "languages"


def answered(case: Case) -> Case:
    """With the slices that are needed as answers, where they are some."""
    if case.suite != ANSWERS_AS_EVIDENCE:
        return case
    return replace(case, answers=tuple(sorted({case.context[start:end] for start, end in case.evidence})))


def is_judged(case: Case) -> bool:
    """Whether its answer is a string, and it is known what of the context gives it."""
    return bool(case.answers and gold_of(case))


def drawn(makers: Mapping[str, Maker], suites: Sequence[str], rows: str, limit: int) -> list[Case]:
    """At most `limit` of each suite, drawn with a fixed seed: the first of each, the second of each, and so on.
    Raises `KeyError` for a suite that there is not."""
    by_suite = [_of(name, makers[name], rows, limit) for name in suites]
    return [case for case in chain.from_iterable(zip_longest(*by_suite)) if case is not None]


def _of(suite: str, make: Maker, rows: str, limit: int) -> list[Case]:
    """A larger limit has those of a smaller one first."""
    found = [case for case in map(answered, make()) if ROWS[rows](case) and is_judged(case)]
    seeded(f"answers {suite}").shuffle(found)
    return found[:limit]
