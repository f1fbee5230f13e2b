"""Records of JSON: which record a query names, by its head, and which of its members, by the names on their path."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Floats, Ints
from compression.source.text import STOP_WORDS
from compression.source.units import DATA, Segmentation

# Of a text that is mostly something else, as a conversation is, the query may be about that.
_MOSTLY = 0.8
# A word of the query weighs less in a value beside a member than in the member's own name, value or path.
_BESIDE = 0.6
_DEEP = 0.5
# A value beside a member is a name, a state, a date: no text.
_LONGEST = 100
# What a record, and a member, that has no word of the query loses in logits to one that has all.
_OF_RECORD = np.float32(16.0)
_OF_MEMBER = np.float32(24.0)
_JSON_UNITS = frozenset({"json_member", "bracket"})


def by_record(
    logits: Floats, text: Segmentation, has: NDArray[np.bool_], terms: Sequence[str], prior: Floats
) -> Floats:
    """The logits, lowered the further a unit's record is from the one that the query names, and the unit itself.

    `has`: (units, terms), the terms of the query in each unit; `prior` is what each weighs. What a question is made of
    stands in long texts, and names no record. Texts that are not JSON
    for the most part, and conversations, keep theirs.
    """
    if not has.any() or not _is_json(text):
        return logits
    if len(terms) == len(prior):
        prior = np.where([term in STOP_WORDS for term in terms], np.float32(0), prior)
    tree = _read(text)
    joined, beside = _joined(text, tree, has)
    lowered = logits - _OF_MEMBER * _below_best(_weighed(joined, prior))
    if tree.records > 1:
        lowered = lowered - _OF_RECORD * _below_best(_of_records(tree, has, beside, prior))
    return np.asarray(lowered, np.float32)


def _is_json(text: Segmentation) -> bool:
    if text.is_conversation or not any(frame.kind in DATA for frame in text.frames):
        return False
    inside = 0
    for unit in text.units:
        is_string = unit.frame is not None and text.frames[unit.frame].kind == "string"
        inside += (unit.end - unit.start) * (is_string or unit.kind in _JSON_UNITS)
    return inside >= _MOSTLY * sum(unit.end - unit.start for unit in text.units)


@dataclass(frozen=True)
class _Tree:
    """`record` is the number of the record that each unit is in, -1 for those in none; `depth` how many frames inside
    of it the unit is. `records` is how many there are, `frames` those of them that are frames."""

    record: Ints
    depth: Ints
    records: int
    frames: frozenset[int]


def _read(text: Segmentation) -> _Tree:
    lists = _lists(text)
    of_frame: list[int] = []
    outermost: set[int] = set()
    depths: list[int] = []
    count = 0
    for number, frame in enumerate(text.frames):
        parent = frame.parent
        outer = -1 if parent is None else of_frame[parent]
        if outer < 0 and frame.kind in DATA and (parent in lists):
            outermost.add(number)
            of_frame.append(count)
            depths.append(0)
            count += 1
        else:
            of_frame.append(outer)
            depths.append(depths[parent] + 1 if outer >= 0 and parent is not None else 0)
    ends: dict[int | None, int] = {
        end: number for number, frame in enumerate(text.frames) for end in (frame.open, frame.close)
    }
    record = np.full(len(text.units), -1, np.int64)
    depth = np.zeros(len(text.units), np.int64)
    for at, unit in enumerate(text.units):
        inside = ends.get(at, unit.frame)
        if inside is not None and of_frame[inside] >= 0:
            record[at], depth[at] = of_frame[inside], depths[inside]
        elif unit.frame in lists and unit.kind == "json_member" and at not in ends:
            record[at] = count
            count += 1
    return _Tree(record, depth, count, frozenset(outermost))


def _lists(text: Segmentation) -> set[int | None]:
    """The outermost arrays of at least two elements; None, which is around all, where there are several values."""
    sizes: dict[int | None, int] = {}
    for frame in text.frames:
        if frame.kind in DATA:
            sizes[frame.parent] = sizes.get(frame.parent, 0) + 1
    for unit in text.units:
        if unit.kind == "json_member":
            sizes[unit.frame] = sizes.get(unit.frame, 0) + 1
    found: set[int | None] = set()
    alike = _with_alike(text)
    if sizes.get(None, 0) > 1:
        return {None}
    inside: list[bool] = []
    for number, frame in enumerate(text.frames):
        is_inside = frame.parent is not None and inside[frame.parent]
        opening = text.units[frame.open]
        is_array = text.source[opening.end - 1] == "[" if frame.kind == "json" else number in alike
        is_list = frame.kind in DATA and is_array and sizes.get(number, 0) > 1
        if is_list and not is_inside:
            found.add(number)
        inside.append(is_inside or is_list)
    return found


_NAME = re.compile(r"<([^\s/>]{1,80})")


def _with_alike(text: Segmentation) -> set[int | None]:
    """Frames of XML in which elements of one name stand side by side."""
    names = Counter(
        (frame.parent, found[1])
        for frame in text.frames
        if frame.kind == "xml"
        and (found := _NAME.match(text.source, text.units[frame.open].start)) is not None
    )
    return {parent for (parent, _), count in names.items() if count > 1}


def _joined(text: Segmentation, tree: _Tree, has: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_]]:
    """(units, terms), how much each unit has of each term with what is on its path and beside that; and which terms
    are in the short values right inside each frame."""
    units = text.units
    beside = np.zeros((len(text.frames), has.shape[1]), bool)
    telling = has.any(axis=1)
    for at in np.flatnonzero(telling).tolist():
        unit = units[at]
        if unit.frame is not None and unit.kind == "json_member" and unit.end - unit.start <= _LONGEST:
            beside[unit.frame] |= has[at]
    above = np.zeros((len(text.frames) + 1, has.shape[1]), np.float32)
    for number, frame in enumerate(text.frames):
        parent = -1 if frame.parent is None else frame.parent
        # What says which record it is says so of all that is in it.
        weight = np.float32(1.0 if number in tree.frames else _BESIDE)
        own = np.maximum(has[frame.open].astype(np.float32), weight * beside[number])
        np.maximum(above[parent], own, out=above[number])
    frame_of = np.array([-1 if unit.frame is None else unit.frame for unit in units], np.int64)
    joined = np.maximum(has.astype(np.float32), above[frame_of])
    return joined, beside


def _weighed(joined: Floats, prior: Floats) -> Floats:
    """The share of the query that each text has, rare words counting most; words that none has count too."""
    holding = (joined > 0).sum(axis=0)
    rarity = np.log1p((len(joined) - holding + 0.5) / (holding + 0.5)) * prior
    return np.asarray(joined @ rarity / max(float(rarity.sum()), 1e-6), np.float32)


def _of_records(tree: _Tree, has: NDArray[np.bool_], beside: NDArray[np.bool_], prior: Floats) -> Floats:
    """By unit, how much of the query its record has: what is deep inside of it counts less."""
    inside = np.flatnonzero(tree.record >= 0)
    near = np.where(tree.depth[inside] == 0, np.float32(1), np.float32(_DEEP))
    own = np.zeros((tree.records, has.shape[1]), np.float32)
    np.maximum.at(own, tree.record[inside], has[inside] * near[:, None])
    shares = _weighed(own, prior)
    out = np.full(len(has), shares.max(initial=0), np.float32)
    out[inside] = shares[tree.record[inside]]
    return out


def _below_best(values: Floats) -> Floats:
    return np.asarray(values.max(initial=0) - values, np.float32)
