"""What one scored text says before anything is chosen of it: its scores, its kinds of units, its query, its hops."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.calibration.occurrences import MOST_PLACES, units_with
from compression.features.echo import echoes
from compression.source.units import STRUCTURE, Segmentation
from compression.text.terms import content_terms

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEEPEST = 20.0
_MOST_TERMS = 24
_STRONG_UNITS = 8
_MOST_NAMES = 24
_LONGEST_READ = 2000
# A word with a capital inside a sentence, a number or an identifier: what another part of a text can be about.
_NAME = re.compile(r"(?<![.!?]\s)(?<!\A)\b[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω]\w{2,40}|\b(?=\w{0,40}[\d_])\w{4,40}")
_IDENTIFIER = re.compile(r"\b(?=\w{0,40}[\d_])\w{4,40}")
_LATE_CHARS, _MOST_LATE = 40_000, 400
_ASKS = re.compile(r"\b(?:who|whom|whose|what|when|where|which|why|how)\b", re.IGNORECASE)
_CAPITAL = re.compile(r"(?<!\A)\b[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω]\w+")


@dataclass(frozen=True, slots=True)
class Context:
    """A scored text. Arrays are by unit, in source order, unless said otherwise.

    `logits` are those of the scores; `content` is false for what only frames other units. `terms` has, for each term of
    the query that occurs in the source, the units that have it; `hops` likewise for names that the best units bring up
    and the query does not, `late` for the identifiers and numbers near the end. `digits` and `sizes` count characters.
    """

    logits: Floats
    content: NDArray[np.bool_]
    sizes: Floats
    digits: Floats
    documents: Ints
    turns: NDArray[np.bool_]
    kinds: dict[str, float]
    terms: tuple[Ints, ...]
    late: tuple[Ints, ...]
    hops: tuple[Ints, ...]
    query_terms: int
    query_names: int
    asks: bool
    tokens: int


def read(query: str, text: Segmentation, scores: Sequence[float], tokens: int) -> Context:
    """`tokens`: of the whole source. One score a unit."""
    starts = np.array([unit.start for unit in text.units], np.int64)
    ends = np.array([unit.end for unit in text.units], np.int64)
    logits = _logits(scores)
    # What only repeats the query is kept or not without meaning anything.
    content = np.array([unit.kind not in STRUCTURE for unit in text.units], bool) & ~echoes(query, text)
    wanted = content_terms(query)[:_MOST_TERMS]
    lowered = text.source.lower()
    if len(lowered) != len(text.source):
        lowered = text.source
    terms = [units_with(lowered, term, starts, ends) for term in wanted]
    sizes = np.maximum(1.0, (ends - starts).astype(np.float64))
    turns = _in_turns(text)
    return Context(
        logits=logits,
        content=content,
        sizes=sizes,
        digits=_digits(text.source, starts, ends),
        documents=np.array([unit.document for unit in text.units], np.int64),
        turns=turns,
        kinds=_kinds(text, sizes, turns),
        terms=tuple(units for units in terms if len(units)),
        late=_late(text, starts, ends),
        hops=_hops(text, lowered, wanted, np.where(content, logits, -np.inf), starts, ends),
        query_terms=len(wanted),
        query_names=len(_CAPITAL.findall(query[:_LONGEST_READ])),
        asks=bool(_ASKS.search(query[:_LONGEST_READ])),
        tokens=tokens,
    )


def _logits(scores: Sequence[float]) -> Floats:
    found = np.clip(np.asarray(scores, np.float64), 1e-9, 1 - 1e-9)
    return np.clip(np.log(found / (1 - found)), -_STEEPEST, _STEEPEST)


def _digits(source: str, starts: Ints, ends: Ints) -> Floats:
    """ASCII digits of each unit: what numbers, dates and most identifiers have."""
    codes = np.frombuffer(source.encode("utf-32-le", "surrogatepass"), np.uint32)
    passed = np.concatenate([[0], np.cumsum((codes >= 48) & (codes <= 57))])
    return np.asarray(passed[ends] - passed[starts], np.float64)


def _in_turns(text: Segmentation) -> NDArray[np.bool_]:
    turn_frames = {number for number, frame in enumerate(text.frames) if frame.kind in ("turn", "message")}
    return np.array([unit.kind == "turn" or unit.frame in turn_frames for unit in text.units], bool)


def _kinds(text: Segmentation, sizes: Floats, turns: NDArray[np.bool_]) -> dict[str, float]:
    """Shares of the source's characters that lie in units of each kind, those of turns as `turn`."""
    shares: dict[str, float] = {}
    for unit, size, is_turn in zip(text.units, sizes.tolist(), turns.tolist(), strict=True):
        kind = "turn" if is_turn else unit.kind
        shares[kind] = shares.get(kind, 0.0) + size
    total = max(1.0, float(sizes.sum()))
    return {kind: size / total for kind, size in shares.items()}


def _late(text: Segmentation, starts: Ints, ends: Ints) -> tuple[Ints, ...]:
    """For each of the last identifiers and numbers, the units of that stretch which have it: what an agent repeats."""
    first = max(0, len(text.source) - _LATE_CHARS)
    found: dict[str, set[int]] = {}
    for match in _IDENTIFIER.finditer(text.source, first):
        unit = int(np.searchsorted(starts, match.start(), side="right")) - 1
        if unit >= 0 and match.start() < ends[unit]:
            found.setdefault(match.group(), set()).add(unit)
    chosen = list(found.values())[-_MOST_LATE:]
    return tuple(np.array(sorted(units), np.int64) for units in chosen)


def _hops(
    text: Segmentation, lowered: str, wanted: Sequence[str], logits: Floats, starts: Ints, ends: Ints
) -> tuple[Ints, ...]:
    """For names in the best units that the query does not have: the other units that have them too, where not many."""
    best = np.argsort(-logits, kind="stable")[:_STRONG_UNITS].tolist()
    known = set(wanted)
    names: dict[str, None] = {}
    for unit in best:
        piece = text.source[starts[unit] : min(int(ends[unit]), int(starts[unit]) + _LONGEST_READ)]
        names.update(dict.fromkeys(found.lower() for found in _NAME.findall(piece)))
    found = []
    for name in [name for name in names if name not in known][:_MOST_NAMES]:
        units = units_with(lowered, name, starts, ends)
        if 1 < len(units) < MOST_PLACES // 2:
            found.append(units)
    return tuple(found)
