"""Texts that occur in the source more than once: a quotation of an earlier mail, a passage retrieved twice."""

import re

import numpy as np

from compression.salience.characters import Characters
from compression.salience.salience import Ints
from compression.source.units import Segmentation

_QUOTE_MARKS = re.compile(r"(?m)^[ \t>]+")


def copies(text: Segmentation, characters: Characters) -> Ints:
    """For each unit the first one that has its text, white space and quotation marks aside."""
    first = np.arange(len(text.units))
    marks = characters.marks()
    _, of, counts = np.unique(marks, return_inverse=True, return_counts=True)
    seen: dict[str, int] = {}
    for unit in np.flatnonzero(counts[of] > 1).tolist():
        first[unit] = seen.setdefault(_plain(text.text(unit)), unit)
    return first


def _plain(text: str) -> str:
    if ">" in text:
        text = _QUOTE_MARKS.sub("", text)
    return " ".join(text.split())
