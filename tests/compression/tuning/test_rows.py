"""Rows of somebody's own data: what is taken, what is refused in which words, and when evidence counts as kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compression.tuning.row import holds_all, holds_any, read_rows

GOOD = {"query": "Who met?", "input": "The committee met.", "answers": ["The committee"]}


def read_one(row: Any) -> tuple[int, str]:
    """How many rows, and what was said of the line."""
    rows, bad = read_rows([row if isinstance(row, str) else json.dumps(row)])
    return len(rows), "; ".join(str(one) for one in bad)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "line 1: is not JSON"),
        ("[]", "line 1: must be an object"),
        ({**GOOD, "topic": 1}, "topic: unknown member"),
        ({**GOOD, "query": " "}, "query: must be a string"),
        ({**GOOD, "input": ""}, "input: must be a string"),
        ({**GOOD, "messages": []}, "either input or messages"),
        ({"query": "q", "messages": [{"role": 1}], "answers": ["x"]}, r"messages[0].role"),
        ({**GOOD, "answers": []}, "must have evidence"),
        ({**GOOD, "answers": "The committee"}, "answers: must be a list"),
        ({**GOOD, "evidence": [""]}, "evidence: must be a list"),
        ({**GOOD, "answers": ["nobody"]}, "answers: none of them is in the input"),
        (
            {**GOOD, "evidence": ["The committee", "nobody"]},
            "evidence[1]: is not in the input: 'nobody'",
        ),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_what_is_wrong(row: Any, words: str) -> None:
    count, said = read_one(row)
    assert count == 0 and words in said


def test_good_rows_are_read_beside_bad_ones_and_empty_lines_are_nothing() -> None:
    rows, bad = read_rows([json.dumps(GOOD), "", "{", json.dumps(GOOD)])
    assert ([row.line for row in rows], [one.line for one in bad]) == ([1, 4], [3])


def test_messages_are_compressed_as_the_routes_write_them() -> None:
    messages = [
        {"role": "user", "content": "Où est le chat ?"},
        {"role": "assistant", "content": "Sous\nla table."},
    ]
    rows, bad = read_rows(
        [json.dumps({"query": "chat", "messages": messages, "evidence": ["Sous la table."]})]
    )
    assert not bad
    assert rows[0].text == json.dumps(messages, ensure_ascii=False, separators=(",", ":"))


def test_all_evidence_must_survive_and_one_answer() -> None:
    assert holds_all("One.  Two.\nThree.", ["Two. Three.", "One."])
    assert not holds_all("One. Two.", ["One.", "Three."])
    assert holds_any("It was THE Ritz-hotel, I think", ["a Ritzhotel", "none"])
    assert not holds_any("It was nothing", ["Ritz"])


def test_text_inside_json_counts_as_it_reads() -> None:
    assert holds_all(json.dumps({"said": 'He said "no".\nThen left.'}), ['He said "no". Then left.'])
    assert not holds_all(json.dumps({"said": "He left."}), ["He said no."])


def test_deep_json_is_no_trouble() -> None:
    assert holds_all("[" * 100_000 + "x", ["x"])
