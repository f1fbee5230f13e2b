"""The logs suite: alike every time, whole lines, and nothing shared between what is trained on and what is held out."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.suites.logs import log_cases
from benchmarks.evaluation.suites.logs.held_out_formats import HELD_OUT
from benchmarks.evaluation.suites.logs.trained_formats import TRAINED


@pytest.mark.parametrize("held_out", [False, True])
def test_cases_are_alike_every_time_and_other_with_another_seed(held_out: bool) -> None:
    first, again = (list(log_cases("a", 10, held_out=held_out)) for _ in range(2))
    assert first == again
    assert {case.context for case in first}.isdisjoint(
        case.context for case in log_cases("b", 10, held_out=held_out)
    )


@pytest.mark.parametrize("held_out", [False, True])
def test_every_kind_asked_for_has_whole_lines_of_the_log(held_out: bool) -> None:
    for case in log_cases("c", 16, held_out=held_out):
        lines = case.context.split("\n")
        assert 250 <= len(lines) <= 500
        assert case.needs
        for need in case.needs:
            assert need.spans
            assert all(case.context[start:end] in lines for start, end in need.spans)
        assert case.is_held_out == held_out


def test_what_is_asked_for_is_a_small_part_and_fits_the_least_size() -> None:
    for case in log_cases("d", 32, held_out=False):
        shortest = sum(min(end - start for start, end in need.spans) for need in case.needs)
        assert shortest < 0.05 * len(case.context)


def test_formats_held_out_share_no_message_with_those_of_training() -> None:
    trained = {message.text for chosen in TRAINED for message in chosen.messages}
    assert trained.isdisjoint(message.text for chosen in HELD_OUT for message in chosen.messages)


def test_every_format_writes_all_of_its_messages() -> None:
    said = {need.text for case in log_cases("e", 200, held_out=True) for need in case.needs}
    grave = {message.text for chosen in HELD_OUT for message in chosen.messages if message.is_grave}
    assert len(said) > 0.8 * len(grave)
