"""What the offline measure of evidence says of a session and of a question."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.evaluation.case import Case
from benchmarks.savings.conversation import Conversation
from benchmarks.savings.evidence import Sender, Value, groups, of_question, of_session, of_sessions, size_of

ORDERS = [
    {"order": f"K-{2000 + at}", "state": "in transit to the customer", "colour": "blue"} for at in range(60)
]


def call(number: int, **arguments: Any) -> dict[str, Any]:
    function = {"name": "find", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "function": function}]}


def session(needed: str) -> Conversation:
    return Conversation(
        "one",
        (
            {"role": "user", "content": "Where are my orders?"},
            call(1, who="me"),
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps(ORDERS)},
            {"role": "assistant", "content": "K-2001 is on its way."},
            {"role": "user", "content": "Cancel the other one."},
            call(2, order=needed),
        ),
    )


@pytest.fixture(scope="module")
def sender() -> Sender:
    return Sender({"target_ratio": 0.1})


def test_a_value_that_was_left_out_counts_as_sent_where_it_was_said(sender: Sender) -> None:
    def value(needed: str) -> Value:
        ((found,),) = of_session(session(needed), sender).calls
        return found

    sent = sender.sent(session("K-2001").messages)[2]["content"]
    lost = [order["order"] for order in ORDERS if order["order"] not in sent]
    kept = [order["order"] for order in ORDERS if order["order"] in sent]
    assert "K-2001" in lost
    assert value(lost[-1]) == Value("find", 1, is_sent=False, is_in_results=False, only_in_results=True)
    assert value(kept[0]) == Value("find", 1, is_sent=True, is_in_results=True, only_in_results=True)
    assert value("K-2001") == Value("find", 1, is_sent=True, is_in_results=False, only_in_results=False)


def test_fewer_tokens_are_sent_and_figures_have_intervals(sender: Sender) -> None:
    found = [of_session(session(f"K-{2000 + at}"), sender) for at in range(3)]
    assert all(each.sent_tokens < each.whole_tokens for each in found)
    assert "to" in of_sessions(found)["input tokens, median"]
    assert groups(found, lambda value: value.tool)[0][:2] == ["find", "3"]


def test_a_question_is_asked_over_its_context_as_a_marked_part(sender: Sender) -> None:
    text = "\n\n".join(f"Passage {at}. The bridge number {at} was opened in 19{at:02}." for at in range(40))
    case = Case("nq", "one", "When was bridge number 17 opened?", text, (), answers=("1917",))
    tokens, kept = of_question(case, sender)
    assert tokens < 0.3
    assert kept == 1


def test_a_size_is_a_ratio_or_a_promise() -> None:
    assert size_of("0.3") == {"target_ratio": 0.3}
    assert size_of("keep0.95") == {"keep": 0.95}
