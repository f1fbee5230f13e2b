"""The probability that the evidence was kept: fitted on little, held to what it must be on anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.build import plain_compressor
from compression.calibration.boosting import Boosting, Trees, grow, sigmoid
from compression.calibration.calibration import BadCalibration, Calibrated, kept_shares
from compression.calibration.context import MOST_PLACES, Ranges, kind_of, places, read, scripts_of, units_with
from compression.calibration.fitting import (
    Curves,
    Rows,
    calibration_error,
    odds_of_kind,
    promises,
    promises_of_kind,
    rates,
)
from compression.calibration.signals import NAMES, OF_CHOICE, OF_TEXT, of_choice, of_text
from compression.pipeline.compression_model import CompressionRequest, CompressionResult
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings, ModelSpec
from compression.scorers.kinds import Blend
from compression.scorers.lexical import BM25Scorer
from compression.segmentation import segment
from compression.source.token_counter import FakeCounter
from compression.tuning.artefact import Fitted, NoBars, entry_of, write
from compression.tuning.observing import RATIOS, Observed, Question, observe

TOKENIZER = Path(__file__).parents[3] / "models/embedded/tokenizer"
TOWNS = ("Arden", "Borough", "Calder", "Dunmore", "Elstow", "Fenwick", "Garth", "Hexham", "Ilkley", "Jarrow")


def document(seed: int) -> tuple[str, str, str]:
    """A text of many towns, a question to it, and the sentence that answers."""
    rng = np.random.default_rng(seed)
    facts = [f"{town} has a bridge of {rng.integers(100, 999)} metres." for town in TOWNS]
    fillers = [f"{town} lies on a river and its market opens early." for town in TOWNS]
    parts = [
        f"{facts[at]} {fillers[at]} The weather in {TOWNS[at]} is mild." for at in rng.permutation(len(TOWNS))
    ]
    wanted = int(rng.integers(len(TOWNS)))
    # Every third question cannot be told by its words, so that some evidence is lost.
    query = f"How long is the bridge of {TOWNS[wanted]}?" if seed % 3 else "What is longest of all there?"
    return "\n\n".join(parts), query, facts[wanted]


def observed(seed: int, suite: str = "towns") -> Observed:
    text, query, fact = document(seed)
    question = Question(suite, f"q{seed}", query, text, lambda result: fact in result.output)
    return observe(question, BM25Scorer().score, FakeCounter(), CompressionSettings())


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return entry_of("towns", [observed(seed) for seed in range(40)], NoBars())


@pytest.fixture(scope="module")
def calibrated(fitted: Fitted) -> Calibrated:
    return Calibrated.of(fitted.entry, "0" * 64)


@pytest.fixture(scope="module")
def ask(calibrated: Calibrated) -> Callable[..., CompressionResult]:
    compressor = Compressor(
        BM25Scorer(), Pipeline(FakeCounter(), CompressionSettings(), calibration=calibrated)
    )

    def run(seed: int, ratio: float | None = None, keep: float | None = None) -> CompressionResult:
        text, query, _ = document(seed)
        return compressor.compress(CompressionRequest(query, text, ratio, keep=keep))

    return run


def test_what_was_fitted_tells_kept_evidence_from_lost(ask: Callable[..., CompressionResult]) -> None:
    kept, lost = [], []
    for seed in range(100, 140):
        for ratio in (0.05, 0.2, 0.6):
            result = ask(seed, ratio)
            (kept if document(seed)[2] in result.output else lost).append(
                result.receipt.evidence_kept_probability or 0.0
            )
    assert len(lost) > 10 and np.mean(kept) > np.mean(lost) + 0.4


def test_a_receipt_says_which_calibration_it_rests_on(ask: Callable[..., CompressionResult]) -> None:
    receipt = ask(1, 0.3).receipt
    assert receipt.calibration is not None
    assert (receipt.calibration.name, receipt.calibration.sha256) == ("towns", "0" * 64)
    assert receipt.keep is receipt.estimated_ratio is None


def test_an_output_that_probably_lost_its_evidence_is_flagged(ask: Callable[..., CompressionResult]) -> None:
    flags = {flag.code: flag.severity for flag in ask(3, 0.05).receipt.risk_flags}
    assert flags["evidence_at_risk"] in ("warning", "critical")
    assert "evidence_at_risk" not in {flag.code for flag in ask(1, 0.9).receipt.risk_flags}


def test_all_of_it_kept_is_certain_and_flags_nothing(ask: Callable[..., CompressionResult]) -> None:
    receipt = ask(1, 1.0).receipt
    assert (receipt.evidence_kept_probability, receipt.risk_flags) == (1.0, ())


def test_without_a_query_there_is_no_probability_and_a_flag_says_so(calibrated: Calibrated) -> None:
    compressor = Compressor(
        BM25Scorer(), Pipeline(FakeCounter(), CompressionSettings(), calibration=calibrated)
    )
    receipt = compressor.compress(CompressionRequest(" ?", document(1)[0], 0.3)).receipt
    assert receipt.evidence_kept_probability is None
    assert "outside_calibration" in {flag.code for flag in receipt.risk_flags}


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), order=st.randoms(use_true_random=False))
def test_the_more_of_a_text_is_kept_the_surer_it_is(calibrated: Calibrated, seed: int, order: object) -> None:
    text, query, _ = document(seed % 50)
    units = segment(text)
    scores = np.random.default_rng(seed).random(len(units.units)).tolist()
    context = read(query, units, scores, 300)
    known, kept = of_text(context), np.zeros(len(units.units))
    found = [calibrated.logit(context, known, kept, 0)]
    places = list(range(len(units.units)))
    order.shuffle(places)  # type: ignore[attr-defined]
    for count, unit in enumerate(places, 1):
        kept[unit] = 1.0
        found.append(calibrated.logit(context, known, kept, 10 * count))
    assert found == sorted(found)
    assert all(0 <= float(sigmoid(np.array([logit]))[0]) <= 1 for logit in found)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2**30)), min_size=1, max_size=30),
    st.integers(0, 2**30),
)
def test_every_signal_of_the_choice_rises_with_it(scored: list[tuple[float, int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = "\n\n".join(f"Fact {number} of Town{number % 5}. More {number}." for _, number in scored)
    units = segment(text)
    scores = rng.choice([score for score, _ in scored], len(units.units)).tolist()
    context = read("What of Town1 and fact?", units, scores, 100)
    kept, before = np.zeros(len(units.units)), None
    for count, unit in enumerate(rng.permutation(len(units.units)), 1):
        kept[unit] = 1.0
        row = of_choice(context, kept, count / len(units.units))
        assert np.isfinite(row).all() and row.shape == (len(OF_CHOICE),)
        assert before is None or (row >= before - 1e-9).all()
        before = row


def test_the_same_request_gets_the_same_probability(ask: Callable[..., CompressionResult]) -> None:
    one, other = ask(7, 0.2), ask(7, 0.2)
    assert one.receipt.evidence_kept_probability == other.receipt.evidence_kept_probability


def test_a_promise_is_kept_by_the_smallest_output_that_is_sure_enough(
    ask: Callable[..., CompressionResult],
) -> None:
    receipts = [ask(seed, keep=0.9).receipt for seed in range(200, 230)]
    outputs = [document(seed)[2] in ask(seed, keep=0.9).output for seed in range(200, 230)]
    assert np.mean(outputs) >= 0.8
    assert np.mean([receipt.compression_ratio for receipt in receipts]) < 0.9
    assert all(receipt.keep == 0.9 and receipt.target_ratio is None for receipt in receipts)
    assert all(receipt.compression_ratio <= (receipt.estimated_ratio or 0) + 1e-9 for receipt in receipts)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_asking_for_more_certainty_never_gets_a_smaller_ratio(
    ask: Callable[..., CompressionResult], seed: int
) -> None:
    ratios = [ask(seed, keep=keep).receipt.estimated_ratio or 0 for keep in (0.3, 0.5, 0.7, 0.9, 0.95, 0.99)]
    assert ratios == sorted(ratios)


def test_a_promise_without_a_query_keeps_everything(calibrated: Calibrated) -> None:
    compressor = Compressor(
        BM25Scorer(), Pipeline(FakeCounter(), CompressionSettings(), calibration=calibrated)
    )
    for query, source in (("", document(1)[0]), ("What is it?", " \n ")):
        result = compressor.compress(CompressionRequest(query, source, None, keep=0.9))
        assert result.output == source
    assert result.receipt.calibration is not None


def test_what_repeats_the_query_is_no_sign_that_its_answer_was_kept() -> None:
    query = "How long is the bridge of Arden in metres?"
    text = segment(f"Ann: {query}\nBob: Let me see.\nAnn: It is 250 long.\nBob: Thanks a lot.\n")
    context = read(query, text, [0.9] * len(text.units), 40)
    echo = [at for at in range(len(text.units)) if query in text.text(at)]
    assert echo and not context.content[echo].any() and context.content.sum() >= 3


def test_a_file_says_the_same_as_what_was_fitted(fitted: Fitted, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    write(path, {"lexical": fitted.entry})
    loaded = Calibrated.load("lexical", path)
    assert loaded is not None and len(loaded.about.sha256) == 64
    rows = fitted.rows.signals[:50]
    assert loaded.chance.logits(rows) == pytest.approx(
        Trees.of(fitted.entry["chance"], len(NAMES)).logits(rows)
    )
    assert loaded.chance.logit(rows[3]) == pytest.approx(float(loaded.chance.logits(rows)[3]))
    again = tmp_path / "again.json"
    write(again, {"lexical": fitted.entry})
    assert path.read_bytes() == again.read_bytes()


def test_a_file_that_is_none_is_refused_by_name(fitted: Fitted, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    for damage in (
        {"chance": {}},
        {"signals": ["other"]},
        {"promises": [[0.9, 2.0], [0.8, 3.0]]},
        {"at_odds": [1]},
        {"by_kind": {"code": {}}},
    ):
        write(path, {"lexical": {**fitted.entry, **damage}})
        with pytest.raises(BadCalibration, match=r"calibration\.json"):
            Calibrated.load("lexical", path)
    path.write_text("[]")
    with pytest.raises(BadCalibration, match=r"calibration\.json"):
        Calibrated.load("lexical", path)
    write(path, {"encoder": fitted.entry})
    with pytest.raises(BadCalibration, match="no calibration for kind lexical; it has encoder"):
        Calibrated.load("lexical", path)


def test_a_tree_that_points_outside_its_rows_is_refused(fitted: Fitted) -> None:
    trees = json.loads(json.dumps(fitted.entry["chance"]))
    trees["columns"][0][0] = len(NAMES)
    with pytest.raises(ValueError, match="column"):
        Trees.of(trees, len(NAMES))


def test_the_calibration_that_comes_with_pith_is_for_scores_of_its_own_blend() -> None:
    own = plain_compressor(ModelSpec("m", "lexical", str(TOKENIZER), "t"), FakeCounter())
    receipt = own.compress(CompressionRequest("Who met?", "The committee met in May. " * 9, 0.5)).receipt
    assert receipt.calibration is not None and receipt.calibration.name == "pith-lexical"
    from compression.pipeline.pipeline import calibration_of

    spec = ModelSpec("m", "encoder", str(TOKENIZER), "t", checkpoint="x", blend=Blend(0.1, 5.0))
    assert calibration_of(spec) is None


def test_boosted_trees_rise_where_they_must_and_are_the_same_each_time() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(800, 3))
    # It falls in truth where it must rise: no tree may follow.
    kept = (rng.random(800) < sigmoid(2 * rows[:, 0] - rows[:, 1])).astype(float)
    rises = np.array([True, True, False])
    trees = grow(rows, kept, np.ones(800), rises, Boosting(rounds=30))
    again = grow(rows, kept, np.ones(800), rises, Boosting(rounds=30))
    assert trees.as_json() == again.as_json()
    for column in (0, 1):
        probe = np.tile(rng.normal(size=3), (60, 1))
        probe[:, column] = np.linspace(-3, 3, 60)
        assert (np.diff(trees.logits(probe)) >= -1e-9).all()
    assert np.corrcoef(trees.logits(rows), 2 * rows[:, 0])[0, 1] > 0.8


def test_what_is_warned_of_is_counted_among_losses_and_among_the_rest() -> None:
    kept = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    assert rates(np.array([True, False, True, False, False, False]), kept) == (0.5, 0.25)


def test_an_output_less_probable_than_usual_warns(calibrated: Calibrated, fitted: Fitted) -> None:
    known = fitted.rows.signals[0, : len(OF_TEXT)]
    critical, warning, info = calibrated.at_risk(known, calibrated.standards)
    assert warning == pytest.approx(float(sigmoid(np.array([calibrated.usual.logit(known)]))[0]))
    assert 0 < critical < warning < info < 1


def test_the_error_of_a_calibration_is_how_far_it_is_off() -> None:
    kept = np.array([1.0, 1.0, 1.0, 0.0])
    assert calibration_error(np.full(4, 0.75), kept) == pytest.approx(0)
    assert calibration_error(np.full(4, 0.95), kept) == pytest.approx(0.2)


def test_a_promise_waits_until_enough_questions_kept_their_evidence() -> None:
    count = 200
    logits = np.tile(np.linspace(-2, 6, len(RATIOS)), count)
    # The evidence of a question is kept from some ratio on.
    needs = np.arange(count) % len(RATIOS)
    kept = (np.tile(np.arange(len(RATIOS)), (count, 1)) >= needs[:, None]).astype(float).ravel()
    curves = Curves.of(logits, rows_of_kept(kept), np.tile(RATIOS, count), len(RATIOS))
    found = promises(curves)
    assert [logit for _, logit in found] == sorted(logit for _, logit in found)
    assert all(curves.coverage(logit) >= keep for keep, logit in found)


def rows_of_kept(kept: np.ndarray, suites: tuple[str, ...] = ("s",)) -> Rows:
    """Outputs of questions, by turns of each of the suites."""
    names = np.repeat(np.resize(suites, len(kept) // len(RATIOS)), len(RATIOS))
    return Rows(np.zeros((len(kept), 1)), kept, names, np.full(len(kept), "g"), np.full(len(kept), "code"))


def test_a_promise_of_a_kind_waits_until_each_suite_of_it_is_covered() -> None:
    count, suites = 200, ("easy", "hard")
    logits = np.tile(np.linspace(-2, 6, len(RATIOS)), count)
    # All of the easy is kept from the first ratio on; of the hard one in six only from the ninth on.
    needs = np.array([8 if at % 2 and at % 12 == 1 else 0 for at in range(count)])
    kept = (np.tile(np.arange(len(RATIOS)), (count, 1)) >= needs[:, None]).astype(float).ravel()
    curves = Curves.of(logits, rows_of_kept(kept, suites), np.tile(RATIOS, count), len(RATIOS))
    pooled = dict(promises(curves))
    own = dict(promises_of_kind(curves, list(pooled.items())))
    assert curves.coverage(pooled[0.9]).min() < 0.87 <= curves.coverage(own[0.9]).min()
    assert all(own[keep] >= logit for keep, logit in pooled.items())


def test_a_kind_warns_where_that_tells_most_losses_and_few_of_the_rest() -> None:
    # Everything is a little less probable than usual, losses much less.
    kept = np.tile([1.0] * 12 + [0.0] * 2, 30)
    chance = np.where(kept > 0, -0.2, -1.0)
    odds = odds_of_kind(rows_of_kept(kept), (chance, np.zeros(len(kept))))
    warned = chance < np.log(odds)
    assert rates(warned, kept) == (1.0, 0.0)


def test_a_source_is_held_to_the_standards_of_its_kind(fitted: Fitted) -> None:
    strict = {"at_odds": [1, 2, 3], "promises": [[0.5, 30.0], [0.9, 31.0]]}
    text, query, _ = document(1)
    units = segment(text)
    kind = kind_of(units, read(query, units, [0.5] * len(units.units), 300))

    def output(by_kind: dict[str, object]) -> str:
        calibrated = Calibrated.of({**fitted.entry, "by_kind": by_kind}, "0" * 64)
        pipeline = Pipeline(FakeCounter(), CompressionSettings(), calibration=calibrated)
        request = CompressionRequest(query, text, None, keep=0.6)
        return Compressor(BM25Scorer(), pipeline).compress(request).output

    assert output({kind: strict}) == text
    assert len(output({"another": strict})) < len(text)


def test_what_lies_in_slices_is_measured_in_any_order_and_once() -> None:
    text = segment("One fact here. Two facts here. Three facts.")
    shares = kept_shares(text, [(15, 30), (0, 4), (0, 7)])
    assert shares.tolist() == pytest.approx([0.5, 1.0, 0.0])
    assert kept_shares(text, []).tolist() == [0.0, 0.0, 0.0]


def test_words_are_looked_for_in_a_text_of_any_length_a_few_times_only() -> None:
    assert len(places("ab" * 100_000, "ab")) == MOST_PLACES
    assert units_with("a b. a c. d", "a", np.array([0, 5, 10]), np.array([4, 9, 11])).tolist() == [0, 1]


def test_signals_are_finite_for_odd_texts() -> None:
    for source in ("x", "{}", "# Title", "a\n\n\n", "[1, 2]", "\u0f56\u0f7c"):
        text = segment(source)
        context = read("What?", text, [0.5] * len(text.units), 1)
        assert of_text(context).shape == (len(OF_TEXT),) and np.isfinite(of_text(context)).all()
        assert np.isfinite(of_choice(context, np.zeros(len(text.units)), 0.0)).all()


def test_kinds_and_scripts_of_inputs_are_told_apart() -> None:
    def kind(source: str) -> str:
        text = segment(source)
        return kind_of(text, read("q", text, [0.0] * len(text.units), 10))

    assert kind('{"a": 1, "b": 2}') == "json"
    assert kind("It rained. It was cold.") == "prose"
    assert kind("Document [1] (Title: A) It rained.\n\nDocument [2] (Title: B) It was cold.") == "documents"
    assert kind("Ann: hello there.\nBob: hello to you.\nAnn: it is late.\nBob: so it is.\n") == "turns"
    assert scripts_of("abc") == {"latin"} and scripts_of("Москва abc") == {"latin", "cyrillic"}


def test_what_is_not_like_the_calibration_is_named() -> None:
    ranges = Ranges(frozenset({"prose"}), frozenset({"latin"}), (100, 1000))
    text = segment("It rained. It was cold.")

    def missed(query: str, tokens: int) -> tuple[str, ...]:
        return ranges.missed(query, text, read(query, text, [0.1, 0.2], tokens))

    assert missed("rain", 100) == ()
    assert missed("rain", 10) == ("length",)
    assert missed("где дождь", 2000) == ("script", "length")
    assert missed("", 100) == ("query",)
