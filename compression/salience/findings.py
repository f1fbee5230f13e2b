"""Findings of a paper: sentences that report numbers, for questions that ask for an effect or a comparison."""

import re
from collections.abc import Sequence
from itertools import islice

from compression.source.text import content_terms, terms_in
from compression.source.units import Segmentation

# A p-value, a confidence interval, a mean with its deviation, a ratio of odds, risks or hazards with its value.
_SIGNIFICANCE = (
    r"\b[Pp](?:[- ]?(?:value|trend))?\s{0,2}(?:[<=>≤≥⩽]|&[lg]t;)\s{0,2}[01]?[.·,]\d"
    r"|\b9[059]\s?%\s{0,2}(?:CI|KI|IC|ДИ)\b|\d\s?(?:±|\+/-|\(SD)\s?\d|\b[A-Za-z]?(?:OR|RR|HR|SMD|MD|WMD)\b\s{0,2}[=:]?\s{0,2}-?\d{1,6}[.·,]\d"
)
_TESTED = re.compile(_SIGNIFICANCE)
# The same, or an amount: a share, a number with a unit, a decimal, a fraction.
_REPORTED = re.compile(rf"{_SIGNIFICANCE}|\d\s?(?:%|‰|[µmk]?[gGlLmM]\b|ms\b|mmHg|mmol|[°℃])|\d[.·]\d|\d/\d")
# Words that ask what something did, in the most common languages.
_EFFECT = re.compile(
    r"\b(?:effects?|affect\w*|impact\w*|influence\w*|compar\w+|versus|vs|differ\w*|than|associat\w+|correlat\w+"
    r"|outcomes?|efficacy|effective\w*|increas\w*|decreas\w*|reduc\w*|improv\w*|wirk\w*|effekt\w*|vergl\w+|unterschied\w*"
    r"|effets?|comparé\w*|différence\w*|efectos?|efecto|comparad\w+|diferencia\w*|efeito\w*|effetto|эффект\w*|влияни\w*"
    r"|сравнени\w*)\b|影响|效果|比较|相比|疗效|影響|効果|比較|تأثير|مقارنة|प्रभाव|तुलना|효과|비교",
    re.IGNORECASE,
)
# Fewer sentences with a significance are a mention, not a report.
_FEWEST = 3
# What the odds of a sentence are multiplied by for each number that it reports, up to so many.
_EACH, _MOST = 5.0, 3
# And by this, for what reports two numbers and names all that is compared; less where it names less, down to a half.
_NAMES = 300.0
_LEAST_NAMED = 0.5
# Letters that are left of a word without its ending, and how many an ending has.
_STEM, _ENDING = 4, 2
# Terms of a question that are looked for in every sentence.
_MOST_TERMS = 64
_SENTENCES = frozenset({"sentence", "list_item"})


def with_findings(text: Segmentation, scores: Sequence[float], query: str) -> list[float]:
    """Scores, in a text that reports findings those of its findings raised where the query asks for an effect."""
    found = list(scores)
    if _EFFECT.search(query) is None:
        return found
    numbers = _numbers(text)
    tested = _count(text, _TESTED)
    if sum(count > 1 for count in numbers.values()) < _FEWEST or not tested:
        return found
    each = _EACH if tested == _FEWEST else 1.0
    asked = [term for term in content_terms(query) if _EFFECT.fullmatch(term) is None][:_MOST_TERMS]
    whole = [term for term in asked if len(term) < _STEM]
    stems = [term[: max(_STEM, len(term) - _ENDING)] for term in asked if len(term) >= _STEM]
    for at, count in numbers.items():
        named = _named(text.text(at).lower(), whole, stems) * min(1.0, count / 2)
        found[at] = raised(scores[at], each**count * _NAMES**named)
    return found


def _numbers(text: Segmentation) -> dict[int, int]:
    """How many numbers each sentence reports that reports any, up to the most that count."""
    found = {}
    for at, unit in enumerate(text.units):
        if unit.kind in _SENTENCES:
            count = sum(1 for _ in islice(_REPORTED.finditer(text.source, unit.start, unit.end), _MOST))
            if count:
                found[at] = count
    return found


def _count(text: Segmentation, pattern: re.Pattern[str]) -> int:
    """Sentences that have it, up to as many as make a report."""
    having = (
        at
        for at, unit in enumerate(text.units)
        if unit.kind in _SENTENCES and pattern.search(text.source, unit.start, unit.end) is not None
    )
    return sum(1 for _ in islice(having, _FEWEST))


def _named(sentence: str, whole: Sequence[str], stems: Sequence[str]) -> float:
    """From 0, for half of what is compared, to 1 for all of it: words as they are, and beginnings of others."""
    words = frozenset(terms_in(sentence)) if whole else frozenset()
    found = sum(word in words for word in whole) + sum(stem in sentence for stem in stems)
    share = found / max(1, len(whole) + len(stems))
    return max(0.0, share - _LEAST_NAMED) / (1 - _LEAST_NAMED)


def raised(score: float, times: float) -> float:
    """The score whose odds are so many times as large."""
    return score * times / (1 + score * (times - 1))
