"""Requests of the comparison, one at a time, and what came of each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from benchmarks.answers.arms import Arm, body
from benchmarks.evaluation.case import Case, seeded
from benchmarks.evaluation.metrics import holds_answer

TIMEOUT_S = 600.0
TOO_LONG = "context_length_exceeded"


class Refused(RuntimeError):
    """The server refused a request, and not for its length; the message has the case, the status and the body."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply to one case in one arm. One that the model has no room for is wrong, and has no figures."""

    suite: str
    case: str
    arm: str
    text: str
    is_right: bool
    fits: bool
    prompt_tokens: int = 0
    cached_tokens: int = 0
    usd: float = 0.0
    ttft_s: float = 0.0
    total_s: float = 0.0


def answers(
    http: httpx.Client, cases: Sequence[Case], arms: Sequence[Arm], model: str | None
) -> Iterator[Answer]:
    """Each case in each arm, in an order drawn for the case: what an engine still has of the last arm's prompt then
    favours none. Raises `Refused`."""
    for case in cases:
        for arm in seeded(f"arms {case.name}").sample(list(arms), len(arms)):
            yield ask(http, case, arm, model)


def ask(http: httpx.Client, case: Case, arm: Arm, model: str | None) -> Answer:
    started = time.perf_counter()
    text, first_s = "", 0.0
    last: dict[str, Any] = {}
    with http.stream("POST", "/v1/chat/completions", json=body(case, arm, model)) as response:
        if response.status_code != 200:
            return _without_reply(case, arm, response)
        for event in _events(response):
            if "error" in event:
                raise Refused(f"{case.name} ({arm.name}): {event['error']}")
            said = _text_of(event)
            if said and not first_s:
                first_s = time.perf_counter() - started
            text += said
            last = event if event.get("usage") else last
    total_s = time.perf_counter() - started
    usage, service = last["usage"], last["service"]
    return Answer(
        case.suite,
        case.name,
        arm.name,
        text,
        is_right=holds_answer(text, case.answers),
        fits=True,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        usd=service["billing"]["request_cost_usd"] + (service.get("compression") or {}).get("cost_usd", 0.0),
        ttft_s=first_s or total_s,
        total_s=total_s,
    )


def _without_reply(case: Case, arm: Arm, response: httpx.Response) -> Answer:
    response.read()
    if TOO_LONG in response.text:
        return Answer(case.suite, case.name, arm.name, "", is_right=False, fits=False)
    raise Refused(f"{case.name} ({arm.name}): {response.status_code} {response.text[:500]}")


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield orjson.loads(line.removeprefix("data: "))


def _text_of(event: dict[str, Any]) -> str:
    return "".join((choice.get("delta") or {}).get("content") or "" for choice in event.get("choices") or ())
