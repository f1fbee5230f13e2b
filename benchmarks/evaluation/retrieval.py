"""BM25 over short texts, for hard passages and for the baselines; it shares no code with what it is compared to."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from benchmarks.evaluation.datasets import Passage
from benchmarks.evaluation.metrics import holds_answer

WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


class Bm25:
    """Okapi BM25 with k1 = 1.2 and b = 0.75 over lower-cased words."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(words(text)) for text in texts]
        self.lengths = [sum(count.values()) for count in counts]
        self.mean_length = max(1.0, sum(self.lengths) / max(1, len(counts)))
        self.postings: dict[str, list[tuple[int, int]]] = {}
        for index, count in enumerate(counts):
            for word, times in count.items():
                self.postings.setdefault(word, []).append((index, times))

    def scores(self, query: str) -> list[float]:
        """One score a text, in the order given."""
        total = [0.0] * len(self.lengths)
        for word in words(query):
            found = self.postings.get(word, [])
            rarity = math.log(1 + (len(total) - len(found) + 0.5) / (len(found) + 0.5))
            for index, times in found:
                length = 0.25 + 0.75 * self.lengths[index] / self.mean_length
                total[index] += rarity * times * 2.2 / (times + 1.2 * length)
        return total

    def ranking(self, query: str) -> list[int]:
        """Indices from the best down; equal scores in the order given."""
        scores = self.scores(query)
        return sorted(range(len(scores)), key=lambda index: -scores[index])


class HardPassages:
    """For each question, the passages of other rows that BM25 ranks highest and that hold no answer to it."""

    def __init__(self, rows: Sequence[Passage]) -> None:
        self.rows = rows
        self.index = Bm25([f"{row.title} {row.text}" for row in rows])

    def beside(self, row: Passage, count: int) -> list[Passage]:
        chosen: list[Passage] = []
        seen = {row.text}
        for index in self.index.ranking(row.question):
            other = self.rows[index]
            if other.text in seen or holds_answer(f"{other.title} {other.text}", row.answers):
                continue
            seen.add(other.text)
            chosen.append(other)
            if len(chosen) == count:
                break
        return chosen
