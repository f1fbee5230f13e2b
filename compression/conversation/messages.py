"""Conversations as JSON: their shape, their messages as offsets, the texts and calls in them, and answers to calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from compression.source.json_tree import Node, json_value, read_tree

TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_CALLS = ("tool_calls", "function_call")


def is_conversation(value: object) -> bool:
    """True where parsed JSON is an array of messages or an object with such an array as `messages`."""
    return fault_in(value) is None


def fault_in(value: object) -> str | None:
    """None where parsed JSON is a conversation; else what keeps it from being one, with its place.

    A message is an object with a string `role` whose `content`, where it has any, is a string, null, or an array of
    strings and of objects. Some message must have a content or a call: records with just a role are not messages.
    """
    if isinstance(value, dict):
        found = _fault_in_messages(value.get("messages"))
        return None if found is None else f"messages{found}"
    return _fault_in_messages(value)


def _fault_in_messages(value: object) -> str | None:
    if not isinstance(value, list):
        return ": must be an array of messages"
    if not value:
        return ": must hold a message"
    for number, message in enumerate(value):
        fault = _fault_in_message(message)
        if fault is not None:
            return f"[{number}]{fault}"
    if not any("content" in message or has_calls(message) for message in value):
        return ": no message has a content"
    return None


def has_calls(message: Mapping[str, object]) -> bool:
    return any(message.get(key) for key in _CALLS)


def _fault_in_message(message: object) -> str | None:
    if not isinstance(message, dict):
        return ": must be an object"
    if not isinstance(message.get("role"), str) or not message["role"]:
        return ".role: must be a string that is not empty"
    content = message.get("content")
    if content is None or isinstance(content, str):
        return None
    if not isinstance(content, list):
        return ".content: must be a string, null or an array of parts"
    for number, part in enumerate(content):
        fault = _fault_in_part(part)
        if fault is not None:
            return f".content[{number}]{fault}"
    return None


def _fault_in_part(part: object) -> str | None:
    if isinstance(part, str):
        return None
    if not isinstance(part, dict):
        return ": must be an object"
    if part.get("type") in TEXT_PARTS and not isinstance(part.get("text"), str):
        return ".text: must be a string"
    return None


_WHITE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Text:
    """The inside of a JSON string, without its quotes. `path` leads to it from the message's content."""

    path: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a call: `raw[start:end]`, without quotes where it is a string."""

    start: int
    end: int
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class Part:
    """An element of a content that is an array. `inside` is what of it is text, arguments, or again an array."""

    start: int
    end: int
    is_text: bool
    inside: tuple[Text | Arguments | Parts, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """A content that is an array: `raw[start:end]` with its brackets."""

    start: int
    end: int
    parts: tuple[Part, ...]


Inside = Text | Arguments | Parts


@dataclass(frozen=True, slots=True)
class Call:
    id: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Id and name of the call that a result answers, as far as it says them."""

    id: str | None
    name: str | None


@dataclass(slots=True)
class Message:
    """`raw[start:end]`, one message, or a member of a request body that holds text as messages do (role "").

    `inside` is, in source order, all in it that is more than its JSON.
    """

    start: int
    end: int
    role: str
    inside: list[Inside] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    @property
    def texts(self) -> Iterator[Text]:
        """All texts, in source order."""
        return texts_in(self.inside)


def texts_in(inside: Iterable[Inside]) -> Iterator[Text]:
    for item in inside:
        if isinstance(item, Text):
            yield item
        elif isinstance(item, Parts):
            for part in item.parts:
                yield from texts_in(part.inside)


@dataclass(frozen=True, slots=True)
class Conversation:
    """`array` is the array of messages; `body` the request body around it, where there is one."""

    raw: str
    array: Node
    body: Node | None
    messages: tuple[Message, ...]


def read_conversation(raw: str) -> Conversation | None:
    """None where `raw` as a whole is not a conversation. The work grows with its length."""
    start = len(raw) - len(raw.lstrip(_WHITE))
    # This alone tells nearly all other JSON from a conversation.
    if raw[start : start + 1] not in ("[", "{") or '"role"' not in raw:
        return None
    found = json_value(raw, start)
    if found is None or raw[found[1] :].strip(_WHITE) or not is_conversation(found[0]):
        return None
    value, end = found
    root = read_tree(raw, start, end)
    body = root if isinstance(value, dict) else None
    array, messages = (members_of(root)["messages"], value["messages"]) if body else (root, value)
    read = [_message(raw, node, item) for node, item in zip(array.children, messages, strict=True)]
    return Conversation(raw, array, body, tuple(read))


