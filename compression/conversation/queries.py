"""The query for which a block is compressed: what precedes it in the conversation, or accompanies it in its message."""

from collections.abc import Mapping, Sequence
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
    """Of the calls in a message."""
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
