"""One text and one query as the second look reads them: what no score changes, and what depends on scores."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compression.features.columns import Columns
from compression.features.embeddings import TokenEmbeddings
from compression.features.layout import Layout
from compression.features.matching import Counts, Query, count_words, terms_of
from compression.features.matrix import Context
from compression.features.runs import Floats, Ints
from compression.salience import read_salience
from compression.second_look.identifiers import add_needs
from compression.second_look.links import add_links, add_scores, strongest
from compression.second_look.names import Names, find_names
from compression.second_look.open_terms import add_open_terms
from compression.second_look.salience_features import add_salience

# The weight from which a word of the query is not a frequent one.
_ASKED = 0.5


@dataclass(frozen=True)
class Inputs:
    """`tables` have the features that no score changes, (units, features), the first look's before the others; `still`
    is one table of them all. `copy_of` is the first unit with the same text; `is_asked` units have a word that the
    query is about.
    """

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
    return Inputs(context.layout, names, counts, prior, known, tables, salience.copy_of, is_asked)


def relations(seen: Inputs, logits: Floats) -> tuple[list[str], Floats]:
    """How every unit relates to those that score best so far: (units, features)."""
    columns = Columns(len(logits))
    layout = seen.layout
    strong = strongest(logits, layout.is_title)
    add_scores(columns, logits, layout)
    add_links(columns, seen.names, layout, strong)
    add_open_terms(columns, seen.counts, seen.prior, layout, strong)
    return columns.names, columns.table()
