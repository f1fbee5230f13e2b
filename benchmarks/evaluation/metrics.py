"""Measures of what survives: answers, evidence and pairs, judged by the output's text alone."""

import json
import re
from collections.abc import Sequence

from compression.tuning.row import normalise

TOKEN = re.compile(r"\w+|[^\w\s]")


def holds_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether the text has any of the answers; an answer of punctuation alone is compared as it is."""
    ready = normalise(text)
    return any((normalise(answer) in ready) if normalise(answer) else (answer in text) for answer in answers)


def tokens(text: str) -> list[str]:
    return TOKEN.findall(text)


def place(context: str, output: str) -> list[int]:
    """How many tokens of each line of the context the output has, read from the start of both.

    A line of the output goes to the first line of the context, from where the last one went, that has its tokens in
    their order: whatever was dropped inside. It never goes past its own, so that none is lost.
    """
    lines = [tokens(line) for line in context.split("\n")]
    kept = [0] * len(lines)
    line, offset = 0, 0
    for piece in filter(None, map(tokens, output.split("\n"))):
        for number in range(line, len(lines)):
            end = _end_of(piece, lines[number], offset if number == line else 0)
            if end:
                kept[number] += len(piece)
                line, offset = number, end
                break
    return kept


def _end_of(piece: Sequence[str], line: Sequence[str], start: int) -> int:
    """Where the piece, a subsequence of the line from `start`, ends; 0 where it is none."""
    if len(piece) > len(line) - start:
        return 0
    at = start - 1
    try:
        for token in piece:
            at = line.index(token, at + 1)
    except ValueError:
        return 0
    return at + 1


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
