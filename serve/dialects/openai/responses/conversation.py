"""The input and the tools of the Responses API, as a chat's messages and tools."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from models.errors import EngineRejected, InvalidField, UnsupportedOption
from serve.dialects.openai.chat_completions import allowed_names
from serve.http.request_body import InvalidBody

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


Loc = tuple[str | int, ...]

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_NAMES: Mapping[Loc, Loc] = {
    ("messages",): ("input",),
    ("max_tokens",): ("max_output_tokens",),
    ("max_completion_tokens",): ("max_output_tokens",),
    ("response_format", "json_schema"): ("text", "format"),
    ("response_format",): ("text", "format"),
    ("reasoning_effort",): ("reasoning", "effort"),
    ("tool_choice", "function"): ("tool_choice",),
    ("logprobs",): ("include",),
}


@dataclass(slots=True)
class Places:
    """A place in the chat, or the beginning of one, to that in the body."""

    of: dict[Loc, Loc] = field(default_factory=lambda: dict(_NAMES))

    def renamed(self, error: Exception) -> Exception:
        """The same error in the terms of the body."""
        if isinstance(error, InvalidField):
            return InvalidField(self.found(error.loc), error.message, kind=error.kind)
        if isinstance(error, UnsupportedOption):
            return UnsupportedOption(self._dotted(error.option), error.reason)
        if isinstance(error, EngineRejected) and error.param is not None:
            renamed = EngineRejected(
                error.message, param=self._dotted(error.param), is_too_long=error.is_too_long
            )
            return renamed
        if isinstance(error, InvalidBody):
            # The first step is "body".
            issues = [replace(each, loc=("body", *self.found(each.loc[1:]))) for each in error.issues]
            return InvalidBody(tuple(issues))
        return error

    def found(self, loc: Loc) -> Loc:
        """The longest beginning that is known, and the rest as it is."""
        for end in range(len(loc), 0, -1):
            if loc[:end] in self.of:
                return (*self.of[loc[:end]], *loc[end:])
        return loc

    def _dotted(self, path: str) -> str:
        steps = tuple(int(at) if at else name for at, name in _STEP.findall(path))
        return dotted(self.found(steps))


def dotted(loc: Sequence[str | int]) -> str:
    """The path as OpenAI's errors write it: `input[3].content[0]`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return "".join(steps).removeprefix(".")


_ROLES = frozenset({"user", "system", "developer", "assistant"})
_TEXTS = frozenset({"input_text", "output_text", "text"})
MAX_NAME_CHARS = 64
# Between a namespace and a name of it, and what a digest of both has.
SEPARATOR = "__"
DIGEST_CHARS = 10
NOT_STORED = "is not stored here, or no longer; send the items themselves (clients do so with store: false)"