def members_of(node: Node) -> dict[str, Node]:
    """The members of an object by key; of those that share one, the last, as JSON is read."""
    return {key_of(child): child for child in node.children}


def key_of(member: Node) -> str:
    key = member.key or '""'
    return str(json.loads(key)) if "\\" in key else key[1:-1]


def _message(raw: str, node: Node, value: Mapping[str, Any]) -> Message:
    message = Message(node.start, node.end, value["role"])
    members = members_of(node)
    if value.get("content") is not None:
        read_content(message, raw, members["content"], value["content"])
    _add_calls(message, raw, members, value)
    if isinstance(value.get("tool_call_id"), str):
        message.answers.append(Answer(value["tool_call_id"], None))
    elif value["role"] in ("tool", "function"):
        message.answers.append(Answer(None, _string(value.get("name"))))
    message.inside.sort(key=lambda item: item.start)
    return message


def read_content(message: Message, raw: str, node: Node, value: Any) -> None:
    """Add what a content holds, and the calls and answers among its parts."""
    message.inside.extend(_content(message, raw, node, value, ()))


def _content(message: Message, raw: str, node: Node, value: Any, path: tuple[int, ...]) -> Iterator[Inside]:
    if isinstance(value, str):
        yield Text(path, node.value + 1, node.end - 1)
    elif isinstance(value, list):
        parts = tuple(
            _part(message, raw, child, part, (*path, number))
            for number, (child, part) in enumerate(zip(node.children, value, strict=True))
        )
        yield Parts(node.value, node.end, parts)


def _part(message: Message, raw: str, node: Node, value: Any, path: tuple[int, ...]) -> Part:
    start, end = node.start, node.end
    if isinstance(value, str):
        return Part(start, end, True, (Text(path, start + 1, end - 1),))
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        return Part(start, end, False)
    if kind in TEXT_PARTS and isinstance(value.get("text"), str):
        text = members_of(node)["text"]
        return Part(start, end, True, (Text(path, text.value + 1, text.end - 1),))
    if kind == "tool_use":
        message.calls.append(Call(_string(value.get("id")), _string(value.get("name"))))
        return Part(start, end, False, tuple(_arguments(raw, members_of(node).get("input"))))
    if kind == "tool_result" and len(path) == 1:
        message.answers.append(Answer(_string(value.get("tool_use_id")), None))
        if "content" in value:
            found = _content(message, raw, members_of(node)["content"], value["content"], path)
            return Part(start, end, False, tuple(found))
    return Part(start, end, False)


def _add_calls(message: Message, raw: str, members: Mapping[str, Node], value: Mapping[str, Any]) -> None:
    calls = value.get("tool_calls")
    if isinstance(calls, list):
        for node, call in zip(members["tool_calls"].children, calls, strict=True):
            if isinstance(call, dict):
                _add_call(message, raw, node, call)
    if isinstance(value.get("function_call"), dict):
        _add_function(message, raw, members["function_call"], value["function_call"], None)


def _add_call(message: Message, raw: str, node: Node, value: Mapping[str, Any]) -> None:
    identity = _string(value.get("id"))
    function = value.get("function")
    if isinstance(function, dict):
        _add_function(message, raw, members_of(node)["function"], function, identity)
    else:
        _add_function(message, raw, node, value, identity)


def _add_function(
    message: Message, raw: str, node: Node, value: Mapping[str, Any], identity: str | None
) -> None:
    message.calls.append(Call(identity, _string(value.get("name"))))
    message.inside.extend(_arguments(raw, members_of(node).get("arguments")))


def _arguments(raw: str, node: Node | None) -> Iterator[Arguments]:
    if node is None or node.end - node.value <= 2:
        return
    if raw[node.value] == '"':
        yield Arguments(node.value + 1, node.end - 1, is_quoted=True)
    elif raw[node.value] in "{[":
        yield Arguments(node.value, node.end, is_quoted=False)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
