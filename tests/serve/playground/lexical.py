"""The embedded profile's compression model in this process."""

from __future__ import annotations

import asyncio
from functools import cached_property

from compression.build import load_counter, plain_compressor
from compression.pipeline.compression_model import NO_TERMS, CompressionRequest, CompressionResult, JobTerms
from compression.pipeline.pipeline import Compressor
from compression.source.token_counter import TokenCounter
from serve.config.compression_models import spec_of
from serve.config.settings import load_settings
from tests.serve.loopback_service import CONFIG


class LexicalModel:
    """The real one, without processes of its own."""

    @cached_property
    def _counter(self) -> TokenCounter:
        return load_counter(self._spec.tokenizer, name=self._spec.tokenizer_name)

    @cached_property
    def _compressor(self) -> Compressor:
        return plain_compressor(self._spec, self._counter)

    def __init__(self) -> None:
        self._spec = spec_of(load_settings(CONFIG).compression.models[0])
        self.requests: list[CompressionRequest] = []

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        self.requests.append(request)
        return await asyncio.to_thread(self._compressor.compress, request)

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        return self._counter.count(text)

    async def ready(self) -> bool:
        return True
