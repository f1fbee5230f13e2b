"""How many connections each HTTP process has, in memory that all of them see: who has more lets the others take one."""

from __future__ import annotations

import mmap
import os
from array import array

_BYTES = array("I").itemsize
SEATS = 256
# Counts stand one higher, so that 0 is a seat in which nobody sits.
_EMPTY = 0


class Board:
    """`SEATS` numbers in an anonymous file; whoever is given its descriptor shares them."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SEATS * _BYTES)
        # Each is written in one store: a reader sees the value before or the value after.
        self._counts = memoryview(self._memory).cast("I")

    @staticmethod
    def make() -> int:
        """A descriptor of a new board. Raises `OSError`."""
        descriptor = os.memfd_create("pith-connections")
        os.ftruncate(descriptor, SEATS * _BYTES)
        return descriptor

    def take_seat(self) -> int | None:
        """A free seat, taken; None where all are. For the one process that gives seats out."""
        for seat, count in enumerate(self._counts):
            if count == _EMPTY:
                self._counts[seat] = 1
                return seat
        return None

    def leave(self, seat: int) -> None:
        self._counts[seat] = _EMPTY

    def write(self, seat: int, connections: int) -> None:
        self._counts[seat] = connections + 1

    def fewest_of_others(self, seat: int) -> int | None:
        """The connections of the process that has fewest beside `seat`; None where nobody else sits."""
        counts = self._counts.tolist()
        counts[seat] = _EMPTY
        return min(filter(None, counts), default=0) - 1 if any(counts) else None

    def close(self) -> None:
        self._counts.release()
        self._memory.close()
