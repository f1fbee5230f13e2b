"""One text and one query as the second look sees them: what no score changes, and what hangs on the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compression.embeddings import TokenEmbeddings
from compression.features.columns import Columns
from compression.features.layout import Layout
from compression.features.matching import Counts, Query, count_words, terms_of
from compression.features.matrix import Context
from compression.features.runs import Floats
from compression.salience import read_salience
from compression.second_look.links import add_links, add_scores, strongest
from compression.second_look.naming import Names, find_names
from compression.second_look.needs import add_needs
from compression.second_look.salient import add_salience
from compression.second_look.wanting import add_open_terms


@dataclass(frozen=True)
class View:
    """`tables` have the features that no score changes, (units, features), the first look's before the others; `still`
    is one table of them all.
    """

    layout: Layout
    names: Names
    counts: Counts
    prior: Floats
    labels: tuple[str, ...]
    tables: tuple[Floats, ...]

    @property
    def still(self) -> Floats:
        return np.concatenate(self.tables, axis=1)


def view(text: str, context: Context, first: tuple[list[str], Floats], embeddings: TokenEmbeddings) -> View:
    """`first` are the names and values of the first look's features."""
    query = Query.of(text)
    names = find_names(context, query)
    counts = count_words(context.words, query, terms_of(context.words, query), context.layout)
    prior = np.array([embeddings.word_weight(term) for term in query.terms] or [0.0], np.float32)
    columns = Columns(len(context.texts))
    add_needs(columns, names, context.words.lengths, context.layout)
    add_salience(columns, read_salience(context.segmentation), text, context.layout)
    labels, features = first
    tables = (features, columns.table())
    return View(context.layout, names, counts, prior, (*labels, *columns.names), tables)


def relations(seen: View, logits: Floats) -> tuple[list[str], Floats]:
    """How every unit hangs together with those that score best so far: (units, features)."""
    columns = Columns(len(logits))
    layout = seen.layout
    strong = strongest(logits, layout.is_title)
    add_scores(columns, logits, layout)
    add_links(columns, seen.names, layout, strong)
    add_open_terms(columns, seen.counts, seen.prior, layout, strong)
    return columns.names, columns.table()
