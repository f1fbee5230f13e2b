"""Damage to what was kept: negations, numbers and quotations cut, structure broken; and text to be wary of."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from compression.choosing.protection import NUMBER, URL
from compression.flags.flag import Evidence, Flag
from compression.segmentation.definitions import framed_functions
from compression.source.text import letters_outside
from compression.source.units import Frame, Slice, join, kept_parts

# ruff: noqa: RUF001


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


def damaged_structure(evidence: Evidence) -> Iterator[Flag]:
    yield from _altered_code(evidence)
    checks = (
        ("json_invalid", _invalid_json),
        ("table_damaged", _damaged_tables),
    )
    for code, find in checks:
        spans = list(find(evidence))
        if spans:
            yield evidence.flag(code, spans)


# A function counts among the best from this share of the best unit's score on.
_AMONG_BEST = 0.9


def _altered_code(evidence: Evidence) -> Iterator[Flag]:
    """Functions of which a part was dropped, and pieces of code cut inside; what was dropped whole is only missing.

    For information where the function is not among the best: it is there because there was room.
    """
    units, kept = evidence.text.units, set(evidence.kept_units)
    cut = [range(unit, unit + 1) for unit in evidence.cut_units if units[unit].kind == "code_block"]
    is_code_cut = bool(cut)
    for head, last in framed_functions(evidence.text).items():
        body = range(head + 1, last + 1)
        if not kept.isdisjoint(body) and not kept.issuperset(body):
            cut.append(range(head, last + 1))
    if cut:
        spans = [(units[each[0]].start, units[each[-1]].end) for each in cut]
        warns = is_code_cut or _are_among_best(evidence, cut)
        yield evidence.flag("code_altered", spans, severity=None if warns else "info")


def _are_among_best(evidence: Evidence, cut: list[range]) -> bool:
    scores = evidence.scores
    if scores is None:
        return True
    best = _AMONG_BEST * max(scores)
    return any(scores[unit] >= best for each in cut for unit in each)


def _invalid_json(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """JSON values that parsed before and do not now. One that was dropped whole is gone, not broken, unless it was
    the whole source."""
    slices = [Slice(*piece) for piece in sorted(evidence.slices)]
    for frame in evidence.text.frames:
        if frame.kind != "json" or (
            frame.parent is not None and evidence.text.frames[frame.parent].kind == "json"
        ):
            continue
        start, end = _span(evidence, frame)
        # The JSON of a conversation is the input's; a text in it that is JSON is so when decoded.
        origin = evidence.text.origin
        is_decoded = origin is None or origin.is_in_text(start, end)
        if not is_decoded and frame.parent is not None:
            continue
        parts = kept_parts(slices, start, end)
        kept = join(evidence.source, parts) if is_decoded else evidence.text.raw(parts)
        if (kept or _is_whole_source(evidence, start, end)) and not _parses(kept):
            yield start, end


def _is_whole_source(evidence: Evidence, start: int, end: int) -> bool:
    """White space alone around it, as units tell: to look at the text itself would cost its length for each value."""
    units = evidence.text.units
    return start == units[0].start and end == units[-1].end


def _parses(text: str) -> bool:
    try:
        json.loads(text, parse_float=str, parse_int=str)
    except (json.JSONDecodeError, RecursionError):
        return False
    return True


def _damaged_tables(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Rows without all that names their columns (years, units) or the section that they are in, and rows cut inside."""
    units = evidence.text.units
    headless: set[int | None] = set()
    for number, frame in enumerate(evidence.text.frames):
        # A section's frame comes after its table's.
        is_whole = evidence.is_whole(units[frame.open].start, units[frame.open].end)
        if frame.kind == "table" and (not is_whole or frame.parent in headless):
            headless.add(number)
    cut = set(evidence.cut_units)
    for index in evidence.kept_units:
        unit = units[index]
        if unit.kind == "table_row" and (unit.frame in headless or index in cut):
            yield unit.start, unit.end


