"""Words of any script with the unit that each stands in: the one pass over the text that all features share."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from compression.units import Segmentation
from compression.unspaced import IDEOGRAPHS, UNSPACED

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

# Vowel signs belong to their word, though Python's \w does not say so.
MARKS = "".join(chr(code) for code in range(0x300, 0xFFFF) if unicodedata.category(chr(code))[0] == "M")
LONGEST = 48
LETTERS = f"[^\\W_{IDEOGRAPHS}{UNSPACED}]"
WORD = re.compile(
    # The first branch is for speed: it is what most words are.
    f"[A-Za-z0-9]{{1,{LONGEST}}}+(?![^\\x00-\\x7f])|[{IDEOGRAPHS}]+|[{UNSPACED}]+|"
    f"{LETTERS}{{1,{LONGEST}}}+(?:[{MARKS}]{{1,8}}+{LETTERS}{{0,{LONGEST}}}+){{0,{LONGEST}}}+"
)
IS_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
IS_UNSPACED = re.compile(f"[{UNSPACED}]")
DIACRITIC = re.compile("[\u0300-\u036f\u064b-\u065f\u0670\u0640]")
ASCII_END = "z"
RUN = 4
REMEMBERED_WORDS = 1 << 16
# What is made of a longer word may be a hundred times as long: remembered, it would fill the memory for good.
LONGEST_REMEMBERED = 24
Made = TypeVar("Made")


def remembered(make: Callable[[str], Made]) -> Callable[[str], Made]:
    """`make`, which is not run again for a word that recurs; long words, which seldom do, are not kept."""
    known = lru_cache(REMEMBERED_WORDS)(make)

    @wraps(make)
    def of(word: str) -> Made:
        return known(word) if len(word) <= LONGEST_REMEMBERED else make(word)

    return of


@remembered
def fold(word: str) -> str:
    """Case and diacritics taken off; vowel signs of Indic scripts stay.

    Never empty, nor white space alone: a word of which nothing else would be left, as of the Arabic stroke that
    lengthens a line, is itself.
    """
    if word.isascii():
        return word.lower()
    cased = word.casefold()
    folded = unicodedata.normalize("NFC", DIACRITIC.sub("", unicodedata.normalize("NFKD", cased)))
    return folded if folded.strip() else cased


@remembered
def stem(word: str) -> str:
    """A folded word without an English plural or possessive; `grams` match the other endings."""
    if len(word) > 3 and word.endswith("s") and word.isascii() and not word.endswith("ss"):
        return word[:-1]
    return word


@remembered
def grams(word: str) -> tuple[str, ...]:
    """Parts of a folded word that a related form has too."""
    if word[0] > ASCII_END:
        if IS_IDEOGRAPH.match(word):
            return (word[0],)
        if IS_UNSPACED.match(word):
            return (word[:3],)
    padded = f"^{word}$"
    return tuple(padded[at : at + 4] for at in range(max(1, len(padded) - 3)))


def split(text: str) -> tuple[list[str], list[int]]:
    """Words, and where each starts. A run without spaces gives one overlapping piece a character."""
    found: list[str] = []
    starts: list[int] = []
    for match in WORD.finditer(text):
        word, start = match.group(), match.start()
        if word[0] <= ASCII_END:
            found.append(word)
            starts.append(start)
            continue
        width = 2 if IS_IDEOGRAPH.match(word) else RUN if IS_UNSPACED.match(word) else 0
        if width:
            found.extend(word[at : at + width] for at in range(len(word)))
            starts.extend(range(start, start + len(word)))
        else:
            found.append(word)
            starts.append(start)
    return found, starts


@dataclass(frozen=True)
class Words:
    """Occurrences of words in source order, as ids into the distinct spellings, with the unit of each.

    `first` and `last` give the half-open range of each unit's occurrences.
    """

    spellings: list[str]
    ids: Ints
    units: Ints
    first: Ints
    last: Ints

    @cached_property
    def lengths(self) -> Floats:
        """Words a unit, at least one."""
        return np.asarray(np.maximum(1, self.last - self.first), np.float32)

    @cached_property
    def folded(self) -> list[str]:
        return [fold(word) for word in self.spellings]

    @cached_property
    def stems(self) -> list[str]:
        return [stem(word) for word in self.folded]


def lex(segmentation: Segmentation) -> Words:
    """The words of every unit; what lies between units is left out."""
    found, starts = split(segmentation.source)
    table: dict[str, int] = {}
    ids = np.array([table.setdefault(word, len(table)) for word in found], np.int64)
    at = np.array(starts, np.int64)
    unit_starts = np.array([unit.start for unit in segmentation.units], np.int64)
    unit_ends = np.array([unit.end for unit in segmentation.units], np.int64)
    units = np.searchsorted(unit_starts, at, side="right") - 1
    inside = (units >= 0) & (at < unit_ends[units]) if len(unit_ends) else np.zeros(len(at), bool)
    ids, units = ids[inside], units[inside]
    numbers = np.arange(len(unit_starts))
    return Words(
        list(table),
        ids,
        units,
        np.searchsorted(units, numbers, "left"),
        np.searchsorted(units, numbers, "right"),
    )
