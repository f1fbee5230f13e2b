"""Prose in any script: sentences, paragraphs, turns of a conversation, and the cut of what is too long."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from compression.segmentation.lines import SPEAKER, Line, ends_sentence
from compression.source.units import Builder, SegmentationSettings, UnitKind

# Some marks of other scripts look like ASCII ones; they are intended.
# ruff: noqa: RUF001


# A mark that may end a sentence. After Western marks white space must follow; after the others nothing need.
# A run of marks is tried from its first one only, or a line of dots would cost the square of its length.
_WESTERN_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]»*_]{0,4}(?=\s)\s*+")
_END = re.compile(
    r"(?:(?<![.!?…])[.!?…]++[\"'”’)\]»*_]{0,4}(?=\s)|[。！？｡．]++[\"'”’」』）)】》]{0,4}"
    r"|(?<![।॥؟۔።៕༎])[।॥؟۔።៕༎]++[\"'”’)»]{0,3}(?=\s|\Z))\s*+"
)
_OTHER_MARK = re.compile(r"[。！？｡．।॥؟۔።៕༎]")
_LONGEST_WORD = 20
_LAST_WORD = re.compile(rf"(?:[^\W\d_]\.)*[\w'’-]{{1,{_LONGEST_WORD}}}\Z")
_MONTH = re.compile(
    r"(?:jan|feb|mär|mar|apr|mai|may|jun|jul|aug|sep|okt|oct|nov|dez|dec)[^\W\d_]{0,7}\b", re.IGNORECASE
)
_NO_END_AFTER = """
mr mrs ms dr prof rev gen col sgt capt lt hon sr jr st ste mt ft vs eg ie e.g i.e cf approx dept inc ltd
corp llc bros u.s u.k u.n d.c ph.d z.b d.h u.a o.ä bzw ca bspw ggf evtl hr fr geb gest vgl mm mme mlle
sra srta av ing lic dott г ул тыс млн млрд т.е т.к
"""
_NO_END_BEFORE_NUMBERS = """
no nos nr vol vols fig figs eq sec ch p pp art abs núm pág str bd ed стр рис
"""
_ABBREVIATIONS = frozenset(_NO_END_AFTER.split())
_BEFORE_NUMBERS = frozenset(_NO_END_BEFORE_NUMBERS.split())
_CLAUSE = re.compile(r"[;；,，、:：–—]\s*|\s+")
_SPACE = re.compile(r"\s+")
# Never between a base character and what changes it: joiners, variation selectors, combining marks, skin tones.
_ATTACHED = re.compile(
    "[\u200d\ufe00-\ufe0f\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u20d0-\u20ff\U0001f3fb-\U0001f3ff]"
)
_QUOTES = {"“": "”", "「": "」", "『": "』", "«": "»", "„": "“"}
# How many sentences a quotation may hold together; also bounds the work on quotations that never close.
_QUOTED_SENTENCES = 8
_QUOTE = re.compile(r'["“”„«»「」『』]')


def split_sentences(source: str, start: int, end: int, *, longest: int) -> Iterator[tuple[int, int]]:
    """Spans of the sentences of `source[start:end]`, whitespace between them left out.

    A quotation of up to `longest` characters is not cut; a sentence of more than `longest` characters is.
    """
    spans = _sentences(source, start, end)
    if _QUOTE.search(source, start, end):
        spans = _join_quotations(source, list(spans), longest)
    for first, last in spans:
        if last - first > longest:
            yield from split_long(source, first, last, longest=longest)
        else:
            yield first, last


def _sentences(source: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begin = start
    # Most text has Western marks alone, and to try one branch costs a third of trying three.
    ends = _END if _OTHER_MARK.search(source, start, end) else _WESTERN_END
    for found in ends.finditer(source, start, end):
        if found.end() >= end:
            break
        if _is_boundary(source, begin, found):
            yield begin, found.start() + len(found.group().rstrip())
            begin = found.end()
    if begin < end:
        yield begin, end


def _is_boundary(source: str, begin: int, found: re.Match[str]) -> bool:
    mark = found.group()[0]
    if mark in "。！？｡．।॥؟۔።៕༎":
        return True
    after = source[found.end()]
    if after.islower() or (mark == "." and after in ",;:.!?)"):
        return False
    if mark != "." or found.group().startswith(".."):
        return True
    text = _last_word(source, begin, found.start())
    if text.isdigit():
        return not (len(text) <= 2 and _MONTH.match(source, found.end()))
    if text.lower() in _BEFORE_NUMBERS:
        return not source[found.end()].isdigit()
    is_initial = len(text) == 1 and text.isalpha() and text.isupper()
    return not is_initial and text.lower() not in _ABBREVIATIONS


def _last_word(source: str, begin: int, end: int) -> str:
    """The word right before `end`, with the dots inside an abbreviation; "" where there is none."""
    before = source[max(begin, end - 24) : end]
    last = before[before.rfind(" ") + 1 :]
    if last.isalpha():
        return last[-_LONGEST_WORD:]
    found = _LAST_WORD.search(before)
    return found.group() if found else ""


def _join_quotations(source: str, spans: list[tuple[int, int]], longest: int) -> Iterator[tuple[int, int]]:
    """Join sentences while a quotation that began in them is open, up to `longest` characters."""
    at = 0
    while at < len(spans):
        first, last = spans[at]
        closing = _open_quotation(source, first, last, "")
        upto = at
        limit = min(len(spans), at + _QUOTED_SENTENCES)
        while closing and upto + 1 < limit and spans[upto + 1][1] - first <= longest:
            upto += 1
            closing = _open_quotation(source, *spans[upto], closing)
        # A quotation that never closes holds nothing together.
        if not closing:
            at, last = upto, spans[upto][1]
        yield first, last
        at += 1


def _open_quotation(source: str, start: int, end: int, closing: str) -> str:
    """The mark that would close what is open at `end`, given what was open at `start`; "" where nothing is."""
    for found in _QUOTE.finditer(source, start, end):
        mark = found.group()
        if closing:
            closing = "" if mark == closing else closing
        elif mark == '"':
            closing = mark
        else:
            closing = _QUOTES.get(mark, "")
    return closing


def split_long(source: str, start: int, end: int, *, longest: int) -> Iterator[tuple[int, int]]:
    """Cut at the last clause mark, else at the last white space, else anywhere, each piece at most `longest`."""
    while end - start > longest:
        cut = _last_cut(source, start, start + longest)
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _last_cut(source: str, start: int, limit: int) -> int:
    half = start + (limit - start) // 2
    best = 0
    for found in _CLAUSE.finditer(source, half, limit):
        if not found.group().isspace() or not best:
            best = found.end()
    if not best:
        spaces = [found.end() for found in _SPACE.finditer(source, start + 1, limit)]
        best = spaces[-1] if spaces else limit
    while (
        best < limit + 32
        and best < len(source)
        and (_ATTACHED.match(source, best) or source[best - 1] == "\u200d")
    ):
        best += 1
    return best


# A line at least this long, as long as its neighbours and ending no sentence, was wrapped by an editor.
_WRAPPED_FROM = 40
_WRAPPED_TO = 160


def longest_for(source: str, start: int, end: int, settings: SegmentationSettings) -> int:
    """The bound for a unit here: a script without spaces says in 200 characters what others say in 600."""
    sample = source[start : min(end, start + 2000)]
    spaces = sum(map(sample.count, " \t\n"))
    return settings.longest_dense if len(sample) > 40 and spaces * 20 < len(sample) else settings.longest_unit


def add_sentences(
    builder: Builder,
    start: int,
    end: int,
    settings: SegmentationSettings,
    kind: UnitKind = "sentence",
    *,
    whole: bool = False,
) -> None:
    """One unit a sentence; with `whole`, one unit for all of it where it is short enough."""
    longest = longest_for(builder.source, start, end, settings)
    if whole and end - start <= min(longest, settings.longest_block):
        builder.add(start, end, kind)
        return
    for first, last in split_sentences(builder.source, start, end, longest=longest):
        builder.add(first, last, kind)


def add_paragraph(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """Lines without a blank one between them. A wrapped line goes on in the next; any other ends a paragraph."""
    widest = max(line.end - line.start for line in lines)
    begin = lines[0].start
    for line, after in pairwise(lines):
        if not _is_wrapped(builder.source, line, widest):
            add_sentences(builder, begin, line.end, settings)
            if line.end - line.start > _WRAPPED_TO:
                builder.end_paragraph()
            begin = after.start
    add_sentences(builder, begin, lines[-1].end, settings)
    builder.end_paragraph()


def _is_wrapped(source: str, line: Line, widest: int) -> bool:
    length = line.end - line.start
    if widest > _WRAPPED_TO or length < _WRAPPED_FROM or length * 10 < widest * 6:
        return False
    return not ends_sentence(source[max(line.start, line.end - 12) : line.end])


def add_turn(builder: Builder, lines: Sequence[Line], settings: SegmentationSettings) -> None:
    """`Speaker: what was said`: one unit where it is short, else sentences inside a frame that names the speaker."""
    start, end = lines[0].start, lines[-1].end
    found = SPEAKER.match(builder.source, start, lines[0].end)
    longest = longest_for(builder.source, start, end, settings)
    if found is None or end - start <= min(longest, settings.longest_block):
        builder.add(start, end, "turn")
    else:
        builder.open_frame("turn", builder.add(start, found.end(), "speaker"))
        add_sentences(builder, found.end(), end, settings, "turn")
        builder.close_frame()
    builder.end_paragraph()
