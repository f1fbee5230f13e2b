"""The features of every unit for a query, in one table."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Columns, Floats, Layout, Levels, lay_out
from compression.features.matching import (
    Counts,
    Query,
    apart,
    asked,
    count_grams,
    count_words,
    longest_runs,
    offered,
    pairs_kept,
    surfaces,
    terms_of,
    verbatim,
)
from compression.features.meaning import Pieces, TokenEmbeddings, break_up, compare
from compression.features.words import Words, lex
from compression.source.units import Segmentation

REACHES = (1, 3, 8, 20, 50)
NEARBY = ("word", "gram", "mean", "late")
KINDS = ("heading", "turn", "json_member", "code_block", "list_item", "table_row")


@dataclass(frozen=True)
class Context:
    """Everything that is computed once a text, whatever the query."""

    segmentation: Segmentation
    words: Words
    layout: Layout
    pieces: Pieces
    texts: list[str]


def prepare(
    segmentation: Segmentation, embeddings: TokenEmbeddings, muted: NDArray[np.bool_] | None = None
) -> Context:
    """`muted` units are read as if they were empty."""
    words = lex(segmentation)
    texts = segmentation.texts()
    if muted is not None and muted.any():
        words = words.without(muted)
        texts = ["" if is_muted else text for text, is_muted in zip(texts, muted.tolist(), strict=True)]
    return Context(segmentation, words, lay_out(segmentation), break_up(words, embeddings), texts)


def extract(text: str, context: Context, embeddings: TokenEmbeddings) -> tuple[list[str], Floats]:
    """Names of the features, and a row a unit: (units, features). The context has a unit."""
    query = Query.of(text)
    layout = context.layout
    columns = Columns(len(context.texts))
    terms = terms_of(context.words, query)
    words = count_words(context.words, query, terms, layout)
    parts = count_grams(context.words, query, layout)
    prior = np.array([embeddings.word_weight(term) for term in query.terms] or [0.0], np.float32)
    levels = {
        **words_levels("word", words, prior),
        **words_levels("gram", parts, np.ones(parts.unit.shape[1], np.float32)),
        **compare(query, context.pieces, context.words, layout, embeddings),
    }
    levels["run.unit"] = (longest_runs(context.words, terms, words.rarity(words.unit) * prior), None)
    for chosen in (None, layout.paragraphs, layout.documents):
        own = {name: values for name, (values, group) in levels.items() if group is chosen}
        columns.add_relative(list(own), np.stack(list(own.values())), chosen)
        for name, values in own.items():
            if name.startswith(("mean", "late")):
                columns.add(f"plain.{name}", values if chosen is None else values[chosen.of])
    _add_surroundings(columns, np.stack([levels[f"{name}.unit"][0] for name in NEARBY]), layout)
    _add_coverage(columns, words, prior, layout)
    columns.add("apart.gram", apart(parts.unit, layout.paragraphs, np.ones(1, np.float32)))
    columns.add("pairs", pairs_kept(context.words, query))
    columns.add("verbatim", verbatim(context.texts, query))
    _add_answers(columns, query, context)
    _add_shape(columns, query, context, embeddings)
    return columns.names, columns.table()


def words_levels(name: str, counts: Counts, prior: Floats) -> Levels:
    """BM25 of the unit, of it under its head, of its paragraph and of its document."""
    layout, unit = counts.layout, counts.unit
    rarity = counts.rarity(unit) * prior
    titled = unit + unit[layout.heads] * (layout.heads != np.arange(len(unit)))[:, None]
    levels: Levels = {
        f"{name}.unit": (counts.bm25(unit, counts.lengths, rarity), None),
        f"{name}.titled": (counts.bm25(titled, counts.lengths + counts.lengths[layout.heads], rarity), None),
    }
    for level, group in (("paragraph", layout.paragraphs), ("document", layout.documents)):
        total = group.total(unit)
        scores = counts.bm25(total, group.total(counts.lengths), counts.rarity(total) * prior)
        levels[f"{name}.{level}"] = (scores, group)
    return levels


def _add_surroundings(columns: Columns, rows: Floats, layout: Layout) -> None:
    """Scores of the neighbourhood, which say more of a turn than the turn does; and the unit's share in its own."""
    columns.add_shares([f"{name}.in_paragraph" for name in NEARBY], rows, layout.paragraphs)
    columns.add_shares([f"{name}.in_document" for name in NEARBY], rows, layout.documents)
    for reach, near in zip(REACHES, layout.smooth_rows(rows, *REACHES), strict=True):
        # Where all neighbourhoods are one, the distance from the mean is what rounding leaves of it: weights know it as
        # it is when values are added in this order.
        columns.add_relative(
            [f"{name}.near{reach}" for name in NEARBY], np.asfortranarray(near), places=False
        )
    shares = np.clip(rows / np.maximum(rows.max(axis=1, keepdims=True), 1e-6), -1, 1).T
    for offset in (-1, 1):
        for name, row in zip(NEARBY, layout.beside(shares, offset).T, strict=True):
            columns.add(f"{name}.at{offset:+d}", row)


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
        columns.add(f"apart.{level}", apart(words.unit, group, prior))
    columns.add("cover.rarest", (has * rarity).max(axis=1) / max(float(rarity.max()), 1e-6))
    columns.add("cover.any", float(has.max(axis=0).mean()))


