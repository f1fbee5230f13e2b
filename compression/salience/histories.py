"""Worth of the parts of an agent's history: what its next call may repeat of results, the newest of them first.

A question names what a text says; an agent's next call repeats identifiers that no question names, from the results
that it got last, and from the records that the talk is about.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compression.salience.needs import KNOWN, REPEATED, WORTH, is_known, values
from compression.salience.salience import read_salience
from compression.source.text import STOP_WORDS
from compression.source.units import Segmentation

# The odds that a value of worth 1 in the newest result is needed; those of older results are a share of it each time.
_NEWEST, _OLDER, _OLDEST = 0.1, 0.7, 0.2
# The odds of a line of plain text in the newest result, by its letters: a file's view is needed line by line.
_LINE, _LETTERS = 0.5, 40
# Prose is read for what was asked, and years in it are no identifiers. What a program prints has short lines.
_FEWEST_LINES, _LONGEST_LINE = 3, 120
_SENTENCE_ENDS = ".!?…。！？"  # noqa: RUF001
# Plain lines have no values by shape: what looks like a name in code, a path or a number of some digits.
_NAME = re.compile(r"[\w./:#-]{4,}+")
_TELLS = re.compile(r"[\d_/]")
_LONGEST_NAME = 80
# A record that the talk is not about keeps such a share of the odds of what it holds.
_ASIDE = 0.3
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
    worth = _worths(text, query)
    shares = [1.0] * len(text.units) if not is_said else _Records(text, is_said).shares()
    ranked = []
    for score, own, share in zip(scores, worth, shares, strict=True):
        certain = min(score, 1 - 1e-6)
        odds = max(share, _ASIDE) * certain / (1 - certain) + share * own
        ranked.append(odds / (1 + odds))
    return ranked


def _worths(text: Segmentation, query: str) -> list[float]:
    """What the values of each unit are worth. A value counts where it stands last: older copies are repetitions."""
    found, seen = [0.0] * len(text.units), set[str]()
    letters = read_salience(text).letters
    share = 1.0
    for first, last in reversed(text.results):
        is_printed = _is_printed(text, first, last)
        for unit in reversed(range(first, last)):
            if is_printed and text.units[unit].kind not in ("json_member", "bracket"):
                found[unit] += _LINE * share * float(letters[unit]) / _LETTERS
            for value, worth in _values(text, unit, is_printed=is_printed):
                known = KNOWN if is_known(value, query) else REPEATED if value in seen else 1.0
                seen.add(value)
                found[unit] += _NEWEST * max(share, _OLDEST) * known * worth
        share *= _OLDER
    return found


def _is_printed(text: Segmentation, first: int, last: int) -> bool:
    """True for a result in lines, as of a file, a search or a test run, and not in sentences."""
    start, end = text.units[first].start, text.units[last - 1].end
    lines = text.source.count("\n", start, end)
    if lines < _FEWEST_LINES or end - start > _LONGEST_LINE * lines:
        return False
    told = [unit for unit in text.units[first:last] if unit.kind != "bracket"]
    return 2 * sum(text.source[unit.end - 1] in _SENTENCE_ENDS for unit in told) <= len(told)


def _values(text: Segmentation, unit: int, *, is_printed: bool) -> Iterator[tuple[str, float]]:
    kind = text.units[unit].kind
    if kind == "json_member":
        yield from ((value, WORTH[shape]) for value, shape in values(text.text(unit)))
    elif is_printed and kind != "bracket":
        names = (found[0][:_LONGEST_NAME] for found in _NAME.finditer(text.text(unit)))
        yield from ((name, WORTH["identifier"]) for name in names if _TELLS.search(name))


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
        """One a unit, from 0 to 1: the product of those of the records that it is in."""
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
        best = max(points)
        for record, own in zip(alike, points, strict=True):
            if best > 0:
                shares = self._frame_shares if record.is_frame else self._unit_shares
                shares[record.number] = max(_ASIDE, own / best)
