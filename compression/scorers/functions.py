"""BM25 by function, for text that is mostly code: identifiers are split into words, and count for more in a name.

A function is read with the file and the class that it stands in, whole, whatever units it is cut into.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compression.segmentation.definitions import framed_functions
from compression.source.text import STOP_WORDS
from compression.source.units import FRAMING, Segmentation

# fetchURLAsText2 is fetch, URL, As, Text and 2.
_PART = re.compile(r"(?:[A-Z](?![a-z]))++|[A-Z]?[a-z]++|\d++|[^\W\d_A-Za-z]++")
_NAME = re.compile(
    r"\b(?:def|class|func|function|fn|fun|sub|struct|interface|trait|impl|enum|module)\b[ \t]*"
    r"(?:\([^()\n]{0,80}\)[ \t]*)?"
    r"(?P<name>[\w.:]{1,120})|^[^\n(=]{0,120}?(?P<call>[\w$]{1,100})[ \t]?\("
)
_ENDINGS = ("ing", "ed", "es", "s")
_SHORTEST = 3
_NAMED = 3
_K1, _B = 1.5, 0.75
# What a whole match is worth beside the scorer's logit, of which no more than so much counts.
_WORTH = 20.0
_LOWEST, _HIGHEST = -6.0, 3.0
_LEAST_SHARE = 0.5
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class _Function:
    """Units `[start, end)`, and the words that count."""

    start: int
    end: int
    counts: Counter[str]
    length: int


def with_functions(text: Segmentation, scores: Sequence[float], query: str) -> Sequence[float]:
    """The scores; where most is code those of its functions by what they match, the best as good as before."""
    is_code = [unit.kind == "code_block" for unit in text.units]
    content = sum(unit.kind not in FRAMING for unit in text.units)
    asked = Counter(stem(word) for word in _PART.findall(query) if word.lower() not in STOP_WORDS)
    if sum(is_code) < max(_FEWEST, _LEAST_SHARE * content) or not asked:
        return scores
    matches = dict(_matches(list(_functions(text, frozenset(asked))), asked))
    best = max(matches.values(), default=0.0)
    if best <= 0.0:
        return scores
    worth = {
        unit: _WORTH * match / best + min(max(_logit(scores[unit]), _LOWEST), _HIGHEST)
        for unit, match in matches.items()
    }
    shift = max(_logit(scores[unit]) for unit in worth) - max(worth.values())
    return [
        1.0 / (1.0 + math.exp(-max(worth[unit] + shift, -60.0))) if unit in worth else score
        for unit, score in enumerate(scores)
    ]


def _logit(score: float) -> float:
    kept = min(max(score, 1e-9), 1.0 - 1e-9)
    return math.log(kept / (1.0 - kept))


def stem(word: str) -> str:
    """A part of an identifier in lower case without the commonest endings."""
    word = word.lower()
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            word = word[: -len(ending)]
            break
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST else word


class _Words:
    """The words of a text that were asked for; each spelling is looked at once."""

    def __init__(self, asked: frozenset[str]) -> None:
        self._asked = asked
        self._known: dict[str, str | None] = {}

    def read(self, text: str) -> tuple[list[str], int]:
        """Those that were asked for, and how many there are."""
        parts = _PART.findall(text)
        known = self._known
        for part in set(parts).difference(known):
            own = stem(part)
            known[part] = own if own in self._asked else None
        return [word for part in parts if (word := known[part]) is not None], len(parts)


def _functions(text: Segmentation, asked: frozenset[str]) -> Iterator[_Function]:
    words, framed = _Words(asked), framed_functions(text)
    around = [words.read(_last_line(text.text(frame.open)))[0] for frame in text.frames]
    titles = [
        [] if document.title is None else words.read(text.text(document.title))[0]
        for document in text.documents
    ]
    number = 0
    while number < len(text.units):
        unit = text.units[number]
        last = framed.get(number, number)
        if unit.kind == "code_block":
            code = text.source[unit.start : text.units[last].end]
            found, length = words.read(code)
            counts = Counter(found)
            counts.update(set(titles[unit.document]))
            counts.update(set(around[unit.frame]) if unit.frame is not None else ())
            for word in words.read(_name(code))[0]:
                counts[word] += _NAMED
            yield _Function(number, last + 1, counts, length)
        number = last + 1


def _last_line(head: str) -> str:
    return head[head.rfind("\n") + 1 :]


def _name(code: str) -> str:
    found = _NAME.search(code, 0, 600)
    return "" if found is None else found["name"] or found["call"]


def _matches(functions: Sequence[_Function], asked: Counter[str]) -> Iterator[tuple[int, float]]:
    """By unit. Robertson and Zaragoza, 2009."""
    total = len(functions)
    having = Counter(word for function in functions for word in function.counts)
    rarity = {word: math.log(1 + (total - having[word] + 0.5) / (having[word] + 0.5)) for word in asked}
    average = max(1.0, sum(function.length for function in functions) / max(1, total))
    for function in functions:
        scale = _K1 * (1 - _B + _B * function.length / average)
        match = sum(
            rarity[word] * count * (_K1 + 1) / (count + scale) for word, count in function.counts.items()
        )
        for unit in range(function.start, function.end):
            yield unit, match
