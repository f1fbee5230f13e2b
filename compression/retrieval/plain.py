"""Retrieval without a network: vectors from the static table, and relevance from the lexical scorer's scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from compression.features.layout import Floats
from compression.features.meaning import TokenEmbeddings, normalised
from compression.features.words import fold, split_many
from compression.pipeline.errors import RefusedRequest, TextTooLong
from compression.retrieval.job import Answer, RetrievalJob, Text
from compression.scorers.lexical import LexicalScorer
from compression.segmentation.segment import segment_plain
from compression.source.token_counter import TokenizerCounter, UnknownToken
from compression.source.units import Document, Segmentation, SegmentationSettings, Unit


def shortened(vectors: Floats, dimensions: int | None) -> Floats:
    """The first `dimensions` of each vector, again of length one. Raises a `CompressionError` where there are fewer."""
    width = vectors.shape[1]
    if dimensions is None or dimensions == width:
        return vectors
    if dimensions > width:
        raise RefusedRequest("dimensions", f"must be at most {width}, not {dimensions}")
    return normalised(vectors[:, :dimensions])


def little_endian(values: Floats) -> bytes:
    return values.astype("<f4").tobytes()


def counted(counter: TokenizerCounter, texts: Sequence[Text]) -> list[int]:
    """The tokens of each text; of one given as tokens, as many as were given."""
    strings = iter(counter.count_many([text for text in texts if isinstance(text, str)]))
    return [next(strings) if isinstance(text, str) else len(text) for text in texts]


def check_lengths(counts: Sequence[int], longest: int, field: str) -> None:
    """Raises `TextTooLong` for the first one that is too long."""
    for at, count in enumerate(counts):
        if count > longest:
            message = f"has {count:,} tokens; this model's maximum context length is {longest:,} tokens"
            raise TextTooLong(f"{field}.{at}" if len(counts) > 1 else field, message)


# Occurrences of pieces whose vectors are in memory at once.
_PIECES_AT_ONCE = 1 << 14


class StaticEmbedder:
    """The order of words counts for nothing, only which words there are. A word in many pieces weighs as much as one in
    few, as in the features of the lexical scorer."""

    def __init__(self, embeddings: TokenEmbeddings) -> None:
        self._embeddings = embeddings

    @property
    def width(self) -> int:
        return int(self._embeddings.rows.shape[1])

    def embed(self, texts: Sequence[str]) -> Floats:
        """(texts, width), each of length one; of a text without a word, all zeros but the last, which is one."""
        found = np.stack([self._sum(text) for text in texts])
        # A client divides by the length of what it gets.
        found[~found.any(axis=1), -1] = 1.0
        return normalised(found)

    def _sum(self, text: str) -> Floats:
        table = self._embeddings
        weights: dict[int, float] = {}
        for word in split_many(text)[0]:
            pieces = table.pieces_of(fold(word))
            for piece in pieces:
                weights[piece] = weights.get(piece, 0.0) + 1.0 / len(pieces)
        ids = np.fromiter(weights, np.int64, len(weights))
        counts = np.fromiter(weights.values(), np.float32, len(weights)) * table.weights[ids]
        total = np.zeros(self.width, np.float32)
        for start in range(0, len(ids), _PIECES_AT_ONCE):
            some = slice(start, start + _PIECES_AT_ONCE)
            total += counts[some] @ table.vectors(ids[some])
        return total


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


@dataclass(frozen=True, slots=True)
class PlainRetrieval:
    """Works with what the lexical scorer has loaded, and counts in the tokens of `counter`."""

    scorer: LexicalScorer
    counter: TokenizerCounter

    def do(self, job: RetrievalJob) -> Answer:
        """Raises a `CompressionError` for what the caller can put right."""
        return self._embed(job) if job.does == "embed" else self._relate(job)

    def _embed(self, job: RetrievalJob) -> Answer:
        counts = counted(self.counter, job.texts)
        check_lengths(counts, job.longest, "input")
        if job.only_counts:
            return Answer(sum(counts))
        embedder = StaticEmbedder(self.scorer.embeddings)
        texts = [self._as_text(text, at) for at, text in enumerate(job.texts)]
        vectors = shortened(embedder.embed(texts), job.dimensions)
        return Answer(sum(counts), vectors.shape[1], little_endian(vectors))

    def _relate(self, job: RetrievalJob) -> Answer:
        queries = [str(text) for text in job.queries]
        texts = [str(text) for text in job.texts]
        asked, counts = self.counter.count_many(queries), self.counter.count_many(texts)
        check_lengths(asked, job.longest, "query")
        if job.cut is None:
            check_lengths(counts, job.longest, "documents")
        longest = job.longest if job.cut is None else min(job.cut, job.longest)
        tokens = sum(min(count, longest) for count in counts)
        tokens += asked[0] * len(texts) if len(asked) == 1 else sum(asked)
        if job.only_counts:
            return Answer(tokens)
        read = [
            self.counter.beginning(text, longest) if count > longest else text
            for text, count in zip(texts, counts, strict=True)
        ]
        return Answer(tokens, 1, little_endian(np.array(self._scores(queries, read), np.float32)))

    def _scores(self, queries: Sequence[str], texts: Sequence[str]) -> list[float]:
        if len(queries) == 1:
            return relevance(self.scorer, queries[0], texts)
        pairs = zip(queries, texts, strict=True)
        return [relevance(self.scorer, query, [text])[0] for query, text in pairs]

    def _as_text(self, text: str | Sequence[int], at: int) -> str:
        if isinstance(text, str):
            return text
        try:
            return self.counter.text_of(text)
        except UnknownToken as error:
            hint = "send texts, or tokens of the model's own tokenizer"
            raise RefusedRequest(f"input.{at}", f"token {error}; {hint}") from None
