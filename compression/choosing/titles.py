"""Whether a text already names its document's title, so that the title need not be kept with it."""

import re
from itertools import islice

from compression.text.terms import STOP_WORDS

_WORD = re.compile(r"\w{2,}")
_MOST_WORDS = 16
_SAID = 0.5


def words_of(title: str) -> frozenset[str]:
    """The words that a reader needs, at most `_MOST_WORDS`: each unit of the document is searched for them."""
    found = islice(_WORD.finditer(title.lower()), _MOST_WORDS)
    return frozenset(word.group() for word in found if word.group() not in STOP_WORDS)


def says(text: str, words: frozenset[str]) -> bool:
    """Whether a text has half of a title's words, so that the title adds nothing."""
    lowered = text.lower()
    return bool(words) and sum(word in lowered for word in words) >= _SAID * len(words)
