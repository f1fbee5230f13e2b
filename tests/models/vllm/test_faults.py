"""A refusal of vLLM reaches the caller in the caller's terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models.engine import EngineFault, EngineRequest
from models.vllm.faults import located


def request(**options: Any) -> EngineRequest:
    return EngineRequest("1", "m", ({"role": "user", "content": "hi"},), 5, False, "ws", options)


SCHEMA = {"response_format": {"type": "json_schema"}}


@pytest.mark.parametrize(
    ("param", "options", "field"),
    [
        ("input_tokens", {}, "messages"),
        ("input_text", {}, "messages"),
        ("temperature", {}, "temperature"),
        (None, SCHEMA, "response_format"),
        (None, {"tools": []}, "tools"),
        (None, {}, None),
    ],
)
def test_the_field_is_the_callers(param: str | None, options: dict[str, Any], field: str | None) -> None:
    assert located(EngineFault("rejected", "no", param), request(**options)).param == field


def test_a_limit_that_nobody_gave_is_not_named() -> None:
    asked = replace(request(), max_tokens_field=None)
    fault = located(EngineFault("rejected", "max_tokens must be at least 1, got 0.", "max_tokens"), asked)
    assert (fault.param, fault.message) == ("messages", "the prompt leaves no room for a reply")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("too long (parameter=input_tokens, value=3585)", "too long"),
        ("bad id (parameter=logit_bias, value=[999999])", "bad id"),
        ("bad (parameter=stop)", "bad"),
        ("[13:58:55] /project/cpp/regex_converter.cc:83: unmatched (", "unmatched ("),
        ("a sentence (with brackets)", "a sentence (with brackets)"),
    ],
)
def test_a_message_holds_none_of_the_engines_insides(said: str, told: str) -> None:
    assert located(EngineFault("rejected", said), request()).message == told


def test_a_failure_is_no_fields_fault() -> None:
    assert located(EngineFault("failed", "died"), request(**SCHEMA)).param is None
