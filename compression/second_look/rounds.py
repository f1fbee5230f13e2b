"""The second look in two rounds: evidence lifts what it names, then what that names; repetitions go behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Columns, Floats, Ints, Layout
from compression.features.matching import Counts, Query, count_words, terms_of
from compression.features.matrix import Context
from compression.features.meaning import TokenEmbeddings
from compression.features.network import BadWeights, Network, beginning_with, read_arrays
from compression.salience import FAULT, Salience, read_salience
from compression.second_look.links import Names, Strong, add_links, add_scores, find_names, strongest
from compression.source.units import Segmentation

WEIGHTS = Path(__file__).parent.parent / "weights" / "second_look.npz"
FORMAT = 1
COMMAND = "python -m benchmarks.training.second_look"
ROUNDS = ("one", "two")


@dataclass(frozen=True)
class SecondLook:
    """A network a round; each reads the features of the round before it too. `labels` are all features, in order."""

    rounds: tuple[Network, ...]
    labels: tuple[str, ...]

    @classmethod
    def load(cls, path: Path | None = None) -> SecondLook:
        """The weights that come with pith, or another file made by `python -m benchmarks.training.second_look`.

        Raises `FileNotFoundError` and `BadWeights`.
        """
        path = path or WEIGHTS
        arrays, features = read_arrays(path, "the second look", FORMAT, COMMAND)
        try:
            return cls(tuple(Network.of(beginning_with(f"{name}.", arrays)) for name in ROUNDS), features)
        except KeyError as error:
            raise BadWeights(f"{path}: {type(error).__name__}: {error}") from error

    def logits(self, seen: Inputs, first: Floats) -> Floats:
        """(units,): the logits of a first look, of whatever scorer, looked at again."""
        tables, logits, labels = [*seen.tables], first, list(seen.labels)
        for network in self.rounds:
            names, related = relations(seen, logits)
            tables.append(related)
            labels += names
            logits = network.logits(*tables, layout=seen.layout)
        if tuple(labels) != self.labels:
            raise BadWeights(
                f"the weights of the second look were trained on other features; make new ones: {COMMAND}"
            )
        return logits


_KINDS = frozenset({"json_member", "table_row", "list_item"})
# What a copy loses in logits: it ranks below what is new and nearly as good, and above what is irrelevant.
_COPY = np.float32(4.0)


def demoted(logits: Floats, text: Segmentation, copy_of: Ints, is_asked: NDArray[np.bool_]) -> Floats:
    """The logits, lowered for all but the best of identical units; of equals the last is best.

    Units with words of the query keep theirs: a query for all that is "active" wants every one.
    """
    structured = np.array([unit.kind in _KINDS for unit in text.units], bool) & ~is_asked
    at = np.flatnonzero(structured)
    if not len(at):
        return logits
    order = at[np.lexsort((-at, -logits[at], copy_of[at]))]
    is_copy = np.r_[False, copy_of[order][1:] == copy_of[order][:-1]]
    out = logits.copy()
    out[order[is_copy]] -= _COPY
    return out


def add_needs(columns: Columns, names: Names, lengths: Floats, layout: Layout) -> None:
    """`lengths` are words a unit."""
    height = len(layout.heads)
    documents = layout.documents.of
    for kind, chosen in (("id", names.is_identifier[names.terms] > 0), ("name", names.pair_weights > 0)):
        units, terms = names.units[chosen], names.terms[chosen]
        own = _count(units, height)
        columns.add(f"need.{kind}.count", np.log1p(own) / 2)
        columns.add(f"need.{kind}.density", own / np.maximum(lengths, 1))
        first, last = _extremes(units, terms, len(names.weights))
        last_document = documents[last]
        first_document = documents[first]
        new = _count(units[first[terms] == units], height)
        newest = _count(units[last[terms] == units], height)
        again = _count(units[last_document[terms] > documents[units]], height)
        known = _count(units[first_document[terms] < documents[units]], height)
        for name, count in (("new", new), ("newest", newest), ("again", again), ("known", known)):
            columns.add(f"need.{kind}.{name}", np.log1p(count) / 2)
            columns.add(f"need.{kind}.{name}.share", count / np.maximum(own, 1))
        near = layout.paragraphs.largest((again > 0).astype(np.float32))[layout.paragraphs.of]
        columns.add(f"need.{kind}.again.near", near)
    _add_place(columns, layout)


def _add_place(columns: Columns, layout: Layout) -> None:
    count = max(1, len(layout.documents.first))
    back = (count - 1 - layout.documents.of).astype(np.float32)
    columns.add("newest.document", np.exp(-back / 2))
    columns.add("newest.documents", np.exp(-back / 8))
    columns.add("newest.place", 1 - back / count)
    at = np.arange(len(layout.heads), dtype=np.float32)
    columns.add("newest.unit", np.exp(-(len(at) - 1 - at) / 20))


def _count(units: Ints, height: int) -> Floats:
    return np.bincount(units, minlength=height).astype(np.float32)


def _extremes(units: Ints, terms: Ints, size: int) -> tuple[Ints, Ints]:
    """The first and the last unit that has each term; pairs come in the order of units."""
    first, last = np.zeros(size, np.int64), np.zeros(size, np.int64)
    last[terms] = units
    first[terms[::-1]] = units[::-1]
    return first, last


def add_open_terms(columns: Columns, counts: Counts, prior: Floats, layout: Layout, strong: Strong) -> None:
    """Share of the query's terms a unit has, where terms that strong units elsewhere have count little."""
    has = (counts.unit > 0).astype(np.float32)
    titled = np.maximum(has, has[layout.heads])
    weight = counts.rarity(counts.unit) * prior
    covered = (titled[strong.units] * strong.strength[:, None]).max(axis=0) if len(strong.units) else 0.0
    best = strong.units[np.argmax(strong.strength)]
    for name, left in (("all", 1 - covered), ("best", 1 - titled[best])):
        rest = weight * left
        total = max(float(rest.sum()), 1e-6)
        columns.add(f"open.{name}.unit", has @ rest / total)
        columns.add(f"open.{name}.titled", titled @ rest / total)
        columns.add(f"open.{name}.share", total / max(float(weight.sum()), 1e-6))
    # Terms of the query that hardly any unit has point to a rare unit.
    scarce = weight * (has.sum(axis=0) <= 3)
    columns.add("open.scarce", has @ scarce / max(float(scarce.sum()), 1e-6))


