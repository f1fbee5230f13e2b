"""Whether a text says its document's title already, so that the title need not come with it."""

from __future__ import annotations

import re
from itertools import islice

from compression.text.terms import STOP_WORDS

_WORD = re.compile(r"\w{2,}")
_MOST_WORDS = 16
_SAID = 0.5


def words_of(title: str) -> frozenset[str]:
    """What a reader has to be told, at most so many words: each unit of the document is searched for them."""
    found = islice(_WORD.finditer(title.lower()), _MOST_WORDS)
    return frozenset(word.group() for word in found if word.group() not in STOP_WORDS)


def says(text: str, words: frozenset[str]) -> bool:
    """Whether half of a title's words stand in a text: then the title says nothing new."""
    lowered = text.lower()
    return bool(words) and sum(word in lowered for word in words) >= _SAID * len(words)
