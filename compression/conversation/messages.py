"""Conversations as JSON: their shape, their messages as offsets, the texts and calls in them, and which go together."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """A stretch that is no JSON of its own: a text or, with `is_call`, the arguments of a call.

    Without its quotes, where it has any. `path` leads to a text from the message's content.
    """

    start: int
    end: int
    path: tuple[int, ...] = ()
    is_call: bool = False
    is_quoted: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """A message, a part of one, or another member of the request body. `inside` is all in it that is more than JSON.

    `is_text`: a part that is a text and no more, so that it may go where its text goes. `elements` are those of a
    member's array.
    """

    start: int
    end: int
    inside: tuple[Text | Parts, ...] = ()
    is_text: bool = False
    elements: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """A content that is an array, with its brackets."""

    start: int
    end: int
    parts: tuple[Part, ...]


Inside = Text | Parts


@dataclass(frozen=True, slots=True)
class Call:
    """Id and name of a call, as far as it or a result that answers it says them."""

    id: str | None
    name: str | None


@dataclass(slots=True)
class Message:
    """`raw[start:end]`, one message, or a member of a request body that holds text as messages do (role "").

    `inside` is in source order. `answers` are the calls that its results answer.
    """

    start: int
    end: int
    role: str
    inside: list[Inside] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Call] = field(default_factory=list)


def texts_in(inside: Iterable[Inside]) -> Iterator[Text]:
    """All texts and arguments, those of parts too, in source order."""
    for item in inside:
        if isinstance(item, Text):
            yield item
        else:
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
        message.answers.append(Call(value["tool_call_id"], None))
    elif value["role"] in ("tool", "function"):
        message.answers.append(Call(None, _string(value.get("name"))))
    message.inside.sort(key=lambda item: item.start)
    return message


def read_content(message: Message, raw: str, node: Node, value: Any) -> None:
    """Add what a content holds, and the calls and answers among its parts."""
    message.inside.extend(_content(message, raw, node, value, ()))


def _content(message: Message, raw: str, node: Node, value: Any, path: tuple[int, ...]) -> Iterator[Inside]:
    if isinstance(value, str):
        yield Text(node.value + 1, node.end - 1, path)
    elif isinstance(value, list):
        parts = tuple(
            _part(message, raw, child, part, (*path, number))
            for number, (child, part) in enumerate(zip(node.children, value, strict=True))
        )
        yield Parts(node.value, node.end, parts)


def _part(message: Message, raw: str, node: Node, value: Any, path: tuple[int, ...]) -> Part:
    start, end = node.start, node.end
    if isinstance(value, str):
        return Part(start, end, (Text(start + 1, end - 1, path),), is_text=True)
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        return Part(start, end)
    if kind in TEXT_PARTS and isinstance(value.get("text"), str):
        text = members_of(node)["text"]
        return Part(start, end, (Text(text.value + 1, text.end - 1, path),), is_text=True)
    if kind == "tool_use":
        message.calls.append(Call(_string(value.get("id")), _string(value.get("name"))))
        return Part(start, end, tuple(_arguments(raw, members_of(node).get("input"))))
    if kind == "tool_result" and len(path) == 1:
        message.answers.append(Call(_string(value.get("tool_use_id")), None))
        if "content" in value:
            found = _content(message, raw, members_of(node)["content"], value["content"], path)
            return Part(start, end, tuple(found))
    return Part(start, end)


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


def _arguments(raw: str, node: Node | None) -> Iterator[Text]:
    if node is None or node.end - node.value <= 2:
        return
    if raw[node.value] == '"':
        yield Text(node.value + 1, node.end - 1, is_call=True)
    elif raw[node.value] in "{[":
        yield Text(node.value, node.end, is_call=True, is_quoted=False)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def exchanges(messages: Sequence[Message]) -> list[int]:
    """For each message the number of the first one that it is kept or dropped with; its own if there is none earlier.

    A result answers the nearest earlier call of its id that nothing has answered yet, since real traces
    reuse ids; where all are answered, it is one more result of the last. A result without an id goes by the name of
    its tool, else by place. One that answers no call is by itself.
    """
    joined = _Joined(list(range(len(messages))))
    ledger = _Ledger()
    for number, message in enumerate(messages):
        for answer in message.answers:
            caller = ledger.answered_by(answer)
            if caller is not None:
                joined.join(caller, number)
        for call in message.calls:
            ledger.add(_Open(number, call.id, call.name))
    return [joined.first(number) for number in range(len(messages))]


@dataclass(slots=True)
class _Joined:
    """Sets of messages, each known by its first: union by place, paths halved."""

    above: list[int]

    def first(self, number: int) -> int:
        while self.above[number] != number:
            self.above[number] = self.above[self.above[number]]
            number = self.above[number]
        return number

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.first(one), self.first(other)))
        self.above[high] = low


@dataclass(slots=True)
class _Open:
    message: int
    id: str | None
    name: str | None
    is_answered: bool = False


@dataclass(slots=True)
class _Ledger:
    """The calls so far; those that wait for a result lie on stacks, the nearest on top."""

    _by_id: dict[str, list[_Open]] = field(default_factory=lambda: defaultdict(list))
    # Calls without an id wait under their name, and all of them under "".
    _by_name: dict[str, list[_Open]] = field(default_factory=lambda: defaultdict(list))
    _last: dict[str, _Open] = field(default_factory=dict)

    def add(self, call: _Open) -> None:
        names = {call.name or "", ""}
        if call.id is not None:
            self._by_id[call.id].append(call)
            self._last[f"id {call.id}"] = call
        else:
            for name in names:
                self._by_name[name].append(call)
                self._last[f"without id {name}"] = call
        for name in names:
            self._last[f"name {name}"] = call

    def answered_by(self, answer: Call) -> int | None:
        """The message of the call that this answers, which counts as answered from here on."""
        if answer.id is not None:
            found = _top(self._by_id.get(answer.id)) or self._last.get(f"id {answer.id}")
        else:
            found = self._named(answer.name or "")
        if found is None:
            return None
        # A call with an id keeps waiting for a result with that id.
        found.is_answered = found.is_answered or found.id == answer.id
        return found.message

    def _named(self, name: str) -> _Open | None:
        """The call that a result without an id answers: preferably one that has no id either."""
        waiting = _top(self._by_name.get(name))
        return waiting or self._last.get(f"without id {name}") or self._last.get(f"name {name}")


def _top(waiting: list[_Open] | None) -> _Open | None:
    while waiting and waiting[-1].is_answered:
        waiting.pop()
    return waiting[-1] if waiting else None
