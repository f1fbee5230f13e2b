"""A scored text before anything is chosen of it, and whether it is like what a calibration was fitted on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compression.features.matching import echoes
from compression.source.text import RANGES, check_scripts, content_terms, letters_outside
from compression.source.units import STRUCTURE, Segmentation

Ints = NDArray[np.int64]


# A word in more places tells nothing about any of them, and hostile text must not take forever.
MOST_PLACES = 64


def places(text: str, word: str) -> list[int]:
    """Places where `word` begins, at most `MOST_PLACES` times."""
    found: list[int] = []
    at = text.find(word)
    while at >= 0 and len(found) < MOST_PLACES:
        found.append(at)
        at = text.find(word, at + len(word))
    return found


def units_with(text: str, word: str, starts: Ints, ends: Ints) -> Ints:
    """Distinct indices of the units, which lie from `starts` to `ends`, in which `word` begins."""
    at = np.array(places(text, word), np.int64)
    if not len(at):
        return at
    units = np.searchsorted(starts, at, side="right") - 1
    return np.unique(units[(units >= 0) & (at < ends[units])])


Floats = NDArray[np.float64]

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


# A text a little longer than any that was seen is still similar.
_SLACK = 1.5
_READ = 20_000
_ASCII = frozenset({"latin"})


@dataclass(frozen=True, slots=True)
class Ranges:
    """`tokens`: the fewest and the most of a source."""

    kinds: frozenset[str]
    scripts: frozenset[str]
    tokens: tuple[int, int]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Ranges:
        """Raises `KeyError`, `TypeError` or `ValueError` where `data` is malformed."""
        low, high = (int(value) for value in data["tokens"])
        check_scripts(data["scripts"])
        return cls(frozenset(map(str, data["kinds"])), frozenset(data["scripts"]), (low, high))

    def as_json(self) -> dict[str, Any]:
        return {"kinds": sorted(self.kinds), "scripts": sorted(self.scripts), "tokens": list(self.tokens)}

    def missed(self, query: str, text: Segmentation, context: Context) -> tuple[str, ...]:
        """Those of `query`, `kind`, `script` and `length` that are outside."""
        found = {
            "query": not context.query_terms,
            "kind": kind_of(text, context) not in self.kinds,
            "script": _is_foreign(text.source[:_READ], self.scripts)
            or _is_foreign(query[:_READ], self.scripts),
            "length": not self.tokens[0] / _SLACK <= context.tokens <= self.tokens[1] * _SLACK,
        }
        return tuple(name for name, is_outside in found.items() if is_outside)


def kind_of(text: Segmentation, context: Context) -> str:
    """`conversation`, `json`, or what most characters of the source are in: `turns`, `lines`, `code`, `table`; else
    `documents` or, where there is one, `prose`."""
    if text.is_conversation:
        return "conversation"
    if text.frames and text.frames[0].kind == "json" and text.frames[0].open == 0:
        return "json"
    kinds = context.kinds
    largest = max(kinds, key=lambda kind: kinds[kind], default="sentence")
    named = {
        "turn": "turns",
        "line": "lines",
        "code_block": "code",
        "table_row": "table",
        "json_member": "json",
    }
    return named.get(largest) or ("documents" if len(text.documents) > 1 else "prose")


def scripts_of(text: str) -> frozenset[str]:
    """Scripts of a tenth or more of the letters at the beginning of `text`."""
    head = text[:_READ]
    if head.isascii():
        return _ASCII
    shares = {}
    for name in RANGES:
        outside, letters = letters_outside(head, {name})
        shares[name] = (letters - outside) / letters if letters else 0.0
    return frozenset(name for name, share in shares.items() if share >= 0.1)


def _is_foreign(text: str, scripts: frozenset[str]) -> bool:
    outside, letters = letters_outside(text, scripts)
    return 2 * outside > letters
