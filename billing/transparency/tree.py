"""The Merkle tree of RFC 9162 over hashes that are stored in tiles of 256, as C2SP's tlog-tiles has them.

A node of height `h` and index `i` is the complete subtree over the leaves from `i << h` to before `(i + 1) << h`. Tile
`n` of level `l` holds the nodes of height `8 * l` from index `256 * n` on. All other nodes are computed from these.
"""

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

HASH_BYTES = 32
TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
EMPTY_ROOT = hashlib.sha256(b"").digest()
# The hashes of a tile, one after the other: as many as there are, at most 256.
ReadTile = Callable[[int, int], bytes]
KEPT_TILES = 64


def leaf_hash(entry: bytes) -> bytes:
    return hashlib.sha256(b"\0" + entry).digest()


def hashes_of_entries(entries: bytes) -> bytes:
    """The leaf hashes of entries of 32 bytes, one after the other as they are."""
    return b"".join(map(leaf_hash, parted(entries)))


def parted(hashes: bytes) -> list[bytes]:
    """Hashes, or entries, that lie one after the other."""
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


class Tree:
    """A tree of `size` leaves, read from its tiles."""

    def __init__(self, size: int, read_tile: ReadTile) -> None:
        self.size = size
        self._read_tile = read_tile
        # Of a tile, its nodes by height above its level: proofs of neighbours use the same.
        self._pyramids: OrderedDict[tuple[int, int], list[list[bytes]]] = OrderedDict()

    def root(self) -> bytes:
        return self.over(0, self.size)

    def over(self, begin: int, end: int) -> bytes:
        """The hash over the leaves from `begin`, a multiple of the least power of two that holds them, to `end`."""
        if begin == end:
            return EMPTY_ROOT
        parts = [self.node(height, index) for height, index in subtrees(begin, end)]
        result = parts.pop()
        while parts:
            result = node_hash(parts.pop(), result)
        return result

    def node(self, height: int, index: int) -> bytes:
        level, above = divmod(height, TILE_HEIGHT)
        tile, offset = divmod(index << above, TILE_WIDTH)
        return self._pyramid(level, tile)[above][offset >> above]

    def consistency(self, old: int) -> list[bytes]:
        """Proof that the tree of the first `old` leaves, at least one, is a beginning of this one: RFC 9162, 2.1.4."""
        begin, end, path = 0, self.size, []
        while old != end:
            middle = begin + split(end - begin)
            if old <= middle:
                path.append(self.over(middle, end))
                end = middle
            else:
                path.append(self.over(begin, middle))
                begin = middle
        # The old root itself is known to whoever asks.
        return [self.over(begin, end), *path[::-1]] if begin else path[::-1]

    def around(self, indices: Sequence[int]) -> Iterator[bytes]:
        """The nodes that, with the leaves of `indices` (ascending, each once), give the root: from left to right."""
        yield from self._around(0, self.size, indices, 0, len(indices))

    def _around(self, begin: int, end: int, indices: Sequence[int], first: int, last: int) -> Iterator[bytes]:
        if first == last:
            yield self.over(begin, end)
        elif end - begin > 1:
            middle = begin + split(end - begin)
            at = bisect_left(indices, middle, first, last)
            yield from self._around(begin, middle, indices, first, at)
            yield from self._around(middle, end, indices, at, last)

    def _pyramid(self, level: int, tile: int) -> list[list[bytes]]:
        key = (level, tile)
        if key in self._pyramids:
            self._pyramids.move_to_end(key)
            return self._pyramids[key]
        rows = self._pyramids[key] = rows_over(parted(self._read_tile(level, tile)))
        if len(self._pyramids) > KEPT_TILES:
            self._pyramids.popitem(last=False)
        return rows


def paired_up(hashes: Sequence[bytes]) -> list[bytes]:
    """The nodes above; one without a sibling has none yet."""
    return [node_hash(hashes[at], hashes[at + 1]) for at in range(0, len(hashes) - 1, 2)]


def rows_over(hashes: list[bytes]) -> list[list[bytes]]:
    """These, and the rows of nodes above them."""
    rows = [hashes]
    while len(rows[-1]) > 1:
        rows.append(paired_up(rows[-1]))
    return rows


def over_tile(hashes: bytes) -> bytes:
    """The node above a full tile."""
    return rows_over(parted(hashes))[-1][0]


def split(width: int) -> int:
    """The largest power of two below `width`."""
    return 1 << (width - 1).bit_length() - 1


def subtrees(begin: int, end: int) -> list[tuple[int, int]]:
    """The complete subtrees over the leaves from `begin` to `end`, as heights and indices, widest first."""
    found = []
    while begin < end:
        height = (end - begin).bit_length() - 1
        found.append((height, begin >> height))
        begin += 1 << height
    return found
