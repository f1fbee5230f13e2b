"""How finely a conversation is cut, so that it has no more units than are allowed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compression.conversation.layout import Hole, Laid, LaidParts


@dataclass(frozen=True, slots=True)
class Plan:
    """Texts have `texts` units beside one each, shared by their `letters`. With `has_calls`, arguments are units."""

    texts: int
    letters: int
    has_calls: bool

    def inside(self, laid: Laid) -> list[Hole | LaidParts]:
        """What of a message or a part is written by itself, between pieces of its JSON."""
        return [
            item for item in laid.inside if self.has_calls or isinstance(item, LaidParts) or not item.is_call
        ]

    def most_of(self, hole: Hole) -> int:
        """Units that a text may have: its share by length."""
        return 1 + self.texts * (hole.end - hole.start) // max(1, self.letters)

    def least(self, laid: Laid) -> int:
        """Units that a message has at least."""
        count = 1
        for item in self.inside(laid):
            own = sum(map(self.least, item.parts)) + 2 if isinstance(item, LaidParts) else 1
            count += own + 1
        return count


def plan(messages: Sequence[Laid], most: int) -> Plan | None:
    """None where the messages have too many parts to be cut."""
    holes = [hole for laid in messages for hole in laid.holes()]
    letters = sum(hole.end - hole.start for hole in holes if not hole.is_call)
    for has_calls in (True, False):
        left = most - sum(map(Plan(0, letters, has_calls).least, messages))
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
