"""Headings in Markdown that say who speaks, told from those of a document by how they come back.

`headings` are the keys of the headings by the number of their line, `## user` of `## User 2`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

_FEWEST_SPEAKERS, _MOST_SPEAKERS = 2, 4
_FEWEST_TIMES = 3
# The share of the heads that may follow one of their own key, or come twice beneath a heading.
_IRREGULAR = 0.25
# From a heading to one right under it, with an empty line between or without.
_NEXT = 2
_WORD = re.compile(r"[^\W\d_]{2}")


def level_of(key: str) -> int:
    return key.index(" ")


def speaking(headings: Mapping[int, str]) -> list[int]:
    """Lines of the headings of the first level where a few keys come back again and again, and take turns."""
    times = Counter(headings.values())
    levels: dict[int, list[int]] = {}
    for number, key in headings.items():
        if times[key] >= _FEWEST_TIMES:
            levels.setdefault(level_of(key), []).append(number)
    for numbers in levels.values():
        keys = [headings[number] for number in numbers]
        same = sum(key == after for key, after in pairwise(keys))
        if _FEWEST_SPEAKERS <= len(set(keys)) <= _MOST_SPEAKERS and same <= _IRREGULAR * len(keys):
            return numbers
    return []


def parting(headings: Mapping[int, str], speakers: Sequence[int]) -> set[int]:
    """Headings at which an answer ends: of the level of the heads, or above them and back again, as `Round 2` is."""
    times = Counter(headings.values())
    level = level_of(headings[speakers[0]])
    return {
        number
        for number, key in headings.items()
        if level_of(key) == level or (level_of(key) < level and times[key] > 1)
    }


def is_governed(headings: Mapping[int, str], speakers: Sequence[int], names: Mapping[int, str]) -> bool:
    """True where the heads stand beneath others of one kind, as `### Added` does beneath each version.

    Those are above them in level, or single ones of their own. `names` are the headings as they are written.
    """
    level = level_of(headings[speakers[0]])
    own = {headings[number] for number in speakers}
    times = Counter(headings.values())
    above = [number for number, key in headings.items() if level_of(key) < level]
    beside = [
        number
        for number, key in headings.items()
        if level_of(key) == level and key not in own and times[key] == 1
    ]
    # `Round 1` and `Round 2` say the same, versions do not.
    titles = {number: key if _WORD.search(key) else names[number] for number, key in headings.items()}
    return any(_are_beneath(headings, speakers, over, titles) for over in (above, beside))


def _are_beneath(
    headings: Mapping[int, str], speakers: Sequence[int], over: Sequence[int], titles: Mapping[int, str]
) -> bool:
    """Whether each of `over` begins a round of the heads, all keys of which are different.

    Not so where they begin an answer: right under a head, or all but the first with text between them and the next.
    """
    heads = set(speakers)
    seen: set[str] = set()
    beneath: set[str] = set()
    are_above: list[bool] = []
    again, before, above = 0, -1, -1
    for number in sorted({*speakers, *over}):
        if number not in heads:
            begins_answer = before in heads and number - before <= _NEXT
            if not begins_answer and titles[number] not in seen:
                seen.add(titles[number])
                beneath.clear()
                above = number
        elif not seen:
            return False
        else:
            if not beneath:
                are_above.append(number - above <= _NEXT)
            again += headings[number] in beneath
            beneath.add(headings[number])
        before = number
    is_title = are_above[0] and 2 * sum(are_above[1:]) < len(are_above) - 1
    return again <= _IRREGULAR * len(speakers) and not is_title


def is_outline(headings: Mapping[int, str], level: int) -> bool:
    """Of a document: some are above those that come back, or most of theirs do not."""
    times = Counter(headings.values())
    same = [times[key] > 1 for key in headings.values() if level_of(key) == level]
    above = sum(level_of(key) < level for key in headings.values())
    return above > 1 or 2 * sum(same) <= len(same)
