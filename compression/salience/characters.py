"""Letters of every unit and what tells two texts apart, over the whole source at once."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from compression.salience.salience import Ints
from compression.source.units import Segmentation

_BEYOND = 0x3040
_WIDE = (0xFF00, 0xFFF0)
_SPACE_AND_QUOTES = " \t\r\n\f\v>\u00a0\u3000"
_LARGEST = 65_536


class Characters:
    """`starts` and `ends` of the units, the code points of the source, and sums over them."""

    def __init__(self, text: Segmentation) -> None:
        self.starts = np.array([unit.start for unit in text.units], np.int64)
        self.ends = np.array([unit.end for unit in text.units], np.int64)
        self._points = _code_points(text.source)
        self._bounds = np.stack([self.starts, self.ends], axis=1).ravel()

    def first(self) -> Ints:
        """The first code point of each unit."""
        return self._points[self.starts].astype(np.int64)

    def letters(self) -> Ints:
        """How many letters and digits each unit has."""
        return self._sums(_is_letter()[self._points]).astype(np.int64)

    def marks(self) -> Ints:
        """A number that two units share where their text is the same but for white space and `>`, and seldom else."""
        return self._sums(_numbers()[self._points]).astype(np.int64)

    def _sums(self, values: NDArray[np.generic]) -> NDArray[np.uint32]:
        """Sums over each unit. The last value is an end that no unit holds."""
        if not len(self._bounds):
            return np.zeros(0, np.uint32)
        return np.add.reduceat(values, self._bounds, dtype=np.uint32)[::2]


def _code_points(source: str) -> NDArray[np.generic]:
    """One number a character, those beyond the first plane as one, and a last one for the end."""
    if source.isascii():
        return np.frombuffer(source.encode("ascii") + b"\0", np.uint8)
    points = np.frombuffer((source + "\0").encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.minimum(points, _LARGEST)


@cache
def _is_letter() -> NDArray[np.uint8]:
    """1 for letters, digits, and what writes or draws a meaning: all of CJK and everything beyond the first plane."""
    table = np.ones(_LARGEST + 1, np.uint8)
    for start, end in ((0, _BEYOND), _WIDE):
        table[start:end] = [chr(point).isalnum() for point in range(start, end)]
    return table


@cache
def _numbers() -> NDArray[np.uint32]:
    table = np.random.default_rng(11).integers(1, 2**32, _LARGEST + 1, np.uint32)
    table[[ord(character) for character in _SPACE_AND_QUOTES]] = 0
    return table
