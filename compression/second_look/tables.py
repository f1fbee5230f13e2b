"""Rows of tables: by the words and numbers of the query in them, their neighbours, their place and their extremes.

Which row is last, largest or above another stands in no row's words. So the rows of a table share the scores that they
got, in another order. Only a row whose label stands in the query gains on what is outside of its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Floats, Ints
from compression.features.matching import Query
from compression.features.words import fold, split, stem
from compression.segmentation.tables import YEAR, cells, mark_of
from compression.source.text import STOP_WORDS
from compression.source.units import Segmentation

_FEWEST_ROWS = 3
# What a row gets of the best match one and two rows away; for its place, extremes and numbers; what the scores count.
_BESIDE = ((1, 0.5), (2, 0.25))
# A question may say on which side of a row another stands.
_BEFORE_WORDS = """
before above previous previously prior preceding preceded vor davor avant antes перед до
"""
_AFTER_WORDS = """
after below next following followed nach danach après después после
"""
_BEFORE, _AFTER = frozenset(_BEFORE_WORDS.split()), frozenset(_AFTER_WORDS.split())
_TOLD = 0.75
_PLACE = 0.2
_EXTREME = 0.4
_NUMBER = 0.2
_SAME = 0.15
_SCORED = 0.02
_WHOLE_CELL = 0.5
# The next best extreme counts for so much of the one before, and a column that the query does not name for so much.
_NEXT = 0.6
_NEXT_NUMBER = 0.7
_UNNAMED = 0.2
# Words of the query that stand nowhere in a table: a match of the others says less, down to this share of all.
_LEAST_PRESENT = 0.35
_NEARLY_BEST = 0.95
_MOST_ALIKE = 3
_NUMERIC = 0.6
# What a row whose label is in the query, word for word, gains in logits: there it is asked for, among all tables.
_LABEL = np.float32(3.0)
_LONGEST_LABEL = 200
_MOST_CELLS = 400_000
_SUM = 0.01


def by_row(logits: Floats, text: Segmentation, has: NDArray[np.bool_], query: Query, prior: Floats) -> Floats:
    """The logits with those of each table's rows in another order; `has` and `prior` as for records."""
    tables = _tables(text) if has.shape[1] == len(prior) else {}
    out = logits.copy() if tables else logits
    for frame, rows in tables.items():
        table = _Table(text, frame, np.array(rows), has, query, prior)
        if len(rows) >= _FEWEST_ROWS:
            out[table.in_order(logits)] = np.sort(logits[rows])[::-1]
        out[rows] += _LABEL * table.labelled()
    return out


def _tables(text: Segmentation) -> dict[int, list[int]]:
    """The rows of each table by the number of its frame; those under a section are the table's."""
    outermost: list[int] = []
    for number, frame in enumerate(text.frames):
        is_inside = (
            frame.kind == "table" and frame.parent is not None and text.frames[frame.parent].kind == "table"
        )
        outermost.append(outermost[frame.parent] if is_inside and frame.parent is not None else number)
    found: dict[int, list[int]] = {}
    for at, unit in enumerate(text.units):
        if unit.kind == "table_row" and unit.frame is not None and text.frames[unit.frame].kind == "table":
            found.setdefault(outermost[unit.frame], []).append(at)
    return found


