"""The Merkle tree: it gives what RFC 9162's definitions give, whatever the size."""

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.transparency.tree import EMPTY_ROOT, TILE_WIDTH, Tree, leaf_hash, node_hash, split

SIZES = st.integers(1, 1200)


def leaves(number: int) -> list[bytes]:
    return [leaf_hash(str(at).encode()) for at in range(number)]


def by_definition(hashes: Sequence[bytes]) -> bytes:
    """RFC 9162, 2.1.1."""
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256(b"").digest()
    middle = split(len(hashes))
    return node_hash(by_definition(hashes[:middle]), by_definition(hashes[middle:]))


def tree(number: int) -> Tree:
    levels = [leaves(number)]
    while len(levels[-1]) >= TILE_WIDTH:
        below = levels[-1]
        whole = range(0, len(below) // TILE_WIDTH * TILE_WIDTH, TILE_WIDTH)
        levels.append([by_definition(below[at : at + TILE_WIDTH]) for at in whole])
    return Tree(number, lambda level, n: b"".join(levels[level][n * TILE_WIDTH : (n + 1) * TILE_WIDTH]))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 255, 256, 257, 511, 512, 70_000])
def test_the_root_is_that_of_the_definition(size: int) -> None:
    assert tree(size).root() == by_definition(leaves(size))


def test_no_leaves_have_the_hash_of_nothing() -> None:
    assert tree(0).root() == EMPTY_ROOT


@given(size=SIZES, data=st.data())
def test_consistency_proves_the_old_root_and_the_new(size: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(1, size))
    path = tree(size).consistency(old)

    # RFC 9162, 2.1.4.2.
    if old == size:
        assert path == []
        return
    if old & (old - 1) == 0:
        path = [tree(old).root(), *path]
    fn, sn = old - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if fn & 1 or fn == sn:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            second = node_hash(second, sibling)
        fn, sn = fn >> 1, sn >> 1
    assert (first, second, sn) == (tree(old).root(), tree(size).root(), 0)


@given(size=SIZES, data=st.data())
def test_leaves_and_the_nodes_around_them_give_the_root(size: int, data: st.DataObject) -> None:
    indices = sorted(data.draw(st.sets(st.integers(0, size - 1), max_size=20)))
    known, around = dict(enumerate(leaves(size))), tree(size).around(indices)

    def root(begin: int, end: int) -> bytes:
        if not any(begin <= index < end for index in indices):
            return next(around)
        if end - begin == 1:
            return known[begin]
        middle = begin + split(end - begin)
        left = root(begin, middle)
        return node_hash(left, root(middle, end))

    assert root(0, size) == tree(size).root()
    assert next(around, None) is None
