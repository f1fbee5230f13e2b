"""Texts that were compressed together come apart where they were joined."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from compression.source.units import Slice
from serve.prompt_compression.blocks import JOINT, cut
from tests.work import growth

TEXTS = ["One two three.", "Four five.", "Six."]
WHOLE = JOINT.join(TEXTS)


def slices(*words: str) -> list[Slice]:
    return [Slice(WHOLE.index(word), WHOLE.index(word) + len(word)) for word in words]


def test_each_text_gets_what_was_kept_of_it() -> None:
    assert cut(TEXTS, slices("One ", "three.", "Six."), mark_gaps=False) == ("One three.", "", "Six.")


def test_a_gap_inside_a_text_is_marked_and_one_between_texts_is_not() -> None:
    assert cut(TEXTS, slices("One ", "three.", "Six."), mark_gaps=True) == ("One […] three.", "", "Six.")


def test_a_slice_over_a_joint_belongs_to_both_texts() -> None:
    assert cut(TEXTS, [Slice(0, len(WHOLE))], mark_gaps=True) == tuple(TEXTS)


@given(st.lists(st.text(alphabet="ab \n", max_size=6), min_size=1, max_size=5), st.data())
def test_nothing_is_lost_and_nothing_is_added(texts: list[str], data: st.DataObject) -> None:
    whole = JOINT.join(texts)
    ends = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=6)))
    kept = [Slice(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False)]
    outputs = cut(texts, kept, mark_gaps=False)
    joints = "".join(JOINT[: min(b, at + 2) - max(a, at)] for a, b, at in _over_joints(texts, kept))
    assert sum(map(len, outputs)) == sum(piece.end - piece.start for piece in kept) - len(joints)
    assert cut(texts, [Slice(0, len(whole))], mark_gaps=True) == tuple(texts)


def _over_joints(texts: list[str], kept: list[Slice]) -> list[tuple[int, int, int]]:
    found, at = [], 0
    for text in texts[:-1]:
        at += len(text)
        found += [(piece.start, piece.end, at) for piece in kept if piece.start < at + 2 and piece.end > at]
        at += len(JOINT)
    return found


def test_many_slices_of_many_texts_are_cut_in_one_pass() -> None:
    def cutting(size: int) -> Callable[[], object]:
        kept = [Slice(at, at + 1) for at in range(0, 4 * size, 2)]
        return lambda: cut(["ab"] * size, kept, mark_gaps=True)

    assert growth(cutting, 300) < 1.2


def test_each_of_many_gaps_in_one_text_is_marked() -> None:
    text = "kept left " * 20_000
    kept = [Slice(at, at + 5) for at in range(0, len(text), 10)]
    (output,) = cut([text], kept, mark_gaps=True)
    assert output.startswith("kept […] kept […] ") and output.count("kept") == 20_000
