"""What survived: answers, evidence and pairs, judged on the output's text alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

ARTICLE = re.compile(r"\b(?:a|an|the)\b")
NOT_WORD = re.compile(r"[^\w\s]")
TOKEN = re.compile(r"\w+|[^\w\s]")
RUN = 5


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, single spaces: as NaturalQuestions' scorers compare answers."""
    return " ".join(ARTICLE.sub(" ", NOT_WORD.sub("", text.lower())).split())


def holds_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether any of the answers stands in the text; an answer of punctuation alone is compared as it is."""
    ready = normalise(text)
    return any((normalise(answer) in ready) if normalise(answer) else (answer in text) for answer in answers)


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def runs(turn: Sequence[str]) -> list[tuple[str, ...]]:
    """All runs of five tokens; the whole, where there are fewer."""
    return [tuple(turn[at : at + RUN]) for at in range(max(1, len(turn) - RUN + 1))]


def evidence_kept(context: str, evidence: Sequence[tuple[int, int]], output: str) -> float:
    """Share of the evidence's tokens that lie in a run of five tokens which the output has too."""
    kept = {run for line in output.splitlines() for run in runs(tokens(line))}
    total = found = 0
    for start, end in evidence:
        turn = tokens(context[start:end])
        is_kept = [False] * len(turn)
        for at, run in enumerate(runs(turn)):
            if run in kept:
                is_kept[at : at + RUN] = [True] * len(run)
        total += len(turn)
        found += sum(is_kept)
    return found / total if total else 1.0


def pair_kept(output: str, key: str, value: str) -> bool:
    """Whether the output is JSON that still gives the key its value."""
    try:
        parsed = json.loads(output)
    except ValueError:
        return False
    return isinstance(parsed, dict) and parsed.get(key) == value


def parses(output: str) -> bool:
    try:
        json.loads(output)
    except ValueError:
        return False
    return True
