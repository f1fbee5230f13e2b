"""Which messages are kept or dropped together: a call with all of its results."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

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
