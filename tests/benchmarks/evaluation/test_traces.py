"""Agents' traces: the moment, the values that the next call repeats, and what a valid conversation is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.evaluation.case import Case, Task
from benchmarks.evaluation.suites import traces
from benchmarks.evaluation.suites.traces import is_conversation
from benchmarks.quality.scoring import judge

FILLER = "It rains. " * 700


def call(name: str, call_id: str, **given: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(given)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": "tool", "content": content}


MESSAGES = [
    {"role": "system", "content": "policy ABCD1234"},
    {"role": "user", "content": "Change order 7777, says Bob."},
    call("find", "c1", who="Bob"),
    result("c1", json.dumps({"order": "W0042", "note": FILLER, "city": 'Sankt "Gallen"', "cents": 12050})),
    {"role": "user", "content": "Yes, to blue77."},
    call(
        "change", "c2", order="W0042", colour="blue77", city='Sankt "Gallen"', to=["none", {"cents": 12050}],
        size="XL", made_up="W9999",
    ),
    result("c2", "done"),
]  # fmt: skip


def case_of(form: str, messages: list[dict[str, Any]] = MESSAGES) -> Case:
    row = traces.trace({"task_id": 3, "messages": messages})
    return next(traces.cases([row], f"tau_x_{form}", is_json=form == "json"))


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_moment_is_before_the_last_call_with_a_long_history(form: str) -> None:
    case = case_of(form)
    assert case.query == "Yes, to blue77."
    assert "policy" not in case.context and "W9999" not in case.context
    # Not in the query, in an earlier result, four characters at least.
    assert [need.text for need in case.needs] == ["W0042", 'Sankt "Gallen"', "12050"]
    assert all(case.context[slice(*span)] for need in case.needs for span in need.spans)
    assert all(need.spans for need in case.needs)


def test_json_is_the_history_itself_and_its_documents_are_messages() -> None:
    case = case_of("json")
    assert json.loads(case.context) == MESSAGES[1:5]
    assert case.context == traces.as_json(MESSAGES[1:5])
    assert [json.loads(case.context[slice(*span)]) for span in case.documents] == MESSAGES[1:5]


def test_text_has_a_line_a_message() -> None:
    lines = case_of("text").context.split("\n")
    assert lines[:2] == ["User: Change order 7777, says Bob.", 'Assistant: find({"who": "Bob"})']
    assert lines[2].startswith("Tool: {")


def test_a_trace_without_a_long_history_or_without_repeated_values_makes_no_case() -> None:
    short = [MESSAGES[1], call("find", "c1"), result("c1", "W0042"), call("change", "c2", order="W0042")]
    nothing = [*MESSAGES[:5], call("change", "c2", colour="blue77")]
    for messages in (short, nothing, MESSAGES[:2]):
        assert traces.moment(traces.trace({"task_id": 3, "messages": messages})) is None
    row = traces.trace({"task_id": 3, "messages": short})
    assert [moment.values for moment in traces.moments(row, longer_than=0)] == [("W0042",)]


def test_values_count_one_by_one_and_all_together() -> None:
    case = case_of("text")
    assert judge(Task(case, 0.3), "tail", case.context).measures == {"values": 1.0, "all values": 1.0}
    outcome = judge(Task(case, 0.3), "tail", "order W0042")
    assert outcome.measures == {"values": pytest.approx(1 / 3), "all values": 0.0}
    assert not outcome.has_evidence
    as_json = case_of("json")
    assert judge(Task(as_json, 0.3), "tail", as_json.context).measures["valid"] == 1.0
    assert judge(Task(as_json, 0.3), "tail", as_json.context[:-2]).measures["valid"] == 0.0


FIND, FOUND, SAID = MESSAGES[2], MESSAGES[3], MESSAGES[1]


@pytest.mark.parametrize(
    ("messages", "is_valid"),
    [
        ([SAID, FIND, FOUND], True),
        ([SAID], True),
        ([], True),
        ([FOUND], False),
        ([FIND], False),
        ([FOUND, FIND], False),
        ([FIND, SAID, FOUND], False),
        ([FIND, FOUND, FOUND], False),
        ([FIND, {"content": "no role"}, FOUND], False),
        ([SAID, "text"], False),
        ({"role": "user"}, False),
    ],
)
def test_a_conversation_has_roles_and_each_result_after_its_call(messages: Any, is_valid: bool) -> None:
    assert is_conversation(json.dumps(messages)) is is_valid


def test_what_does_not_parse_is_no_conversation() -> None:
    assert not is_conversation("[{")


def test_trials_of_a_task_are_held_out_together() -> None:
    rows = [traces.Trace(str(task), tuple(MESSAGES)) for task in (*range(40), *range(40))]
    held = [case.is_held_out for case in traces.cases(rows, "tau_x_json", is_json=True)]
    assert held[:40] == held[40:] and 0 < sum(held) < 80
