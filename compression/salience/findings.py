"""Findings of a paper: sentences that report numbers, for questions that ask for an effect or a comparison."""

import re
from collections.abc import Sequence
from itertools import islice

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
_SENTENCES = frozenset({"sentence", "list_item"})


def with_findings(text: Segmentation, scores: Sequence[float], query: str) -> list[float]:
    """Scores, in a text that reports findings those of its findings raised where the query asks for an effect."""
    found = list(scores)
    if _EFFECT.search(query) is None or not _is_report(text):
        return found
    for at, unit in enumerate(text.units):
        if unit.kind in _SENTENCES:
            numbers = islice(_REPORTED.finditer(text.source, unit.start, unit.end), _MOST)
            found[at] = raised(scores[at], _EACH ** sum(1 for _ in numbers))
    return found


def _is_report(text: Segmentation) -> bool:
    tested = (
        at
        for at, unit in enumerate(text.units)
        if unit.kind in _SENTENCES and _TESTED.search(text.source, unit.start, unit.end) is not None
    )
    return sum(1 for _ in islice(tested, _FEWEST)) == _FEWEST


def raised(score: float, times: float) -> float:
    """The score whose odds are so many times as large."""
    return score * times / (1 + score * (times - 1))
