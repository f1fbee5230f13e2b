"""What the fuzzer has found stays found: every input of the corpora before its target, in a second or two each."""

from __future__ import annotations

import pytest

from tests.fuzzing.targets import CORPUS, TARGETS, read_corpus

MOST_BYTES = 200_000


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus_is_judged_to_be_fine(name: str) -> None:
    inputs = read_corpus(name)
    assert inputs
    with TARGETS[name].opened() as judge:
        for data in inputs:
            judge(data)


def test_the_corpora_are_small_and_each_has_a_target() -> None:
    files = list(CORPUS.iterdir())
    assert {file.stem for file in files} == set(TARGETS)
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES
