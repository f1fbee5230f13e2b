"""One question to one context, and what must survive of it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Need:
    """A text that must survive, and the slices of the context that give it: any one of them is enough."""

    text: str
    spans: tuple[Span, ...]


def spans_of(needs: Sequence[Need]) -> tuple[Span, ...]:
    """The slices of all needs, each once and in order."""
    return tuple(sorted({span for need in needs for span in need.spans}))


@dataclass(frozen=True, slots=True)
class Case:
    """One question to one context, and what must survive: any of `answers`, the slices of `evidence`, all `needs`.

    `documents` and `gold` are slices of the context too; `gold` is the document that answers. `name` is unique.
    `evidence` has the spans of all needs where there are any. `answers` is empty where no answer is judged.
    """

    suite: str
    name: str
    query: str
    context: str
    documents: tuple[Span, ...]
    gold: Span | None = None
    answers: tuple[str, ...] = ()
    evidence: tuple[Span, ...] = ()
    is_held_out: bool = True
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A case and how much of it may stay: either a ratio, or the probability with which its evidence is to stay."""

    case: Case
    ratio: float | None = None
    keep: float | None = None

    @property
    def size(self) -> str:
        """For a table's head and for messages."""
        return f"{self.ratio:g}" if self.ratio is not None else f"keep {self.keep:g}"


def join(parts: Sequence[str], separator: str) -> tuple[str, tuple[Span, ...]]:
    """The parts in one string, and where each of them lies."""
    spans, at = [], 0
    for part in parts:
        spans.append((at, at + len(part)))
        at += len(part) + len(separator)
    return separator.join(parts), tuple(spans)


def seeded(name: str) -> random.Random:
    # `random` hashes a string seed with SHA-512: the same in every process, unlike `hash`.
    return random.Random(f"pith quality {name}")
