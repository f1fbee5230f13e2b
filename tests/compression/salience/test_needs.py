"""What an agent will need of a tool's result: identifiers before words, and nothing twice."""

from __future__ import annotations

import json
import time

import pytest

from compression.salience import is_record, worths
from compression.salience.needs import kind_of_value, values
from compression.segmentation import SegmentationSettings, segment

FINE = SegmentationSettings(longest_record=40, fewest_members=1)
TICKET = {
    "ticket": "T-90412",
    "state": "open",
    "assignee": {"login": "mkrause", "team": "platform", "badge": "E77315"},
    "watchers": ["U10020", "U10021", "U10022"],
    "due": "2025-03-14",
    "urgent": False,
}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("T-90412", "identifier"), ("gift_card_77", "identifier"), ("src/app/main.py", "identifier"),
        ("9612497925", "identifier"), ("UHDAHF", "capitals"), ("JFK", "code"), ("2025-03-14", "date"),
        ("14.03.2025", "date"), ("07:30:00+1", "time"), ("2025-03-14T07:30:00Z", "time"), ("80211", "digits"),
        ("49.99", "number"), ("$1,200", "number"), ("ann@example.org", "address"),
        ("https://example.org/a?b=1", "address"), ("one_way", "word"), ("Garcia", "name"),
        ("Highland Drive", "name"), ("", "flag"), ("it was delivered to a neighbour", "text"), ("x" * 200, "text"),
        ("北京 分公司", "name"),
    ],
)  # fmt: skip
def test_a_value_is_told_by_its_shape(value: str, kind: str) -> None:
    assert kind_of_value(value, is_string=True) == kind


def test_names_of_members_are_no_values() -> None:
    assert list(values('"id4411" : {"a7": 5, "b": true, "c": 123456')) == [
        ("5", "number"),
        ("true", "flag"),
        ("123456", "identifier"),
    ]


def worth_of(piece: str, known: tuple[str, ...] = (), query: str = "") -> float:
    text = segment(json.dumps(TICKET), FINE)
    found = worths(text, [0.0] * len(text.units), query, known)
    return next(worth for unit, worth in enumerate(found) if piece in text.text(unit))


def test_identifiers_are_worth_more_than_dates_and_dates_more_than_words() -> None:
    assert worth_of("T-90412") > worth_of("2025-03-14") > worth_of("mkrause") > worth_of("urgent")


def test_the_worth_of_several_values_adds_up() -> None:
    assert worth_of("U10020") == pytest.approx(3 * worth_of("T-90412"))


def test_a_value_that_was_said_before_is_worth_little() -> None:
    assert worth_of("T-90412", known=("T-90412",)) < worth_of("state")
    assert worth_of("T-90412", query="Who has T-90412?") < worth_of("state")


def test_what_answers_in_a_sentence_is_worth_more_than_any_identifier() -> None:
    said = (
        "The pump was replaced on Monday. It has been quiet ever since and nobody has complained about it. "
        * 6
    )
    text = segment(json.dumps({"id": "T-90412", "text": said}), FINE)
    found = worths(text, [0.9 if unit.kind == "sentence" else 0.0 for unit in text.units], "")
    assert max(found) == max(found[at] for at, unit in enumerate(text.units) if unit.kind == "sentence")


def test_a_record_is_one_json_value() -> None:
    assert is_record(segment(json.dumps(TICKET)))
    assert is_record(segment(json.dumps([TICKET, TICKET], indent=1)))
    chat = [{"role": "user", "content": "a chat"}, {"role": "assistant", "content": "b"}]
    log = "\n".join(
        f'{{"ts": "2025-03-14T07:{at:02}:00Z", "level": "info", "msg": "beat"}}' for at in range(9)
    )
    for other in (
        f"Found:\n{json.dumps(TICKET, indent=1)}",
        "plain text, and no more",
        json.dumps(chat),
        log,
    ):
        assert not is_record(segment(other))


def test_reading_values_takes_time_that_grows_with_the_text_alone() -> None:
    for nasty in (
        '"' + "\\" * 400_000,
        '"a' * 200_000,
        "1" * 400_000,
        '"' + " " * 400_000 + '"',
        "-" * 400_000,
        '"' + '\\"' * 200_000 + "\\",
    ):
        started = time.process_time()
        list(values(nasty))
        # Time that grew with its square would be minutes.
        assert time.process_time() - started < 20
