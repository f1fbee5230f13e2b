"""Quotations of which only a part was kept, which puts words into somebody's mouth."""

import re
from collections.abc import Iterator

from compression.flags.evidence import Evidence
from compression.flags.flag import Flag

_MARK = re.compile(r'["“”„«»「」『』]')
_CLOSING = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」", "『": "』"}
_LONGEST = 2000
_PROSE = frozenset({"sentence", "turn", "list_item", "heading", "line"})


def broken_quotations(evidence: Evidence) -> Iterator[Flag]:
    broken = [
        (start, end)
        for start, end in _quotations(evidence)
        if 0 < evidence.kept_length(start, end) < end - start
    ]
    if broken:
        yield evidence.flag("quote_broken", broken)


def _quotations(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Pairs of marks within one paragraph of prose. A mark that nothing closes there opens no quotation."""
    if not _MARK.search(evidence.source):
        return
    opened: tuple[int, str, int] | None = None
    for index, unit in enumerate(evidence.text.units):
        if unit.kind not in _PROSE:
            opened = None
            continue
        if opened is not None and evidence.text.units[opened[2]].paragraph != unit.paragraph:
            opened = None
        for found in _MARK.finditer(evidence.source, unit.start, unit.end):
            if opened is None:
                closing = _CLOSING.get(found.group())
                opened = (found.start(), closing, index) if closing else None
            elif found.group() == opened[1] and found.end() - opened[0] <= _LONGEST:
                yield opened[0], found.end()
                opened = None
