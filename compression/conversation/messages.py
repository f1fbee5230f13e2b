"""The messages of a conversation as offsets into its JSON: their texts, their calls, and which calls they answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from compression.conversation.shape import TEXT_PARTS, is_conversation
from compression.json_tree import Node, json_value, read_tree

Span = tuple[int, int]
_WHITE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Text:
    """The inside of a JSON string, without its quotes. `path` leads to it from the message's content."""

    path: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. `arguments` is their span, without quotes where they are a string; None where it has none."""

    id: str | None
    name: str | None
    arguments: Span | None
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a result says of the call that it answers."""

    id: str | None
    name: str | None


@dataclass(slots=True)
class Message:
    """`raw[start:end]`, one message, or a member of a request body that holds text as messages do (role "")."""

    start: int
    end: int
    role: str
    texts: list[Text] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Conversation:
    """`array` is the array of messages; `body` the request body around it, where there is one."""

    raw: str
    array: Node
    body: Node | None
    messages: tuple[Message, ...]


def read_conversation(raw: str) -> Conversation | None:
    """None where `raw` as a whole is no conversation. The work grows with its length."""
    start = len(raw) - len(raw.lstrip(_WHITE))
    # Nearly all JSON is told from a conversation by this alone.
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
        read_content(message, raw, members["content"], value["content"], ())
    message.calls.extend(_calls(raw, members, value))
    if isinstance(value.get("tool_call_id"), str):
        message.answers.append(Answer(value["tool_call_id"], None))
    elif value["role"] in ("tool", "function"):
        message.answers.append(Answer(None, _string(value.get("name"))))
    return message


def read_content(message: Message, raw: str, node: Node, value: Any, path: tuple[int, ...]) -> None:
    """Add the texts of a content, and the calls and answers that stand among its parts."""
    if isinstance(value, str):
        message.texts.append(Text(path, node.value + 1, node.end - 1))
    elif isinstance(value, list):
        for number, (child, part) in enumerate(zip(node.children, value, strict=True)):
            if isinstance(part, str):
                message.texts.append(Text((*path, number), child.start + 1, child.end - 1))
            elif isinstance(part, dict):
                _part(message, raw, child, part, (*path, number))


def _part(message: Message, raw: str, node: Node, value: Mapping[str, Any], path: tuple[int, ...]) -> None:
    kind = value.get("type")
    if isinstance(kind, str) and kind in TEXT_PARTS and isinstance(value.get("text"), str):
        text = members_of(node)["text"]
        message.texts.append(Text(path, text.value + 1, text.end - 1))
    elif kind == "tool_use":
        name, call = _string(value.get("name")), _string(value.get("id"))
        message.calls.append(Call(call, name, *_arguments(raw, members_of(node).get("input"))))
    elif kind == "tool_result" and len(path) == 1:
        message.answers.append(Answer(_string(value.get("tool_use_id")), None))
        if "content" in value:
            read_content(message, raw, members_of(node)["content"], value["content"], path)


def _calls(raw: str, members: Mapping[str, Node], value: Mapping[str, Any]) -> Iterator[Call]:
    calls = value.get("tool_calls")
    if isinstance(calls, list):
        for node, call in zip(members["tool_calls"].children, calls, strict=True):
            if isinstance(call, dict):
                yield _call(raw, node, call)
    if isinstance(value.get("function_call"), dict):
        yield _function(raw, members["function_call"], value["function_call"], None)


def _call(raw: str, node: Node, value: Mapping[str, Any]) -> Call:
    identity = _string(value.get("id"))
    function = value.get("function")
    if isinstance(function, dict):
        return _function(raw, members_of(node)["function"], function, identity)
    return _function(raw, node, value, identity)


def _function(raw: str, node: Node, value: Mapping[str, Any], identity: str | None) -> Call:
    return Call(identity, _string(value.get("name")), *_arguments(raw, members_of(node).get("arguments")))


def _arguments(raw: str, node: Node | None) -> tuple[Span | None, bool]:
    if node is None or node.end - node.value <= 2:
        return None, False
    if raw[node.value] == '"':
        return (node.value + 1, node.end - 1), True
    return ((node.value, node.end), False) if raw[node.value] in "{[" else (None, False)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
