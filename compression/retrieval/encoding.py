"""Vectors and relevance by a transformers checkpoint, batches shared between requests. Imported only where one runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from compression.neural.batching import CheckpointRefused, Floats, Job, NeuralService, Window, Windows
from compression.neural.checkpoints import find_checkpoint
from compression.neural.encoder import Encoder
from compression.neural.models import network_errors_translated
from compression.neural.networks import Placement
from compression.pipeline.compression_model import done
from compression.pipeline.errors import RefusedRequest
from compression.retrieval.job import Answer, EncoderSpec, RetrievalJob
from compression.retrieval.plain import check_lengths, little_endian, shortened

Result = TypeVar("Result")


class EncoderRetrieval:
    """A bi-encoder embeds, a cross-encoder relates. Texts go in as they are, without the checkpoint's prompts; tokens
    are counted with the special ones around them."""

    def __init__(self, encoder: Encoder, service: NeuralService) -> None:
        self._encoder = encoder
        self._service = service
        # Off the event loop, where the others' answers are read and written.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokens")

    @classmethod
    def load(cls, spec: EncoderSpec) -> EncoderRetrieval:
        """Raises `CheckpointRefused`, also for a checkpoint of the other kind."""
        folder = find_checkpoint(spec.checkpoint, spec.revision)
        windows = Windows(spec.context_length, token_budget=spec.batch_tokens)
        placement = Placement(spec.device, spec.dtype, spec.threads, spec.memory_share)
        encoder = Encoder.load(str(folder), placement, windows=windows)
        if (encoder.kind == "bi") != (spec.does == "embed"):
            is_one = "makes vectors" if encoder.kind == "bi" else "compares pairs of texts"
            raise CheckpointRefused(spec.checkpoint, f"it {is_one}, which is not what this model is for")
        service = NeuralService(
            encoder.network, token_budget=spec.batch_tokens, max_waiting_tokens=spec.max_waiting_tokens
        )
        return cls(encoder, service)

    async def do(self, job: RetrievalJob) -> Answer:
        """Raises a `CompressionError` for what the caller can put right, and what is in
        `compression.neural.models.network_errors_translated`."""
        windows = await self._in_thread(lambda: self._windows(job))
        tokens = sum(map(len, windows))
        if job.only_counts:
            return Answer(tokens)
        with network_errors_translated():
            outputs: Sequence[Floats] = await self._service.run(Job(tuple(windows), list))
        values = await self._in_thread(lambda: shortened(np.stack(outputs), job.dimensions))
        return Answer(tokens, values.shape[1], little_endian(values))

    def _windows(self, job: RetrievalJob) -> list[Window]:
        return self._singles(job) if job.does == "embed" else self._pairs(job)

    def _singles(self, job: RetrievalJob) -> list[Window]:
        tokenizer = self._encoder.tokenizer
        words = iter(self._encoder.ids([text for text in job.texts if isinstance(text, str)]))
        size = tokenizer.backend.get_vocab_size()
        for at, text in enumerate(job.texts):
            if not isinstance(text, str) and max(text) >= size:
                raise RefusedRequest(f"input.{at}", f"token {max(text)} is not a token of this model")
        windows = [tokenizer.window(next(words) if isinstance(text, str) else text) for text in job.texts]
        check_lengths([len(window) for window in windows], job.longest, "input")
        return windows

    def _pairs(self, job: RetrievalJob) -> list[Window]:
        tokenizer = self._encoder.tokenizer
        asked = self._encoder.ids(list(job.queries))
        # Half of what a pair may have, so that there is room for the other text.
        check_lengths([len(query) for query in asked], job.longest // 2, "query")
        texts = self._encoder.ids([str(text) for text in job.texts])
        queries = asked * len(texts) if len(asked) == 1 else asked
        rooms = [job.longest - tokenizer.pair.length - len(query) for query in queries]
        if job.cut is None:
            for at, (text, room) in enumerate(zip(texts, rooms, strict=True)):
                check_lengths([0] * at + [len(text)], room, "documents")
        cut = job.longest if job.cut is None else job.cut
        return [
            tokenizer.pair_window(query, text[: min(cut, room)])
            for query, text, room in zip(queries, texts, rooms, strict=True)
        ]

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await done(self._thread.submit(work))
