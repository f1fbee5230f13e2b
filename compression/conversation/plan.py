"""How finely a conversation is cut, so that it has no more units than are allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compression.conversation.layout import Hole, Laid


@dataclass(frozen=True, slots=True)
class Plan:
    """Texts have `texts` units beside one each, shared by their `letters`. With `has_calls`, arguments are units."""

    texts: int
    letters: int
    has_calls: bool

    def holes_of(self, laid: Laid) -> list[Hole]:
        return [hole for hole in laid.holes if self.has_calls or not hole.is_call]

    def most_of(self, hole: Hole) -> int:
        """Units that a text may have: its share by length."""
        return 1 + self.texts * (hole.end - hole.start) // max(1, self.letters)


def plan(messages: Sequence[Laid], most: int) -> Plan | None:
    """None where the messages have too many parts to be cut at all."""
    texts = [hole for laid in messages for hole in laid.holes if not hole.is_call]
    letters = sum(hole.end - hole.start for hole in texts)
    calls = sum(len(laid.holes) for laid in messages) - len(texts)
    # A text is a unit at least, and one of JSON follows it; so do arguments.
    least = len(messages) + 2 * len(texts)
    for has_calls in (True, False):
        left = most - least - (2 * calls if has_calls else 0)
        if left >= 0:
            return Plan(left, letters, has_calls)
    return None


def runs(groups: Sequence[int], messages: Sequence[Laid], most: int) -> list[tuple[int, int]]:
    """At most `most` half-open ranges of messages, none of which parts an exchange."""
    whole = list(_closed(groups))
    width = 2 * (messages[-1].end - messages[0].start) // most + 1
    while len(whole) > most:
        whole = list(_joined(whole, messages, width))
        width *= 2
    return whole


def _closed(groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The shortest ranges that part no exchange. `groups` has the first message of each one's exchange."""
    last = {group: number for number, group in enumerate(groups)}
    first, end = 0, -1
    for number, group in enumerate(groups):
        end = max(end, last[group])
        if number == end:
            yield first, number + 1
            first = number + 1


def _joined(
    found: Sequence[tuple[int, int]], messages: Sequence[Laid], width: int
) -> Iterator[tuple[int, int]]:
    first, last = found[0]
    for start, end in found[1:]:
        if messages[end - 1].end - messages[first].start > width:
            yield first, last
            first = start
        last = end
    yield first, last
