"""BM25 over units, each read together with the title of its document: the scorer that needs no training."""

import math
from collections import Counter
from collections.abc import Sequence

from compression.source.text import content_terms, terms_in
from compression.source.units import Segmentation

_K1 = 1.2
_B = 0.75


class BM25Scorer:
    """Robertson and Zaragoza, 2009. A score is the share of what a perfect match could reach, below 1."""

    def __init__(self, *, with_title: bool = True) -> None:
        self._with_title = with_title

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        wanted = Counter(content_terms(query) or terms_in(query))
        counts, lengths = self._read(wanted, text)
        frequency: Counter[str] = Counter()
        for found in counts:
            frequency.update(found.keys())
        idf = {
            term: math.log(1 + (len(counts) - frequency[term] + 0.5) / (frequency[term] + 0.5))
            for term in wanted
        }
        best = sum(idf[term] * times for term, times in wanted.items()) * (_K1 + 1)
        if best <= 0:
            return [0.0] * len(counts)
        average = max(1.0, sum(lengths) / len(lengths))
        scores = []
        for found, length in zip(counts, lengths, strict=True):
            norm = _K1 * (1 - _B + _B * length / average)
            gained = sum(
                idf[term] * wanted[term] * times * (_K1 + 1) / (times + norm) for term, times in found.items()
            )
            scores.append(gained / best)
        return scores

    def _read(self, wanted: Counter[str], text: Segmentation) -> tuple[list[dict[str, int]], list[int]]:
        """How often each unit, with its title, has each wanted term; and how many terms it has."""
        titles = {document.title: number for number, document in enumerate(text.documents)}
        own = [terms_in(unit) for unit in text.texts()]
        counts: list[dict[str, int]] = []
        lengths: list[int] = []
        for unit, found in enumerate(own):
            title = text.documents[text.units[unit].document].title if self._with_title else None
            read = found if title is None or unit in titles else found + own[title]
            wanted_here = [term for term in read if term in wanted]
            counts.append(Counter(wanted_here) if wanted_here else {})
            lengths.append(len(read))
        return counts, lengths
