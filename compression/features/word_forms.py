"""The forms of a word that count as the same: without case and diacritics, without endings, and in parts."""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from compression.text.scripts import IDEOGRAPHS, UNSPACED

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
