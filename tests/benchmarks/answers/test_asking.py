"""What each arm sends, and what is made of the replies."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from benchmarks.answers.__main__ import cells, judged, report_of
from benchmarks.answers.arms import ARMS, ASKED, WHOLE, Arm, body, gold_of
from benchmarks.answers.asking import Answer, Refused, answers, ask
from benchmarks.evaluation.case import Case

BY_NAME = {arm.name: arm for arm in ARMS}
CONTEXT = "The weather is fine. Marie Curie discovered radium. Pierre worked with her."
CASE = Case(
    "s", "s/1", "Who discovered radium?", CONTEXT, ((0, 75),), gold=(21, 51), answers=("Marie Curie",)
)
Reply = Callable[[Mapping[str, Any]], httpx.Response]


def parts(arm: Arm) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(CASE, arm, None)["messages"][0]["content"]
    return found


def test_only_an_arm_with_a_size_lets_the_context_be_compressed() -> None:
    for arm in ARMS:
        asked = body(CASE, arm, "reader")
        assert (
            ("compression" in asked)
            == any(part.get("compress") for part in parts(arm))
            == bool(arm.compression)
        )
        assert asked["model"] == "reader" and asked["temperature"] == 0
        assert parts(arm)[-1]["text"] == CASE.query + ASKED


def test_an_arm_has_the_whole_context_what_answers_or_none() -> None:
    assert [part["text"] for part in parts(WHOLE)[:-1]] == [CONTEXT]
    assert [part["text"] for part in parts(BY_NAME["gold"])[:-1]] == ["Marie Curie discovered radium."]
    assert parts(BY_NAME["nothing"])[:-1] == []


def test_only_cases_are_asked_whose_answer_is_a_string_and_has_a_known_place() -> None:
    unjudged = Case("s", "s/2", "q", CONTEXT, (), gold=(0, 3))
    placeless = Case("s", "s/3", "q", CONTEXT, (), answers=("x",))
    several = ((0, 20), (21, 51), (52, 75))
    by_evidence = Case("s", "s/4", "q", CONTEXT, several, answers=("x",), evidence=((4, 11), (52, 58)))
    assert judged([CASE, unjudged, placeless, by_evidence]) == [CASE, by_evidence]
    assert gold_of(by_evidence) == [(0, 20), (52, 75)]


def streamed(text: str) -> httpx.Response:
    service = {"billing": {"request_cost_usd": 0.001}, "compression": {"cost_usd": 0.0005}}
    usage = {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 8}}
    events = [
        {"choices": [{"delta": {"role": "assistant"}}]},
        {"choices": [{"delta": {"content": text}}]},
        {"choices": [], "usage": usage, "service": service},
    ]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return httpx.Response(200, text="".join(lines) + "data: [DONE]\n\n")


def client(reply: Reply) -> httpx.Client:
    transport = httpx.MockTransport(lambda request: reply(json.loads(request.content)))
    return httpx.Client(base_url="http://pith.test", transport=transport)


def test_an_answer_is_right_that_holds_one_of_the_answers_and_costs_what_compressing_did_too() -> None:
    with client(lambda asked: streamed("It was marie curie.")) as http:
        found = ask(http, CASE, WHOLE, None)
    assert found.is_right and found.text == "It was marie curie."
    assert (found.prompt_tokens, found.cached_tokens, found.usd) == (30, 8, 0.0015)
    assert 0 < found.ttft_s <= found.total_s
    with client(lambda asked: streamed("Pierre.")) as http:
        assert not ask(http, CASE, WHOLE, None).is_right


def test_what_the_model_has_no_room_for_is_wrong_and_any_other_refusal_ends_the_run() -> None:
    def too_long(asked: Mapping[str, Any]) -> httpx.Response:
        return httpx.Response(400, json={"error": {"code": "context_length_exceeded"}})

    with client(too_long) as http:
        found = ask(http, CASE, WHOLE, None)
    assert not found.fits and not found.is_right
    with (
        client(lambda asked: httpx.Response(402, text="no money")) as http,
        pytest.raises(Refused, match="402"),
    ):
        ask(http, CASE, WHOLE, None)


def test_each_case_is_asked_in_every_arm_and_a_row_compares_it_with_the_whole() -> None:
    def reader(asked: Mapping[str, Any]) -> httpx.Response:
        content = asked["messages"][0]["content"]
        return streamed("Marie Curie" if len(content) == 2 else "Nobody knows")

    with client(reader) as http:
        found = list(answers(http, [CASE], ARMS, None))
    assert {answer.arm for answer in found} == set(BY_NAME)
    head = cells(found, WHOLE)
    assert head[:4] == ["whole", "100.0%", "", ""]
    nothing = cells(found, BY_NAME["nothing"])
    assert nothing[1] == "0.0%" and nothing[3] == "1"
    made = report_of(found, {"command": "test"})
    assert (
        "## all: 1 cases" in made.markdown()
        and "## s: 1 cases" in made.markdown()
        and len(made.body["answers"]) == len(ARMS)
    )


def test_an_arm_in_which_nothing_fits_has_no_times() -> None:
    absent = [Answer("s", "s/1", arm.name, "", is_right=False, fits=arm != WHOLE) for arm in ARMS]
    assert cells(absent, WHOLE)[4:] == ["1", "0", "0", "0.0000", "", ""]
