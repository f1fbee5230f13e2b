"""The features of every unit for a query, in one table; all of them compare a unit to its own context, so length is no matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compression.embeddings import TokenEmbeddings
from compression.features.answers import asked, offered, surfaces
from compression.features.layout import Group, Layout, lay_out
from compression.features.matching import Counts, Query, count_grams, count_words, pairs_kept, verbatim
from compression.features.meaning import Meaning, Pieces, break_up, compare
from compression.features.words import Floats, Words, fold, lex, stem
from compression.units import Segmentation

REACHES = (1, 3, 8, 20, 50)
KINDS = ("heading", "turn", "json_member", "code_block", "list_item", "table_row")


@dataclass(frozen=True)
class Context:
    """What is computed once a text, whatever the query."""

    segmentation: Segmentation
    words: Words
    layout: Layout
    pieces: Pieces
    texts: list[str]


def prepare(segmentation: Segmentation, embeddings: TokenEmbeddings) -> Context:
    words = lex(segmentation)
    texts = [segmentation.text(number) for number in range(len(segmentation.units))]
    return Context(segmentation, words, lay_out(segmentation), break_up(words, embeddings), texts)


class Columns:
    """Named columns in the order in which they were added."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.names: list[str] = []
        self.values: list[Floats] = []

    def add(self, name: str, values: Floats | float) -> None:
        self.names.append(name)
        self.values.append(np.broadcast_to(np.asarray(values, np.float32), (self.height,)))

    def add_relative(self, name: str, values: Floats) -> None:
        """A score against the others of its context: share of the best, place among them, distance from the mean."""
        best = max(float(values.max(initial=0)), 1e-6)
        self.add(f"{name}.share", np.clip(values / best, -1, 1))
        distinct, place = np.unique(-values, return_inverse=True)
        self.add(f"{name}.place", 1.0 / np.sqrt(1.0 + place))
        spread = max(float(values.std()), 1e-6)
        self.add(f"{name}.distance", np.tanh((values - values.mean()) / spread / 3))

    def table(self) -> Floats:
        return np.stack(self.values, axis=1)


def extract(text: str, context: Context, embeddings: TokenEmbeddings) -> tuple[list[str], Floats]:
    """Names of the features, and a row a unit: (units, features)."""
    query = Query.of(text)
    layout = context.layout
    columns = Columns(len(context.texts))
    words = count_words(context.words, query, layout)
    parts = count_grams(context.words, query, layout)
    prior = np.array([embeddings.word_weight(term) for term in query.terms] or [0.0], np.float32)
    meaning = compare(query, context.pieces, context.words, layout, embeddings)
    scores = {
        **_levels("word", words, prior),
        **_levels("gram", parts, np.ones(parts.unit.shape[1], np.float32)),
        **meaning.scores,
    }
    for name, values in scores.items():
        columns.add_relative(name, values)
    _add_windows(columns, scores, layout)
    _add_coverage(columns, words, prior, layout)
    for name, values in meaning.plain.items():
        columns.add(name, values)
    columns.add("pairs", pairs_kept(context.words, query))
    columns.add("verbatim", verbatim(context.texts, query))
    _add_answers(columns, query, context)
    _add_shape(columns, query, context, embeddings, words)
    return columns.names, columns.table()


def _levels(name: str, counts: Counts, prior: Floats) -> dict[str, Floats]:
    """BM25 of the unit, of it under its head, of its paragraph and of its document."""
    layout, unit = counts.layout, counts.unit
    rarity = counts.rarity(unit) * prior
    titled = unit + unit[layout.heads] * (layout.heads != np.arange(len(unit)))[:, None]
    scores = {
        f"{name}.unit": counts.bm25(unit, counts.lengths, rarity),
        f"{name}.titled": counts.bm25(titled, counts.lengths + counts.lengths[layout.heads], rarity),
    }
    for level, group in (("paragraph", layout.paragraphs), ("document", layout.documents)):
        total = group.total(unit)
        weight = counts.rarity(total) * prior
        scores[f"{name}.{level}"] = counts.bm25(total, group.total(counts.lengths), weight)[group.of]
    return scores


