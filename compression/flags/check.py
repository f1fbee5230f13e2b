"""All checks of one compression: its size, whether it can answer the query, what the calibration says, and damage."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from compression.choosing.gist import asks_for_gist
from compression.flags.damage import broken_quotations, damaged_structure, doubtful_text, lost_in_units
from compression.flags.flag import CODES, Evidence, Flag, Severity
from compression.source.edits import is_within
from compression.source.text import content_terms
from compression.source.units import STRUCTURE

# ruff: noqa: RUF001


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


# The share of a page's main text of which the loss is told.
_TOLD = 0.02


def main_text_flags(evidence: Evidence) -> Iterator[Flag]:
    """A page was asked for as a whole, and there was no room for all of its main text."""
    text = evidence.text
    if not asks_for_gist(evidence.query, text):
        return
    main = [unit for unit in text.units if is_within(text.main, unit.start)]
    lost = [(unit.start, unit.end) for unit in main if not evidence.kept_length(unit.start, unit.end)]
    if sum(end - start for start, end in lost) > _TOLD * sum(unit.end - unit.start for unit in main):
        yield evidence.flag("main_text_cut", lost)


_SEVERITIES: tuple[Severity, Severity, Severity] = ("critical", "warning", "info")


def risk_flags(evidence: Evidence) -> Iterator[Flag]:
    estimate = evidence.estimate
    if estimate is None:
        return
    if estimate.probability is not None:
        for severity, threshold in zip(_SEVERITIES, _thresholds(evidence), strict=True):
            if estimate.probability < threshold:
                yield evidence.flag("evidence_at_risk", _best_left_out(evidence), count=1, severity=severity)
                break
    if estimate.outside:
        severity = "warning" if evidence.is_promised else "info"
        yield evidence.flag("outside_calibration", count=len(estimate.outside), severity=severity)


def _thresholds(evidence: Evidence) -> tuple[float, float, float]:
    """The configuration's, or those of the calibration."""
    settings, given = evidence.settings, evidence.estimate.at_risk if evidence.estimate else (0.0, 0.0, 0.0)
    wanted = (settings.at_risk_critical, settings.at_risk_warning, settings.at_risk_info)
    critical, warning, info = (own if ask is None else ask for ask, own in zip(wanted, given, strict=True))
    return critical, warning, info


def _best_left_out(evidence: Evidence) -> list[tuple[int, int]]:
    """Where to look again: the best-scoring units that were left out."""
    scores, units, kept = evidence.scores, evidence.text.units, set(evidence.kept_units)
    if scores is None:
        return []
    left_out = [n for n, unit in enumerate(units) if n not in kept and unit.kind not in STRUCTURE]
    best = sorted(left_out, key=lambda unit: -scores[unit])[:3]
    return [(units[unit].start, units[unit].end) for unit in best]


_SIGNS = frozenset({"ratio_aggressive", "query_terms_absent", "low_relevance", "answer_type_absent"})


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


_CHECKS: tuple[Callable[[Evidence], Iterator[Flag]], ...] = (
    size_flags,
    lost_in_units,
    broken_quotations,
    relevance_flags,
    main_text_flags,
    risk_flags,
    damaged_structure,
    doubtful_text,
)


def check(evidence: Evidence) -> tuple[Flag, ...]:
    """Flags in the order of `CODES`, without those that the settings disable."""
    found = {flag.code: flag for run in _CHECKS for flag in run(evidence)}
    weighed = _weighed(found, evidence)
    return tuple(
        weighed[code] for code in CODES if code in weighed and code not in evidence.settings.disabled
    )


def _weighed(found: dict[str, Flag], evidence: Evidence) -> dict[str, Flag]:
    """Signs that the evidence may be lost are for information where a calibration does not warn."""
    risk = found.get("evidence_at_risk")
    if (
        evidence.estimate is None
        or evidence.estimate.probability is None
        or (risk and risk.severity != "info")
    ):
        return found
    return {code: replace(flag, severity="info") if code in _SIGNS else flag for code, flag in found.items()}
