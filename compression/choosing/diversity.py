"""Ranks repetitions after what is new, and noise after everything.

Three bands, far enough apart that no rank by score a token mixes them: content, further copies, noise. Content keeps
its very score but below a millionth, where no score was meant to tell anything apart.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compression.salience import Salience
from compression.source.units import Segmentation

_FLOOR = 1e-6
_COPIES = 1e-12
_NOISE = 1e-20
# A template is represented by those of its lines whose score is nearly its best.
_NEARLY = 0.9
# What the second line of a template counts for: less than the first of any that scored about as well.
_SECOND = 0.5
# "Yes." is said again because it is meant again.
_FEWEST_LETTERS = 30
_REPEATABLE = frozenset({"sentence", "turn", "line", "code_block", "list_item"})

Scores = NDArray[np.float64]


def diversify(text: Segmentation, scores: Sequence[float], salience: Salience) -> list[float]:
    """Scores in [0, 1], one a unit; the very scores given where nothing in the text is noise or there twice.

    Of a template's lines in a log the first and the last of those that score best count as content, the last for half;
    of one text its first place does, with the best score of its places.
    """
    if salience.is_plain:
        return list(scores)
    given = np.asarray(scores, np.float64)
    lifted, is_copy = _without_repetitions(text, given, salience)
    is_copy |= _further_lines(lifted, salience)
    if not (is_copy.any() or salience.noise.any()):
        return list(scores)
    content_or_copy = np.where(is_copy, given * _COPIES, _content(lifted))
    return [float(score) for score in np.where(salience.noise, given * _NOISE, content_or_copy)]


def _content(scores: Scores) -> Scores:
    """Scores as they are, but above what copies can have."""
    return np.asarray(np.where(scores >= _FLOOR, scores, (scores + _FLOOR) / 2))


def _without_repetitions(
    text: Segmentation, scores: Scores, salience: Salience
) -> tuple[Scores, NDArray[np.bool_]]:
    """The first place of a text with the best score of all of them, and which units are its other places."""
    kinds = np.array([unit.kind in _REPEATABLE for unit in text.units], bool)
    is_copy = salience.repeats & kinds & (salience.letters >= _FEWEST_LETTERS) & kinds[salience.copy_of]
    lifted = scores.copy()
    np.maximum.at(lifted, salience.copy_of[is_copy], scores[is_copy])
    return lifted, is_copy


def _further_lines(scores: Scores, salience: Salience) -> NDArray[np.bool_]:
    """The lines of logs whose template others represent. Halves, in `scores`, what the last of these counts for."""
    is_further = np.zeros(len(scores), bool)
    lines = np.flatnonzero(salience.is_log & (salience.template_size > 1) & ~salience.noise)
    if not len(lines):
        return is_further
    of = salience.template[lines]
    best = np.zeros(int(of.max()) + 1)
    np.maximum.at(best, of, scores[lines])
    candidates = lines[scores[lines] >= best[of] * _NEARLY]
    own = salience.template[candidates]
    first, last = (np.full(len(best), -1, np.int64) for _ in range(2))
    first[own[::-1]] = candidates[::-1]
    last[own] = candidates
    is_further[lines] = (lines != first[of]) & (lines != last[of])
    seconds = np.unique(last[own])
    seconds = seconds[first[salience.template[seconds]] != seconds]
    scores[seconds] *= _SECOND
    return is_further