def _span(evidence: Evidence, frame: Frame) -> tuple[int, int]:
    units = evidence.text.units
    return units[frame.open].start, units[frame.close if frame.close is not None else frame.open].end


_PHRASES: tuple[tuple[str, str], ...] = (
    (
        "ignore",
        r"ignore\s+(?:all\s+|any\s+|the\s+|your\s+|my\s+|of\s+|these\s+|those\s+|previous\s+|prior\s+|above\s+){1,5}"
        r"(?:instruction|prompt|rule|direction|command|message|context)",
    ),
    (
        "disregard",
        r"disregard\s+(?:all\s+|any\s+|the\s+|your\s+|of\s+|previous\s+|prior\s+|above\s+){1,5}"
        r"(?:instruction|prompt|rule|direction|command|message|context)",
    ),
    (
        "forget",
        r"forget\s+(?:all\s+|everything\s+|your\s+|the\s+|previous\s+|prior\s+){1,4}"
        r"(?:instruction|prompt|rule|you were told)",
    ),
    (
        "system prompt",
        r"(?:reveal|print|show|repeat|output|leak)\s+"
        r"(?:me\s+)?(?:your|the)\s+(?:full\s+|entire\s+|hidden\s+)?system prompt",
    ),
    ("you are now", r"you are now\s+(?:a|an|in|the|no longer|free|dan)\b"),
    # Where it begins a sentence: inside one, somebody speaks to somebody.
    ("from now on", r"(?:^|[.!?:\n][^\S\n]*+)from now on,?\s+you\s+(?:are|will|must|should)\b"),
    ("new instructions", r"(?:^|[.!?:\n][^\S\n]*+)(?:your\s+)?new instructions\s*(?:are\b|:)"),
    ("do not tell the user", r"do not tell the user"),
    ("<|", r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id|endoftext)\|>"),
    ("[inst]", r"\[inst\]"),
    ("<<sys>>", r"<<sys>>"),
    ("### instruction", r"### instruction\s*:"),
    (
        "ignor",
        r"\bignorier\w*+\s+(?:alle\s+|die\s+|sämtliche\s+|bisherigen\s+|vorherigen\s+|obigen\s+){1,4}"
        r"\w*(?:anweisung|regel)",
    ),
    (
        "ignor",
        r"\bignor\w++\s+(?:todas\s+|toutes\s+|las\s+|les\s+|tes\s+|tus\s+){1,3}(?:instruc\w+|consignes)",
    ),
    ("忽略", r"忽略(?:之前|以上|上述|前面|所有)?的?(?:所有|一切|全部)?的?(?:指令|指示|提示|说明)"),
)
_ORDERS = tuple((word, re.compile(pattern, re.IGNORECASE)) for word, pattern in _PHRASES)


def doubtful_text(evidence: Evidence) -> Iterator[Flag]:
    orders = sorted(_orders(evidence))
    if orders:
        yield evidence.flag("instruction_like_text", orders)
    outside, letters = letters_outside(evidence.output, evidence.settings.scripts)
    if outside and outside >= evidence.settings.unsupported_share * letters:
        yield evidence.flag("unsupported_language", _foreign_spans(evidence), count=outside)


def _orders(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Kept phrases that address a model. They are kept all the same: only the caller can tell what they are."""
    lowered = evidence.output.lower()
    in_order = all(before[1] <= after[0] for before, after in pairwise(evidence.slices))
    for word, pattern in _ORDERS:
        # What was kept whole is in the output, which is shorter than the source, unless its parts were moved.
        if word in lowered and not (in_order and pattern.search(evidence.output) is None):
            for found in pattern.finditer(evidence.source):
                if evidence.is_whole(*found.span()):
                    yield found.span()


def _foreign_spans(evidence: Evidence) -> list[tuple[int, int]]:
    spans = []
    for index in evidence.kept_units:
        unit = evidence.text.units[index]
        outside, letters = letters_outside(evidence.text.text(index), evidence.settings.scripts)
        if outside * 2 > letters:
            spans.append((unit.start, unit.end))
        if len(spans) == 3:
            break
    return spans