class Conversation:
    """Messages, built item by item; `places` learns where each part of them stands in the body.

    What an item lacks, or has of a wrong type, is refused where the chat is checked, under its own name.
    """

    def __init__(self, places: Places) -> None:
        self.messages: list[dict[str, Any]] = []
        self._places = places

    def instruct(self, instructions: str) -> None:
        self._places.of[("messages", 0, "content")] = ("instructions",)
        self._append({"role": "system", "content": instructions}, ("instructions",))

    def add(self, item: Mapping[str, Any], loc: Loc) -> None:
        """Raises `UnsupportedOption` or `InvalidField` for an item that cannot be part of a chat."""
        kind = item.get("type", "message" if "role" in item else None)
        if not isinstance(kind, str):
            raise InvalidField((*loc, "type"), "must be a string, such as message", kind="string_type")
        if kind in _KINDS:
            _KINDS[kind](self, item, loc)
        elif kind == "item_reference":
            raise UnsupportedOption(dotted(loc), f"the item {NOT_STORED}")
        else:
            named = kind[:MAX_NAME_CHARS]
            raise UnsupportedOption(f"{dotted(loc)}.type", f"items of type {named} are not offered")

    def _message(self, item: Mapping[str, Any], loc: Loc) -> None:
        role = item.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise InvalidField((*loc, "role"), f"must be one of {', '.join(sorted(_ROLES))}")
        content = self._content(item.get("content"), (*loc, "content"))
        if role == "assistant" and self._last_is_only_reasoning():
            self._places.of[("messages", len(self.messages) - 1)] = loc
            self.messages[-1]["content"] = content
            return
        self._append({"role": role, "content": content}, loc)

    def _reasoning(self, item: Mapping[str, Any], loc: Loc) -> None:
        """Add what is readable of it; a summary, or what is encrypted, has no effect."""
        parts = item.get("content")
        texts = (
            [part.get("text") for part in parts if isinstance(part, Mapping)]
            if isinstance(parts, list)
            else []
        )
        text = "".join(each for each in texts if isinstance(each, str))
        if text:
            self._append({"role": "assistant", "content": None, "reasoning": text}, loc)

    def _call(self, item: Mapping[str, Any], loc: Loc) -> None:
        name, namespace = item.get("name"), item.get("namespace")
        if isinstance(name, str) and isinstance(namespace, str):
            name = function_name(name, namespace)
        self._append_call(item, {"name": name, "arguments": item.get("arguments")}, loc)

    def _custom_call(self, item: Mapping[str, Any], loc: Loc) -> None:
        """Add a call of a tool that another model was offered: its input is text, and arguments are JSON."""
        arguments = json.dumps({"input": item.get("input")}, ensure_ascii=False)
        self._append_call(item, {"name": item.get("name"), "arguments": arguments}, loc)

    def _append_call(self, item: Mapping[str, Any], function: dict[str, Any], loc: Loc) -> None:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self._append({"role": "assistant", "content": None}, loc)
        calls = self.messages[-1].setdefault("tool_calls", [])
        at: Loc = ("messages", len(self.messages) - 1, "tool_calls", len(calls))
        self._places.of |= {at: loc, (*at, "function"): loc, (*at, "id"): (*loc, "call_id")}
        calls.append({"id": item.get("call_id"), "type": "function", "function": function})

    def _output(self, item: Mapping[str, Any], loc: Loc) -> None:
        call_id = item.get("call_id")
        if not isinstance(call_id, str):
            raise InvalidField((*loc, "call_id"), "must be a string", kind="string_type")
        at: Loc = ("messages", len(self.messages))
        self._places.of |= {
            (*at, "content"): (*loc, "output"),
            (*at, "tool_call_id"): (*loc, "call_id"),
        }
        content = self._content(item.get("output"), (*loc, "output"))
        self._append({"role": "tool", "tool_call_id": call_id, "content": content}, loc)

    def _content(self, content: Any, loc: Loc) -> Any:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise InvalidField(loc, "must be a string or a list of objects", kind="content_type")
        return [self._part(part, (*loc, at)) for at, part in enumerate(content)]

    def _part(self, part: Any, loc: Loc) -> Any:
        if not isinstance(part, Mapping):
            raise InvalidField(loc, "must be an object", kind="dict_type")
        kind = part.get("type")
        if not isinstance(kind, str):
            raise InvalidField((*loc, "type"), "must be a string, such as input_text", kind="string_type")
        if kind in _TEXTS:
            # A part may be marked for compression.
            marks = {"compress": part["compress"]} if "compress" in part else {}
            return {"type": "text", "text": part.get("text"), **marks}
        if kind == "input_image":
            if part.get("image_url") is None:
                raise UnsupportedOption(dotted(loc), "files are not stored; send image_url, a data: URL")
            image = {"url": part["image_url"], "detail": part.get("detail")}
            at = ("messages", len(self.messages), "content", loc[-1])
            self._places.of |= {(*at, "image_url"): loc, (*at, "image_url", "url"): (*loc, "image_url")}
            return {"type": "image_url", "image_url": image}
        return part

    def _last_is_only_reasoning(self) -> bool:
        last = self.messages[-1] if self.messages else {}
        return last.get("role") == "assistant" and last["content"] is None and "tool_calls" not in last

    def _append(self, message: dict[str, Any], loc: Loc) -> None:
        self._places.of[("messages", len(self.messages))] = loc
        self.messages.append(message)


_KINDS: Mapping[str, Callable[[Conversation, Mapping[str, Any], Loc], None]] = {
    "message": Conversation._message,
    "reasoning": Conversation._reasoning,
    "function_call": Conversation._call,
    "function_call_output": Conversation._output,
    "custom_tool_call": Conversation._custom_call,
    "custom_tool_call_output": Conversation._output,
}


def function_name(name: str, namespace: str) -> str:
    """The name of a namespace's function in the prompt; of a name that would be too long, a digest tells it
    from others."""
    whole = f"{namespace}{SEPARATOR}{name}"
    if len(whole) <= MAX_NAME_CHARS:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:DIGEST_CHARS]
    return f"{whole[: MAX_NAME_CHARS - DIGEST_CHARS - 1]}_{digest}"
