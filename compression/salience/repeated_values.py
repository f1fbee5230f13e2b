"""Values that an agent's next call may repeat: those of tools' results, where else they stand, and their odds.

The odds were read from the steps of agents' traces: an identifier of a result is repeated one time in twenty, however
old the result is; twice as often where a message or a call had it; a word, a name or a number next to never, unless one
of the last calls had it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from compression.salience.needs import KNOWN, REPEATED, ValueKind, is_known, values
from compression.salience.salience import read_salience
from compression.source.pricing import by_price, chosen_with_frame
from compression.source.units import Segmentation

# The odds that an identifier of the newest result is needed; those of older results are a share of it each time.
_NEWEST, _OLDER, _OLDEST = 0.2, 0.85, 0.1
# What the other kinds of values are worth beside an identifier.
_WORTH: Mapping[ValueKind, float] = {
    "identifier": 1.0, "date": 0.8, "capitals": 0.2, "digits": 0.15, "address": 0.1, "text": 0.1, "name": 0.1,
    "time": 0.05, "number": 0.05, "code": 0.05, "word": 0.05, "flag": 0.03,
}  # fmt: skip
# How often as well a value is needed that was said, or that an older call had; of those of the last few calls any kind
# counts, but no phrase does.
_SAID, _CALLED, _CALLED_LATELY = 1.5, 1.2, 1.5
_LATE_CALLS, _LEAST_CALLED = 3, 0.5
# The odds of a line of plain text in the newest result, by its letters: a file's view is needed line by line.
_LINE, _OLDER_LINE, _LETTERS = 0.5, 0.6, 40
# Prose is read for what was asked, and years in it are no identifiers. What a program prints has short lines.
_FEWEST_LINES, _LONGEST_LINE = 3, 120
_SENTENCE_ENDS = ".!?…。！？"  # noqa: RUF001
# Plain lines have no values by shape: what looks like a name in code, a path or a number of some digits.
_NAME = re.compile(r"[\w./:#-]{4,}+")
_TELLS = re.compile(r"[\d_/]")
_LONGEST_NAME = 80
_SHORTEST = 4
_TIE = 1e-9
# A number with its unit has the shape of an identifier, and is none.
_QUANTITY = re.compile(r"\d{1,4}(?:[.,]\d{1,4})?(?:[^\W\d_]{1,3}|-[a-z]{1,6})")


class RepeatedValues:
    """The values of a conversation's results, by unit. One that was taken counts next to nothing elsewhere."""

    def __init__(self, text: Segmentation, query: str) -> None:
        self._text = text
        self._odds: dict[str, float] = {}
        self._places: dict[str, list[int]] = defaultdict(list)
        self._in: list[list[str]] = [[] for _ in text.units]
        self._lines = [0.0] * len(text.units)
        self._taken: set[str] = set()
        in_results = bytearray(len(text.units))
        for age, (first, last) in enumerate(reversed(text.results)):
            in_results[first:last] = b"\1" * (last - first)
            self._read_result(age, first, last, query)
        self._read_what_was_said(in_results)

    def _read_result(self, age: int, first: int, last: int, query: str) -> None:
        is_printed = _is_printed(self._text, first, last)
        letters = read_salience(self._text).letters
        newest = _NEWEST * max(_OLDER**age, _OLDEST)
        for unit in reversed(range(first, last)):
            if is_printed and self._text.units[unit].kind not in ("json_member", "bracket"):
                self._lines[unit] = _LINE * _OLDER_LINE**age * float(letters[unit]) / _LETTERS
            for value, worth in _values(self._text, unit, is_printed=is_printed):
                known = KNOWN if is_known(value, query) else 1.0
                self._odds.setdefault(value, newest * known * worth)
                self._add(value, unit)

    def _read_what_was_said(self, in_results: bytearray) -> None:
        """By messages and by calls, the last ones first."""
        told: set[tuple[str, bool]] = set()
        calls = 0
        for unit in reversed(range(len(in_results))):
            kind = self._text.units[unit].kind
            if in_results[unit] or kind == "bracket":
                continue
            is_call = kind == "json_member"
            calls += is_call
            for value in _called(self._text.text(unit)) if is_call else _named(self._text.text(unit)):
                if value not in self._odds or len(value) < _SHORTEST:
                    continue
                if (value, is_call) not in told:
                    told.add((value, is_call))
                    self._raise(value, calls if is_call else 0)
                self._add(value, unit)

    def _raise(self, value: str, call: int) -> None:
        """A value that a message had, or the last call but so many."""
        if call and call <= _LATE_CALLS and " " not in value:
            self._odds[value] = _CALLED_LATELY * max(_NEWEST * _LEAST_CALLED, self._odds[value])
        else:
            self._odds[value] *= _CALLED if call else _SAID

    def _add(self, value: str, unit: int) -> None:
        places = self._places[value]
        if not places or places[-1] != unit:
            places.append(unit)
            self._in[unit].append(value)

    def placed(self, scores: Sequence[float]) -> list[float]:
        """What its values add to the odds of each unit, where `scores` are those without: a value counts once, in what
        costs least for what it has."""
        frames = self._text.frames
        with_frame = chosen_with_frame(self._text)
        inside = [with_frame.get(at, unit.frame) for at, unit in enumerate(self._text.units)]
        ends = {unit for frame in frames for unit in frame.ends}
        lengths = [unit.end - unit.start for unit in self._text.units]
        # Of equals the last.
        left = [score + self._worth(unit) + _TIE * unit for unit, score in enumerate(scores)]
        ranked = by_price(
            [unit for unit in range(len(left)) if unit not in ends or unit in with_frame],
            left,
            [0 if unit in with_frame else length for unit, length in enumerate(lengths)],
            [() if frame is None else (frame,) for frame in inside],
            [sum(lengths[unit] for unit in frame.ends) for frame in frames],
            [() if frame.parent is None else (frame.parent,) for frame in frames],
        )
        found = [0.0] * len(left)
        opened: set[int] = set()
        for unit in ranked:
            frame = inside[unit]
            while frame is not None and frame not in opened:
                opened.add(frame)
                for end in frames[frame].ends:
                    found[end] = self._take(end, left)
                frame = frames[frame].parent
            if unit not in with_frame:
                found[unit] = self._take(unit, left)
        return found

    def _worth(self, unit: int) -> float:
        return self._lines[unit] + sum(self._odds[value] for value in self._in[unit])

    def _take(self, unit: int, left: list[float]) -> float:
        """What a unit adds to those that were taken; what has the same values is worth less from then on."""
        found = self._lines[unit]
        for value in self._in[unit]:
            odds = self._odds[value]
            found += REPEATED * odds if value in self._taken else odds
            if value not in self._taken:
                self._taken.add(value)
                for other in self._places[value]:
                    left[other] -= (1 - REPEATED) * odds
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
    """Values of a result, and what they are worth beside an identifier."""
    kind = text.units[unit].kind
    if kind == "json_member":
        for value, shape in values(text.text(unit)):
            is_small = len(value) < _SHORTEST or _QUANTITY.fullmatch(value) is not None
            yield value, _WORTH["number" if is_small and shape == "identifier" else shape]
    elif kind != "bracket" and (is_printed or _is_one_word(text.text(unit))):
        yield from ((name, 1.0) for name in _named(text.text(unit)) if _TELLS.search(name))


def _is_one_word(text: str) -> bool:
    """A result may be no more than an identifier."""
    return len(text) <= _LONGEST_NAME and not any(map(str.isspace, text))


def _called(text: str) -> Iterator[str]:
    return (value for value, _ in values(text))


def _named(text: str) -> Iterator[str]:
    return (found[0][:_LONGEST_NAME].rstrip(".:/-") for found in _NAME.finditer(text))
