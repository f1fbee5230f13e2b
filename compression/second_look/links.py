"""Names in a text, and the links by them between the best units and all others."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Columns, Floats, Ints, Layout, Runs
from compression.features.matching import Query
from compression.features.matrix import Context
from compression.features.words import remembered
from compression.source.text import STOP_WORDS

_CAPITAL = 1.0
_IDENTIFIER = 1.2
_PLAIN = 0.35
_SHORTEST = 3
_DIGITS = re.compile(r"\d")


@remembered
def naming_power(spelling: str) -> float:
    """From 0 to about 1: how much a word looks like a name; in scripts without capitals any word may be one."""
    if spelling.isascii():
        if len(spelling) < _SHORTEST and not _DIGITS.search(spelling):
            return 0.0
        if spelling.lower() in STOP_WORDS:
            return 0.0
        if _DIGITS.search(spelling):
            return _IDENTIFIER if len(spelling) > 2 else 0.2
        return _CAPITAL if spelling[0].isupper() else _PLAIN
    if spelling.lower() in STOP_WORDS:
        return 0.0
    if spelling[0].isupper():
        return _CAPITAL
    return _PLAIN if spelling[0].lower() != spelling[0].upper() else 0.7


@dataclass(frozen=True)
class Names:
    """Distinct stems of a text as names. `units` and `terms` are pairs, a name and a unit that has it, by unit.

    `weights` says how much each term tells: its shape times its rarity among the paragraphs; 0 for the query's own
    words. `first` has where each unit's pairs begin, one more entry than units.
    """

    units: Ints
    terms: Ints
    weights: Floats
    first: Ints
    is_identifier: Floats

    @property
    def pair_weights(self) -> Floats:
        return self.weights[self.terms]


def find_names(context: Context, query: Query) -> Names:
    words = context.words
    height = len(words.first)
    numbers: dict[str, int] = {}
    stem_of = np.array([numbers.setdefault(stem, len(numbers)) for stem in words.stems], np.int64)
    power = np.zeros(len(numbers), np.float32)
    if len(stem_of):
        np.maximum.at(power, stem_of, np.array([naming_power(word) for word in words.spellings], np.float32))
    for term in query.terms:
        if term in numbers:
            power[numbers[term]] = 0.0
    ids = stem_of[words.ids] if len(words.ids) else words.ids
    telling = power[ids] > 0
    pairs = np.unique(words.units[telling] * max(1, len(numbers)) + ids[telling])
    marked = np.zeros(len(numbers), np.float32)
    if len(stem_of):
        has_digit = [
            float(len(word) > 2 and not word.isalpha() and _DIGITS.search(word) is not None)
            for word in words.spellings
        ]
        np.maximum.at(marked, stem_of, np.array(has_digit, np.float32))
    units, terms = np.divmod(pairs, max(1, len(numbers)))
    count = max(1, len(context.layout.paragraphs.first))
    codes = np.unique(terms * count + context.layout.paragraphs.of[units])
    spread = np.bincount(codes // count, minlength=len(numbers))
    rarity = np.log1p((count - spread + 0.5) / (spread + 0.5)) / np.log1p(2.0 * count + 1)
    first = np.searchsorted(units, np.arange(height + 1))
    return Names(units, terms, (power * rarity).astype(np.float32), first, marked)


def total_weight(names: Names, height: int) -> Floats:
    """The weight of all names of each unit."""
    return np.bincount(names.units, names.pair_weights, minlength=height).astype(np.float32)


STRONG = 24


@dataclass(frozen=True)
class Strong:
    """The units that scored best, at most `STRONG`, and how strong each is from 0 to 1."""

    units: Ints
    strength: Floats


def strongest(logits: Floats, is_title: NDArray[np.bool_]) -> Strong:
    """By logit, titles aside: a title has no evidence of its own. Strength is by distance from the best."""
    ready = np.where(is_title, -np.inf, logits)
    if not np.isfinite(ready).any():
        ready = logits
    count = min(STRONG, len(ready))
    units = np.sort(np.argpartition(-ready, count - 1)[:count])
    units = units[np.isfinite(ready[units])]
    strength = np.exp((ready[units] - ready[units].max()) / 2.0)
    return Strong(units, strength.astype(np.float32))


def shared(names: Names, strong: Ints, height: int) -> Floats:
    """The weight of the names that each unit shares with each strong unit: (strong, units)."""
    own = [names.terms[names.first[unit] : names.first[unit + 1]] for unit in strong.tolist()]
    terms = np.concatenate([names.terms[:0], *own])
    distinct, rows = np.unique(terms, return_inverse=True)
    table = np.zeros((len(distinct), len(strong)), np.float32)
    table[rows, np.repeat(np.arange(len(own)), list(map(len, own)))] = names.weights[terms]
    row_of = np.full(len(names.weights), -1)
    row_of[distinct] = np.arange(len(distinct))
    of_pairs = row_of[names.terms]
    hit = np.flatnonzero(of_pairs >= 0)
    sizes = np.bincount(names.units[hit], minlength=height)
    return np.ascontiguousarray(Runs.of(sizes).reduce(np.add, table, of_pairs[hit]).T)


def add_links(columns: Columns, names: Names, layout: Layout, strong: Strong) -> None:
    """Features of how each unit, its head and its paragraph relate to the strong units elsewhere."""
    height = len(layout.heads)
    weight = np.maximum(total_weight(names, height), 1e-6)
    # Tables here are (strong, units): a maximum along the short axis would take many times as long.
    links = shared(names, strong.units, height)
    of_documents = layout.documents.of
    single = len(layout.documents.first) < 2
    of = layout.paragraphs.of if single else of_documents
    is_beside = of == of[strong.units][:, None]
    strength = strong.strength[:, None]
    elsewhere = np.where(is_beside, np.float32(0), strength)
    first_of_paragraph = layout.paragraphs.first[layout.paragraphs.of]
    first_of_document = layout.documents.first[of_documents]
    heads = layout.heads
    body_first = np.minimum(
        first_of_document + layout.is_title[first_of_document], layout.documents.last[of_documents] - 1
    )
    own = links / weight
    out = links * elsewhere
    columns.add("link.unit.most", np.tanh(out.max(axis=0)))
    columns.add("link.unit.sum", np.tanh(out.sum(axis=0) / 2))
    columns.add("link.unit.share", (own * elsewhere).max(axis=0))
    for name, at in (("head", heads), ("first", body_first), ("opening", first_of_paragraph)):
        columns.add(f"link.{name}.share", (own.take(at, axis=1) * elsewhere).max(axis=0))
        columns.add(f"link.{name}.most", np.tanh((links.take(at, axis=1) * elsewhere).max(axis=0)))
    # Units that name what a strong unit is about: they have names of the strong unit's head.
    strong_heads = heads[strong.units]
    back = shared(names, strong_heads, height)
    differs = np.where(strong_heads[:, None] == heads, np.float32(0), elsewhere)
    named = (back / weight[strong_heads][:, None] * differs).max(axis=0)
    columns.add("link.names_head", named)
    columns.add("link.names_head.most", np.tanh((back * differs).max(axis=0)))
    group = layout.paragraphs if single else layout.documents
    columns.add("link.group.names_head", group.largest(named)[group.of])
    columns.add("link.group.most", np.tanh(group.largest(out.max(axis=0))[group.of]))
    # Names that are the unit's alone with a strong unit say more than those that many share.
    beside = np.where(is_beside, strength, np.float32(0))
    best = beside.max(axis=0)
    others = np.tanh(beside.sum(axis=0) - best)
    beside[np.arange(len(strong.units)), strong.units] = 0
    columns.add("link.inside", np.tanh((links * beside).max(axis=0)))
    columns.add("strong.same_group", best)
    columns.add("strong.others_in_group", others)
    columns.add("weight.names", np.log1p(weight))


def add_scores(columns: Columns, logits: Floats, layout: Layout) -> None:
    """Adds features of each unit's own first score among the others."""
    ordered = np.sort(-logits)
    place = np.searchsorted(ordered, -logits)
    top = logits.max()
    columns.add("first.logit", np.clip(logits, -12, 12) / 4)
    columns.add("first.below_best", np.clip(logits - top, -12, 0) / 4)
    columns.add("first.place", 1 / np.sqrt(1.0 + place))
    columns.add("first.relative_place", place / max(1, len(logits)))
    chance = np.exp(logits - top)
    chance = chance / chance.sum()
    columns.add("first.chance", np.sqrt(chance))
    columns.add("first.entropy", float(-(chance * np.log(chance + 1e-9)).sum() / 5))
    for name, group in (("paragraph", layout.paragraphs), ("document", layout.documents)):
        best = group.largest(logits)
        columns.add(f"first.{name}.below_best", np.clip(best - top, -12, 0)[group.of] / 4)
        columns.add(f"first.{name}.own", np.clip(logits - best[group.of], -12, 0) / 4)
        places = np.searchsorted(np.sort(-best), -best)
        columns.add(f"first.{name}.place", (1 / np.sqrt(1.0 + places))[group.of])
