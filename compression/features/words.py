"""Words of any script with the unit that each is in, and the forms of a word that count as the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Floats, Ints, Runs
from compression.source.text import IDEOGRAPHS, UNSPACED
from compression.source.units import Segmentation

IS_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
IS_UNSPACED = re.compile(f"[{UNSPACED}]")
DIACRITIC = re.compile("[\u0300-\u036f\u064b-\u065f\u0670\u0640]")
# The same letter in two forms: alif maksura and ya, ta marbuta and ha.
ARABIC_ENDS = str.maketrans("\u0649\u0629", "\u064a\u0647")
ARABIC = re.compile("[\u0600-\u06ff]")
ARABIC_AND = "\u0648"
ARABIC_ARTICLES = (
    "\u0648\u0627\u0644", "\u0628\u0627\u0644", "\u0643\u0627\u0644", "\u0641\u0627\u0644", "\u0644\u0644",
    "\u0627\u0644",
)  # fmt: skip
ARABIC_ENDINGS = (
    "\u0647\u0627", "\u0627\u0646", "\u0627\u062a", "\u0648\u0646", "\u064a\u0646", "\u064a\u0647", "\u0647",
    "\u064a",
)  # fmt: skip
ASCII_END = "z"
REMEMBERED_WORDS = 1 << 16
# Results for longer words may be a hundred times as long, and would fill the cache.
LONGEST_REMEMBERED = 24
Made = TypeVar("Made")


def remembered(make: Callable[[str], Made]) -> Callable[[str], Made]:
    """`make`, cached for words that recur; long words, which seldom do, are not kept."""
    known = lru_cache(REMEMBERED_WORDS)(make)

    @wraps(make)
    def of(word: str) -> Made:
        return known(word) if len(word) <= LONGEST_REMEMBERED else make(word)

    return of


@remembered
def fold(word: str) -> str:
    """Without case and diacritics; vowel signs of Indic scripts stay.

    Never empty or white space: a word of which nothing would be left, such as the Arabic stroke that lengthens
    a line, stays as it is.
    """
    if word.isascii():
        return word.lower()
    cased = word.casefold()
    folded = unicodedata.normalize("NFC", DIACRITIC.sub("", unicodedata.normalize("NFKD", cased)))
    return folded.translate(ARABIC_ENDS) if folded.strip() else cased


@remembered
def stem(word: str) -> str:
    """A folded word without an English plural or possessive, or Arabic prefixes and suffixes.

    `grams` match the other endings.
    """
    if word.isascii():
        return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
    return light_stem(word) if ARABIC.match(word) else word


def light_stem(word: str) -> str:
    """An Arabic word without "and", article and the commonest endings: light10 of Larkey and others, 2007."""
    if word[0] == ARABIC_AND and len(word) > 3:
        word = word[1:]
    for article in ARABIC_ARTICLES:
        if word.startswith(article) and len(word) >= len(article) + 2:
            word = word[len(article) :]
            break
    for ending in ARABIC_ENDINGS:
        if word.endswith(ending) and len(word) >= len(ending) + 2:
            word = word[: -len(ending)]
    return word


@remembered
def grams(word: str) -> tuple[str, ...]:
    """Parts of a folded word that a related form has too."""
    if word[0] > ASCII_END:
        if IS_IDEOGRAPH.match(word):
            return (word[0],)
        if IS_UNSPACED.match(word):
            return (word[:3],)
        if ARABIC.match(word):
            word = light_stem(word)
    padded = f"^{word}$"
    return tuple(padded[at : at + 4] for at in range(max(1, len(padded) - 3)))


# Vowel signs belong to their word, though Python's \w does not say so.
MARKS = "".join(chr(code) for code in range(0x300, 0xFFFF) if unicodedata.category(chr(code))[0] == "M")
LONGEST = 48
LETTERS = f"[^\\W_{IDEOGRAPHS}{UNSPACED}]"
WORD = re.compile(
    # The first branch is for speed: it is what most words are.
    f"[A-Za-z0-9]{{1,{LONGEST}}}+(?![^\\x00-\\x7f])|[{IDEOGRAPHS}]+|[{UNSPACED}]+|"
    f"{LETTERS}{{1,{LONGEST}}}+(?:[{MARKS}]{{1,8}}+{LETTERS}{{0,{LONGEST}}}+){{0,{LONGEST}}}+"
)
_STRETCH = 1 << 16
_BETWEEN_WORDS = re.compile(r"[\s!-/:-@\[-`{-~\u2010-\u2027\u3001\u3002\uff01\uff0c\uff1f]")
_LETTER = 1


def _kinds() -> NDArray[np.uint8]:
    """By code point: 0 between words, `_LETTER` in a word, more where `WORD` decides; the last is for all others."""
    letters = np.array([chr(code).isalnum() for code in range(1 << 16)], np.uint8)
    odd = re.compile(f"[{MARKS}{IDEOGRAPHS}{UNSPACED}]")
    letters[[ord(mark) for mark in odd.findall("".join(map(chr, range(1 << 16))))]] = _LETTER + 1
    letters[-1] = _LETTER + 1
    return letters


_KINDS = _kinds()
RUN = 4  # letters of a piece, in a script without spaces


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

    def without(self, muted: NDArray[np.bool_]) -> Words:
        """The same without the words of some units, which stay in place but are empty."""
        heard = ~muted[self.units]
        units = self.units[heard]
        sizes = np.bincount(units, minlength=len(self.first))
        ends = np.cumsum(sizes)
        return Words(self.spellings, self.ids[heard], units, ends - sizes, ends)

    @cached_property
    def lengths(self) -> Floats:
        """Words a unit, at least one."""
        return np.asarray(np.maximum(1, self.last - self.first), np.float32)

    @cached_property
    def runs(self) -> Runs:
        """The occurrences of each unit."""
        return Runs.of(self.last - self.first)

    @cached_property
    def folded(self) -> list[str]:
        return [fold(word) for word in self.spellings]

    @cached_property
    def stems(self) -> list[str]:
        return [stem(word) for word in self.folded]


def lex(segmentation: Segmentation) -> Words:
    """The words of every unit; what lies between units is left out."""
    source = segmentation.source
    table: dict[str, int] = {}
    ids, starts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for begin, end in _stretches(source):
        found, at = split_many(source[begin:end])
        for word in dict.fromkeys(found):
            table.setdefault(word, len(table))
        ids.append(np.fromiter(map(table.__getitem__, found), np.int64, len(found)))
        starts.append(at + begin)
    at = np.concatenate(starts)
    # Units do not overlap: the words of each are a range, and words in no unit are between two ranges.
    bounds = np.array([(unit.start, unit.end) for unit in segmentation.units], np.int64).reshape(-1, 2)
    first, last = np.searchsorted(at, bounds.T)
    sizes = last - first
    ends = np.cumsum(sizes)
    units = np.repeat(np.arange(len(sizes)), sizes)
    inside = np.arange(len(units)) + np.repeat(first - (ends - sizes), sizes)
    return Words(list(table), np.concatenate(ids)[inside], units, ends - sizes, ends)


def _stretches(source: str) -> Iterator[tuple[int, int]]:
    """Ranges that make up the source and cut no word, since arrays over all words at once would be large."""
    begin = 0
    while begin < len(source):
        found = _BETWEEN_WORDS.search(source, begin + _STRETCH)
        end = found.end() if found else len(source)
        yield begin, end
        begin = end


def split_many(text: str) -> tuple[list[str], Ints]:
    """The same as `split` for a long text, by one look at all its characters."""
    encoding, width = ("ascii", np.dtype(np.uint8)) if text.isascii() else ("utf-32-le", np.dtype("<u4"))
    codes = np.frombuffer(text.encode(encoding, "surrogatepass"), width)
    kinds = _KINDS[codes if width.itemsize == 1 else np.minimum(codes, len(_KINDS) - 1)]
    in_word = kinds > 0
    edges = np.flatnonzero(np.diff(in_word, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return [], starts
    found = np.where(in_word, codes, width.type(32)).tobytes().decode(encoding).split()
    odd = (ends - starts > LONGEST) | (np.maximum.reduceat(kinds, starts) > _LETTER)
    if not odd.any():
        return found, starts
    if np.count_nonzero(odd) * 4 > len(odd):
        found, places = split(text)
        return found, np.array(places, np.int64)
    return _split_odd(found, starts, odd)


def _split_odd(runs: list[str], starts: Ints, odd: NDArray[np.bool_]) -> tuple[list[str], Ints]:
    """Runs of letters, of which the `odd` ones are not a single word."""
    sizes = np.ones(len(runs), np.int64)
    found: list[str] = []
    offsets: list[int] = []
    after = 0
    for number in np.flatnonzero(odd).tolist():
        words, places = split(runs[number])
        found += runs[after:number]
        found += words
        offsets += places
        sizes[number] = len(words)
        after = number + 1
    found += runs[after:]
    at = np.repeat(starts, sizes)
    at[np.repeat(odd, sizes)] += np.array(offsets, np.int64)
    return found, at
