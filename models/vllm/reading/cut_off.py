"""A reply that ran out of tokens within a tool call says so. vLLM says of every call that it is complete."""

from collections.abc import Set
from typing import Any

import orjson

_COMPLETE = '"finish_reason":"tool_calls"'


def told_cut_off(event: str, cut_off: Set[int]) -> str:
    """A server-sent event of a chat's stream; `cut_off` are the choices that the token limit ended.

    Whoever is told `tool_calls` parses the arguments and calls; of half a call that fails, or does the wrong thing.
    """
    # Inside a text its quotes would be escaped.
    if not cut_off or _COMPLETE not in event:
        return event
    chunk = orjson.loads(event.removeprefix("data: "))
    for choice in chunk["choices"]:
        if choice["index"] in cut_off:
            choice["finish_reason"] = "length"
    return f"data: {orjson.dumps(chunk).decode()}\n\n"


def told_end(choice: Any, cut_off: Set[int]) -> str:
    """Why a choice of a reply in one piece ended, in the words of its stream. vLLM says of a call that was demanded
    that there is one, whether there is or not."""
    if choice.finish_reason != "tool_calls":
        return str(choice.finish_reason)
    if choice.index in cut_off:
        return "length"
    return "tool_calls" if choice.message.tool_calls else "stop"
