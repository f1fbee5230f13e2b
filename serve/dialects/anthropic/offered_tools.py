"""The tools of a request, and whether one must be used, in a chat's words."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from models.errors import InvalidField, UnsupportedOption
from serve.dialects.anthropic.blocks import MAX_NAMED_CHARS, Loc, text_of
from serve.dialects.anthropic.message_body import AnthropicRequest, AnthropicToolChoice, AnthropicTurn

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def tool_options(body: AnthropicRequest) -> dict[str, Any]:
    """`tools`, `tool_choice` and `parallel_tool_calls` of a chat; empty without tools. Raises `InvalidField`, and
    `UnsupportedOption` for a tool that Anthropic's servers run, or that its models know without a schema."""
    options: dict[str, Any] = {}
    choice = body.tool_choice
    if body.tools:
        options["tools"] = [_function(tool, ("tools", at)) for at, tool in _loaded(body)]
    if choice is not None:
        options["tool_choice"] = _choice(choice)
        if choice.disable_parallel_tool_use:
            options["parallel_tool_calls"] = False
    return options


def _choice(choice: AnthropicToolChoice) -> str | dict[str, Any]:
    if choice.type == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return _CHOICES[choice.type]


def _loaded(body: AnthropicRequest) -> list[tuple[int, dict[str, Any]]]:
    """The tools without those that are to be kept back until the conversation has found them."""
    tools = list(enumerate(body.tools or ()))
    if not any(tool.get("defer_loading") is True for _, tool in tools):
        return tools
    found = set(_referred(body.messages))
    if body.tool_choice is not None:
        found.add(body.tool_choice.name)
    kept = [(at, tool) for at, tool in tools if tool.get("defer_loading") is not True or _is_in(found, tool)]
    return kept or tools


def _is_in(names: Collection[Any], tool: Mapping[str, Any]) -> bool:
    name = tool.get("name")
    return isinstance(name, str) and name in names


def _referred(messages: Iterable[AnthropicTurn]) -> Iterator[Any]:
    for turn in messages:
        for block in turn.content if isinstance(turn.content, list) else ():
            inner = block.get("content") if block.get("type") == "tool_result" else None
            for each in inner if isinstance(inner, list) else ():
                name = each.get("tool_name") if isinstance(each, Mapping) else None
                if isinstance(name, str) and each.get("type") == "tool_reference":
                    yield name


def _function(tool: Mapping[str, Any], loc: Loc) -> dict[str, Any]:
    kind = tool.get("type", "custom")
    if kind not in ("custom", None):
        reason = "only tools of one's own, with an input_schema, are offered"
        raise UnsupportedOption(f"tools.{loc[1]}.type", f"{str(kind)[:MAX_NAMED_CHARS]}: {reason}")
    name, schema = text_of(tool, loc, "name"), tool.get("input_schema")
    if not _NAME.fullmatch(name):
        raise InvalidField((*loc, "name"), "must be 1 to 128 letters, digits, _ or -")
    if not isinstance(schema, dict):
        raise InvalidField((*loc, "input_schema"), "must be an object", kind="dict_type")
    function: dict[str, Any] = {"name": name, "parameters": {"type": "object", **schema}}
    if tool.get("description") is not None:
        function["description"] = text_of(tool, loc, "description")
    return {"type": "function", "function": function}
