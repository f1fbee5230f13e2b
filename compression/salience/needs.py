"""Which values of a tool's result an agent is likely to repeat, whatever its next question: identifiers first.

A user asks what a text says; an agent calls the next tool with values of the last one's result, and what it will ask is
not known yet. So the worth of a part is the sum of what its values are worth, little for those that it knows already.
"""

from collections.abc import Collection, Mapping, Sequence

from compression.salience.values import ValueKind, values
from compression.source.units import STRUCTURE, Segmentation

WORTH: Mapping[ValueKind, float] = {
    "identifier": 1.0, "date": 0.6, "capitals": 0.5, "digits": 0.3, "address": 0.3, "text": 0.2, "name": 0.15,
    "time": 0.1, "number": 0.1, "code": 0.08, "word": 0.05, "flag": 0.03,
}  # fmt: skip
# The share of its worth that a repeated value keeps: one in the conversation, or earlier in the same result.
KNOWN, REPEATED = 0.03, 0.1
_SHORTEST_KNOWN = 4
# What full relevance to the query is worth: of a sentence, which answers by itself, and of a member.
SENTENCE, MEMBER = 20.0, 0.1


def is_record(text: Segmentation) -> bool:
    """Whether the text is one JSON value; a log of one a line is not."""
    if text.origin is not None or not text.frames or text.frames[0].kind != "json":
        return False
    return text.frames[0].open == 0 and text.frames[0].close == len(text.units) - 1


def worths(
    text: Segmentation, relevance: Sequence[float], query: str, known: Collection[str] = frozenset()
) -> list[float]:
    """One a unit, 0 or more: the more, the sooner an agent needs it. They add up.

    `relevance` to the query is from 0 to 1; `known` are values that the reader has before it anyway.
    """
    found, seen = [], set[str]()
    for at, unit in enumerate(text.units):
        is_text = unit.kind not in ("json_member", "bracket")
        worth = (SENTENCE if is_text else MEMBER) * relevance[at]
        if not is_text and unit.kind not in STRUCTURE:
            for value, kind in values(text.text(at)):
                share = _share(value, query, known, seen)
                seen.add(value)
                worth += share * WORTH[kind] + (SENTENCE * relevance[at] if kind == "text" else 0.0)
        found.append(worth)
    return found


def _share(value: str, query: str, known: Collection[str], seen: Collection[str]) -> float:
    if len(value) >= _SHORTEST_KNOWN and (value in known or value in query):
        return KNOWN
    return REPEATED if value in seen else 1.0
