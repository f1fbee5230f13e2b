"""What a question names is found in records and tables of any shape; what stands in no row's words, by place."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.evaluation.suites.families import needs
from benchmarks.evaluation.suites.records import SHAPES, rows_of, suites
from compression.pipeline.compression_model import CompressionRequest
from compression.pipeline.pipeline import Compressor
from compression.scorers.lexical import LexicalScorer
from compression.second_look.tables import number_in
from compression.segmentation import segment


@pytest.fixture(scope="module")
def scorer() -> LexicalScorer:
    return LexicalScorer.load()


def best(scorer: LexicalScorer, query: str, source: str, count: int = 1) -> list[str]:
    """The units that score best, the best first."""
    text = segment(source)
    scores = scorer.score(query, text)
    order = sorted(range(len(text.units)), key=lambda unit: -scores[unit])
    order = [unit for unit in order if text.units[unit].kind not in ("bracket", "table_header")]
    return [text.text(unit) for unit in order[:count]]


@pytest.mark.parametrize("shape", sorted(set(SHAPES) - {"yaml"}))
def test_a_value_of_the_order_that_is_named_survives_in_every_shape(shape: str, lexical: Compressor) -> None:
    for case in list(suites()[f"records_{shape}"]())[:2]:
        output = lexical.compress(CompressionRequest(case.query, case.context, 0.1)).output
        assert needs(case, output)["all evidence"] == 1.0, case.query


EVENTS = [
    {
        "event": event,
        "action": action,
        "payload": {
            "comment": {
                "id": 7000 + number,
                "createdAt": f"2019-05-{10 + number}",
                "body": "Use more words here.",
            },
            "repository": {"name": "Hello", "createdAt": "2018-01-01", "url": "https://example.org/hello"},
            "sender": {
                "login": "octocat",
                "note": "a note that is long enough to be cut from the others" * 4,
            },
        },
    }
    for number, (event, action) in enumerate(
        [("issue", "opened"), ("issue_comment", "created"), ("issue_comment", "deleted"), ("push", "forced")]
    )
]


def test_a_member_is_found_by_its_record_and_the_names_on_its_path(scorer: LexicalScorer) -> None:
    query = "When was the comment of the issue comment deleted event created at?"
    (found,) = best(scorer, query, json.dumps(EVENTS))
    assert "2019-05-12" in found


def test_what_a_question_is_made_of_names_no_record(scorer: LexicalScorer) -> None:
    said = (
        "an effort to put what is in the action of the event and the repository to the use that it has of it"
    )
    noisy = [{**event, "alert": {"description": said, "state": "closed"}} for event in EVENTS]
    query = "What is the url of the repository in the push forced event?"
    (found,) = best(scorer, query, json.dumps(noisy))
    assert found.startswith('"repository"')


def test_json_lines_are_records_too(scorer: LexicalScorer) -> None:
    query = "When was the comment of the issue comment deleted event created at?"
    source = "\n".join(map(json.dumps, EVENTS)) + "\n"
    assert any("2019-05-12" in found for found in best(scorer, query, source, 2))


def test_a_question_that_names_nothing_leaves_the_scores_of_json_alone(scorer: LexicalScorer) -> None:
    text = segment(json.dumps(EVENTS))
    glance = scorer.glance("zzzz qqqq", text)
    assert np.isfinite(scorer.look_again(glance, glance.logits)).all()
    assert len(set(scorer.score("zzzz qqqq", text))) > 1


TABLE = "Coach,Tenure,Games,Points\n" + "\n".join(
    f"Coach{letter},{1900 + number},{number % 9 + 20},{(number * 37) % 101}"
    for number, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
)


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("Who came last?", "CoachZ,"),
        ("Wer steht ganz unten?", "CoachZ,"),
        ("Who had the most points?", "CoachL,1911,22,3"),
        ("Which coach came before CoachM?", "CoachL,"),
        ("Which coach came after CoachM?", "CoachN,"),
        ("Who coached in 1907?", "CoachH,"),
    ],
)
def test_a_row_is_found_by_place_extreme_neighbour_and_number(
    scorer: LexicalScorer, query: str, row: str
) -> None:
    if "most" in query:
        points = {(number * 37) % 101: f"{1900 + number}" for number in range(26)}
        assert any(points[max(points)] in found for found in best(scorer, query, TABLE, 4))
    else:
        assert any(found.startswith(row) for found in best(scorer, query, TABLE, 4))


def test_a_sum_is_no_extreme_and_does_not_hide_the_last_row(scorer: LexicalScorer) -> None:
    rows = [f"| Town {letter} | {number * number + 3} |" for number, letter in enumerate("abcdefghijklmnop")]
    total = sum(number * number + 3 for number in range(16))
    source = "\n".join(["| Place | Births |", "|---|---|", *rows, f"| All | {total} |"])
    found = best(scorer, "Which place had the most births?", source, 2)
    assert "Town p" in " ".join(found) and "All" not in " ".join(found)


def test_rows_share_the_scores_that_they_had(scorer: LexicalScorer) -> None:
    text = segment("Some prose about coaches comes first, and it is long enough to stand alone.\n\n" + TABLE)
    scores = scorer.score("Who came last?", text)
    assert len(scores) == len(text.units) and all(0 <= score <= 1 for score in scores)


def test_a_row_whose_label_is_in_the_query_comes_before_prose_that_shares_its_words(
    scorer: LexicalScorer,
) -> None:
    prose = (
        "The change in value was mainly due to non-cash fair value changes of investment assets in 2019.\n\n"
        * 4
    )
    rows = "| Interest cost | 12 | 14 |\n| Fair value of plan assets | 1,418 | 1,426 |\n"
    table = f"| | 2019 | 2018 |\n|---|---|---|\n{rows}"
    found = best(
        scorer, "What was the change in the fair value of plan assets from 2018 to 2019?", prose + table
    )
    assert "1,418" in found[0]


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1,234.5", 1234.5), ("1.234,5", 1234.5), ("3755 km2", 3755), ("$ 12,000", 12000), ("(7)", -7), ("-3", -3),
        ("July 16, 1982", 1982), ("n/a", None), ("", None), ("0,5", 0.5), ("1.2.3", 123), ("9" * 40, None),
    ],
)  # fmt: skip
def test_a_cell_begins_with_a_number_in_any_way_of_writing_it(cell: str, number: float | None) -> None:
    assert number_in(cell) == number


@pytest.mark.parametrize(
    "source", ["|\n" * 3000, "|" * 100_000, "a,b\n" * 5000, "[" * 3000, '{"a":' * 500, "{}\n" * 3000]
)
def test_what_is_no_table_or_record_is_scored_all_the_same(scorer: LexicalScorer, source: str) -> None:
    text = segment(source)
    assert len(scorer.score("Which is the last one with 7 of a?", text)) == len(text.units)


def test_rows_made_twice_are_the_same() -> None:
    assert rows_of("x") == rows_of("x") != rows_of("y")


def test_a_question_says_on_which_side_of_a_row_another_stands(scorer: LexicalScorer) -> None:
    names = ("Arden", "Birling", "Corve", "Dunlin", "Esk", "Fal", "Gade", "Hull")
    rows = [f"{name},{4 + number * 7 % 5},since the spring\n" for number, name in enumerate(names)]
    table = f"ship,berth,moored\n{''.join(rows)}"
    for side, row in (("before", "Corve"), ("above", "Corve"), ("after", "Esk"), ("below", "Esk")):
        found = best(scorer, f"Which ship is listed {side} the Dunlin?", table, 2)
        assert [each.split(",")[0] for each in found] == ["Dunlin", row]
