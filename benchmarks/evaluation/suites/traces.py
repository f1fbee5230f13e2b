"""Agents' traces: what the next tool call repeats of earlier results, and whether the rest is a conversation."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evaluation import datasets
from benchmarks.evaluation.case import Case, Need, Span, join, spans_of

LONG = 6_000  # characters of JSON
SHORTEST_VALUE = 4  # characters
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """The messages as an agent sent them; traces of one task have the same `task`."""

    task: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """Before a tool call: the history without the system's message, the user's last words, the values it needs."""

    history: tuple[Message, ...]
    query: str
    values: tuple[str, ...]


def trace(row: dict[str, Any]) -> Trace:
    for message in row["messages"]:
        if not isinstance(message["role"], str):
            raise ValueError("a message's role is not a string")
    return Trace(str(row["task_id"]), tuple(row["messages"]))


def as_json(messages: Sequence[Message]) -> str:
    return json.dumps(list(messages), indent=1)


def calls_of(message: Message) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def leaves(value: Any) -> Iterator[str]:
    """Every value in JSON that is not a list or an object, as text."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def moment(trace: Trace) -> Moment | None:
    """The last tool call with a long history before it; None where the trace has none, or it repeats nothing."""
    messages, calls = _calling(trace, LONG)
    return _moment(messages[: calls[-1]], calls_of(messages[calls[-1]])) if calls else None


def moments(trace: Trace, *, longer_than: int) -> Iterator[Moment]:
    """Every tool call that repeats something, after a history of more characters of JSON than that."""
    messages, calls = _calling(trace, longer_than)
    found = (_moment(messages[:at], calls_of(messages[at])) for at in calls)
    yield from (each for each in found if each)


def _calling(trace: Trace, longer_than: int) -> tuple[list[Message], list[int]]:
    """The messages without the system's, and which of them call a tool after so long a history."""
    messages = [message for message in trace.messages if message["role"] != "system"]
    sizes = [len(as_json([message])) - 2 for message in messages]
    lengths = [3 + sum(sizes[:at]) for at in range(len(messages))]
    return messages, [
        at for at, message in enumerate(messages) if calls_of(message) and lengths[at] > longer_than
    ]


def _moment(history: Sequence[Message], calls: Sequence[dict[str, Any]]) -> Moment | None:
    wanted = needed_values(history, calls)
    return Moment(tuple(history), _asked(history), wanted) if wanted else None


def needed_values(history: Sequence[Message], calls: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Values in the calls' arguments that stand in an earlier result, and not in what the user said last."""
    query = _asked(history)
    results = [message["content"] or "" for message in history if message["role"] == "tool"]
    wanted = dict.fromkeys(
        value
        for call in calls
        for value in leaves(json.loads(call["function"]["arguments"]))
        if len(value) >= SHORTEST_VALUE
        and value not in query
        and any(holds_value(result, value) for result in results)
    )
    return tuple(wanted)


def _asked(history: Sequence[Message]) -> str:
    said = [message["content"] or "" for message in history if message["role"] == "user"]
    return said[-1] if said else ""


def line_of(message: Message) -> str:
    """`Role: content`; a call of a tool as its name and arguments."""
    said = [message["content"]] if message.get("content") else []
    said += [f"{call['function']['name']}({call['function']['arguments']})" for call in calls_of(message)]
    return f"{message['role'].capitalize()}: " + " ".join(said)


def cases(traces: Sequence[Trace], suite: str, *, is_json: bool) -> Iterator[Case]:
    for number, each in enumerate(traces):
        if now := moment(each):
            yield case_of(now, each.task, suite, f"{suite}-{number}", is_json=is_json)


def case_of(now: Moment, task: str, suite: str, name: str, *, is_json: bool) -> Case:
    """The history as context; all trials of a task are held out, or none."""
    context, spans = written(now.history, is_json=is_json)
    results = [span for span, message in zip(spans, now.history, strict=True) if message["role"] == "tool"]
    needs = tuple(Need(value, places(context, value, results)) for value in now.values)
    is_held_out = datasets.is_held_out(f"trace {task}")
    return Case(suite, name, now.query, context, spans, None, (), spans_of(needs), is_held_out, needs)


def written(history: Sequence[Message], *, is_json: bool) -> tuple[str, tuple[Span, ...]]:
    """The history as JSON or as text, and where each message lies in it."""
    if not is_json:
        return join([line_of(message) for message in history], "\n")
    members = [
        "\n".join(f" {line}" for line in json.dumps(message, indent=1).split("\n")) for message in history
    ]
    body, spans = join(members, ",\n")
    return f"[\n{body}\n]", tuple((start + 2, end + 2) for start, end in spans)


def spellings(value: str) -> tuple[str, ...]:
    """The value as text has it, as JSON has it, and as JSON within a string of JSON has it."""
    once = json.dumps(value)[1:-1]
    return tuple(dict.fromkeys((value, once, json.dumps(once)[1:-1])))


def places(context: str, value: str, within: Sequence[Span]) -> tuple[Span, ...]:
    """Every place of the value in the tools' results."""
    found = []
    for start, end in within:
        for spelling in spellings(value):
            at = context.find(spelling, start, end)
            while at >= 0:
                found.append((at, at + len(spelling)))
                at = context.find(spelling, at + len(spelling), end)
    return tuple(sorted(found))


def holds_value(output: str, value: str) -> bool:
    return any(spelling in output for spelling in spellings(value))


def is_conversation(output: str) -> bool:
    """Whether the output is JSON of messages that an API would take.

    Every message has a role, every tool's result follows its call, and every call has its result.
    """
    try:
        messages = json.loads(output)
    except ValueError:
        return False
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages
    ):
        return False
    return _is_answered(messages)


def _is_answered(messages: Sequence[Message]) -> bool:
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                return False
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            return False
        waiting = {str(call.get("id")) for call in calls_of(message)}
    return not waiting
