"""Members, rows and items that repeat a better one: an agent needs a value once."""

import numpy as np
from numpy.typing import NDArray

from compression.features.runs import Floats, Ints
from compression.source.units import Segmentation

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
