"""What is said again comes after what is said once, and noise after everything, whatever scored it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.choosing.diversity import diversify
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.salience import read_salience
from compression.segmentation import segment
from compression.source.token_counter import FakeCounter
from compression.source.units import Segmentation

RETRY = "INFO ipc.Client: Retrying connect to server: node-41:8030. Already tried {} time(s)"
ONCE = [
    "2015-10-18 18:01:47 INFO mapred.MapTask: Map output buffer is ready",
    "2015-10-18 18:30:00 ERROR rm.Allocator: Cannot contact the resource manager",
    "2015-10-18 18:31:00 WARN hdfs.LeaseRenewer: Failed to renew lease for 42 seconds",
    "2015-10-18 18:32:00 INFO mapred.Job: Job failed as its tasks did",
]
LOG = "\n".join([ONCE[0], *(f"2015-10-18 18:02:{n:02} {RETRY.format(n)}" for n in range(40)), *ONCE[1:]])


class Constant:
    """All units alike, as without a query."""

    def __init__(self, value: float) -> None:
        self._value = value

    def score(self, query: str, text: Segmentation) -> list[float]:
        return [self._value] * len(text.units)


class ByRetries:
    """Likes the repeated message best, as a scorer does whose query shares words with it."""

    def score(self, query: str, text: Segmentation) -> list[float]:
        return [0.9 if "Retrying" in text.text(unit) else 0.001 for unit in range(len(text.units))]


def diverse(source: str, scores: list[float]) -> list[float]:
    text = segment(source)
    return diversify(text, scores, read_salience(text))


@pytest.mark.parametrize("scorer", [Constant(0.0), Constant(1.0), Constant(0.3), ByRetries()])
def test_a_message_that_repeats_leaves_room_for_all_others(scorer: Constant | ByRetries) -> None:
    compressor = Compressor(scorer, Pipeline(FakeCounter(), CompressionSettings()))
    output = compressor.compress(CompressionRequest("What went wrong?", LOG, 0.2)).output
    assert [line for line in ONCE if line in output] == ONCE
    assert "Already tried 0 time(s)" in output
    assert "Already tried 39 time(s)" in output


def test_the_line_that_the_query_asks_for_stands_for_its_template() -> None:
    text = segment(LOG)
    scores = [0.9 if "tried 17 " in text.text(unit) else 0.1 for unit in range(len(text.units))]
    found = diversify(text, scores, read_salience(text))
    assert found.index(max(found)) == scores.index(0.9)
    retries = [unit for unit in range(len(text.units)) if "Retrying" in text.text(unit)]
    assert sum(found[unit] > 1e-9 for unit in retries) == 1


def test_noise_comes_after_all_that_says_something() -> None:
    source = "---\n\nThe fare is 12 euros.\n\n[tool_result]\n\nThe train leaves at nine.\n\n=====\n"
    text = segment(source)
    for score in (0.0, 0.5, 1.0):
        found = diversify(
            text, [1.0 if not n % 2 else score for n in range(len(text.units))], read_salience(text)
        )
        says = [any(word in text.text(unit) for word in ("fare", "train")) for unit in range(len(text.units))]
        worst = min(score for score, is_said in zip(found, says, strict=True) if is_said)
        assert all(score < worst / 1000 for score, is_said in zip(found, says, strict=True) if not is_said)


def test_a_text_that_comes_again_counts_where_it_stands_first() -> None:
    said = "We will refund the whole fare within five working days of your claim."
    text = segment(f"{said}\n\nOther things were said about the weather.\n\n{said}\n")
    found = diversify(text, [0.2, 0.1, 0.8], read_salience(text))
    assert found[0] == 0.8
    assert found[1] == 0.1
    assert found[2] < 1e-9


def test_short_answers_may_come_again() -> None:
    scores = [0.5, 0.4, 0.6, 0.4]
    assert diverse("Ann: Yes.\nBob: Did it rain?\nAnn: Yes.\nBob: When?\n", scores) == scores


def test_rows_and_members_that_look_alike_are_no_copies() -> None:
    rows = "| id | state |\n|---|---|\n" + "".join(f"| {n} | open |\n" for n in range(9))
    members = "[\n" + ",\n".join(f' {{"id": {n}, "state": "open"}}' for n in range(9)) + "\n]"
    for source in (rows, members):
        text = segment(source)
        scores = [0.1 + n / 100 for n in range(len(text.units))]
        assert diversify(text, scores, read_salience(text)) == scores


@given(st.randoms(use_true_random=False))
def test_prose_keeps_its_scores_bit_for_bit(chance: random.Random) -> None:
    text = segment(
        "The harbour was closed. Two ships waited.\n\n- tea\n- milk\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    scores = [chance.random() for _ in text.units]
    assert diversify(text, scores, read_salience(text)) == scores


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from([*LOG.splitlines(), "", "---", "A sentence of more than thirty letters, said twice."])
    ),
    st.sampled_from([0.0, 1e-9, 1e-6, 0.5, 1.0]),
)
def test_scores_stay_in_bounds_and_nothing_scores_more_than_all_alike(texts: list[str], score: float) -> None:
    text = segment("\n".join(texts))
    salience = read_salience(text)
    found = np.array(diversify(text, [score] * len(text.units), salience))
    assert ((found >= 0) & (found <= 1)).all()
    content = found[~salience.noise]
    assert not len(content) or content.min(initial=1) >= found[salience.noise].max(initial=0)
