"""The choice of units under one budget for the whole source: the best first, as many as fit, with what each needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice

from compression.source.pricing import by_price, chosen_with_frame
from compression.source.text import STOP_WORDS
from compression.source.units import DATA, Segmentation


@dataclass(slots=True)
class Group:
    """Units that are kept while any unit that needs them is: a frame's ends, a document's title."""

    units: tuple[int, ...]
    needs: tuple[int, ...]
    cost: int = 0
    users: int = 0


_WORD = re.compile(r"\w{2,}")
_MOST_WORDS = 16
_SAID = 0.5


def words_of(title: str) -> frozenset[str]:
    """The words that a reader needs, at most `_MOST_WORDS`: each unit of the document is searched for them."""
    found = islice(_WORD.finditer(title.lower()), _MOST_WORDS)
    return frozenset(word.group() for word in found if word.group() not in STOP_WORDS)


def says(text: str, words: frozenset[str]) -> bool:
    """True where a text has half of a title's words, so that the title adds nothing."""
    lowered = text.lower()
    return bool(words) and sum(word in lowered for word in words) >= _SAID * len(words)


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """`keep_titles`: keeping a part of a document costs its title too, unless the part names it. `density`: 0 ranks
    units by score alone, 1 by score a token. `swaps`: how many good units that did not fit are tried in the place of
    worse ones. `adds_up`: the odds of a score are what a unit is worth, to be added up and weighed against the price of
    all that the unit brings in.
    """

    keep_titles: bool = True
    density: float = 0.0
    swaps: int = 16
    adds_up: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.density <= 1:
            raise ValueError(f"density: must be from 0 to 1, not {self.density}")
        if self.swaps < 0:
            raise ValueError(f"swaps: must not be negative, not {self.swaps}")


_MOST_DISPLACED = 512
_WANTED_SHARE = 0.25
_LEAST_LEFT = 1e-9


