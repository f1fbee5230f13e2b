"""vLLM's refusals and failures in the service's terms: with the body's field, and none of vLLM's insides."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from models.engine import EngineFault, EngineRequest
from models.structured_outputs import OPTIONS

if TYPE_CHECKING:
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

# vLLM appends its own parameter's name and value; xgrammar begins with a time and a line of its source.
_EXTRAS = re.compile(r" \(parameter=\w++(?:, value=|\)$)")
_SOURCE_LINE = re.compile(r"\[\d\d:\d\d:\d\d\] [^\s:]++:\d++: ")
_PROMPT = frozenset({"input_tokens", "input_text", "prompt"})
# What vLLM names where prompt and reply do not fit the context.
_TOO_LONG = frozenset(
    {"input_tokens", "input_text", "max_tokens", "max_completion_tokens", "max_output_tokens"}
)


def refusal(error: Exception, request: EngineRequest) -> EngineFault:
    """The fault for an exception that vLLM raised while it read a request."""
    if isinstance(error, ValidationError):
        message = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    else:
        message = str(error)
    return located(EngineFault("rejected", message, getattr(error, "parameter", None)), request)


def fault_of(reply: ErrorResponse) -> EngineFault:
    """vLLM's error object as a fault, by the status that vLLM gave it."""
    error = reply.error
    if error.code < 500:
        return EngineFault("rejected", error.message, param=error.param)
    if error.code == 503:
        return EngineFault("unavailable", "the engine is too busy to take this request")
    return EngineFault("failed", "the engine could not complete this request")


def unknown_form(request: EngineRequest) -> EngineFault:
    """For an engine that does not answer in the form that was asked for."""
    return EngineFault("rejected", f"this model does not answer in the form {request.form!r}", "model")


def located(fault: EngineFault, request: EngineRequest) -> EngineFault:
    """The fault with the field of the caller's body that it is about, if that can be determined."""
    if fault.kind != "rejected":
        return fault
    fault = replace(fault, is_too_long=fault.param in _TOO_LONG)
    prompt = "prompt" if request.form == "completion" else "messages"
    if fault.param == "max_tokens" and request.max_tokens_field is None:
        # The caller gave no token limit: there is no room for any token.
        return replace(fault, message="the prompt leaves no room for a reply", param=prompt)
    param = prompt if fault.param in _PROMPT else fault.param or constrained_by(request)
    return replace(fault, message=without_internals(fault.message), param=param)


def constrained_by(request: EngineRequest) -> str | None:
    """The field that holds the reply to a grammar, if one does: what vLLM chokes on without naming it."""
    fields = ("response_format", "tools", *OPTIONS)
    return next((name for name in fields if name in request.options), None)


def without_internals(message: str) -> str:
    extras = _EXTRAS.search(message)
    if extras is not None and message.endswith(")"):
        message = message[: extras.start()]
    return _SOURCE_LINE.sub("", message)
