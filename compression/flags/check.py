"""Runs every check over one compression; a clean one comes back with nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compression.flags.evidence import Evidence
from compression.flags.flag import CODES, Flag
from compression.flags.loss import lost_in_units
from compression.flags.quotations import broken_quotations
from compression.flags.relevance import relevance_flags
from compression.flags.structure import damaged_structure
from compression.flags.text import doubtful_text

_CHECKS: tuple[Callable[[Evidence], Iterator[Flag]], ...]


def size_flags(evidence: Evidence) -> Iterator[Flag]:
    settings = evidence.settings
    if evidence.output_tokens > evidence.budget or (not evidence.output and evidence.source.strip()):
        yield evidence.flag("target_unreachable", _largest_protected(evidence), count=1)
    if evidence.target_ratio < settings.aggressive_ratio:
        yield evidence.flag("ratio_aggressive", count=1)
    if evidence.target_ratio < 1 and evidence.original_tokens < settings.short_input_tokens:
        yield evidence.flag("input_too_short", count=1)


def _largest_protected(evidence: Evidence) -> list[tuple[int, int]]:
    spans = [(unit.start, unit.end) for unit in evidence.text.units if unit.protected]
    return sorted(spans, key=lambda span: span[0] - span[1])


_CHECKS = (size_flags, lost_in_units, broken_quotations, relevance_flags, damaged_structure, doubtful_text)


def check(evidence: Evidence) -> tuple[Flag, ...]:
    """Flags in the order of `CODES`, without those that the settings disable."""
    found = {flag.code: flag for run in _CHECKS for flag in run(evidence)}
    return tuple(found[code] for code in CODES if code in found and code not in evidence.settings.disabled)
