"""The numbers that a calibration reads: some of the text alone, some of what was kept, which rise as more is kept."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compression.calibration.context import Context, Floats

_KINDS = ("turn", "line", "json_member", "sentence", "heading", "table_row", "code_block", "list_item")
_LEAST = 1e-4
_WARMTHS = (1.0, 2.0, 4.0)

OF_TEXT = (
    "best", "second_gap", "entropy", "entropy_warm", "tokens", "units", "documents", "tokens_per_document",
    *(f"kind_{kind}" for kind in _KINDS),
    "digits", "query_terms", "query_names", "asks", "terms_in_source", "terms_in_best", "terms_in_best_document",
    "documents_of_mass", "hops", "hop_documents", "expected", "late",
)  # fmt: skip
"""What does not depend on what was kept."""
OF_CHOICE = (
    "ratio", "room", *(f"mass_{warmth:g}" for warmth in _WARMTHS), "lead", "lead_document", "rivals_2", "rivals_5",
    "terms_kept", "hops_kept", "hop_units_kept", "digits_kept", "tail_kept", "beside_best", "best_document_kept",
    "turns_kept", "expected_left", "none_left", "documents_kept", "late_kept",
)  # fmt: skip
"""What rises, or stays, whenever more is kept of the same text."""
NAMES = (*OF_TEXT, *OF_CHOICE)


def of_text(context: Context) -> Floats:
    """One row for `OF_TEXT`."""
    inside = np.flatnonzero(context.content)
    logits = context.logits[inside] if len(inside) else np.zeros(1)
    ranked = np.sort(logits)[::-1]
    documents = context.documents[inside]
    best = int(inside[int(np.argmax(logits))]) if len(inside) else 0
    count = len(np.unique(documents)) if len(documents) else 1
    kinds = [context.kinds.get(kind, 0.0) for kind in _KINDS]
    values = [
        ranked[0], min(10.0, ranked[0] - ranked[1]) if len(ranked) > 1 else 10.0,
        _entropy(logits, 1.0), _entropy(logits, 4.0),
        np.log(max(1, context.tokens)), np.log(len(logits)), np.log(count), np.log(max(1, context.tokens) / count),
        *kinds,
        float(context.digits.sum() / context.sizes.sum()) if len(context.sizes) else 0.0,
        np.log1p(context.query_terms), min(6.0, context.query_names), float(context.asks),
        len(context.terms) / max(1, context.query_terms),
        *_terms_in_best(context, best), _documents_of_mass(logits, documents), np.log1p(len(context.hops)),
        np.log1p(len(np.unique(context.documents[np.concatenate(context.hops)]))) if context.hops else 0.0,
        np.log1p(float(_odds_on(logits).sum())), np.log1p(len(context.late)),
    ]  # fmt: skip
    return np.array(values, np.float64)


def of_choice(context: Context, kept: Floats, ratio: float) -> Floats:
    """One row for `OF_CHOICE`. `kept`: the share of each unit that was kept; `ratio`: output by original tokens."""
    inside = context.content
    logits, share = context.logits[inside], kept[inside]
    if not len(logits):
        return np.zeros(len(OF_CHOICE))
    top = float(logits.max())
    left_out = logits[share < 0.5]
    most_left = float(left_out.max()) if len(left_out) else -np.inf
    order = np.argsort(-logits, kind="stable")
    best = int(np.flatnonzero(inside)[order[0]])
    values = [
        np.log(max(ratio, 1e-3)), np.log1p(ratio * context.tokens),
        *(_surprise(_mass(logits, share, warmth)) for warmth in _WARMTHS),
        min(10.0, top - most_left), min(10.0, top - _best_document_left(context, kept)),
        -np.log1p(float((left_out > top - 2).sum())), -np.log1p(float((left_out > top - 5).sum())),
        _held(context.terms, kept, context.query_terms),
        _held(context.hops, kept, len(context.hops)), _units_held(context.hops, kept),
        _share(context.digits, kept), _tail(context.sizes, kept), _beside(context, kept, order[:3]),
        _share(np.where(context.documents == context.documents[best], context.sizes, 0.0), kept),
        _share(np.where(context.turns, context.sizes, 0.0), kept),
        -np.log1p(float(_odds_on(left_out).sum())), max(-12.0, float(np.log1p(-_odds_on(left_out)).sum())),
        _documents_kept(context, kept), _held(context.late, kept, len(context.late)),
    ]  # fmt: skip
    return np.array(values, np.float64)


def _odds_on(logits: Floats) -> Floats:
    """The scores themselves."""
    found: Floats = 1.0 / (1.0 + np.exp(-logits))
    return found


def _documents_kept(context: Context, kept: Floats) -> float:
    """Share of the documents of which anything is kept that is content."""
    inside = context.documents[context.content]
    return len(np.unique(inside[kept[context.content] >= 0.5])) / max(1, len(np.unique(inside)))


def _entropy(logits: Floats, warmth: float) -> float:
    """Of the softmax, in nats: the logarithm of how many units seem to matter."""
    odds = np.exp((logits - logits.max()) / warmth)
    chances = odds / odds.sum()
    return float(-(chances * np.log(chances + 1e-12)).sum())


def _mass(logits: Floats, share: Floats, warmth: float) -> float:
    """Share of the softmax that was kept."""
    odds = np.exp((logits - logits.max()) / warmth)
    return float((odds * share).sum() / odds.sum())


def _surprise(share: float) -> float:
    """How nearly all: 0 for nothing, above 9 for all."""
    return float(-np.log(max(_LEAST, 1.0 - share)))


def _best_document_left(context: Context, kept: Floats) -> float:
    """The best logit in a document of which nothing was kept."""
    inside = context.content
    highest = np.full(int(context.documents.max()) + 1, -np.inf)
    np.maximum.at(highest, context.documents[inside], context.logits[inside])
    highest[context.documents[inside & (kept >= 0.5)]] = -np.inf
    return float(highest.max())


def _held(groups: Sequence[NDArray[np.int64]], kept: Floats, count: int) -> float:
    """Of words, those of which any place was kept."""
    if not groups:
        return 1.0
    return sum(bool((kept[units] >= 0.5).any()) for units in groups) / max(1, count)


def _units_held(groups: Sequence[NDArray[np.int64]], kept: Floats) -> float:
    """Mean share of the places of each word that was kept."""
    if not groups:
        return 1.0
    return float(np.mean([(kept[units] >= 0.5).mean() for units in groups]))


def _share(sizes: Floats, kept: Floats) -> float:
    total = float(sizes.sum())
    return float((sizes * kept).sum() / total) if total else 1.0


def _tail(sizes: Floats, kept: Floats) -> float:
    """Of the last fifth of the text, the share that was kept."""
    passed = np.cumsum(sizes)
    return _share(np.where(passed > 0.8 * passed[-1], sizes, 0.0), kept)


def _beside(context: Context, kept: Floats, best: NDArray[np.int64]) -> float:
    """Of the neighbours of the best units, the share that was kept."""
    inside = np.flatnonzero(context.content)
    near = np.concatenate([best - 1, best + 1])
    near = inside[near[(near >= 0) & (near < len(inside))]]
    return float(kept[near].mean()) if len(near) else 1.0


def _terms_in_best(context: Context, best: int) -> tuple[float, float]:
    """Of the query's terms, those in the best unit, and those in its document."""
    if not context.terms:
        return 0.0, 0.0
    document = context.documents[best]
    in_unit = sum(bool((units == best).any()) for units in context.terms)
    in_document = sum(bool((context.documents[units] == document).any()) for units in context.terms)
    return in_unit / context.query_terms, in_document / context.query_terms


def _documents_of_mass(logits: Floats, documents: NDArray[np.int64]) -> float:
    """The logarithm of how many documents the softmax is spread over."""
    if not len(documents):
        return 0.0
    odds = np.exp((logits - logits.max()) / 2.0)
    by_document = np.bincount(documents, odds)
    chances = by_document / by_document.sum()
    return float(-(chances * np.log(chances + 1e-12)).sum())
