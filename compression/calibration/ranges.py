"""What a calibration was fitted on: kinds of input, scripts and lengths; and what about a request is unlike it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compression.calibration.context import Context
from compression.source.units import Segmentation
from compression.text.scripts import RANGES, check_scripts, letters_outside

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
        """Of `query`, `kind`, `script` and `length`, what is outside."""
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
    if text.origin is not None:
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
