"""Whether the output can answer the query: its terms, the scores, and the kind of thing that it asks for."""

# ruff: noqa: RUF001

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from compression.flags.evidence import Evidence
from compression.flags.flag import Flag
from compression.source.units import STRUCTURE
from compression.text.terms import content_terms

_LEAST_ODDS = 1e-9
# A text of megabytes is searched for each term, so a long query must not have many.
_MOST_TERMS = 256
# Many low scores are no reason to doubt the best: only odds of at least this share of its odds count.
_RIVAL = 0.02
_DIGIT = r"\d|[一二三四五六七八九十百千万]"
_NUMBER_WORDS = (
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|billion|"
    r"half|once|twice|single|double|both|several|none|zero|ein|eine|einen|zwei|drei|vier|fünf|sechs|sieben|acht|neun|"
    r"zehn|uno|una|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|un|une|deux|trois|quatre|cinq|sept|huit|neuf|dix|"
    r"один|одна|два|две|три|четыре|пять|шесть|семь|восемь|девять|десять)\b"
)
_TIME_WORDS = (
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december|monday|tuesday|"
    r"wednesday|thursday|friday|saturday|sunday|century|today|yesterday|tomorrow|spring|summer|autumn|winter|"
    r"christmas|januar|februar|märz|mai|juni|juli|oktober|dezember|jahrhundert|enero|febrero|marzo|abril|mayo|junio|julio|"
    r"agosto|siglo|janvier|février|mars|avril|juin|juillet|août|siècle|век|году|год)\b"
)
_NAME = r"(?-i:\b[A-ZÀ-ÖØ-ÞА-ЯΑ-Ω]\w+)|[^\x00-\u052f]"
# What asks, and what an answer to it must have one of. Scripts without capitals can name anyone anywhere.
_EXPECTED = tuple(
    (re.compile(asks, re.IGNORECASE), re.compile(answers, re.IGNORECASE))
    for asks, answers in (
        (
            r"\bhow (?:many|much|old|tall|long|far|high|big|deep)\b|\bwieviele?\b|\bwie viele?\b|\bcu[aá]nt[oa]s?\b"
            r"|\bcombien\b|\bсколько\b|多少|几个|何人|いくつ",
            f"{_DIGIT}|{_NUMBER_WORDS}",
        ),
        (
            r"^\W*when\b|\bwhat (?:year|date|day|month|century)\b|\bwhich year\b|^\W*wann\b"
            r"|\bin welchem jahr\b|\bcu[aá]ndo\b|\bquand\b|\bкогда\b|什么时候|何时|哪一?年|いつ",
            f"{_DIGIT}|{_TIME_WORDS}",
        ),
        (r"^\W*(?:who|whom|whose)\b|^\W*(?:wer|wem|wen)\b|\bqui[eé]n(?:es)?\b|^\W*qui\b|^\W*кто\b", _NAME),
        (r"^\W*where\b|^\W*wo\b|\bd[oó]nde\b|^\W*où\b|^\W*где\b", _NAME),
    )
)


def relevance_flags(evidence: Evidence) -> Iterator[Flag]:
    wanted = content_terms(evidence.query)[:_MOST_TERMS]
    if not wanted:
        yield evidence.flag("query_missing", count=1)
    else:
        yield from _absent_terms(evidence, wanted)
    if evidence.scores is not None and evidence.text.units:
        yield from _score_flags(evidence, evidence.scores)
    for asks, answers in _EXPECTED:
        if asks.search(evidence.query) and not answers.search(evidence.output):
            yield evidence.flag("answer_type_absent", count=1)
            return


def _absent_terms(evidence: Evidence, wanted: list[str]) -> Iterator[Flag]:
    output = evidence.output.lower()
    absent = [term for term in wanted if term not in output]
    if len(wanted) - len(absent) < evidence.settings.query_terms_share * len(wanted):
        source = evidence.source.lower()
        # Lower-casing may change lengths; then offsets would point elsewhere, and no example is better.
        places = [source.find(term) for term in absent] if len(source) == len(evidence.source) else []
        spans = [(at, at + len(term)) for at, term in zip(places, absent, strict=False) if at >= 0]
        yield evidence.flag("query_terms_absent", spans, count=len(absent))


def _score_flags(evidence: Evidence, scores: Sequence[float]) -> Iterator[Flag]:
    units = evidence.text.units
    content = [index for index, unit in enumerate(units) if unit.kind not in STRUCTURE]
    if not content:
        return
    best = max(scores[index] for index in content)
    if best < evidence.settings.low_relevance:
        yield evidence.flag("low_relevance", count=1)
        return
    kept = set(evidence.kept_units)
    rivals = [
        index for index in content if index not in kept and _odds(scores[index]) >= _RIVAL * _odds(best)
    ]
    left_out = sorted(rivals, key=lambda index: -scores[index])
    missed = list(accumulate(map(_odds, (scores[index] for index in left_out))))
    total = sum(_odds(scores[index]) for index in content)
    if missed and missed[-1] >= max(evidence.settings.borderline_share * total, _LEAST_ODDS):
        near = left_out[: bisect_left(missed, missed[-1] / 2) + 1]
        yield evidence.flag("evidence_borderline", [(units[index].start, units[index].end) for index in near])


def _odds(score: float) -> float:
    """The odds of a score; those of several units add up as the chances of one answer do."""
    return score / max(1.0 - score, _LEAST_ODDS)
