"""What OpenAI's clients send for `tool_choice` beyond the contract: the words as objects, and the tools it allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from models.errors import InvalidField
from serve.chat.message_shapes import Objects
from serve.chat.request import read_tool_choice

WORDS = ("none", "auto", "required")
ALLOWED = "allowed_tools"
MAX_TOOLS = 128


class AllowedTools(BaseModel):
    """Some of the tools, of which the model may call one, or must."""

    model_config = ConfigDict(strict=True, extra="ignore")

    mode: Literal["auto", "required"] = "auto"
    tools: Objects = Field(max_length=MAX_TOOLS)


class AllowedToolsChoice(BaseModel):
    """A chat's choice has them in an object of their own, a response's beside its type."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def choice_word(choice: Any) -> Any:
    """The word that an object stands for, as in `{"type": "auto"}`; else the choice as it is."""
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    return kind if isinstance(kind, str) and kind in WORDS else choice


def allowed_names(tools: list[Mapping[str, Any]]) -> frozenset[str]:
    """The functions that a list of allowed tools names, as a chat or as a response does."""
    functions = (each.get("function", each) for each in tools)
    names = (each.get("name") for each in functions if isinstance(each, Mapping))
    return frozenset(name for name in names if isinstance(name, str))


def with_allowed_tools(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of a chat's options, those tools that its choice allows. Raises `InvalidField` where it allows none of them."""
    choice, tools = options.get("tool_choice"), options.get("tools") or []
    if not isinstance(choice, Mapping) or choice["type"] != ALLOWED:
        return dict(options)
    allowed = choice[ALLOWED]
    names = allowed_names(allowed["tools"])
    kept = [tool for tool in tools if (tool.get("function") or {}).get("name") in names]
    if not kept:
        raise InvalidField(("tool_choice", ALLOWED, "tools"), "has none of the functions in tools")
    return {**options, "tools": kept, "tool_choice": allowed["mode"]}


def _read(value: Any) -> str | dict[str, Any]:
    choice = choice_word(value)
    if isinstance(choice, dict) and choice.get("type") == ALLOWED:
        return AllowedToolsChoice.model_validate(choice).model_dump()
    return read_tool_choice(choice)


OpenAIToolChoice = Annotated[str | dict[str, Any], PlainValidator(_read)]
