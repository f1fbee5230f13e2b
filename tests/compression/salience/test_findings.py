"""Findings of a paper come first where a question asks for an effect."""

from __future__ import annotations

from compression.salience import with_findings
from compression.segmentation import segment

PAPER = (
    "We compared walking with rest for its effect on sleep. Sleep was recorded in a diary by all participants. "
    "Sleep was longer with walking (7.2 vs 6.1 h, 95% CI 0.3 to 1.9; P = .01). "
    "Nausea did not differ (OR 1.02, p = 0.84). Pain fell from 4.1 ± 1.2 to 3.3 ± 1.1 with walking. "
    "More trials of walking for sleep are needed."
)
ASKED = "What was the effect of walking on sleep, compared with rest?"


def found(paper: str, query: str) -> dict[str, float]:
    text = segment(paper)
    return dict(zip(text.texts(), with_findings(text, [0.1] * len(text.units), query), strict=True))


def test_sentences_that_report_numbers_come_before_methods() -> None:
    scores = found(PAPER, ASKED)
    plans = [
        score for text, score in scores.items() if text.startswith(("We compared", "Sleep was rec", "More"))
    ]
    results = [score for text, score in scores.items() if text.startswith(("Sleep was l", "Nausea", "Pain"))]
    assert len(plans) == len(results) == 3
    assert max(plans) == 0.1 < 0.5 < min(results)


def test_of_what_reports_numbers_that_comes_first_which_names_what_is_compared() -> None:
    paper = (
        PAPER
        + " The walking and rest arms were alike in sleep at the end (1.4 and 7.4). Power was 80% for sleep."
    )
    scores = found(paper, ASKED)
    others = [scores[text] for text in scores if text.startswith(("Nausea", "Power"))]
    assert len(others) == 2
    assert scores["The walking and rest arms were alike in sleep at the end (1.4 and 7.4)."] > max(others)


def test_other_languages_and_marks_are_read() -> None:
    paper = PAPER.replace("P = .01", "p ≤ 0,01").replace("95% CI", "95 % KI")
    scores = found(paper, "Welche Wirkung hatte das Gehen auf den Schlaf?")
    assert max(scores.values()) > 0.5


def test_other_questions_leave_all_scores() -> None:
    assert set(found(PAPER, "Who took part in the study?").values()) == {0.1}


def test_a_text_that_tests_nothing_leaves_all_scores() -> None:
    prices = "Rent rose by 4.5% in May. It fell by 3% in June. The effect of taxes was 2.1 points. P = .5 is a coin."
    assert set(found(prices, "What was the effect of taxes on rent?").values()) == {0.1}


def test_no_score_leaves_its_range() -> None:
    text = segment(PAPER)
    for score in (0.0, 1e-300, 0.5, 1.0):
        assert all(0 <= each <= 1 for each in with_findings(text, [score] * len(text.units), ASKED))


def test_a_short_word_is_named_by_itself_alone() -> None:
    paper = PAPER + " Drug B was better (1.4 and 7.4). Drugs by robe were better (1.4 and 7.4)."
    scores = found(paper, "What was the effect of drug B, by B-12?")
    assert scores["Drug B was better (1.4 and 7.4)."] > scores["Drugs by robe were better (1.4 and 7.4)."]


def test_so_many_words_of_a_question_are_looked_for() -> None:
    words = " ".join(f"{number:03}word" for number in range(64))
    paper = f"{PAPER} They had {words} (1.4 and 7.4)."
    more = " ".join(f"{number:03}more" for number in range(64))
    assert found(paper, f"effect of {words} {more}") == found(paper, f"effect of {words}")
