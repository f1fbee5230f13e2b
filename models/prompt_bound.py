"""The most tokens that a prompt can have, from its bytes alone, for models of which that is proven."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.template.values import ROLE_BYTES

# These put more into a prompt than its messages' texts, or parse them and print them again.
REWRITING_OPTIONS = ("tools", "chat_template_kwargs", "reasoning_effort")
PLAIN_FIELDS = frozenset({"role", "content"})


class Prompt(Protocol):
    """The parts of a request that a bound looks at."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def options(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class PromptMaking:
    """Template and tokenizer of a model: the template's source, whether it gets contents as lists (`parts`), and the
    tokenizer's file."""

    template: str
    parts: bool
    special_tokens: Mapping[str, str]
    tokenizer: str


@dataclass(frozen=True, slots=True)
class PromptBound:
    """Tokens for each byte of text, for each message, for each part of a content, and for each prompt."""

    per_byte: int
    per_message: int
    per_part: int
    fixed: int

    def of(self, request: Prompt) -> int | None:
        """A count that the prompt's tokens cannot pass; None for a request that is more than roles and texts."""
        if any(name in request.options for name in REWRITING_OPTIONS):
            return None
        size = parts = 0
        for message in request.messages:
            if not message.keys() <= PLAIN_FIELDS or len(message["role"].encode()) > ROLE_BYTES:
                return None
            texts = _texts(message["content"])
            if texts is None:
                return None
            size += sum(len(text.encode()) for text in texts)
            parts += len(texts)
        return (
            self.per_byte * size
            + self.per_message * len(request.messages)
            + self.per_part * parts
            + self.fixed
        )


def _texts(content: str | list[Mapping[str, Any]]) -> list[str] | None:
    if isinstance(content, str):
        return [content]
    texts = [part["text"] for part in content if part["type"] == "text"]
    return texts if len(texts) == len(content) else None
