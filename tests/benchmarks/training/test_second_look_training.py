"""Training of the second look: its material, its loss, and that no row is scored by a network that learned from it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.evaluation.metrics import holds_answer
from benchmarks.training.rendering import SCRIPTS, Quiz, cover_of
from benchmarks.training.second_look.dialogues import dialogue, paper
from benchmarks.training.second_look.exchanges import chat, ticket
from benchmarks.training.second_look.updates import cases as updates

torch = pytest.importorskip("torch")
from benchmarks.training.second_look.rounds import FOLDS, Batch, crossed, log_sums, loss_of, train  # noqa: E402
from benchmarks.training.second_look.samples import Sample  # noqa: E402
from compression.features.layout import Group, Layout  # noqa: E402
from compression.features.matching import Counts, Query  # noqa: E402
from compression.second_look.links import Names  # noqa: E402
from compression.second_look.rounds import Inputs  # noqa: E402

PASSAGES = tuple(
    (title, f"{title} lies on the {river}. It was founded in {year}. Its mayor is {mayor}.")
    for title, river, year, mayor in (
        ("Arnsby", "Leck", 1204, "Ida Moor"),
        ("Bolverk", "Sund", 1377, "Jon Fels"),
        ("Calder", "Mire", 1502, "Ana Reyes"),
        ("Dornach", "Birs", 1611, "Leo Stark"),
        ("Eskil", "Gota", 1718, "Mia Lund"),
    )
)
QUIZ = Quiz("nq", "nq-3", "who is the mayor of calder", ("Ana Reyes",), PASSAGES, 2, False)


@pytest.mark.parametrize("make", [dialogue, paper])
@pytest.mark.parametrize("number", range(8))
def test_the_gold_of_a_talk_or_paper_holds_the_answer(make: object, number: int) -> None:
    quiz = Quiz("nq", f"nq-{number}", QUIZ.question, QUIZ.answers, PASSAGES, 2, False)
    case = make(quiz)  # type: ignore[operator]
    assert case.gold is not None
    assert holds_answer(case.context[slice(*case.gold)], case.answers)
    assert all(text.split(". ")[1] in case.context for _, text in PASSAGES)


@pytest.mark.parametrize("make", [chat, ticket])
@pytest.mark.parametrize("number", range(8))
def test_what_a_chat_or_ticket_needs_holds_the_answer(make: object, number: int) -> None:
    case = make(Quiz("nq", f"nq-{number}", QUIZ.question, QUIZ.answers, PASSAGES, 2, False))  # type: ignore[operator]
    (need,) = case.needs
    assert need.spans
    assert all(holds_answer(case.context[start:end], case.answers) for start, end in need.spans)


def test_a_talk_has_two_speakers_and_dated_sessions() -> None:
    lines = [line for line in dialogue(QUIZ).context.split("\n") if line]
    speakers = {line.split(":")[0] for line in lines if ": " in line and "(" not in line.split(":")[0]}
    assert len(speakers) >= 2
    assert any(character.isdigit() for character in lines[0])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_cover_is_the_same_every_time_and_leaves_no_latin_letter(script: str) -> None:
    cover = cover_of(script)
    assert cover("Ana Reyes") == cover("Ana Reyes")
    assert not any("a" <= character <= "z" for character in cover("ana reyes"))


def test_the_wanted_line_of_a_ticket_is_the_newest_of_its_thing() -> None:
    asked = [case for case in updates() if case.needs]
    assert len(asked) > 100
    for case in asked[:50]:
        (need,) = case.needs
        ((start, end),) = need.spans
        assert case.context[start:end] == need.text
        thing = case.context.split("Subject: ")[1].split(" and other")[0].capitalize()
        assert f"{thing} " in need.text
        assert f"\n{thing} " not in case.context[end:]


def sample(number: int, *, units: int = 12, groups: int = 2) -> Sample:
    rng = np.random.default_rng(number)
    runs = Group.by(np.arange(units) // 4)
    layout = Layout(runs, runs, np.arange(units), np.zeros(units, bool), np.zeros(units, bool))
    empty = np.zeros(0, np.int64)
    nothing = np.zeros(0, np.float32)
    names = Names(empty, empty, nothing, np.zeros(units + 1, np.int64), nothing)
    ones = np.ones((units, 1), np.float32)
    seen = Inputs(
        Query.of(""),
        layout,
        names,
        Counts(ones, ones[:, 0], layout),
        nothing,
        (),
        (),
        empty,
        empty > 0,
    )
    wanted = [np.array([2 * group, 2 * group + 1]) for group in range(groups)]
    features = rng.normal(size=(units, 6)).astype(np.float16)
    for group in wanted:
        features[group, 0] += 3
    numbers = (np.arange(units) // 4).astype(np.int32)
    return Sample(
        "hotpot", f"hotpot-{number}-0", seen, features, 6, np.zeros(units, np.float32), wanted,
        rng.integers(1, 40, units).astype(np.float32), numbers, numbers,
    )  # fmt: skip


def test_evidence_competes_with_what_nobody_wants_and_not_with_other_evidence() -> None:
    batch = Batch.of([sample(1), sample(2)])
    logits = torch.zeros(24)
    base = float(loss_of(logits, batch, calibration=0.0))
    lifted = logits.clone()
    lifted[0] = 5  # of the first group of the first sample
    after = float(loss_of(lifted, batch, calibration=0.0))
    unwanted = logits.clone()
    unwanted[10] = 5
    assert after < base < float(loss_of(unwanted, batch, calibration=0.0))
    alone = lifted.clone()
    alone[1] = 5  # the same group: one was enough already
    assert after - float(loss_of(alone, batch, calibration=0.0)) < 0.3 * (base - after)


def test_log_sums_are_those_of_each_run() -> None:
    values = torch.tensor([1.0, 2.0, -1.0, 4.0])
    found = log_sums(values, torch.tensor([0, 0, 1, 1]), 2)
    assert found.tolist() == pytest.approx([np.logaddexp(1, 2), np.logaddexp(-1, 4)], abs=1e-5)


def test_a_network_learns_what_is_wanted_and_each_fold_is_scored_by_the_others() -> None:
    samples = [sample(number) for number in range(64)]
    seen: list[set[int]] = []
    found = crossed(samples, lambda each: seen.append({1}) or int(each.name.split("-")[1]) % FOLDS, epochs=6)  # type: ignore[func-returns-value]
    assert len(found) == len(samples)
    for each, logits in zip(samples, found, strict=True):
        wanted = np.concatenate(each.groups)
        assert logits[wanted].mean() > np.delete(logits, wanted).mean()


def test_the_same_seed_gives_the_same_weights() -> None:
    samples = [sample(number) for number in range(40)]
    one, other = (train(samples, seed=3, epochs=1) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)
