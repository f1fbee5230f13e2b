"""From observations to the entry of a calibration file, with predictions for what it was not fitted on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from compression.calibration.calibration import FORMAT, Standards
from compression.calibration.context import Ranges
from compression.calibration.fitting import (
    AT_ODDS,
    CHANCE,
    FEWEST_OF_KIND,
    FOLDS,
    USUAL,
    Bools,
    Curves,
    Floats,
    Rows,
    fit,
    fold_of,
    odds_of_kind,
    promises,
    promises_of_kind,
    unseen,
)
from compression.calibration.signals import NAMES
from compression.tuning.observing import RATIOS, USUAL_RATIOS, Observed


class Bars(Protocol):
    """The part of `rich.progress.Progress` that fitting uses."""

    def add_task(self, description: str, *, total: float | None) -> Any: ...

    def advance(self, task_id: Any) -> None: ...


class NoBars:
    """Shows nothing."""

    def add_task(self, description: str, *, total: float | None) -> int:
        del description, total
        return 0

    def advance(self, task_id: Any) -> None:
        del task_id


# Suites whose names begin alike are one family: where a suite is left out, all of its family are.
_APART = "_"


@dataclass(frozen=True)
class Fitted:
    """The entry for the file; the rows it was fitted on; both logits of each row by judges that had not seen its
    group (`apart`), and by judges that had seen no suite of its family (`other`, None where that was not asked for)."""

    entry: dict[str, Any]
    rows: Rows
    ratios: Floats
    apart: tuple[Floats, Floats]
    other: tuple[Floats, Floats] | None


def rows_of(found: Sequence[Observed]) -> Rows:
    return Rows(
        np.concatenate([one.signals for one in found]).astype(np.float64),
        np.concatenate([one.kept for one in found]).astype(np.float64),
        np.repeat([one.suite for one in found], len(RATIOS)),
        np.repeat([one.group for one in found], len(RATIOS)),
        np.repeat([one.kind for one in found], len(RATIOS)),
    )


def usual_ratios(rows: Rows) -> Bools:
    """True for rows of ratios that callers ask for."""
    low, high = USUAL_RATIOS
    return np.tile([low <= ratio <= high for ratio in RATIOS], len(rows.kept) // len(RATIOS))


def entry_of(name: str, found: Sequence[Observed], bars: Bars, *, leave_families_out: bool = False) -> Fitted:
    """Fits once on everything, and as often as it takes to say how it does on unseen questions and, with
    `leave_families_out`, on unseen suites."""
    rows = rows_of(found)
    families = np.array([suite.split(_APART)[0] for suite in rows.suites])
    count = len(np.unique(families))
    leaves_out = leave_families_out and count > 1
    rounds = (CHANCE.rounds + USUAL.rounds) * (1 + FOLDS + (count if leaves_out else 0))
    task = bars.add_task(f"{name}: fitting", total=rounds)

    def advance() -> None:
        bars.advance(task)

    judges = fit(rows, advance)
    apart = unseen(rows, fold_of(rows.groups), advance)
    numbers = np.unique(families, return_inverse=True)[1]
    other = unseen(rows, numbers, advance) if leaves_out else None
    ratios = np.concatenate([one.ratios for one in found])
    curves = Curves.of(apart[0], rows, ratios, len(RATIOS))
    promised = promises(curves)
    entry = {
        "name": name,
        "signals": list(NAMES),
        "chance": judges.chance.as_json(),
        "usual": judges.usual.as_json(),
        "at_odds": list(AT_ODDS),
        "promises": _rounded(promised),
        "by_kind": by_kind(rows, apart, curves, promised),
        "ranges": ranges_of(found).as_json(),
        "suites": sorted({one.suite for one in found}),
    }
    return Fitted(entry, rows, ratios, apart, other)


def by_kind(
    rows: Rows, logits: tuple[Floats, Floats], curves: Curves, least: Sequence[tuple[float, float]]
) -> dict[str, dict[str, Any]]:
    """What differs from kind to kind of source, of the kinds with enough questions: scores of functions mean something
    else than those of sentences do."""
    found, asked = {}, usual_ratios(rows)
    for kind in np.unique(rows.kinds):
        own = rows.kinds == kind
        if own.sum() < FEWEST_OF_KIND * len(RATIOS):
            continue
        chosen = own & asked
        odds = odds_of_kind(rows.where(chosen), (logits[0][chosen], logits[1][chosen]))
        found[str(kind)] = {
            "at_odds": [round(each * odds, 4) for each in AT_ODDS],
            "promises": _rounded(promises_of_kind(curves.where(own[:: len(RATIOS)]), least)),
        }
    return found


def standards_of(fitted: Fitted) -> list[Standards]:
    """For each question, what its kind of source is held to."""
    pooled, own = Standards.all_of(fitted.entry)
    return [own.get(str(kind), pooled) for kind in fitted.rows.kinds[:: len(RATIOS)]]


def _rounded(pairs: Sequence[tuple[float, float]]) -> list[list[float]]:
    return [[keep, round(logit, 4)] for keep, logit in pairs]


def ranges_of(found: Sequence[Observed]) -> Ranges:
    tokens = [one.tokens for one in found]
    scripts: frozenset[str] = frozenset().union(*(one.scripts for one in found))
    return Ranges(frozenset(one.kind for one in found), scripts, (min(tokens), max(tokens)))


def write(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """One file, a line for each kind: the same entries give the same bytes."""
    lines = [
        f"{json.dumps(kind)}: {json.dumps(entry, separators=(',', ':'))}" for kind, entry in entries.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    body = ",\n".join(lines)
    path.write_text(f'{{"format": {FORMAT}, "kinds": {{\n{body}\n}}}}\n', encoding="utf-8")
