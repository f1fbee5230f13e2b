"""Arms of the comparison: how much of a case's context a question comes with, and the request that asks it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.evaluation.case import Case, Span

# The same in every arm.
ASKED = "\n\nAnswer with a few words."
MAX_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Arm:
    """`compression` is the request's own, where the context may be compressed. `is_gold`: only what answers is sent.
    `has_context` is false where the question stands alone."""

    name: str
    compression: Mapping[str, float] | None = None
    is_gold: bool = False
    has_context: bool = True


WHOLE = Arm("whole")
ARMS: tuple[Arm, ...] = (
    WHOLE,
    *(Arm(f"{ratio:g}", {"target_ratio": ratio}) for ratio in (0.5, 0.25, 0.1)),
    Arm("keep 0.95", {"keep": 0.95}),
    Arm("gold", is_gold=True),
    Arm("nothing", has_context=False),
)


def body(case: Case, arm: Arm, model: str | None) -> dict[str, Any]:
    """A chat request, greedy and streamed."""
    question = {"type": "text", "text": case.query + ASKED}
    content = [question] if not arm.has_context else [_context(case, arm), question]
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": content}], "temperature": 0}
    asked |= {"max_tokens": MAX_TOKENS, "stream": True}
    if arm.compression:
        asked["compression"] = {**arm.compression, "min_tokens": 1, "holdout": 0}
    return asked | ({"model": model} if model else {})


def _context(case: Case, arm: Arm) -> dict[str, Any]:
    if arm.is_gold:
        return {"type": "text", "text": "\n\n".join(case.context[start:end] for start, end in gold_of(case))}
    part: dict[str, Any] = {"type": "text", "text": case.context}
    return part | {"compress": True} if arm.compression else part


def gold_of(case: Case) -> Sequence[Span]:
    """The document that answers, or those that have evidence."""
    if case.gold is not None:
        return (case.gold,)
    return [
        (start, end) for start, end in case.documents if any(start <= at < end for at, _ in case.evidence)
    ]
