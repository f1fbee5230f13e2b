"""Encoders and query classifiers as compression models: their scores, blended with the lexical scorer's."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from compression.neural.neural_model import NeuralModel, Running
from compression.neural.windows import Job, Network
from compression.pipeline.pipeline import Prepared
from compression.pipeline.request import CompressionResult
from compression.scorers.kinds import Blend
from compression.scorers.lexical import chances
from compression.scorers.scorer import Scorer, TwoLookScorer
from compression.source.units import Segmentation


class NetworkScorer(Scorer, Protocol):
    """A scorer that runs a network. `score` runs it at once; the windows of `score_job` are for a `NeuralService`."""

    network: Network

    def score_job(self, query: str, text: Segmentation) -> Job[list[float]]: ...


class ScoredModel(NeuralModel):
    """Keeps the units that a network and the lexical scorer together score best."""

    def __init__(self, running: Running, scorer: NetworkScorer, lexical: TwoLookScorer, blend: Blend) -> None:
        super().__init__(running)
        self._scorer = scorer
        self._lexical = lexical
        self._blend = blend

    async def _choose(self, prepared: Prepared) -> CompressionResult:
        if not prepared.request.query.strip():
            # Without a query nothing is near it; as the lexical scorer does, keep the beginning.
            return await self._in_thread(self._pipeline.finish, prepared, [0.0] * len(prepared.text.units))
        job = await self._in_thread(self._scorer.score_job, prepared.request.query, prepared.text)
        scores = await self._run(job)
        return await self._in_thread(self._finish, prepared, scores)

    def _finish(self, prepared: Prepared, scores: Sequence[float]) -> CompressionResult:
        query, text = prepared.request.query, prepared.text
        return self._pipeline.finish(prepared, blended(scores, self._lexical, self._blend, query, text))


def blended(
    scores: Sequence[float], lexical: TwoLookScorer, blend: Blend, query: str, text: Segmentation
) -> list[float]:
    """A network's scores, one a unit, joined with those of the lexical scorer, and looked at again."""
    glance = lexical.glance(query, text)
    neural = blend.neural * (np.asarray(scores, np.float64) - blend.midpoint)
    logits = neural + blend.lexical * np.asarray(glance.logits, np.float64)
    return chances(lexical.look_again(glance, np.asarray(logits, np.float32)))