class Selection:
    """Units kept so far and what they are estimated to cost, in tokens."""

    def __init__(
        self, text: Segmentation, scores: Sequence[float], costs: Sequence[int], settings: SelectionSettings
    ) -> None:
        self._text = text
        self._scores = (
            [score / max(_LEAST_LEFT, 1 - score) for score in scores] if settings.adds_up else scores
        )
        # Units that come with a frame anyway: they cost nothing beyond the frame.
        self._with_frame = chosen_with_frame(text)
        self._all_costs = costs
        self._costs = [0 if unit in self._with_frame else cost for unit, cost in enumerate(costs)]
        self._settings = settings
        self._groups: list[Group] = []
        self._needs: list[tuple[int, ...]] = [() for _ in text.units]
        self._attach_frames()
        if settings.keep_titles:
            self._attach_titles()
        self._group_of = {unit: number for number, group in enumerate(self._groups) for unit in group.units}
        free = [
            unit for unit in range(len(text.units)) if unit not in self._group_of or unit in self._with_frame
        ]
        self._ranked = self._in_order(free)
        self._chosen: set[int] = set()
        self._kept_brackets: list[int] = []
        self._kept_wanted: set[int] = set()
        # What the groups that certain needs would bring in cost; forgotten when a group comes or goes.
        self._missing_costs: dict[tuple[int, ...], int] = {}
        self.cost = 0

    def fresh(self) -> Selection:
        """Another one of the same text, with nothing chosen; made in a fraction of the time."""
        other = copy(self)
        other._groups = [replace(group, users=0) for group in self._groups]
        other._chosen, other._kept_brackets, other._kept_wanted = set(), [], set()
        other._missing_costs, other.cost = {}, 0
        return other

    def _in_order(self, free: Sequence[int]) -> list[int]:
        if self._settings.adds_up or any(frame.kind == "message" for frame in self._text.frames):
            found = by_price(
                free,
                self._scores,
                self._costs,
                self._needs,
                [group.cost for group in self._groups],
                [group.needs for group in self._groups],
            )
            return list(found)
        return sorted(free, key=self._worths().__getitem__)

    def _worths(self) -> list[float]:
        """What each unit is worth, below zero: the least comes first."""
        density, costs = self._settings.density, self._all_costs
        return [
            -s / max(1, cost) ** density if density else -s
            for s, cost in zip(self._scores, costs, strict=True)
        ]

    def _attach_frames(self) -> None:
        holding = {unit.frame for unit in self._text.units}.union(frame.parent for frame in self._text.frames)
        taken: set[int] = set()
        for number, frame in enumerate(self._text.frames):
            # What the frame around it keeps anyway is not paid for twice.
            ends = tuple(end for end in frame.ends if end not in taken)
            taken.update(ends)
            if number not in holding and frame.kind not in DATA | {"message", "turn"}:
                # Nothing could bring in a frame around nothing: its ends are chosen for themselves.
                ends = ()
            self._add_group(ends, () if frame.parent is None else (frame.parent,))
        for index, unit in enumerate(self._text.units):
            if unit.frame is not None:
                self._needs[index] = (unit.frame,)
        for index, number in self._with_frame.items():
            self._needs[index] = (number,)

    def _attach_titles(self) -> None:
        for document in self._text.documents:
            title = document.title
            members = [unit for unit in range(*document.units) if unit != title]
            if title is None or not members:
                continue
            frame = self._text.units[title].frame
            group = self._add_group((title,), () if frame is None else (frame,))
            named = words_of(self._text.text(title))
            for unit in members:
                if not says(self._text.text(unit), named):
                    self._needs[unit] = (*self._needs[unit], group)

    def _add_group(self, units: tuple[int, ...], needs: tuple[int, ...]) -> int:
        self._groups.append(Group(units, needs, sum(self._all_costs[unit] for unit in units)))
        return len(self._groups) - 1

    def _missing(self, needs: tuple[int, ...]) -> set[int]:
        """Groups that would have to come in with a unit of these needs."""
        found: set[int] = set()
        waiting = [group for group in needs if not self._groups[group].users]
        while waiting:
            group = waiting.pop()
            if group not in found:
                found.add(group)
                waiting.extend(need for need in self._groups[group].needs if not self._groups[need].users)
        return found

    def price(self, unit: int) -> int:
        """The cost of keeping `unit` too, with all that it needs."""
        needs = self._needs[unit]
        if needs not in self._missing_costs:
            self._missing_costs[needs] = sum(self._groups[group].cost for group in self._missing(needs))
        return self._costs[unit] + self._missing_costs[needs]

    def add(self, unit: int) -> None:
        if unit not in self._chosen:
            self._chosen.add(unit)
            self.cost += self._costs[unit]
            self._use(self._needs[unit], +1)

    def remove(self, unit: int) -> None:
        self._chosen.remove(unit)
        self.cost -= self._costs[unit]
        self._use(self._needs[unit], -1)

    def _use(self, groups: Sequence[int], change: int) -> None:
        waiting = list(groups)
        while waiting:
            group = self._groups[waiting.pop()]
            before, group.users = group.users, group.users + change
            if not before or not group.users:
                self._missing_costs.clear()
                self.cost += group.cost if change > 0 else -group.cost
                waiting.extend(group.needs)

    def keep_protected(self, limit: int) -> None:
        """Keep what is protected; brackets and messages' heads, which a conversation protects, only where they fit
        under `limit`."""
        brackets = []
        for index, unit in enumerate(self._text.units):
            if unit.protected and (unit.kind == "bracket" or index in self._with_frame):
                brackets.append(index)
            elif unit.protected and index in self._group_of:
                self._use((self._group_of[index],), +1)
            elif unit.protected:
                self.add(index)
        for index in brackets:
            needs = (self._group_of[index],) if index in self._group_of else self._needs[index]
            own = 0 if index in self._group_of else self._costs[index]
            if self.cost + own + sum(self._groups[group].cost for group in self._missing(needs)) <= limit:
                self._bracket(index, +1)
                self._kept_brackets.append(index)
        self._keep_wanted(limit)

    def _keep_wanted(self, limit: int) -> None:
        """Keep what is wanted where that leaves most of the room to the rest."""
        wanted = [
            unit for unit in self._text.wanted if unit not in self._group_of and unit not in self._chosen
        ]
        if sum(self._costs[unit] for unit in wanted) > limit * _WANTED_SHARE:
            return
        for unit in wanted:
            if self.cost + self.price(unit) <= limit:
                self.add(unit)
                self._kept_wanted.add(unit)

    def _bracket(self, index: int, change: int) -> None:
        if index in self._group_of:
            self._use((self._group_of[index],), change)
        elif change > 0:
            self.add(index)
        else:
            self.remove(index)

    def _stays(self, unit: int) -> bool:
        return self._text.units[unit].protected or unit in self._kept_wanted

    def release_brackets(self) -> bool:
        """Give up brackets and texts that were kept on the assumption of room; true if there were any."""
        for index in self._kept_brackets:
            self._bracket(index, -1)
        for index in self._kept_wanted & self._chosen:
            self.remove(index)
        had_any = bool(self._kept_brackets or self._kept_wanted)
        self._kept_brackets.clear()
        self._kept_wanted.clear()
        return had_any

    def fill(self, limit: int) -> bool:
        """Add the best units that fit under `limit`; true if any was added."""
        before = len(self._chosen)
        for unit in self._ranked:
            # Its own cost first, which needs no look at what it brings in.
            may_fit = self.cost + self._costs[unit] <= limit and unit not in self._chosen
            if may_fit and self.cost + self.price(unit) <= limit:
                self.add(unit)
        return len(self._chosen) > before

    def shed(self, limit: int) -> bool:
        """Drop the worst units that nothing protects until the cost is at most `limit`; true if any was dropped."""
        before = len(self._chosen)
        for unit in reversed(self._ranked):
            if self.cost <= limit:
                break
            if unit in self._chosen and not self._stays(unit):
                self.remove(unit)
        return len(self._chosen) < before

    def improve(self, limit: int) -> None:
        """Try the best units that did not fit in the place of the worst that did, where that gains score."""
        left_out = [unit for unit in self._ranked if unit not in self._chosen][: self._settings.swaps]
        if not left_out:
            return
        worst_first = [unit for unit in reversed(self._ranked) if unit in self._chosen]
        for unit in left_out:
            taken = self._make_room(unit, worst_first, limit)
            worth = sum(self._scores[other] for other in taken)
            if self.cost + self.price(unit) > limit or worth >= self._scores[unit]:
                for other in taken:
                    self.add(other)
            else:
                self.add(unit)

    def _make_room(self, unit: int, worst_first: Sequence[int], limit: int) -> list[int]:
        taken: list[int] = []
        worth = 0.0
        for other in worst_first:
            # To take thousands out for one would cost more than it gains, and where it gains nothing all go back.
            if (
                self.cost + self.price(unit) <= limit
                or worth >= self._scores[unit]
                or len(taken) == _MOST_DISPLACED
            ):
                break
            if other in self._chosen and not self._stays(other):
                self.remove(other)
                worth += self._scores[other]
                taken.append(other)
        return taken

    def kept(self) -> list[int]:
        """Indices of all kept units in source order, with what they need."""
        return sorted(self._chosen.union(self._needed()))

    def _needed(self) -> Iterator[int]:
        for group in self._groups:
            if group.users:
                yield from group.units
