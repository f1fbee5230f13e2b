"""What a model of the `static` or the `lexical` engine does with a job: vectors, relevance, or only a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compression.counting.tokenizer_counter import TokenizerCounter, UnknownToken
from compression.pipeline.errors import RefusedRequest
from compression.retrieval.job import Answer, RetrievalJob
from compression.retrieval.numbers import little_endian, shortened
from compression.retrieval.relevance import relevance
from compression.retrieval.static_embedding import StaticEmbedder
from compression.retrieval.texts import check_lengths, counted
from compression.scorers.lexical import LexicalScorer


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