class _Table:
    """One table as a query sees it. `named` is how much of the query each column's name has, 1 for the best."""

    def __init__(
        self, text: Segmentation, frame: int, rows: Ints, has: NDArray[np.bool_], query: Query, prior: Floats
    ) -> None:
        header = text.text(text.frames[frame].open)
        mark = mark_of(header)
        self._rows = rows
        self._size = len(rows)
        self._query = query
        self._prior = prior
        self._grid = [cells(text.text(row), mark) for row in rows.tolist()]
        self._in_header = has[text.frames[frame].open]
        self._has = has[rows].astype(np.float32)
        self._named = self._names([cells(line, mark) for line in header.split("\n")])
        self._columns = list(self._numbers())
        self._is_total = self._totals()

    def in_order(self, logits: Floats) -> Ints:
        """The rows, the best first."""
        return np.asarray(self._rows[np.argsort(-self._worths(logits), kind="stable")])

    def labelled(self) -> Floats:
        """From 0 to 1: how much of what a row is called is in the query, where that is more than one word."""
        terms = set(self._query.terms)
        found = np.zeros(self._size, np.float32)
        for row in np.flatnonzero(self._has.sum(axis=1) > 1).tolist():
            words = [fold(word) for word in split(self._cell(row, 0)[:_LONGEST_LABEL])[0]]
            words = [stem(word) for word in words if word not in STOP_WORDS]
            named = sum(word in terms for word in words)
            found[row] = (named / len(words)) ** 2 if named > 1 else 0
        return found

    def _worths(self, logits: Floats) -> Floats:
        matched = self._matched()
        own = logits[self._rows]
        found = matched + self._beside(matched) + _SAME * self._same(matched)
        found += _PLACE * self._places() + _EXTREME * self._extremes() + _NUMBER * self._near_numbers()
        found += _SCORED * (own - own.mean()) / (own.std() + 1e-6)
        return np.asarray(found, np.float32)

    def _names(self, header: Sequence[Sequence[str]]) -> Floats:
        """A column's name is all that stands in it in the header's lines."""
        width = max(map(len, header))
        found = np.zeros(width, np.float32)
        for column in range(width):
            name = " ".join(line[column] for line in header if column < len(line))
            words = [stem(fold(word)) for word in split(name)[0]]
            for term, weight in zip(self._query.terms, self._prior.tolist(), strict=True):
                if any(term == word or _alike(term, word) for word in words):
                    found[column] += weight
        best = found.max(initial=0)
        return np.square(found / best) if best > 0 else found

    def _matched(self) -> Floats:
        """The share of the query's weight that each row has, of what stands in the table at all."""
        holding = self._has.sum(axis=0)
        rarity = np.log1p((self._size - holding + 0.5) / (holding + 0.5)) / np.log1p(2 * self._size + 1)
        present = (self._prior * ((holding > 0) | self._in_header)).sum()
        least = max(float(present), _LEAST_PRESENT * float(self._prior.sum()), 1e-6)
        matched = self._has @ (self._prior * rarity) / least
        asked = f" {' '.join(self._query.words)} "
        for row in np.flatnonzero(matched > 0).tolist():
            if any(_is_in(cell, asked) for cell in self._grid[row]):
                matched[row] *= 1 + _WHOLE_CELL
        return np.asarray(matched, np.float32)

    def _beside(self, matched: Floats) -> Floats:
        """What a row gets of the best match near it."""
        near = np.zeros_like(matched)
        words = set(self._query.words)
        before, after = not words.isdisjoint(_BEFORE), not words.isdisjoint(_AFTER)
        for step, share in _BESIDE:
            if step < self._size:
                of_later = _TOLD if step == 1 and before and not after else share
                of_earlier = _TOLD if step == 1 and after and not before else share
                near[step:] = np.maximum(near[step:], of_earlier * matched[:-step])
                near[:-step] = np.maximum(near[:-step], of_later * matched[step:])
        return near

    def _same(self, matched: Floats) -> Floats:
        """Rows that have the value of a best match in a column that the query names."""
        found = np.zeros_like(matched)
        best = float(matched.max())
        if best <= 0:
            return found
        likely = np.flatnonzero(matched >= _NEARLY_BEST * best)[:_MOST_ALIKE].tolist()
        for column in np.flatnonzero(self._named > 0).tolist():
            for row in likely:
                value = self._cell(row, column)
                same = [at for at in range(self._size) if value and self._cell(at, column) == value]
                if 1 < len(same) < self._size / 2:
                    found[same] = np.maximum(found[same], self._named[column])
        return found

    def _cell(self, row: int, column: int) -> str:
        return self._grid[row][column] if column < len(self._grid[row]) else ""

    def _places(self) -> Floats:
        """The first and the last rows, sums aside."""
        found = np.full(self._size, _NEXT, np.float32)
        at = np.arange(int((~self._is_total).sum()), dtype=np.float32)
        found[~self._is_total] = np.maximum(_NEXT**at, _NEXT ** at[::-1])
        return found

    def _extremes(self) -> Floats:
        """The largest and the smallest in any column of numbers, above all in those that the query names."""
        found = np.zeros(self._size, np.float32)
        for column, rows, values in self._columns:
            inside = ~self._is_total[rows]
            rows, values = rows[inside], values[inside]
            for each in (values, -values):
                place = np.searchsorted(np.sort(-each), -each, side="right") - 1
                found[rows] = np.maximum(
                    found[rows], self._weight(column) * _NEXT ** place.astype(np.float32)
                )
        return found

    def _weight(self, column: int) -> float:
        named = float(self._named[column]) if column < len(self._named) else 0.0
        return _UNNAMED + (1 - _UNNAMED) * named

    def _near_numbers(self) -> Floats:
        """Rows whose number is near one of the query's, or between two of them."""
        found = np.zeros(self._size, np.float32)
        asked = [number for number in self._asked_numbers() if number is not None]
        for column, rows, values in self._columns:
            inside = [number for number in asked if values.min() <= number <= values.max()]
            weight = self._weight(column)
            for number in inside:
                place = np.argsort(np.argsort(np.abs(values - number), kind="stable"), kind="stable")
                share = weight * _NEXT_NUMBER ** place.astype(np.float32)
                found[rows] = np.maximum(found[rows], share)
            if len(inside) > 1:
                between = rows[(values > min(inside)) & (values < max(inside))]
                found[between] = np.maximum(found[between], weight)
        return found

    def _asked_numbers(self) -> Iterator[float | None]:
        """Numbers of the query, but for those that name a column."""
        named = {term for term, is_in in zip(self._query.terms, self._in_header, strict=True) if is_in}
        for text in _NUMBER_IN.findall(self._query.text[:2000])[:16]:
            if text not in named:
                yield number_in(text)

    def _numbers(self) -> Iterator[tuple[int, Ints, NDArray[np.float64]]]:
        """Columns that hold numbers for the most part: which, the rows that have one, and the numbers."""
        width = min(len(self._named), max(2, _MOST_CELLS // self._size))
        for column in range(width):
            sample = [self._cell(row, column) for row in range(0, self._size, max(1, self._size // 24))]
            if sum(number_in(cell) is not None for cell in sample) < _NUMERIC * len(sample):
                continue
            found = [number_in(self._cell(row, column)) for row in range(self._size)]
            rows = np.array([row for row, number in enumerate(found) if number is not None], np.int64)
            values = np.array([number for number in found if number is not None], np.float64)
            if len(rows) >= _FEWEST_ROWS and values.min() < values.max():
                yield column, rows, values

    def _totals(self) -> NDArray[np.bool_]:
        """The first or the last row where it is the sum of the others in a column."""
        found = np.zeros(self._size, bool)
        for _, rows, values in self._columns:
            for at in (0, -1):
                others = values.sum() - values[at]
                is_end = rows[at] in (0, self._size - 1)
                if is_end and len(values) > _FEWEST_ROWS and abs(values[at] - others) <= _SUM * abs(others):
                    found[rows[at]] = True
        return found


_SHORTEST_ALIKE = 5


def _alike(one: str, other: str) -> bool:
    """Forms of one word, as they begin alike: attended and attendance."""
    if one[:_SHORTEST_ALIKE] != other[:_SHORTEST_ALIKE] or min(len(one), len(other)) < _SHORTEST_ALIKE:
        return False
    same = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return same * 2 >= max(len(one), len(other))


def _is_in(cell: str, asked: str) -> bool:
    """A cell that says something by itself and whose words stand in the query, one after the other."""
    if not 2 < len(cell) < 100:
        return False
    words = [fold(word) for word in split(cell)[0]]
    return bool(words) and f" {' '.join(words)} " in asked


_NUMBER_IN = re.compile(r"\d+(?:[,. \u00a0\u202f]\d+)*|\.\d+")
_SPACES = re.compile(r"[ \u00a0\u202f]")
_SIGN = "-−(–"  # noqa: RUF001
_LATEST_START = 6


def number_in(cell: str) -> float | None:
    """The number that a cell begins with, whatever its unit, or the year in it; None where there is neither."""
    try:
        return float(cell) if cell.isdecimal() and len(cell) < 16 else _number_in(cell)
    except (ValueError, OverflowError):
        return None


def _number_in(cell: str) -> float | None:
    found = _NUMBER_IN.search(cell)
    if found is None or found.end() - found.start() > 32:
        return None
    before = cell[: found.start()]
    if found.start() > _LATEST_START or any(map(str.isalpha, before)):
        year = YEAR.search(cell)
        return float(year.group()) if year else None
    number = float(_plain(_SPACES.sub("", found.group())))
    return -number if before.strip()[:1] and before.strip()[0] in _SIGN else number


def _plain(number: str) -> str:
    """With a point before the decimals and nothing between thousands, whatever the language."""
    if "," in number and "." in number:
        thousands, point = (",", ".") if number.rfind(".") > number.rfind(",") else (".", ",")
        return number.replace(thousands, "").replace(point, ".")
    if "," in number:
        is_thousands = all(len(part) == 3 for part in number.split(",")[1:])
        return number.replace(",", "" if is_thousands else ".")
    return number.replace(".", "") if number.count(".") > 1 else number
