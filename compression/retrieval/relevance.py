"""How relevant whole texts are to a query, from the lexical scorer's scores of their units."""

from collections.abc import Sequence
from dataclasses import replace

from compression.scorers.lexical import LexicalScorer
from compression.segmentation.cutting.settings import SegmentationSettings
from compression.segmentation.segment import segment_plain
from compression.source.units import Document, Segmentation, Unit

_BETWEEN = "\n\n"
_PLAIN = SegmentationSettings()
# Of each text, however many there are.
_FEWEST_UNITS = 16


def relevance(scorer: LexicalScorer, query: str, texts: Sequence[str]) -> list[float]:
    """A score in [0, 1] for each text, the best of its units': comparable within one call only."""
    found, owners = side_by_side(texts)
    best = [0.0] * len(texts)
    for owner, score in zip(owners, scorer.score(query, found), strict=True):
        best[owner] = max(best[owner], score)
    return best


def side_by_side(texts: Sequence[str]) -> tuple[Segmentation, list[int]]:
    """All texts as documents of one source, and the text that each unit is of. What a text looks like inside, such as a
    list of documents, makes no others of it."""
    units: list[Unit] = []
    documents: list[Document] = []
    owners: list[int] = []
    at = paragraph = 0
    # All of them together have no more than a single source may.
    settings = replace(_PLAIN, most_units=max(_FEWEST_UNITS, _PLAIN.most_units // len(texts)))
    for number, text in enumerate(texts):
        inner = segment_plain(text, settings)
        first = len(units)
        units += [
            replace(
                unit,
                start=unit.start + at,
                end=unit.end + at,
                document=len(documents),
                paragraph=unit.paragraph + paragraph,
                frame=None,
            )
            for unit in inner.units
        ]
        if inner.units:
            title = inner.documents[0].title if len(inner.documents) == 1 else None
            title = None if title is None else first + title
            documents.append(Document(at, at + len(text), (first, len(units)), title))
            owners += [number] * len(inner.units)
            paragraph += max(unit.paragraph for unit in inner.units) + 1
        at += len(text) + len(_BETWEEN)
    return Segmentation(_BETWEEN.join(texts), tuple(units), tuple(documents)), owners
