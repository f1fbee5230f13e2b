"""Messages as OpenAI's clients send them: parts under a response's names, bare strings, and an assistant's thoughts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, ValidationInfo

from serve.chat.message_shapes import Message, text_or_parts

_TEXTS = frozenset({"input_text", "output_text"})
# Of an assistant's earlier turn; templates take them from `reasoning` alone, if at all.
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def _content(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, list):
        return text_or_parts(value)
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in value]
    drops = info.data.get("role") == "assistant"
    return [_part(part) for part in text_or_parts(parts) if not (drops and _is_thought(part))]


def _is_thought(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind in _THOUGHTS


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    return {**part, "type": "text"} if isinstance(kind, str) and kind in _TEXTS else part


class OpenAIMessage(Message):
    """A `Message` whose parts may have other names and forms."""

    content: Annotated[str | list[dict[str, Any]] | None, PlainValidator(_content)] = None