def _add_answers(columns: Columns, query: Query, context: Context) -> None:
    wanted = asked(query)
    given = offered(context.words, query)
    for kind, is_asked in wanted.items():
        columns.add(f"asks.{kind}", is_asked)
    for kind, count in given.items():
        columns.add(f"has.{kind}", np.log1p(count))
    pairs = (
        ("person", "name"),
        ("time", "year"),
        ("time", "number"),
        ("number", "number"),
        ("place", "name"),
    )
    for kind, answer in pairs:
        columns.add(f"fits.{kind}.{answer}", wanted[kind] * (given[answer] > 0))
    for name, values in surfaces(context.texts).items():
        columns.add(f"text.{name}", values)


def _add_shape(columns: Columns, query: Query, context: Context, embeddings: TokenEmbeddings) -> None:
    layout, units, words = context.layout, context.segmentation.units, context.words
    at = np.arange(len(units), dtype=np.float32)
    first, last = layout.documents.first[layout.documents.of], layout.documents.last[layout.documents.of]
    columns.add("shape.length", np.log1p(words.lengths) / 4)
    columns.add(
        "shape.relative_length", np.tanh(np.log(words.lengths / max(1.0, float(words.lengths.mean()))))
    )
    columns.add("shape.place", (at - first) / np.maximum(1, last - first))
    columns.add("shape.from_start", 1 / (1 + at - first))
    columns.add("shape.is_title", layout.is_title)
    columns.add("shape.has_title", layout.has_title)
    for kind in KINDS:
        columns.add(f"shape.{kind}", np.array([unit.kind == kind for unit in units], np.float32))
    columns.add("shape.repeats", _repeats(context.texts))
    columns.add("context.units", np.log10(max(1, len(units))) / 4)
    columns.add("context.documents", np.log10(max(1, len(layout.documents.first))) / 2)
    columns.add("context.turns", float(np.mean([unit.kind == "turn" for unit in units] or [False])))
    columns.add("query.words", np.log1p(len(query.words)) / 4)
    columns.add("query.whole_pieces", embeddings.whole_share(query.words))


def _repeats(texts: list[str]) -> Floats:
    """1 for a unit that occurs earlier in the source, word for word."""
    seen: set[str] = set()
    out = np.zeros(len(texts), np.float32)
    for number, text in enumerate(texts):
        if text in seen:
            out[number] = 1
        seen.add(text)
    return out
