"""What is made of a server's replies."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from benchmarks.answers.arms import WHOLE
from benchmarks.answers.asking import Refused
from tests.benchmarks.answers.made import CASE, reader, streamed


def test_an_answer_is_right_that_holds_one_of_the_answers_and_costs_what_compressing_did_too() -> None:
    found = reader(lambda asked: streamed("It was marie curie.")).ask(CASE, WHOLE)
    assert found.is_right and found.text == "It was marie curie."
    assert (found.prompt_tokens, found.cached_tokens, found.usd) == (30, 8, 0.0015)
    assert 0 < found.ttft_s <= found.total_s
    assert not reader(lambda asked: streamed("Pierre.")).ask(CASE, WHOLE).is_right


def test_what_the_model_has_no_room_for_is_wrong_and_any_other_refusal_ends_the_run() -> None:
    def too_long(asked: Mapping[str, Any]) -> httpx.Response:
        return httpx.Response(400, json={"error": {"code": "context_length_exceeded"}})

    found = reader(too_long).ask(CASE, WHOLE)
    assert not found.fits and not found.is_right
    with pytest.raises(Refused, match="402"):
        reader(lambda asked: httpx.Response(402, text="no money")).ask(CASE, WHOLE)


def test_a_busy_server_is_asked_again_but_not_for_ever() -> None:
    replies = [httpx.Response(429, headers={"Retry-After": "0"}), streamed("Marie Curie")]
    assert reader(lambda asked: replies.pop(0)).ask(CASE, WHOLE).is_right
    asked: list[Mapping[str, Any]] = []

    def busy(body: Mapping[str, Any]) -> httpx.Response:
        asked.append(body)
        return httpx.Response(503, headers={"Retry-After": "0"})

    with pytest.raises(Refused, match="503"):
        reader(busy).ask(CASE, WHOLE)
    assert len(asked) == 8
