"""Counters of tokens: what every one offers, and a fake one that needs no tokenizer."""

import re
from collections.abc import Sequence
from typing import Protocol


class TokenCounter(Protocol):
    """Counts tokens as the model does that the text is for. Deterministic, safe to share between threads."""

    @property
    def name(self) -> str:
        """The tokenizer that a receipt names."""
        ...

    def count(self, text: str) -> int:
        """Tokens of `text` by itself, without special tokens around it."""
        ...

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """`count` of each, quicker than one by one."""
        ...


class FakeCounter:
    """A fake: words and marks are tokens. For tests and for trying things out, never for a receipt."""

    name = "fake-words"
    _TOKEN = re.compile(r"\w+|[^\w\s]")

    def count(self, text: str) -> int:
        return len(self._TOKEN.findall(text))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]