def _add_windows(columns: Columns, scores: dict[str, Floats], layout: Layout) -> None:
    """Scores of the neighbourhood: what surrounds a dialogue's turn says more than the turn."""
    for name in ("word.unit", "gram.unit", "mean.unit", "late.unit"):
        for reach in REACHES:
            columns.add_relative(f"{name}.near{reach}", layout.smooth(scores[name], reach))
        best = max(float(scores[name].max(initial=0)), 1e-6)
        for offset in (-2, -1, 1, 2):
            columns.add(f"{name}.at{offset:+d}", layout.beside(scores[name], offset) / best)


def _add_coverage(columns: Columns, words: Counts, prior: Floats, layout: Layout) -> None:
    """Share of the query's weight of words that a text has at all, and the weight of the rarest one it has."""
    rarity = words.rarity(words.unit) * prior
    total = max(float(rarity.sum()), 1e-6)
    has = (words.unit > 0).astype(np.float32)
    titled = np.maximum(has, has[layout.heads])
    columns.add("cover.unit", has @ rarity / total)
    columns.add("cover.titled", titled @ rarity / total)
    for level, group in (("paragraph", layout.paragraphs), ("document", layout.documents)):
        columns.add(f"cover.{level}", (group.largest(has) @ rarity / total)[group.of])
    columns.add("cover.rarest", (has * rarity).max(axis=1) / max(float(rarity.max(initial=0)), 1e-6))
    columns.add("cover.any", float(has.max(axis=0, initial=0).mean()))


def _add_answers(columns: Columns, query: Query, context: Context) -> None:
    wanted = asked(query)
    given = offered(context.words, query, context.layout)
    for kind, is_asked in wanted.items():
        columns.add(f"asks.{kind}", is_asked)
    for kind, count in given.items():
        columns.add(f"has.{kind}", np.log1p(count))
    pairs = (("person", "name"), ("time", "year"), ("time", "number"), ("number", "number"), ("place", "name"))
    for kind, answer in pairs:
        columns.add(f"fits.{kind}.{answer}", wanted[kind] * (given[answer] > 0))
    for name, values in surfaces(context.texts).items():
        columns.add(f"text.{name}", values)


def _add_shape(
    columns: Columns, query: Query, context: Context, embeddings: TokenEmbeddings, words: Counts
) -> None:
    layout, units = context.layout, context.segmentation.units
    at = np.arange(len(units), dtype=np.float32)
    first, last = layout.documents.first[layout.documents.of], layout.documents.last[layout.documents.of]
    columns.add("shape.length", np.log1p(words.lengths) / 4)
    columns.add("shape.relative_length", np.tanh(np.log(words.lengths / max(1.0, float(words.lengths.mean())))))
    columns.add("shape.place", (at - first) / np.maximum(1, last - first))
    columns.add("shape.from_start", 1 / (1 + at - first))
    columns.add("shape.is_title", layout.is_title)
    columns.add("shape.has_title", layout.has_title)
    for kind in KINDS:
        columns.add(f"shape.{kind}", np.array([unit.kind == kind for unit in units], np.float32))
    columns.add("shape.repeats", _repeats(context.texts))
    columns.add("context.units", np.log10(max(1, len(units))) / 4)
    columns.add("context.documents", np.log10(max(1, len(layout.documents.first))) / 2)
    columns.add("context.turns", float(np.mean([unit.kind == "turn" for unit in units] or [0])))
    columns.add("query.words", np.log1p(len(query.words)) / 4)
    columns.add("query.whole_pieces", embeddings.whole_share(query.words))


def _repeats(texts: list[str]) -> Floats:
    """1 for a unit that stands in the source before, word for word."""
    seen: set[str] = set()
    out = np.zeros(len(texts), np.float32)
    for number, text in enumerate(texts):
        if text in seen:
            out[number] = 1
        seen.add(text)
    return out
