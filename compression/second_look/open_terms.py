"""Which words of the query the strong units do not cover: the second hop of a question is about the rest."""

import numpy as np

from compression.features.columns import Columns
from compression.features.layout import Layout
from compression.features.matching import Counts
from compression.features.runs import Floats
from compression.second_look.links import Strong


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