# Words that ask for the newest state of a thing.
_NOW = re.compile(
    r"\b(?:now|current\w*|latest|newest|still|status|state|today|most recent\w*|when (?:will|can|does|is)|next"
    r"|noch|jetzt|aktuell\w*|derzeit\w*|offen\w*|stand|maintenant|actuel\w*|ahora|actual\w*|todavía|adesso|agora|сейчас"
    r"|теперь|статус\w*)\b|目前|现在|現在|最新|当前|الآن|حاليا|अभी|지금|현재",
    re.IGNORECASE,
)


def add_salience(columns: Columns, salience: Salience, query: str, layout: Layout) -> None:
    asks = float(FAULT.search(query) is not None)
    level = salience.level
    share = level / max(float(level.max(initial=0.0)), 0.3)
    columns.add("asks.fault", asks)
    _add_newest(columns, query, layout)
    columns.add("is.noise", salience.noise)
    columns.add("is.level", level)
    columns.add("is.level.share", share)
    columns.add("is.level.asked", share * asks)
    columns.add("is.level.near", layout.smooth(level[:, None], 2)[:, 0])
    columns.add("is.log", salience.is_log)
    columns.add("is.template", np.log1p(salience.template_size) / 4)
    columns.add("is.rare", (salience.template_size == 1).astype(np.float32) * salience.is_log)
    columns.add("is.first", salience.is_first)
    columns.add("is.last", salience.is_last)
    columns.add("is.change", salience.changes_state)
    columns.add("is.copy", salience.repeats)
    columns.add("is.letters", np.log1p(salience.letters) / 6)
    columns.add("context.logs", float(np.mean(salience.is_log)) if len(level) else 0.0)


def _add_newest(columns: Columns, query: str, layout: Layout) -> None:
    """How recent a part is, where the query asks for the latest."""
    asks = float(_NOW.search(query) is not None)
    count = max(1, len(layout.documents.first))
    at = layout.documents.of if count > 1 else layout.paragraphs.of
    back = (at.max(initial=0) - at).astype(np.float32)
    columns.add("asks.now", asks)
    columns.add("asks.now.newest", asks * np.exp(-back / 3))
    columns.add("asks.now.place", asks * (1 - back / max(1.0, float(back.max(initial=0)))))


# The weight from which a word of the query is not a frequent one.
_ASKED = 0.5


@dataclass(frozen=True)
class Inputs:
    """`tables` have the features that no score changes, (units, features), the first look's before the others; `still`
    is one table of them all. `copy_of` is the first unit with the same text; `is_asked` units have a word that the
    query is about.
    """

    query: Query
    layout: Layout
    names: Names
    counts: Counts
    prior: Floats
    labels: tuple[str, ...]
    tables: tuple[Floats, ...]
    copy_of: Ints
    is_asked: NDArray[np.bool_]

    @property
    def still(self) -> Floats:
        return np.concatenate(self.tables, axis=1)


def read_inputs(
    text: str, context: Context, first: tuple[list[str], Floats], embeddings: TokenEmbeddings
) -> Inputs:
    """`first` are the names and values of the first look's features."""
    query = Query.of(text)
    names = find_names(context, query)
    counts = count_words(context.words, query, terms_of(context.words, query), context.layout)
    prior = np.array([embeddings.word_weight(term) for term in query.terms] or [0.0], np.float32)
    columns = Columns(len(context.texts))
    add_needs(columns, names, context.words.lengths, context.layout)
    salience = read_salience(context.segmentation)
    add_salience(columns, salience, text, context.layout)
    is_asked = np.asarray((counts.unit[:, : len(prior)] > 0) @ prior >= _ASKED)
    labels, features = first
    tables = (features, columns.table())
    known = (*labels, *columns.names)
    return Inputs(query, context.layout, names, counts, prior, known, tables, salience.copy_of, is_asked)


def relations(seen: Inputs, logits: Floats) -> tuple[list[str], Floats]:
    """Relations of every unit to those that score best so far: (units, features)."""
    columns = Columns(len(logits))
    layout = seen.layout
    strong = strongest(logits, layout.is_title)
    add_scores(columns, logits, layout)
    add_links(columns, seen.names, layout, strong)
    add_open_terms(columns, seen.counts, seen.prior, layout, strong)
    return columns.names, columns.table()
