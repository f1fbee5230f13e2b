"""What was lost inside units that were kept: a negation, a number, a name, an address."""

# ruff: noqa: RUF001

import re
from bisect import bisect_right
from collections.abc import Iterator

from compression.choosing.protection import NUMBER, URL
from compression.flags.evidence import Evidence
from compression.flags.flag import Flag

_NEGATION = re.compile(
    r"\b(?:not|no|never|none|neither|nor|nobody|nothing|nowhere|without|cannot|hardly|unless|except|\w+n['’]t"
    r"|nicht|kein|keine|keinen|keiner|keinem|keines|nie|niemals|niemand|nichts|ohne|weder"
    r"|ne|pas|jamais|aucun|aucune|sans|ni|rien|non|nunca|jamás|ningún|ninguno|ninguna|nadie|nada|sin|tampoco"
    r"|não|nem|nenhum|nenhuma|sem|niet|geen|nooit|zonder|не|нет|ни|никогда|никто|ничего|без"
    r"|değil|yok|nie|bez|inte|ingen|aldrig|utan|ikke|aldri)\b"
    r"|لا|لم|لن|ليس|ليست|بدون|غير|नहीं|न\b|मत|बिना|[不没沒無无非未别別]|ない|ません|なく|ไม่|않|없|못",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<![.!?\s])\s(?P<name>[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω][\w’'-]+(?:\s[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω][\w’'-]+){0,5})")
_LONGEST_CLAUSE = 600
_CLAUSE_END = re.compile(r"[,;:，；、。.!?！？]\s|[，；、。！？]|[()\[\]–—]")


def lost_in_units(evidence: Evidence) -> Iterator[Flag]:
    """Dropping whole units is the intention; dropping a part of a kept one changes what it says."""
    if not evidence.cut_units:
        return
    urls = _lost(evidence, URL)
    yield from _flag(evidence, "negation_dropped", _negations(evidence))
    yield from _flag(
        evidence, "number_dropped", [span for span in _lost(evidence, NUMBER) if not _within(span, urls)]
    )
    yield from _flag(evidence, "entity_dropped", _lost(evidence, _NAME, "name"))
    yield from _flag(evidence, "url_dropped", urls)


def _flag(evidence: Evidence, code: str, spans: list[tuple[int, int]]) -> Iterator[Flag]:
    if spans:
        yield evidence.flag(code, spans)


def _lost(evidence: Evidence, pattern: re.Pattern[str], group: str | int = 0) -> list[tuple[int, int]]:
    return [
        found.span(group)
        for index in evidence.cut_units
        for found in pattern.finditer(
            evidence.source, evidence.text.units[index].start, evidence.text.units[index].end
        )
        if not evidence.is_whole(*found.span(group))
    ]


def _within(span: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    """Whether one of `others`, which are in source order and disjoint, holds `span`."""
    at = bisect_right(others, span[0], key=lambda other: other[0]) - 1
    return at >= 0 and span[1] <= others[at][1]


def _negations(evidence: Evidence) -> list[tuple[int, int]]:
    """Negations that were dropped while something of their clause was kept."""
    return [span for span in _lost(evidence, _NEGATION) if evidence.kept_length(*_clause(evidence, span))]


def _clause(evidence: Evidence, span: tuple[int, int]) -> tuple[int, int]:
    units = evidence.text.units
    unit = units[bisect_right(units, span[0], key=lambda unit: unit.start) - 1]
    # A clause is no longer: each negation of a unit without marks would read the whole unit again.
    first, last = max(unit.start, span[0] - _LONGEST_CLAUSE), min(unit.end, span[1] + _LONGEST_CLAUSE)
    start, end = first, last
    for found in _CLAUSE_END.finditer(evidence.source, first, last):
        if found.start() < span[0]:
            start = found.end()
        elif found.start() >= span[1]:
            end = found.start()
            break
    return start, end
