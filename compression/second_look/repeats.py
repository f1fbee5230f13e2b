"""Members, rows and items that say what a better one says already: an agent needs a value once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compression.features.runs import Floats, Ints
from compression.source.units import Segmentation

_KINDS = frozenset({"json_member", "table_row", "list_item"})
# What a copy loses in logits: it comes after what is new and nearly as good, and before what is nothing.
_COPY = np.float32(4.0)


def demoted(logits: Floats, text: Segmentation, copy_of: Ints, is_asked: NDArray[np.bool_]) -> Floats:
    """The logits, less for all but the best of units that are the same text; of equals the last is best.

    Units that have words of the query stay: who asks for all that is "active" wants every one of them.
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
