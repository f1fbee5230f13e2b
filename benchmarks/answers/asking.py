"""One request of the comparison, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from benchmarks.answers.arms import Arm, body
from benchmarks.answers.prompts import Prompt
from benchmarks.evaluation.case import Case
from benchmarks.evaluation.metrics import holds_answer

TIMEOUT_S = 600.0
TOO_LONG = "context_length_exceeded"
ATTEMPTS = 8
BUSY = frozenset({429, 503})
LONGEST_WAIT_S = 30.0


class Refused(RuntimeError):
    """The server refused a request, and not for its length; the message has the case, the status and the body."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply to one case in one arm. One that the model has no room for is wrong, and has no figures. Times count
    where nothing else was asked meanwhile, `is_alone`."""

    suite: str
    case: str
    arm: str
    text: str
    is_right: bool
    fits: bool
    is_alone: bool = True
    prompt_tokens: int = 0
    cached_tokens: int = 0
    usd: float = 0.0
    ttft_s: float = 0.0
    total_s: float = 0.0
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """A running server's model, and the prompt that it is asked with. It may be asked by several threads."""

    http: httpx.Client
    prompt: Prompt
    model: str | None = None

    def ask(self, case: Case, arm: Arm, *, is_alone: bool = True) -> Answer:
        """Waits where the server says that it is busy. Raises `Refused`."""
        asked = body(case, arm, self.prompt, self.model)
        for attempt in range(ATTEMPTS):
            started = time.perf_counter()
            with self.http.stream("POST", "/v1/chat/completions", json=asked) as response:
                if response.status_code == 200:
                    return _answer(case, arm, response, started, is_alone=is_alone)
                response.read()
            if TOO_LONG in response.text:
                return Answer(
                    case.suite, case.name, arm.name, "", is_right=False, fits=False, is_alone=is_alone
                )
            if response.status_code not in BUSY:
                break
            time.sleep(min(LONGEST_WAIT_S, float(response.headers.get("Retry-After", 2**attempt / 10))))
        raise Refused(f"{case.name} ({arm.name}): {response.status_code} {response.text[:500]}")


def _answer(case: Case, arm: Arm, response: httpx.Response, started: float, *, is_alone: bool) -> Answer:
    text, first_s = "", 0.0
    last: dict[str, Any] = {}
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
        is_alone=is_alone,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        usd=service["billing"]["request_cost_usd"] + (service.get("compression") or {}).get("cost_usd", 0.0),
        ttft_s=first_s or total_s,
        total_s=total_s,
        request_id=response.headers.get("X-Request-ID", ""),
    )


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield orjson.loads(line.removeprefix("data: "))


def _text_of(event: dict[str, Any]) -> str:
    return "".join((choice.get("delta") or {}).get("content") or "" for choice in event.get("choices") or ())
