"""Queries for the blocks of a conversation, and the values that it has said before each of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Only the two ends of a long text are used: a question comes before or after its material.
END_CHARS = 1000
ENDING_CHARS = 500


class QueryReader:
    """Reads a conversation message by message: ask it for queries of the next one before that is read."""

    def __init__(self) -> None:
        self._user = ""
        self._calls: dict[str, str] = {}
        self._last_call = ""

    def read(self, message: Mapping[str, Any], texts: Sequence[str]) -> None:
        """Take a message in, with its texts."""
        if message["role"] == "user" and any(text.strip() for text in texts):
            self._user = _ends(next(text for text in reversed(texts) if text.strip()))
        for call in _calls(message):
            self._last_call = _call_text(call)
            self._calls[str(call.get("id"))] = self._last_call

    def query_of(self, message: Mapping[str, Any], text: str, beside: str) -> str:
        """The query of a text of the next message; `beside` is the message's last text, if that is another one."""
        if message["role"] in ("tool", "function"):
            call = self._calls.get(str(message.get("tool_call_id")), self._last_call)
            return "\n".join(filter(None, (self._user, call)))
        return _ends(beside.strip()) or self._user or _ending(text)


def arguments_of(message: Mapping[str, Any]) -> list[str]:
    """Arguments of the calls in a message."""
    functions = [call.get("function") for call in _calls(message)]
    return [str(each.get("arguments") or "") for each in functions if isinstance(each, Mapping)]


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    found = list(calls) if isinstance(calls, Sequence) else []
    legacy = message.get("function_call")
    found += [{"function": legacy}] if isinstance(legacy, Mapping) else []
    return [call for call in found if isinstance(call, Mapping)]


def _call_text(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return ""
    return _ends(f"{function.get('name') or ''} {function.get('arguments') or ''}".strip())


def _ends(text: str) -> str:
    if len(text) <= 2 * END_CHARS:
        return text
    return f"{text[:END_CHARS]}\n{text[-END_CHARS:]}"


def _ending(text: str) -> str:
    """The last paragraph of a text without a companion: if it asks anything, it asks it there."""
    return text.rstrip().rpartition("\n\n")[2][-ENDING_CHARS:]


# What looks like an identifier, a date or an amount: in a piece of four characters or more, a digit or two capitals.
_VALUE = re.compile(r"\w[\w.@:/+-]{2,78}\w")
_TELLS = re.compile(r"\d|[A-Z].{0,78}[A-Z]")
# Only the first ones count, so that a long conversation does not make each of its blocks ever more expensive.
MOST_VALUES = 8192
# What is looked through of one conversation: it is the event loop that does it, for a tenth of a second at the most.
MOST_CHARS = 2**20


def values_in(text: str) -> tuple[str, ...]:
    """What looks like a value in a text, each once, in the order of the text."""
    return tuple(dict.fromkeys(found[0] for found in _VALUE.finditer(text) if _TELLS.search(found[0])))


class Said:
    """Reads the texts that are sent whole, in the conversation's order. `values_of` finds the values of a text: one
    that remembers texts spares each turn of a conversation the reading of the earlier ones."""

    def __init__(self, values_of: Callable[[str], Sequence[str]] = values_in) -> None:
        self._values: set[str] = set()
        self._values_of = values_of
        self._chars_left = MOST_CHARS

    def read(self, text: str) -> None:
        for value in self._values_in(text):
            if len(self._values) >= MOST_VALUES:
                return
            self._values.add(value)

    def known_in(self, text: str) -> tuple[str, ...]:
        """The values of `text` that were said before, in one order whatever the order in which they were said."""
        return tuple(sorted(self._values.intersection(self._values_in(text)))) if self._values else ()

    def _values_in(self, text: str) -> Sequence[str]:
        read = text[: self._chars_left]
        self._chars_left -= len(read)
        return self._values_of(read) if read else ()
