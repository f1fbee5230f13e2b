"""Where a few words occur in a long text, by unit, in time that grows with the text and not with what is found."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
# A word in more places tells nothing about any of them, and hostile text must not take forever.
MOST_PLACES = 64


def places(text: str, word: str) -> list[int]:
    """Where `word` begins, at most `MOST_PLACES` times."""
    found: list[int] = []
    at = text.find(word)
    while at >= 0 and len(found) < MOST_PLACES:
        found.append(at)
        at = text.find(word, at + len(word))
    return found


def units_with(text: str, word: str, starts: Ints, ends: Ints) -> Ints:
    """Distinct indices of the units, which lie from `starts` to `ends`, in which `word` begins."""
    at = np.array(places(text, word), np.int64)
    if not len(at):
        return at
    units = np.searchsorted(starts, at, side="right") - 1
    return np.unique(units[(units >= 0) & (at < ends[units])])
