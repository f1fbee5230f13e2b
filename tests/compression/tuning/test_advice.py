"""From observations to advice: curves with intervals, a ratio, a promise, thresholds, a plot."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from compression.calibration.fitting import Rows
from compression.calibration.signals import NAMES
from compression.tuning.advice import (
    FEWEST_QUESTIONS,
    Advice,
    Thresholds,
    advise,
    chart,
    curve,
    interval,
    recommended,
    takeaway,
    thresholds_of,
)
from compression.tuning.artefact import Fitted, NoBars
from compression.tuning.observing import RATIOS, Observed


def observed(number: int, needs: int) -> Observed:
    """A question whose evidence is kept from the ratio of that index on; one of its signals says so, roughly."""
    rng = np.random.default_rng(number)
    signals = np.zeros((len(RATIOS), len(NAMES)), np.float32)
    signals[:, NAMES.index("ratio")] = np.log(RATIOS)
    signals[:, NAMES.index("best")] = needs + rng.normal() * 0.5
    kept = np.arange(len(RATIOS)) >= needs
    return Observed("data", f"g{number}", "prose", frozenset({"latin"}), 500, signals, np.array(RATIOS), kept)


FOUND = [observed(number, number % 8) for number in range(96)]


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advise("m", "lexical", FOUND, 0.9, NoBars())


def test_a_curve_is_the_share_kept_at_each_ratio_within_its_interval() -> None:
    points = curve(FOUND)
    assert [point.target_ratio for point in points] == list(RATIOS)
    assert [round(point.kept, 3) for point in points][:8] == [
        0.125,
        0.25,
        0.375,
        0.5,
        0.625,
        0.75,
        0.875,
        1.0,
    ]
    assert all(point.low <= point.kept <= point.high for point in points)
    assert points == curve(FOUND)


def test_an_interval_narrows_with_more_questions() -> None:
    few, many = (interval(np.array([[0.0], [1.0]] * count)) for count in (10, 1000))
    assert few[1, 0] - few[0, 0] > 5 * (many[1, 0] - many[0, 0])


def test_the_ratio_recommended_is_the_smallest_from_which_on_enough_is_kept() -> None:
    points = curve(FOUND)
    found = recommended(points, 0.85)
    assert found is not None and found.target_ratio == RATIOS[6]
    assert recommended([point for point in points if point.kept < 1], 0.99) is None


def test_a_promise_needs_less_than_the_fixed_ratio_that_keeps_as_much(advice: Advice) -> None:
    assert advice.promise is not None and advice.ratio is not None
    assert advice.promise.covered >= 0.85
    assert advice.promise.ratio < advice.ratio.ratio


def test_thresholds_catch_most_losses_and_spare_most_of_the_rest(advice: Advice) -> None:
    thresholds = advice.thresholds
    assert thresholds is not None
    assert thresholds.critical < thresholds.warning < thresholds.info
    assert thresholds.losses_warned >= 0.7 and thresholds.kept_warned <= 0.15


def test_of_equally_good_thresholds_the_one_next_to_even_odds_is_taken() -> None:
    """All losses are told apart from the rest, so that any threshold from 0.08 on would do as well."""
    chances = np.array([0.07] * 60 + [0.95] * 60)
    rows = Rows(
        np.zeros((120, 1)), np.array([0.0] * 60 + [1.0] * 60), *(np.array([""] * 120) for _ in range(3))
    )
    logits = np.log(chances / (1 - chances))
    found = thresholds_of(Fitted({}, rows, chances, (logits, logits), None))
    assert found.warning == 0.5 and found.cautions(60) == []
    assert found.critical <= 0.75 * found.warning
    assert found.cautions(12) == ["they rest on 12 losses"]


def test_thresholds_that_leave_likely_losses_unmarked_or_miss_their_aim_call_for_caution() -> None:
    low = Thresholds(0.07, 0.08, 0.39, 0.9, 0.1)
    assert "0.08 to 0.5 gets no warning" in low.cautions(100)[0] and len(low.cautions(100)) == 1
    assert (
        "miss the aim: 70% of the losses, 15% of the others"
        in Thresholds(0.3, 0.6, 0.7, 0.4, 0.1).cautions(100)[0]
    )


@pytest.mark.parametrize("found", [FOUND[: FEWEST_QUESTIONS - 1], [observed(n, 0) for n in range(80)]])
def test_too_few_questions_or_losses_give_curves_alone_and_say_why(found: list[Observed]) -> None:
    advice = advise("m", "lexical", found, 0.9, NoBars())
    assert advice.entry is advice.promise is advice.thresholds is None
    assert "a calibration needs" in advice.why_not and len(advice.points) == len(RATIOS)


@pytest.mark.long
def test_questions_to_one_text_can_be_tuned_on_too() -> None:
    from dataclasses import replace

    advice = advise("m", "lexical", [replace(one, group="one") for one in FOUND[:64]], 0.9, NoBars())
    assert advice.entry is not None


SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str | None]:
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_chart_is_an_svg_with_a_line_a_model_and_names_that_do_no_harm() -> None:
    drawn = chart({"a<b>&": curve(FOUND), "other": curve(FOUND)}, "kept & lost")
    root = ElementTree.fromstring(drawn)
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "a<b>&" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_chart_has_a_tick_at_each_ratio_that_was_measured_and_a_title_that_says_what_it_shows() -> None:
    drawn = chart({"lexical": curve(FOUND)}, takeaway({"lexical": curve(FOUND)}, 0.9))
    best = recommended(curve(FOUND), 0.9)
    assert best is not None
    said = f"lexical keeps the evidence of {100 * best.kept:.1f}% of questions at ratio {best.target_ratio:g}"
    assert texts(drawn) == [said, "0%", "25%", "50%", "75%", "100%", *(f"{ratio:g}" for ratio in RATIOS),
                            "target ratio; questions that kept their evidence, with 95% intervals"]  # fmt: skip


def test_a_chart_names_each_of_several_models_once() -> None:
    names = [f"a model with a long name, number {number}" for number in range(9)]
    found = texts(chart({name: curve(FOUND) for name in names}, "title"))
    assert [text for text in found if text in names] == names


def test_a_model_that_never_keeps_enough_is_said_to_keep_what_it_keeps_at_most() -> None:
    most = max(curve(FOUND), key=lambda point: point.kept)
    assert takeaway({"m": curve(FOUND)}, 1.5) == (
        f"m keeps the evidence of {100 * most.kept:.1f}% of questions at ratio {most.target_ratio:g}"
    )
