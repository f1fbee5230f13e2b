"""The units that a conversation may have: which messages go together, and how finely their texts are cut."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compression.conversation.layout import Hole, Laid, LaidParts
from compression.conversation.messages import Answer, Message


def exchanges(messages: Sequence[Message]) -> list[int]:
    """For each message the number of the first one that it is kept or dropped with; its own if there is none earlier.

    A result answers the nearest earlier call of its id that nothing has answered yet, since real traces
    reuse ids; where all are answered, it is one more result of the last. A result without an id goes by the name of
    its tool, else by place. One that answers no call is by itself.
    """
    joined = _Joined(list(range(len(messages))))
    ledger = _Ledger()
    for number, message in enumerate(messages):
        for answer in message.answers:
            caller = ledger.answered_by(answer)
            if caller is not None:
                joined.join(caller, number)
        for call in message.calls:
            ledger.add(_Open(number, call.id, call.name))
    return [joined.first(number) for number in range(len(messages))]


@dataclass(slots=True)
class _Joined:
    """Sets of messages, each known by its first: union by place, paths halved."""

    above: list[int]

    def first(self, number: int) -> int:
        while self.above[number] != number:
            self.above[number] = self.above[self.above[number]]
            number = self.above[number]
        return number

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.first(one), self.first(other)))
        self.above[high] = low


@dataclass(slots=True)
class _Open:
    message: int
    id: str | None
    name: str | None
    is_answered: bool = False


@dataclass(slots=True)
class _Ledger:
    """The calls so far; those that wait for a result lie on stacks, the nearest on top."""

    _by_id: dict[str, list[_Open]] = field(default_factory=lambda: defaultdict(list))
    # Calls without an id wait under their name, and all of them under "".
    _by_name: dict[str, list[_Open]] = field(default_factory=lambda: defaultdict(list))
    _last: dict[str, _Open] = field(default_factory=dict)

    def add(self, call: _Open) -> None:
        names = {call.name or "", ""}
        if call.id is not None:
            self._by_id[call.id].append(call)
            self._last[f"id {call.id}"] = call
        else:
            for name in names:
                self._by_name[name].append(call)
                self._last[f"without id {name}"] = call
        for name in names:
            self._last[f"name {name}"] = call

    def answered_by(self, answer: Answer) -> int | None:
        """The message of the call that this answers, which counts as answered from here on."""
        if answer.id is not None:
            found = _top(self._by_id.get(answer.id)) or self._last.get(f"id {answer.id}")
        else:
            found = self._named(answer.name or "")
        if found is None:
            return None
        # A call with an id keeps waiting for a result with that id.
        found.is_answered = found.is_answered or found.id == answer.id
        return found.message

    def _named(self, name: str) -> _Open | None:
        """The call that a result without an id answers: preferably one that has no id either."""
        waiting = _top(self._by_name.get(name))
        return waiting or self._last.get(f"without id {name}") or self._last.get(f"name {name}")


def _top(waiting: list[_Open] | None) -> _Open | None:
    while waiting and waiting[-1].is_answered:
        waiting.pop()
    return waiting[-1] if waiting else None


@dataclass(frozen=True, slots=True)
class Plan:
    """Texts have `texts` units beside one each, shared by their `letters`. With `has_calls`, arguments are units."""

    texts: int
    letters: int
    has_calls: bool

    def inside(self, laid: Laid) -> list[Hole | LaidParts]:
        """The items of a message or a part that are written by itself, between pieces of its JSON."""
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
