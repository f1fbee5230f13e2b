"""The calibration of tools' results is fitted on what later calls repeat of them, and the conversation has not said."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.evaluation.suites.traces import Trace
from benchmarks.training.calibration.made_results import made_results
from benchmarks.training.calibration.results import results_of


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "function": function}]}


def result(number: int, body: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(body)}


ACCOUNT = {
    "login": "mkrause",
    "orders": [f"K-{at}" for at in range(2000, 2060)],
    "cards": ["visa_771", "visa_772"],
}


def test_a_value_is_needed_of_the_last_result_that_has_it_unless_it_is_said() -> None:
    messages = (
        {"role": "user", "content": "I am mkrause."},
        call(1, "get_account", login="mkrause"),
        result(1, ACCOUNT),
        {"role": "assistant", "content": "Which one? K-2001?"},
        {"role": "user", "content": "The one after."},
        call(2, "cancel", order="K-2002", login="mkrause", other="K-2001", to="visa_772"),
    )
    (found,) = results_of(Trace("7", messages))
    assert found.tool == "get_account"
    assert found.query == 'I am mkrause.\nget_account {"login": "mkrause"}'
    assert found.needed == ("K-2002", "visa_772")
    assert found.known == ()


def test_made_results_have_what_is_needed_of_them_and_are_the_same_each_time() -> None:
    found = list(made_results(12))
    assert found == list(made_results(12))
    for _, query, text, needed in found:
        assert query
        assert json.loads(text)
        assert needed
        assert all(value in text for value in needed)
