"""Prompts that a question and its context can be asked with: the same for every arm of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Texts around a context; `{}` stands for the question. The last one is what a compression is told to keep
    what answers, so it has little beside the question. `before` is left out where there is no context.

    `example` is an exchange before the real one: what is asked, and its reply.
    """

    after: str
    before: str = ""
    system: str = ""
    example: tuple[str, str] | None = None

    def messages(self, question: str, context: Message | None) -> list[Message]:
        """The context is a part of its own, between the texts."""
        parts = [_text(self.after.replace("{}", question))]
        if context is not None:
            before = [_text(self.before.replace("{}", question))] if self.before else []
            parts = [*before, context, *parts]
        return [*self._earlier(), {"role": "user", "content": parts}]

    def _earlier(self) -> list[Message]:
        found = [{"role": "system", "content": self.system}] if self.system else []
        if self.example:
            asked, reply = self.example
            found += [{"role": "user", "content": asked}, {"role": "assistant", "content": reply}]
        return found


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


READER = "You answer questions about a text. Reply with the answer alone, in a few words of the text."
PROMPTS: Mapping[str, Prompt] = {
    "plain": Prompt("{}\n\nAnswer with a few words."),
    "system": Prompt("Question: {}", system=READER),
    "before": Prompt(
        "\nQuestion: {}\nAnswer:",
        before="Read the text, then answer the question after it with a few words of the text.\n\nText:\n",
    ),
    "twice": Prompt("\nQuestion: {}\nAnswer:", before="Question: {}\n\nThe text below answers it.\n\n"),
    "example": Prompt(
        "\nQuestion: {}",
        system=READER,
        example=(
            "The Danube rises in Germany and flows through ten countries into the Black Sea. It is 2,850 km long.\n"
            "\nQuestion: Into which sea does the Danube flow?",
            "the Black Sea",
        ),
    ),
}
DEFAULT = "twice"
