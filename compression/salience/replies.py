"""Replies of a dialogue: a turn that asks brings the turn that answers it, in any language with a question mark."""

import re
from collections.abc import Sequence

from compression.source.units import Segmentation

# Full width, Arabic, Greek and Armenian too; whatever closes a quotation or a bracket may follow.
_ASKS = re.compile(r"[?\uff1f\u061f\u037e\u055e][^\w\n]{0,8}\Z")
_SPEAKER = re.compile(r"[^:\uff1a\n]{1,80}[:\uff1a]")
# The share of a question's score that its answer has at least: it comes right after it.
_OF_QUESTION = 0.5
_END = 16  # characters


def with_replies(text: Segmentation, scores: Sequence[float]) -> list[float]:
    """Scores, those of answers raised to half of the question's: the next turn, where another one says it."""
    found = list(scores)
    for at in range(len(text.units) - 1):
        if text.units[at].kind == text.units[at + 1].kind == "turn" and _is_asked(text, at):
            found[at + 1] = max(found[at + 1], _OF_QUESTION * scores[at])
    return found


def _is_asked(text: Segmentation, at: int) -> bool:
    """True where this turn ends in a question and another speaker has the next one."""
    unit, answer = text.units[at], text.units[at + 1]
    if _ASKS.search(text.source, max(unit.start, unit.end - _END), unit.end) is None:
        return False
    speakers = [_SPEAKER.match(text.source, each.start, each.end) for each in (unit, answer)]
    return all(speakers) and speakers[0][0] != speakers[1][0]  # type: ignore[index]
