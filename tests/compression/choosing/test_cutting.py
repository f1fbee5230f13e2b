"""Units kept in part stay slices of the source, apart, within the budget, and whole where cutting harms."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.choosing.budget import Choice, CutAssembler, apart, may_be_cut, parts_of, plan_cuts, thin_out
from compression.choosing.selection import SelectionSettings
from compression.segmentation import SegmentationSettings, segment
from compression.source.token_counter import FakeCounter
from compression.source.units import Segmentation, Slice, join

COUNTER = FakeCounter()
PROSE = "The old harbour froze early that year. Nobody in the town had seen such ice before."


def cut_up(source: str) -> Segmentation:
    return segment(source, SegmentationSettings())


def cuttable(source: str) -> set[str]:
    text = cut_up(source)
    return {text.text(unit) for unit, free in enumerate(may_be_cut(text)) if free}


def test_prose_may_be_cut() -> None:
    assert cuttable(PROSE) == {
        "The old harbour froze early that year.",
        "Nobody in the town had seen such ice before.",
    }


@pytest.mark.parametrize(
    "source",
    [
        '{"note": "The old harbour froze early that year.", "more": "Nobody had seen such ice before."}',
        "```python\ndef add(left, right):\n    return left + right\n```",
        "| name | value |\n|---|---|\n| harbour | frozen all year |\n| town | asleep |",
        "# The old harbour\n\n",
        "2026-01-02 10:00:00 ERROR the harbour froze\n2026-01-02 10:00:01 INFO the harbour thawed\n",
    ],
    ids=["json", "code", "table", "heading", "log"],
)
def test_what_is_not_prose_is_never_cut(source: str) -> None:
    assert cuttable(source) == set()


def test_a_long_text_in_json_is_not_cut_either() -> None:
    source = '{"text": "' + PROSE * 20 + '"}'
    assert cuttable(source) == set()


def test_the_better_a_unit_scores_the_more_of_it_stays() -> None:
    text = cut_up(PROSE)
    cuts = plan_cuts(text, [0.9, 0.6], [10, 10], 12)
    assert cuts[0] > cuts[1] > 0 and sum(cuts.values()) <= 12
    alike = plan_cuts(text, [1.0, 1.0], [8, 10], 9)
    assert sum(alike.values()) <= 9 and len(alike) == 2


def test_what_would_keep_only_shreds_is_left_whole_or_out() -> None:
    assert plan_cuts(cut_up(PROSE), [0.9, 0.1], [8, 10], 9) == {}


@pytest.mark.parametrize(
    ("source", "slices", "expected"),
    [
        ("one two three", [(0, 3), (8, 13)], "one three"),
        ("one two-three", [(0, 3), (8, 13)], "one three"),
        ("one, three", [(0, 4), (4, 10)], "one, three"),
        ("中文词语很多", [(0, 2), (4, 6)], "中文很多"),
        ("(a) b", [(1, 2), (2, 3), (4, 5)], "a)b"),
    ],
)
def test_words_do_not_run_together(source: str, slices: list[tuple[int, int]], expected: str) -> None:
    assert join(source, apart(source, [Slice(*found) for found in slices])) == expected


words = st.lists(
    st.sampled_from(["ice", "harbour", "1999", "中文", "(so)", "a-b", "…"]), min_size=1, max_size=9
)
sentences = st.lists(words.map(lambda found: " ".join(found).capitalize() + "."), min_size=1, max_size=12)


@given(sentences, st.data(), st.booleans())
def test_parts_are_chosen_within_the_budget_and_are_slices(
    found: list[str], data: st.DataObject, preserve_order: bool
) -> None:
    source = " ".join(found)
    text = cut_up(source)
    scores = [data.draw(st.floats(0, 1)) for _ in text.units]
    parts = {}
    for at, unit in enumerate(text.units):
        if data.draw(st.booleans()):
            middle = data.draw(st.integers(unit.start, unit.end - 1))
            parts[at] = [Slice(middle, unit.end)]
    budget = data.draw(st.integers(0, COUNTER.count(source)))
    slices = Choice(text, scores, preserve_order).slices(
        CutAssembler(text, parts), budget, COUNTER, SelectionSettings()
    )
    assert COUNTER.count(join(source, slices)) <= budget
    assert all(0 <= start < end <= len(source) for start, end in slices)
    if preserve_order:
        assert all(left.end < right.start for left, right in pairwise(slices))


@given(sentences, st.data())
def test_spans_that_do_not_fit_go_with_the_worst_units_first(found: list[str], data: st.DataObject) -> None:
    source = " ".join(found)
    text = cut_up(source)
    scores = [data.draw(st.floats(0, 1)) for _ in text.units]
    spans = [Slice(unit.start, max(unit.start + 1, unit.end - 1)) for unit in text.units]
    budget = data.draw(st.integers(0, COUNTER.count(source) + 5))
    slices = thin_out(Choice(text, scores), spans, budget, COUNTER)
    assert COUNTER.count(join(source, slices)) <= budget
    kept = {at for at, span in enumerate(spans) if any(s.start <= span.start < s.end for s in slices)}
    dropped = set(range(len(spans))) - kept
    assert not kept or not dropped or min(scores[at] for at in kept) >= max(scores[at] for at in dropped)


def test_spans_go_to_the_units_they_lie_in() -> None:
    text = cut_up(PROSE)
    second = text.units[1]
    spans = [(0, 3), (4, 7), (second.start + 2, second.end)]
    assert {unit: len(found) for unit, found in parts_of(text, spans).items()} == {0: 2, 1: 1}
