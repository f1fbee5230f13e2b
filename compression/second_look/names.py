"""Which words of a text name something, and how much weight a shared name has."""

import re
from dataclasses import dataclass

import numpy as np

from compression.features.matching import Query
from compression.features.matrix import Context
from compression.features.runs import Floats, Ints
from compression.features.word_forms import remembered
from compression.text.terms import STOP_WORDS

_CAPITAL = 1.0
_IDENTIFIER = 1.2
_PLAIN = 0.35
_SHORTEST = 3
_DIGITS = re.compile(r"\d")


@remembered
def naming_power(spelling: str) -> float:
    """From 0 to about 1: how much a word looks like a name; in scripts without capitals any word may be one."""
    if spelling.isascii():
        if len(spelling) < _SHORTEST and not _DIGITS.search(spelling):
            return 0.0
        if spelling.lower() in STOP_WORDS:
            return 0.0
        if _DIGITS.search(spelling):
            return _IDENTIFIER if len(spelling) > 2 else 0.2
        return _CAPITAL if spelling[0].isupper() else _PLAIN
    if spelling.lower() in STOP_WORDS:
        return 0.0
    if spelling[0].isupper():
        return _CAPITAL
    return _PLAIN if spelling[0].lower() != spelling[0].upper() else 0.7


@dataclass(frozen=True)
class Names:
    """Distinct stems of a text as names. `units` and `terms` are pairs, a name and a unit that has it, by unit.

    `weights` says how much each term tells: its shape times its rarity among the paragraphs; 0 for the query's own
    words. `first` has where each unit's pairs begin, one more entry than units.
    """

    units: Ints
    terms: Ints
    weights: Floats
    first: Ints
    is_identifier: Floats

    @property
    def pair_weights(self) -> Floats:
        return self.weights[self.terms]


def find_names(context: Context, query: Query) -> Names:
    words = context.words
    height = len(words.first)
    numbers: dict[str, int] = {}
    stem_of = np.array([numbers.setdefault(stem, len(numbers)) for stem in words.stems], np.int64)
    power = np.zeros(len(numbers), np.float32)
    if len(stem_of):
        np.maximum.at(power, stem_of, np.array([naming_power(word) for word in words.spellings], np.float32))
    for term in query.terms:
        if term in numbers:
            power[numbers[term]] = 0.0
    ids = stem_of[words.ids] if len(words.ids) else words.ids
    telling = power[ids] > 0
    pairs = np.unique(words.units[telling] * max(1, len(numbers)) + ids[telling])
    marked = np.zeros(len(numbers), np.float32)
    if len(stem_of):
        has_digit = [
            float(len(word) > 2 and not word.isalpha() and _DIGITS.search(word) is not None)
            for word in words.spellings
        ]
        np.maximum.at(marked, stem_of, np.array(has_digit, np.float32))
    units, terms = np.divmod(pairs, max(1, len(numbers)))
    count = max(1, len(context.layout.paragraphs.first))
    codes = np.unique(terms * count + context.layout.paragraphs.of[units])
    spread = np.bincount(codes // count, minlength=len(numbers))
    rarity = np.log1p((count - spread + 0.5) / (spread + 0.5)) / np.log1p(2.0 * count + 1)
    first = np.searchsorted(units, np.arange(height + 1))
    return Names(units, terms, (power * rarity).astype(np.float32), first, marked)


def total_weight(names: Names, height: int) -> Floats:
    """The weight of all names of each unit."""
    return np.bincount(names.units, names.pair_weights, minlength=height).astype(np.float32)
