"""What the default mode keeps: whole words of the source, within budget, with nothing cut that must not be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.sample_checkpoints import TEXTS, Architecture
from compression.neural.batching import CheckpointRefused, Window, Windows
from compression.neural.networks import Placement, TokenClassifierNetwork
from compression.neural.token_classifier import TokenClassifier

ARCHITECTURES: tuple[Architecture, ...] = ("bert", "xlm-roberta", "modernbert")
PROSE = " ".join(TEXTS[at] for at in (0, 1, 5))


@pytest.fixture(scope="module")
def classifiers(checkpoints: dict[Architecture, Path]) -> dict[Architecture, TokenClassifier]:
    return {kind: TokenClassifier.load(str(folder), Placement()) for kind, folder in checkpoints.items()}


def kept_text(classifier: TokenClassifier, text: str, share: float, query: str = "") -> str:
    budget = int(len(classifier.tokenizer.tokens(text)) * share)
    return "".join(text[s:e] for s, e in classifier.keep_words(query, text, [(0, len(text))], [budget]))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_what_is_kept_are_whole_words_in_order(
    architecture: Architecture, share: float, classifiers: dict[Architecture, TokenClassifier]
) -> None:
    rest = iter(PROSE.rstrip(".").split())
    kept = kept_text(classifiers[architecture], PROSE, share).rstrip(".").split()
    assert kept and all(word in rest for word in kept)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_less_budget_keeps_less(
    architecture: Architecture, classifiers: dict[Architecture, TokenClassifier]
) -> None:
    sizes = [len(kept_text(classifiers[architecture], PROSE, share)) for share in (0.3, 0.6, 0.9)]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_room_for_all_is_the_identity_and_no_room_is_nothing(
    architecture: Architecture, classifiers: dict[Architecture, TokenClassifier]
) -> None:
    classifier = classifiers[architecture]
    for text in TEXTS:
        assert classifier.keep_words("", text, [(0, len(text))], [10**6]) == [(0, len(text))]
        assert classifier.keep_words("", text, [(0, len(text))], [0]) == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_numbers_addresses_code_and_quotations_survive_inside_what_is_kept(
    architecture: Architecture, classifiers: dict[Architecture, TokenClassifier]
) -> None:
    text = (
        "The plan costs $3.5 million by 12 March 2024 as the long detailed report at https://example.org/a?b=1 "
        'says, "we need it all" was what they told us when `run(x)` failed on that rather cold and rainy day.'
    )
    kept = kept_text(classifiers[architecture], text, 0.3)
    for part in (
        "$3.5 million",
        "12 March 2024",
        "https://example.org/a?b=1",
        '"we need it all"',
        "`run(x)`",
    ):
        assert part in kept
    assert len(kept) < len(text)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_a_negation_stays_or_goes_with_what_it_negates(
    architecture: Architecture, share: float, classifiers: dict[Architecture, TokenClassifier]
) -> None:
    text = "The chair said after a long debate that the whole committee was not ready yet for such a vote this week."
    kept = kept_text(classifiers[architecture], text, share)
    assert ("was not ready yet" in kept) == ("not" in kept.split()) == ("ready" in kept.split())


def test_words_of_the_query_are_kept_first(classifiers: dict[Architecture, TokenClassifier]) -> None:
    text = "The committee met for hours and spoke of many things while the budget waited and nothing much was done."
    for word in ("committee", "budget", "things"):
        assert word in kept_text(classifiers["bert"], text, 0.3, query=f"What of the {word}?")


def test_only_the_given_spans_are_touched_each_within_its_budget(
    classifiers: dict[Architecture, TokenClassifier],
) -> None:
    classifier, text = classifiers["xlm-roberta"], TEXTS[1] + "\n\n" + TEXTS[5]
    spans = [(0, len(TEXTS[1])), (len(TEXTS[1]) + 2, len(text))]
    kept = classifier.keep_words("", text, spans, [10**6, 12])
    assert kept[0] == spans[0]
    assert all(spans[1][0] <= start < end <= spans[1][1] for start, end in kept[1:])
    assert len(kept) > 1


def test_a_counter_of_the_receipt_sets_the_costs(checkpoints: dict[Architecture, Path]) -> None:
    classifier = TokenClassifier.load(
        str(checkpoints["bert"]), Placement(), count=lambda texts: [len(text.split()) for text in texts]
    )
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    found = classifier.keep_words("", text, [(0, len(text))], [5])
    assert sum(len(text[s:e].split()) for s, e in found) == 5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_token_goes_unseen_in_a_text_of_many_windows(
    architecture: Architecture, checkpoints: dict[Architecture, Path]
) -> None:
    options = Windows(64, overlap=16)
    classifier = TokenClassifier.load(str(checkpoints[architecture]), Placement(), windows=options)
    text = "word" * 400 + " " + PROSE * 3
    job = classifier.tokens_job([(0, len(text))], [classifier.tokenizer.tokens(text)])
    assert all(len(window) <= 64 for window in job.windows)
    scored = job.finish(classifier.network.run(job.windows))
    assert len(scored.kept) == len(classifier.tokenizer.tokens(text))
    assert (scored.kept > 0).all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_beside_longer_windows_changes_nothing(
    architecture: Architecture, checkpoints: dict[Architecture, Path]
) -> None:
    network = TokenClassifierNetwork.load(checkpoints[architecture], Placement(), pad_id=0)
    short, long = Window(tuple(range(5, 25))), Window(tuple(range(5, 105)))
    alone, beside = network.run([short])[0], network.run([long, short])[1]
    np.testing.assert_allclose(alone, beside, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_bf16_on_the_cpu_is_near_fp32(
    architecture: Architecture, checkpoints: dict[Architecture, Path]
) -> None:
    batch = [Window(tuple(range(5, 105))), Window(tuple(range(50, 90)))]
    exact = TokenClassifierNetwork.load(checkpoints[architecture], Placement(), 0).run(batch)
    rough = TokenClassifierNetwork.load(checkpoints[architecture], Placement(dtype="bfloat16"), 0).run(batch)
    for left, right in zip(exact, rough, strict=True):
        np.testing.assert_allclose(left, right, atol=0.05)
        assert not np.array_equal(left, right)


@settings(max_examples=60)
@given(text=st.text(max_size=120), budget=st.integers(0, 40))
@example(text="𠀀𠀀", budget=1)
def test_any_text_gives_slices_in_order(
    classifiers: dict[Architecture, TokenClassifier], text: str, budget: int
) -> None:
    for classifier in classifiers.values():
        found = classifier.keep_words("", text, [(0, len(text))], [budget])
        assert all(0 <= start < end <= len(text) for start, end in found) or not text
        assert all(left[1] <= right[0] for left, right in pairwise(found))


def test_spans_that_overlap_are_refused(classifiers: dict[Architecture, TokenClassifier]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        classifiers["bert"].keep_words("", PROSE, [(0, 20), (10, 30)], [5, 5])


def test_a_window_longer_than_the_positions_is_refused(checkpoints: dict[Architecture, Path]) -> None:
    with pytest.raises(CheckpointRefused, match="window: 600"):
        TokenClassifier.load(str(checkpoints["bert"]), Placement(), windows=Windows(600))
