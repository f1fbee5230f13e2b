"""A cache of compressions, so that a block that comes again in every turn is compressed once."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from compression.pipeline.receipt import Receipt

# The size of an entry beyond its text: key, receipt with flags, containers.
ENTRY_BYTES = 2048
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Compression:
    """What a block became: an output for each of its texts."""

    outputs: tuple[str, ...]
    receipt: Receipt


def content_key(secret: bytes, *parts: str) -> str:
    """A digest of texts under a secret, each with its length, so that no two sequences share one."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, key=secret)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class ResultCache:
    """The most recently used results, by key, within `most_bytes` of memory; safe in one event loop.

    A key must name the workspace: whether a text was compressed before must not show elsewhere.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._entries: OrderedDict[str, Compression] = OrderedDict()
        self._unpaid: set[str] = set()

    def get(self, key: str) -> Compression | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def is_paid(self, key: str) -> bool:
        """Whether its work was charged, or is free."""
        return key not in self._unpaid

    def pay(self, keys: Iterable[str]) -> None:
        """Their work was charged."""
        self._unpaid.difference_update(keys)

    def put(self, key: str, result: Compression, *, is_paid: bool) -> None:
        """A result larger than the whole cache is not kept. What was paid for once stays so, if two did it at once."""
        is_paid = is_paid or (key in self._entries and self.is_paid(key))
        self._drop(key)
        size = _size(result)
        if size > self._most:
            return
        self._entries[key] = result
        self._size += size
        if not is_paid:
            self._unpaid.add(key)
        while self._size > self._most:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        while self._entries:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        dropped = self._entries.pop(key, None)
        if dropped is not None:
            self._size -= _size(dropped)
            self._unpaid.discard(key)

    @property
    def size_bytes(self) -> int:
        return self._size


def _size(result: Compression) -> int:
    # At most four bytes a character in memory.
    return ENTRY_BYTES + sum(4 * len(output) for output in result.outputs)
