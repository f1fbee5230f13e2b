"""How many connections each HTTP process has, in shared memory, so that the busier ones let the others accept."""

import mmap
import os
from array import array

_BYTES = array("I").itemsize
SLOTS = 256
# Stored counts are one higher than the real ones, so that 0 marks a free slot.
_FREE = 0


class ConnectionCounts:
    """`SLOTS` numbers in an anonymous file, shared with every process that is given its descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SLOTS * _BYTES)
        # Each is written in a single store: a reader sees either the old value or the new one.
        self._counts = memoryview(self._memory).cast("I")

    @staticmethod
    def make() -> int:
        """The descriptor of a new file. Raises `OSError`."""
        descriptor = os.memfd_create("pith-connections")
        os.ftruncate(descriptor, SLOTS * _BYTES)
        return descriptor

    def take_slot(self) -> int | None:
        """Takes a free slot; None if there is none. Only the coordinator may call it."""
        for slot, count in enumerate(self._counts):
            if count == _FREE:
                self._counts[slot] = 1
                return slot
        return None

    def free_slot(self, slot: int) -> None:
        self._counts[slot] = _FREE

    def write(self, slot: int, connections: int) -> None:
        self._counts[slot] = connections + 1

    def fewest_of_others(self, slot: int) -> int | None:
        """The connections of the least busy process other than `slot`; None if it is alone."""
        counts = self._counts.tolist()
        counts[slot] = _FREE
        return min(filter(None, counts), default=0) - 1 if any(counts) else None

    def close(self) -> None:
        self._counts.release()
        self._memory.close()
