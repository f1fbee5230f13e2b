"""Conversations in one text, such as tickets: those that the query names come before the others, turn by turn.

A name is a word of the query, or two in a row, that few of the conversations have as words, not as parts of them.
"""

import math
import re
from collections.abc import Collection, Sequence
from itertools import islice

from compression.salience.findings import raised
from compression.second_look.links import naming_power
from compression.source.text import DENSE
from compression.source.units import Segmentation

# A word, or of scripts without spaces a letter.
_WORD = re.compile(f"[{DENSE}]|[^\\W{DENSE}]+")
_DENSE = re.compile(f"[{DENSE}]")
_Name = tuple[str, ...]
_MOST_WORDS = 32
_FEWEST, _FEWEST_TURNS = 3, 2
# The share of the conversations that may have a name.
_RARE = 0.2
# What the odds of a turn are multiplied by in the conversation that has most of the names.
_TIMES = 20.0


def with_threads(text: Segmentation, scores: Sequence[float], query: str) -> list[float]:
    """Scores, raised in each conversation by how much of what the query names it has; as they are where the text has
    fewer than three."""
    found = list(scores)
    threads = _threads(text)
    if len(threads) < _FEWEST:
        return found
    named = _named(text, threads, query)
    best = max(named)
    for (first, last), own in zip(threads, named, strict=True):
        if own > 0:
            times = _TIMES ** (own / best)
            found[first:last] = [raised(score, times) for score in scores[first:last]]
    return found


def _threads(text: Segmentation) -> list[tuple[int, int]]:
    """Half-open ranges of units between empty lines, of which most have several turns."""
    units = text.units
    if 2 * sum(unit.kind == "turn" for unit in units) < len(units):
        return []
    breaks = [
        at for at in range(1, len(units)) if text.source.count("\n", units[at - 1].end, units[at].start) > 1
    ]
    found = list(zip([0, *breaks], [*breaks, len(units)], strict=True))
    is_thread = [last - first >= _FEWEST_TURNS for first, last in found]
    return found if 2 * sum(is_thread) > len(found) else []


def _named(text: Segmentation, threads: Sequence[tuple[int, int]], query: str) -> list[float]:
    """How much each of the conversations has of the names in the query, rarer ones for more."""
    names = _names(query)
    lengths = {len(name) for name in names}
    having: dict[_Name, list[int]] = {name: [] for name in names}
    for number, (first, last) in enumerate(threads):
        words = _words(text.source[text.units[first].start : text.units[last - 1].end])
        for name in _found(words, names, lengths):
            having[name].append(number)
    total = [0.0] * len(threads)
    for name, numbers in having.items():
        if 0 < len(numbers) <= max(1, _RARE * len(threads)):
            for number in numbers:
                total[number] += names[name] * math.log(len(threads) / len(numbers))
    return total


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _found(words: Sequence[str], names: Collection[_Name], lengths: Collection[int]) -> set[_Name]:
    """The names among the words: one pass for each length that names have, however many there are."""
    found: set[_Name] = set()
    for length in lengths:
        rows = zip(*(words[at:] for at in range(length)), strict=False)
        found.update(row for row in rows if row in names)
    return found


def _names(query: str) -> dict[_Name, float]:
    """Words in lower case, alone and in a row, and how much each looks like a name; letters of scripts without spaces
    in fours."""
    words = [found.group() for found in islice(_WORD.finditer(query), _MOST_WORDS)]
    names: dict[_Name, float] = {}
    for at, word in enumerate(words):
        for count in (4,) if _DENSE.match(word) else (1, 2):
            row = words[at : at + count]
            power = max(naming_power(each) for each in row)
            if len(row) == count and power > 0:
                name = tuple(each.lower() for each in row)
                names[name] = names.get(name, 0.0) + power
    return names
