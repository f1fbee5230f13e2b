"""Training: dresses and halves of the material, and the network in torch against the one in numpy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.evaluation.metrics import holds_answer
from benchmarks.training.corpus import half_of
from benchmarks.training.examples import Example, label
from benchmarks.training.rendering import DRESSES, SCRIPTS, Quiz, disguise, dressed, render
from benchmarks.training.validation import layout_of, select
from compression.features.network import Network

torch = pytest.importorskip("torch")
from benchmarks.training.distillation import Sentence, disagreement, principal, tune  # noqa: E402
from benchmarks.training.ranker import Batch, Ranker, loss_of, stack  # noqa: E402
from compression.features.meaning import PieceSplitter, normalised  # noqa: E402
from compression.segmentation import segment  # noqa: E402

QUIZ = Quiz(
    "nq",
    "nq-7",
    "where does the danube end",
    ("Black Sea",),
    (
        ("Rhine", "The Rhine ends in the North Sea. It is long."),
        ("Danube", "It ends in the Black Sea. It is longer."),
    ),
    1,
    False,
)


def example(seed: int, suite: str, units: int, features: int = 7) -> Example:
    rng = np.random.default_rng(seed)
    runs = np.sort(rng.integers(0, 4, units))
    runs = np.unique(runs, return_inverse=True)[1].astype(np.int32)
    wanted = rng.random(units) < 0.3
    tokens = rng.integers(1, 40, units).astype(np.float32)
    table = rng.normal(size=(units, features)).astype(np.float16)
    paragraphs = (np.arange(units) // 2).astype(np.int32)
    return Example(suite, f"{suite}-{seed}", False, table, wanted, wanted, tokens, runs, paragraphs)


@pytest.mark.parametrize("dress", DRESSES)
def test_the_gold_of_every_dress_holds_the_answer_and_the_label_finds_its_unit(dress: object) -> None:
    case = render(QUIZ, dress, "\n\n")  # type: ignore[arg-type]
    assert case.gold is not None
    assert holds_answer(case.context[slice(*case.gold)], case.answers)
    text = segment(case.context)
    wanted, holds = label(case, text)
    assert [holds_answer(text.text(unit), case.answers) for unit in np.flatnonzero(wanted)] == [True]
    assert (wanted <= holds).all()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_disguised_quiz_keeps_its_answer_and_loses_its_letters(script: str) -> None:
    case = dressed(disguise(QUIZ, script), random.Random(1))
    assert case.gold is not None
    assert holds_answer(case.context[slice(*case.gold)], case.answers)
    assert "Black" not in case.context


def test_questions_to_one_text_are_in_the_same_half() -> None:
    assert half_of("nq-7") == 1
    assert {half_of(f"xquad_{language}-13-{at}") for language in ("en", "zh") for at in range(5)} == {1}
    assert {half_of(f"qmsum_train-4-{at}") for at in range(9)} == {0}


def test_numpy_gives_what_torch_gives() -> None:
    examples = [example(1, "nq", 30), example(2, "qmsum_train", 90), example(3, "kv_75", 1)]
    torch.manual_seed(0)
    models = [Ranker(torch.randn(7), torch.rand(7) + 0.5, 0.1).eval() for _ in range(2)]
    models[1].mean, models[1].spread = models[0].mean, models[0].spread
    network = Network.of(stack([model.arrays() for model in models]))
    with torch.inference_mode():
        expected = sum(model(Batch.of(examples)) for model in models).numpy() / 2
    found = [network.logits(e.features.astype(np.float32), layout=layout_of(e)) for e in examples]
    assert np.allclose(np.concatenate(found), expected, atol=1e-4)


def test_the_loss_falls_where_wanted_units_rise_and_is_finite_without_any() -> None:
    examples = [example(1, "nq", 30), example(2, "qmsum_train", 40), example(3, "nq_none", 5)]
    examples[2].wanted[:] = False
    batch = Batch.of(examples)
    flat = torch.zeros(len(batch.tokens))
    assert torch.isfinite(loss_of(flat, batch, 0.05))
    assert loss_of(flat + 3 * batch.wanted, batch, 0.05) < loss_of(flat, batch, 0.05)


def test_selection_takes_the_best_that_fit() -> None:
    kept = select(np.array([3.0, 2.0, 1.0, 0.5]), np.array([50.0, 60.0, 10.0, 40.0]), 0.625)
    assert kept.tolist() == [True, False, True, True]


def test_tuning_brings_cosines_nearer_to_the_teachers() -> None:
    rng = np.random.default_rng(0)
    vocabulary = [f"word{number}" for number in range(60)]
    splitter = PieceSplitter({word: number for number, word in enumerate(vocabulary)})
    texts = [" ".join(rng.choice(vocabulary, 6)) for _ in range(200)]
    sentences = [Sentence.of(text, splitter) for text in texts]
    meanings = rng.normal(size=(60, 24)).astype(np.float32)
    wanted = normalised(np.stack([meanings[sentence.pieces].sum(axis=0) for sentence in sentences]))
    start = principal(rng.normal(size=(60, 24)).astype(np.float32), 16)
    weights = np.ones(60, np.float32)

    def far(vectors: np.ndarray, weights: np.ndarray) -> float:
        sums = np.stack([(vectors[s.pieces] * weights[s.pieces, None]).sum(axis=0) for s in sentences])
        found = torch.from_numpy(normalised(sums))
        teacher = torch.from_numpy(wanted)
        return float(disagreement(found @ found.T, teacher @ teacher.T))

    tuned = tune(start, weights, sentences, wanted, seed=0, steps=60, rate=0.02)
    assert far(*tuned) < 0.7 * far(start, weights)
