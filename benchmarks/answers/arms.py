"""Arms of the comparison: how much of a case's context a question comes with, and the request that asks it so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.answers.prompts import Prompt
from benchmarks.evaluation.case import Case, Span
from benchmarks.quality.baselines import Select, bm25_documents, tail
from benchmarks.quality.llmlingua2 import NAME, LLMLingua2

MAX_TOKENS = 48
# Sizes at which others are held against pith.
COMPARED = (0.25, 0.1)


@dataclass(frozen=True, slots=True)
class Arm:
    """`context` is what a question comes with: None where it stands alone. `compression` is the request's own, where
    the context may be compressed."""

    name: str
    context: Callable[[Case], str] | None
    compression: Mapping[str, float] | None = None


def all_of(case: Case) -> str:
    return case.context


def gold_of(case: Case) -> Sequence[Span]:
    """The document that answers, or those that have evidence."""
    if case.gold is not None:
        return (case.gold,)
    return [
        (start, end) for start, end in case.documents if any(start <= at < end for at, _ in case.evidence)
    ]


def gold(case: Case) -> str:
    return "\n\n".join(case.context[start:end] for start, end in gold_of(case))


def selected(name: str, select: Select) -> list[Arm]:
    """A selector that is not pith's, at each size."""

    def at(ratio: float) -> Callable[[Case], str]:
        return lambda case: select(case, ratio)

    return [Arm(f"{name} {ratio:g}", at(ratio)) for ratio in COMPARED]


WHOLE = Arm("whole", all_of)
ARMS: tuple[Arm, ...] = (
    WHOLE,
    *(Arm(f"{ratio:g}", all_of, {"target_ratio": ratio}) for ratio in (0.5, 0.25, 0.1)),
    Arm("keep 0.95", all_of, {"keep": 0.95}),
    *selected("BM25", bm25_documents),
    *selected("tail", tail),
    Arm("gold", gold),
    Arm("nothing", None),
)


class UnknownArm(ValueError):
    """A name that no arm has; the message says which there are."""


def arms_of(names: str, llmlingua: Path | None) -> list[Arm]:
    """Those named, comma-separated, and the whole, which all are compared with. Raises `UnknownArm`, and
    `FileNotFoundError` where the folder holds no checkpoint of LLMLingua-2."""
    arms = [*ARMS, *(selected(NAME, LLMLingua2.load(llmlingua).select) if llmlingua else ())]
    wanted = names.split(",") if names else [arm.name for arm in arms]
    unknown = set(wanted) - {arm.name for arm in arms}
    if unknown:
        raise UnknownArm(f"{', '.join(sorted(unknown))}: there are {', '.join(arm.name for arm in arms)}")
    return [arm for arm in arms if arm == WHOLE or arm.name in wanted]


def body(case: Case, arm: Arm, prompt: Prompt, model: str | None) -> dict[str, Any]:
    """A chat request, greedy and streamed."""
    asked: dict[str, Any] = {"messages": prompt.messages(case.query, _part(case, arm)), "temperature": 0}
    asked |= {"max_tokens": MAX_TOKENS, "stream": True}
    if arm.compression:
        asked["compression"] = {**arm.compression, "min_tokens": 1, "holdout": 0}
    return asked | ({"model": model} if model else {})


def _part(case: Case, arm: Arm) -> dict[str, Any] | None:
    if arm.context is None:
        return None
    part: dict[str, Any] = {"type": "text", "text": arm.context(case)}
    return part | ({"compress": True} if arm.compression else {})
