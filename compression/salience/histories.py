"""Worth of the parts of an agent's history: what its next call may repeat of results.

A question names what a text says; an agent's next call repeats identifiers that no question names, most of all from the
records that the talk is about.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from compression.salience.needs import values
from compression.salience.repeated_values import RepeatedValues
from compression.source.text import STOP_WORDS
from compression.source.units import Segmentation

# Scores say what a question asks for. For the next call they say little: of a short value next to nothing.
_OF_TEXT, _OF_VALUE, _MOST_OF_VALUE = 0.3, 0.1, 0.2
# A record that the talk is not about keeps such a share of the odds of what it holds; one that it is about, and those
# beside it are not, has so many times more.
_ASIDE, _ABOUT = 0.3, 3.0
_WORD = re.compile(r"[^\W_]{2,}")
_DECAY, _LEAST_SAID, _LONGEST_SAID = 0.6, 0.01, 2_000
_MOST_SAID = 512
# An array's element or an object's member that is a record, with the name of its first member.
_RECORD = re.compile(r'(?:"[^"\\]{0,80}"\s{0,4}:\s{0,4})?[{\[][\s{\[]{0,8}"([^"\\]{0,80})"')


def rank_history(text: Segmentation, scores: Sequence[float], query: str) -> list[float]:
    """Scores from 0 to 1 with the worth of what an agent may repeat in them, one a unit; those given where the text is
    no conversation with results."""
    if not text.results:
        return list(scores)
    is_said = _about(text)
    shares = [1.0] * len(text.units) if not is_said else _Records(text, is_said).shares()
    asked = [max(share, _ASIDE) * _asked(text, unit, scores[unit]) for unit, share in enumerate(shares)]
    repeated = RepeatedValues(text, query).placed(asked)
    odds = [own + share * worth for own, share, worth in zip(asked, shares, repeated, strict=True)]
    return [each / (1 + each) for each in odds]


def _asked(text: Segmentation, unit: int, score: float) -> float:
    """The odds that a unit is what was asked for."""
    certain = min(score, 1 - 1e-6)
    odds = certain / (1 - certain)
    if text.units[unit].kind != "json_member" or any(kind == "text" for _, kind in values(text.text(unit))):
        return _OF_TEXT * odds
    return min(_MOST_OF_VALUE, _OF_VALUE * odds)


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS}


def _about(text: Segmentation) -> dict[str, float]:
    """Words of what was said and of the calls' arguments, by how lately; of the last messages alone."""
    in_results = bytearray(len(text.units))
    for first, last in text.results:
        in_results[first:last] = b"\1" * (last - first)
    found: dict[str, float] = {}
    weight = 1.0
    for document in reversed(text.documents):
        said = [
            unit for unit in range(*document.units)
            if not in_results[unit] and text.units[unit].kind != "bracket"
        ]  # fmt: skip
        if not said:
            continue
        for unit in said[:64]:
            for word in _words(text.text(unit)[:_LONGEST_SAID]):
                found.setdefault(word, weight)
        weight *= _DECAY
        if weight < _LEAST_SAID or len(found) > _MOST_SAID:
            break
    return found


@dataclass(frozen=True, slots=True)
class _Record:
    """A record among its like: a frame, or a unit that is one whole; and the words of the talk that it has."""

    number: int
    is_frame: bool
    words: frozenset[str]


class _Records:
    """Compares records of one kind, in one array or object, by the words of the talk that tell them apart."""

    def __init__(self, text: Segmentation, said: dict[str, float]) -> None:
        self._text, self._said = text, said
        self._unit_shares = [1.0] * len(text.units)
        self._frame_shares = [1.0] * len(text.frames)

    def shares(self) -> list[float]:
        """One a unit, 1 where nothing tells records apart: the product of those of the records that it is in."""
        for alike in self._alike().values():
            if len(alike) > 1:
                self._compare(alike)
        frames = self._text.frames
        for number, frame in enumerate(frames):
            if frame.parent is not None and frame.kind != "message":
                self._frame_shares[number] *= self._frame_shares[frame.parent]
        for at, unit in enumerate(self._text.units):
            if unit.frame is not None:
                self._unit_shares[at] *= self._frame_shares[unit.frame]
        return self._unit_shares

    def _alike(self) -> dict[tuple[int, str], list[_Record]]:
        """Records by the frame that they are in and the name of their first member."""
        text = self._text
        words: list[set[str]] = [set() for _ in text.frames]
        found: dict[tuple[int, str], list[_Record]] = defaultdict(list)
        for first, last in text.results:
            for at in range(first, last):
                frame = text.units[at].frame
                if frame is None or text.frames[frame].kind == "message":
                    continue
                own = _words(text.text(at)) & self._said.keys()
                words[frame] |= own
                if text.units[at].kind != "bracket":
                    self._file(found, frame, at, _Record(at, False, frozenset(own)))
        for number in reversed(range(len(text.frames))):
            frame_of, parent = text.frames[number], text.frames[number].parent
            if parent is None or frame_of.kind == "message" or text.frames[parent].kind == "message":
                continue
            words[parent] |= words[number]
            self._file(found, parent, frame_of.open, _Record(number, True, frozenset(words[number])))
        return found

    def _file(
        self, found: dict[tuple[int, str], list[_Record]], frame: int, unit: int, record: _Record
    ) -> None:
        match = _RECORD.match(self._text.source, self._text.units[unit].start)
        if match is not None:
            found[frame, match[1]].append(record)

    def _compare(self, alike: Sequence[_Record]) -> None:
        having = Counter(word for record in alike for word in record.words)
        points = [
            sum(
                self._said[word] * math.log((len(alike) + 0.5) / having[word])
                for word in sorted(record.words)
            )
            for record in alike
        ]
        best, usual = max(points), sum(points) / len(points)
        for record, own in zip(alike, points, strict=True):
            if best > 0:
                shares = self._frame_shares if record.is_frame else self._unit_shares
                stands_out = max(0.0, own - usual) / best
                shares[record.number] = max(_ASIDE, own / best) * (1 + _ABOUT * stands_out)
