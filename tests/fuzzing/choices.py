"""Choices read out of the bytes that a fuzzer mutates, and JSON that is changed by them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

Place = tuple[str | int, ...]


class Choices(random.Random):
    """A source of chance whose every draw is some of the bytes; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at].ljust(count, b"\0")

    def rest(self) -> bytes:
        found, self._at = self._data[self._at :], len(self._data)
        return found

    @property
    def are_left(self) -> bool:
        return self._at < len(self._data)

    def random(self) -> float:
        return int.from_bytes(self.take(2)) / 2**16

    def getrandbits(self, k: int, /) -> int:
        return int.from_bytes(self.take((k + 7) // 8)) >> -k % 8

    def _randbelow(self, n: int) -> int:
        """Without the standard library's loop, which would skip bytes."""
        return int.from_bytes(self.take((n.bit_length() + 7) // 8)) % n if n else 0

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        """Without the standard library's loop, which draws until it has others: it would not end with zeros."""
        assert counts is None
        left = list(population)
        return [left.pop(self._randbelow(len(left))) for _ in range(k)]


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Of every value within."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def found_at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def changed(value: Any, choices: Choices, odd: Sequence[Any]) -> Any:
    """A copy in which as many places as there are bytes for, 8 at most, hold something else: an odd value, a value from
    elsewhere in it, nothing, or the same twice."""
    value = deepcopy(value)
    for _ in range(8):
        all_places = list(places(value))
        if not choices.are_left or not all_places:
            break
        place = choices.choice(all_places)
        holder, last = found_at(value, place[:-1]), place[-1]
        how = choices.randrange(6)
        if how == 0:
            holder[last] = deepcopy(found_at(value, choices.choice(all_places)))
        elif how == 1:
            del holder[last]
        elif how == 2 and isinstance(holder, list):
            holder.insert(choices.randrange(len(holder) + 1), deepcopy(holder[last]))
        elif how == 3 and isinstance(holder, dict):
            holder[str(choices.choice(all_places)[-1])] = holder.pop(last)
        elif how == 4 and isinstance(holder[last], str):
            holder[last] = edited(holder[last], choices)
        elif how == 5 and isinstance(holder[last], int):
            holder[last] += choices.choice((1, -1, 2**31, -(2**63), 10**30))
        else:
            holder[last] = deepcopy(choices.choice(odd))
    return value


def edited(text: str, choices: Choices) -> str:
    """With a stretch of it replaced by a few characters."""
    begin = choices.randrange(len(text) + 1)
    end = min(len(text), begin + choices.randrange(4))
    new = choices.take(choices.randrange(4)).decode("latin-1")
    return text[:begin] + new + text[end:]
