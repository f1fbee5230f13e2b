"""Rows of kinds of input become cases, and an output is judged by any span of each group."""

from typing import Any

import pytest

from benchmarks.evaluation.suites.families import family_of
from benchmarks.evaluation.suites.third import case_of_row, kind_row

TEXT = "year,total\n2019,12\n\n2020,15\n2021,15"


def row(**changes: Any) -> dict[str, Any]:
    groups = [[[[0, 10]]], [[[20, 27]], [[28, 35]]]]
    return {"id": "wtq-1", "query": "which?", "text": TEXT, "evidence": groups} | changes


def test_each_group_is_a_need_that_any_of_its_spans_meets() -> None:
    case = case_of_row(kind_row(row()), "tables")
    assert [TEXT[start:end] for need in case.needs for start, end in need.spans] == [
        "year,total", "2020,15", "2021,15",
    ]  # fmt: skip
    measure = family_of("tables").measure
    assert measure(case, "year, total\n2021,15") == {"evidence": 1.0, "all evidence": 1.0}
    assert measure(case, "2020,15") == {"evidence": 0.5, "all evidence": 0.0}


def test_an_alternative_of_several_spans_is_refused() -> None:
    with pytest.raises(ValueError, match="too many values"):
        kind_row(row(evidence=[[[[0, 4], [5, 9]]]]))


def test_an_agents_row_is_its_history_in_json() -> None:
    messages = [
        {"role": "user", "content": "return it"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "get"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "order #W1234"},
    ]
    made = row(messages=messages, values=["#W1234"])
    case = case_of_row(kind_row(made), "agents_json")
    assert family_of("agents_json").measure(case, case.context) == {
        "values": 1.0, "all values": 1.0, "valid": 1.0,
    }  # fmt: skip
