"""One compression model as a plain object: a scorer inside the pipeline."""

import time
from collections.abc import Callable

from compression.calibration.estimator import Estimator
from compression.counting.counter import TokenCounter
from compression.pipeline.pipeline import Pipeline
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.settings import CompressionSettings
from compression.scorers.scorer import Scorer


class Compressor:
    """A scorer, the tokenizer of its receipts, and its settings. Safe to share where the scorer is."""

    def __init__(
        self,
        scorer: Scorer,
        counter: TokenCounter,
        settings: CompressionSettings,
        *,
        calibration: Estimator | None = None,
        of_records: Estimator | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scorer = scorer
        self._pipeline = Pipeline(
            counter, settings, calibration=calibration, of_records=of_records, clock=clock
        )

    def compress(self, request: CompressionRequest) -> CompressionResult:
        """The part of the input that matters to the query, within the ratio.

        Raises `CompressionError` for what cannot be compressed, and `ScoresMismatch` where the scorer is at fault.
        """
        prepared = self._pipeline.prepare(request)
        scores = self._scorer.score(request.query, prepared.text) if prepared.needs_scores else ()
        return self._pipeline.finish(prepared, scores)
