"""A response's tools as a chat's: functions as they are, those of a namespace under a name that tells both.

What OpenAI itself would run (web search, a shell) is not offered. Agents name such tools whatever the model, so beside
a function they are left out, and the reply's `tools` says which were offered; where nothing else is offered, or the
choice names one, the request is refused. Others change what an answer rests on, such as a file search: they are refused
always.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.errors import InvalidField, UnsupportedOption
from serve.dialects.openai.chat_completions import allowed_names
from serve.dialects.openai.responses.conversation import MAX_NAME_CHARS, Loc, Places, dotted, function_name

LEFT_OUT = frozenset(
    {
        "web_search",
        "web_search_preview",
        "local_shell",
        "shell",
        "apply_patch",
        "custom",
        "image_generation",
        "tool_search",
    }
)
_REASON = "only functions are offered"


@dataclass(slots=True)
class OfferedTools:
    """`chat` has the functions as a chat has them, `shown` what the reply says was offered. `namespaces` has those of a
    namespace: their name in the prompt to `[namespace, name]`."""

    chat: list[dict[str, Any]] = field(default_factory=list)
    shown: list[dict[str, Any]] = field(default_factory=list)
    namespaces: dict[str, list[str]] = field(default_factory=dict)
    # None: all.
    allowed: frozenset[str] | None = None


def offered_tools(tools: Sequence[Mapping[str, Any]], choice: Any, places: Places) -> OfferedTools:
    """Raises `UnsupportedOption` for a tool that is not offered, `InvalidField` for one that is malformed."""
    offered = OfferedTools(allowed=_allowed_names(choice))
    left_out: list[UnsupportedOption] = []
    for index, tool in enumerate(tools):
        loc: Loc = ("tools", index)
        kind = _kind(tool, loc)
        if kind == "function":
            offered.shown += _add(offered, tool, loc, places)
        elif kind == "namespace":
            offered.shown += _add_namespace(offered, tool, loc, places)
        elif _is_left_out(kind):
            left_out.append(_not_offered(f"{dotted(loc)}.type", kind))
        else:
            raise _not_offered(f"{dotted(loc)}.type", kind)
    if left_out and not offered.chat:
        raise left_out[0]
    return offered


def chat_choice(choice: Any) -> Any:
    """The choice as a chat has it. Raises `UnsupportedOption` or `InvalidField`."""
    if not isinstance(choice, Mapping):
        return choice
    kind = _kind(choice, ("tool_choice",))
    if kind == "allowed_tools":
        return choice.get("mode", "auto")
    if kind != "function":
        raise _not_offered("tool_choice.type", kind)
    return {"type": "function", "function": {"name": choice.get("name")}}


def shown_choice(choice: Any) -> Any:
    """The reply's form of a choice that was checked."""
    if not isinstance(choice, Mapping):
        return "auto" if choice is None else choice
    if choice["type"] == "function":
        return {"type": "function", "name": choice["name"]}
    allowed = [{"type": "function", "name": name} for name in sorted(_allowed_names(choice) or ())]
    return {"type": "allowed_tools", "mode": choice.get("mode", "auto"), "tools": allowed}


def _allowed_names(choice: Any) -> frozenset[str] | None:
    """The functions that the choice allows; None: all."""
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return None
    allowed = choice.get("tools")
    if not isinstance(allowed, list) or not all(isinstance(each, Mapping) for each in allowed):
        raise InvalidField(("tool_choice", "tools"), "must be a list of objects", kind="list_type")
    return allowed_names(allowed)


def _add_namespace(
    offered: OfferedTools, tool: Mapping[str, Any], loc: Loc, places: Places
) -> list[dict[str, Any]]:
    inner = tool.get("tools")
    if not isinstance(inner, list) or not all(isinstance(each, Mapping) for each in inner):
        raise InvalidField((*loc, "tools"), "must be a list of objects", kind="list_type")
    name = _name(tool, loc)
    functions = list(_functions_of(inner, (*loc, "tools")))
    shown = [each for tool, at in functions for each in _add(offered, tool, at, places, namespace=name)]
    description = tool.get("description")
    description = description if isinstance(description, str) else ""
    if not shown:
        return []
    return [{"type": "namespace", "name": name, "description": description, "tools": shown}]


def _functions_of(tools: Sequence[Mapping[str, Any]], loc: Loc) -> Iterator[tuple[Mapping[str, Any], Loc]]:
    for index, tool in enumerate(tools):
        kind = _kind(tool, (*loc, index))
        if kind == "function":
            yield tool, (*loc, index)
        elif not _is_left_out(kind):
            raise _not_offered(f"{dotted((*loc, index))}.type", kind)


def _add(
    offered: OfferedTools, tool: Mapping[str, Any], loc: Loc, places: Places, *, namespace: str = ""
) -> list[dict[str, Any]]:
    """Offer a function, and return what is shown of it; nothing of one that is not allowed."""
    name = _name(tool, loc)
    if offered.allowed is not None and name not in offered.allowed:
        return []
    places.of |= {("tools", len(offered.chat), "function"): loc, ("tools", len(offered.chat)): loc}
    keys = ("description", "parameters", "strict")
    function = {key: tool[key] for key in keys if tool.get(key) is not None}
    called = function_name(name, namespace) if namespace else name
    if namespace:
        offered.namespaces[called] = [namespace, name]
    offered.chat.append({"type": "function", "function": {"name": called, **function}})
    shown = {"type": "function", "name": name, **dict.fromkeys(keys)}
    return [shown | function]


def _name(tool: Mapping[str, Any], loc: Loc) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        message = f"must be a string of 1 to {MAX_NAME_CHARS} characters"
        raise InvalidField((*loc, "name"), message, kind="string_type")
    return name


def _kind(tool: Mapping[str, Any], loc: Loc) -> str:
    kind = tool.get("type")
    if not isinstance(kind, str):
        raise InvalidField((*loc, "type"), "must be a string, such as function", kind="string_type")
    return kind[:MAX_NAME_CHARS]


def _is_left_out(kind: str) -> bool:
    # Such as `web_search_preview_2025_03_11`.
    return kind in LEFT_OUT or kind.startswith("web_search_")


def _not_offered(where: str, kind: str) -> UnsupportedOption:
    return UnsupportedOption(where, f"{kind} is not offered here; {_REASON}")
