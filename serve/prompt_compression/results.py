"""A cache of compressions, so that a block that comes again in every turn is compressed once."""

import hashlib
from collections import OrderedDict
from weakref import WeakValueDictionary

from serve.prompt_compression.shared_result import SharedResult

# The size of an entry beyond its text: key, receipt with flags, containers.
ENTRY_BYTES = 2048
DIGEST_BYTES = 16


def content_key(secret: bytes, *parts: str) -> str:
    """A digest of texts under a secret, each with its length, so that no two sequences share one."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, key=secret)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class ResultCache:
    """The most recently used results, by key, within `most_bytes` of memory, and those that a request uses now; safe
    in one event loop.

    A key must name the workspace: whether a text was compressed before must not show elsewhere.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._entries: OrderedDict[str, tuple[SharedResult, int]] = OrderedDict()
        # Also what is being made, or was dropped while requests use it: they share it, and its charge.
        self._known: WeakValueDictionary[str, SharedResult] = WeakValueDictionary()

    def of(self, key: str) -> SharedResult:
        """The key's result, which may be yet to make."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = SharedResult()
        elif key in self._entries:
            self._entries.move_to_end(key)
        return found

    def keep(self, key: str, result: SharedResult) -> None:
        """Keep what was made. A result larger than the whole cache is not kept."""
        self._drop(key)
        size = _size(result)
        if size > self._most:
            return
        self._entries[key] = result, size
        self._size += size
        while self._size > self._most:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        self._entries.clear()
        self._known.clear()
        self._size = 0

    def _drop(self, key: str) -> None:
        dropped = self._entries.pop(key, None)
        if dropped is not None:
            self._size -= dropped[1]

    @property
    def size_bytes(self) -> int:
        return self._size


def _size(result: SharedResult) -> int:
    # At most four bytes a character in memory.
    outputs = () if result.compression is None else result.compression.outputs
    return ENTRY_BYTES + sum(4 * len(output) for output in outputs)
