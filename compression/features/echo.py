"""Repetitions of the query in a conversation: the question is not evidence for its own answer."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from compression.segmentation.lines import SPEAKER
from compression.source.units import FRAMING, Segmentation

_WORD = re.compile(r"\w+")
_FEWEST = 3
_MOST_WORDS = 4_000


def echoes(query: str, text: Segmentation) -> NDArray[np.bool_]:
    """Units that repeat the query's own words in order, or a stretch of them: turns, messages, and the source's end.

    Anywhere else such a sentence may be the heading of its answer, as in a list of questions.
    """
    found = np.zeros(len(text.units), bool)
    asked = _plain(query[: 8 * _MOST_WORDS])
    if asked.count(" ") < _FEWEST + 1:
        return found
    longest = len(query) + 80
    for unit in _candidates(text):
        if text.units[unit].end - text.units[unit].start <= longest:
            found[unit] = _is_echo(text.text(unit), asked)
    for unit in _from_the_end(text):
        if text.units[unit].end - text.units[unit].start > longest or not _is_echo(text.text(unit), asked):
            break
        found[unit] = True
    return found


def _candidates(text: Segmentation) -> Iterator[int]:
    is_conversation = text.origin is not None
    for number, unit in enumerate(text.units):
        if unit.kind == "turn" or (is_conversation and unit.kind not in FRAMING):
            yield number


def _from_the_end(text: Segmentation) -> Iterator[int]:
    for number in range(len(text.units) - 1, -1, -1):
        if text.units[number].kind not in FRAMING:
            yield number


def _is_echo(unit: str, asked: str) -> bool:
    head = SPEAKER.match(unit)
    words = _plain(unit[head.end() :] if head else unit)
    return words.count(" ") > _FEWEST and words in asked


def _plain(text: str) -> str:
    """The words in lower case, each between two spaces, so that what is part of it ends with a word."""
    return f" {' '.join(_WORD.findall(text.lower()))} "
