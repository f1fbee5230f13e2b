"""An agent's history: the newest result before older ones, identifiers before prices, the record that is talked of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compression.salience import rank_history
from compression.segmentation import segment

LAMPS = [
    {"name": name, "item_id": number, "options": {"colour": colour, "power": power, "height": "two feet"}}
    for name, number, colour, power in (
        ("Desk Lamp", "8384507844", "white", "battery"),
        ("Water Bottle", "8538875209", "black", "none"),
        ("Office Chair", "4794339885", "green", "none"),
        ("Yoga Mat", "9147000123", "grey", "none"),
    )
]
VIEW = "\n".join(f"{at:6}\tsaved_{at} = load({at})  # a line of this file" for at in range(40))


def exchange(number: int, result: str) -> list[dict[str, Any]]:
    function = {"name": "look", "arguments": json.dumps({"at": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


def ranks(messages: list[dict[str, Any]], query: str = "go on") -> dict[str, float]:
    """The rank of each unit's text, where all scored alike; of equal texts the last."""
    text = segment(json.dumps(messages))
    found = rank_history(text, [0.01] * len(text.units), query)
    return dict(zip(text.texts(), found, strict=True))


def rank_of(piece: str, found: dict[str, float]) -> float:
    return next(rank for unit, rank in found.items() if piece in unit)


def test_the_newest_result_comes_before_an_older_one_and_before_what_was_said() -> None:
    task = {"role": "user", "content": "Please mend the loader. It does not load what was saved before."}
    older = VIEW.replace("saved_", "kept_")
    found = ranks([task, *exchange(1, older), *exchange(2, VIEW)])
    assert rank_of("saved_7", found) > rank_of("kept_7", found) > rank_of("Please mend", found)


def test_a_value_counts_where_it_stands_last() -> None:
    same = json.dumps({"order": "W-2890441", "state": "open", "by": "x" * 200})
    text = segment(json.dumps([*exchange(1, same), *exchange(2, same), {"role": "user", "content": "And?"}]))
    found = rank_history(text, [0.0] * len(text.units), "And?")
    first, last = (found[at] for at, unit in enumerate(text.texts()) if "W-2890441" in unit)
    assert last > 2 * first


def test_the_record_that_is_talked_of_comes_before_those_like_it() -> None:
    talk = {"role": "user", "content": "I would like to return the desk lamp."}
    found = ranks([*exchange(1, json.dumps({"items": LAMPS})), talk], query=talk["content"])
    assert rank_of("8384507844", found) > 2 * rank_of("8538875209", found)
    assert rank_of("8538875209", found) == pytest.approx(rank_of("4794339885", found))


def test_a_value_counts_once_and_where_it_costs_least() -> None:
    order = {
        "lines": [{"id": f"95{n}4205511", "note": "x" * 150, "price": n} for n in range(3)],
        "state": "open",
    }
    order["shipped"] = [line["id"] for line in order["lines"]]  # type: ignore[index]
    found = ranks([*exchange(1, json.dumps(order)), {"role": "user", "content": "And?"}])
    assert rank_of('"shipped"', found) > 5 * rank_of('"id": "9514205511"', found)


def test_what_the_last_calls_had_comes_before_its_like() -> None:
    called = {
        "function": {"name": "book", "arguments": json.dumps({"cabin": "economy"})},
        "id": "c9",
        "type": "function",
    }
    history = [
        *exchange(
            1, json.dumps({"fare": {"cabin": "economy", "note": "x" * 150}, "other": {"cabin": "business"}})
        ),
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c9", "content": "no"},
    ]
    found = ranks(history)
    assert rank_of('"cabin": "economy"', found) + rank_of('{"cabin": "economy"}', found) > 4 * rank_of(
        "business", found
    )


def test_a_quantity_is_no_identifier_and_a_result_may_be_one_alone() -> None:
    found = ranks(
        [
            *exchange(1, json.dumps({"size": "15-inch", "item": "4793-AB", "x": "y" * 400})),
            *exchange(2, "ann_4204"),
        ]
    )
    assert rank_of("4793-AB", found) > 4 * rank_of("15-inch", found)
    assert rank_of("ann_4204", found) > 4 * rank_of("15-inch", found)


def test_scores_of_short_values_say_little_of_the_next_call() -> None:
    text = segment(json.dumps([*exchange(1, json.dumps({"zip": 77004, "id": "WX-2204", "x": "y" * 400}))]))
    scores = [0.9 if "zip" in unit else 0.01 for unit in text.texts()]
    found = dict(zip(text.texts(), rank_history(text, scores, "go on"), strict=True))
    assert rank_of("zip", found) < 1.1 * rank_of("WX-2204", found)


def test_members_of_one_record_are_not_compared_with_one_another() -> None:
    order = {
        "address": {"street": "1 Elm Street", "city": "Bonn", "zip": "53111", "note": "x" * 150},
        "payment": {"method": "paypal_3742148", "amount": 24.5, "kind": "refund", "note": "y" * 150},
    }
    talk = {"role": "user", "content": "Is it the address on Elm Street?"}
    with_talk, without = (
        ranks([*exchange(1, json.dumps(order)), said], query="")
        for said in (talk, {"role": "user", "content": "Is it?"})
    )
    assert rank_of("paypal_3742148", with_talk) == pytest.approx(rank_of("paypal_3742148", without))


def test_what_is_no_history_keeps_its_scores() -> None:
    for source in ("One sentence. And another one.", json.dumps([{"role": "user", "content": "One. Two."}])):
        text = segment(source)
        scores = [0.25] * len(text.units)
        assert rank_history(text, scores, "two") == scores


def test_results_inside_a_users_message_are_results_too() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": VIEW}
    text = segment(
        json.dumps([{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}])
    )
    ((first, last),) = text.results
    assert any("saved_7" in text.text(unit) for unit in range(first, last))
    assert max(rank_history(text, [0.01] * len(text.units), "")[first:last]) > 0.1
