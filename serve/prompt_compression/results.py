"""A cache of compressions, so that a block that comes again in every turn is compressed once."""

import hashlib
from collections import Counter, OrderedDict
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

    A key must name the workspace: whether a text was compressed before must not show elsewhere. Room is made by who has
    most in it: what one workspace puts in drops its own, and never those of workspaces with less.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._sizes: Counter[str] = Counter()
        # By who has them, and by key: the result and its bytes.
        self._entries: dict[str, OrderedDict[str, tuple[SharedResult, int]]] = {}
        self._owners: dict[str, str] = {}
        # Also what is being made, or was dropped while requests use it: they share it, and its charge.
        self._known: WeakValueDictionary[str, SharedResult] = WeakValueDictionary()

    def of(self, key: str) -> SharedResult:
        """The key's result, which may be yet to make."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = SharedResult()
        elif key in self._owners:
            self._entries[self._owners[key]].move_to_end(key)
        return found

    def keep(self, key: str, result: SharedResult, *, owner: str) -> None:
        """Keep what was made, for a workspace. A result larger than the whole cache is not kept."""
        self._drop(key)
        size = _size(result)
        if size > self._most:
            return
        self._entries.setdefault(owner, OrderedDict())[key] = result, size
        self._owners[key] = owner
        self._sizes[owner] += size
        while self.size_bytes > self._most:
            largest = max(self._sizes, key=lambda one: self._sizes[one])
            self._drop(next(iter(self._entries[largest])))

    def clear(self) -> None:
        self._entries.clear()
        self._owners.clear()
        self._sizes.clear()
        self._known.clear()

    def _drop(self, key: str) -> None:
        owner = self._owners.pop(key, None)
        if owner is None:
            return
        self._sizes[owner] -= self._entries[owner].pop(key)[1]
        if not self._entries[owner]:
            del self._entries[owner], self._sizes[owner]

    @property
    def size_bytes(self) -> int:
        return self._sizes.total()


def _size(result: SharedResult) -> int:
    # At most four bytes a character in memory.
    outputs = () if result.compression is None else result.compression.outputs
    return ENTRY_BYTES + sum(4 * len(output) for output in outputs)
