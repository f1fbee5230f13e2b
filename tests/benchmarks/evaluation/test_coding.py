"""Histories of coding agents: the same each time, conversations, and what is needed stands in the newest results."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.suites import coding
from benchmarks.evaluation.suites.traces import is_conversation

pytestmark = pytest.mark.skipif(not coding.is_there(), reason=str(coding.NoPackage()))


def test_histories_are_conversations_and_the_same_each_time() -> None:
    made = list(coding.cases("coding_json", 4))
    assert made == list(coding.cases("coding_json", 4))
    assert all(is_conversation(case.context) for case in made)
    assert [case.is_held_out for case in made] == [True, False, True, False]


def test_the_edited_function_is_in_the_newest_view_and_the_failed_test_in_the_newest_run() -> None:
    for case in coding.cases("coding_json", 4):
        *lines, failed = case.needs
        run, view = case.documents[-3], case.documents[-1]
        assert lines
        assert all(view[0] <= start < end <= view[1] for need in lines for start, end in need.spans)
        assert all(run[0] <= start < end <= run[1] for start, end in failed.spans)
        assert all(need.spans for need in case.needs)
        assert failed.text.endswith("_corner_case")
