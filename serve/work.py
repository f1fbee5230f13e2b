"""The services behind the routes, built from the configuration: chats, compressions, embeddings and the like."""

from collections.abc import Mapping
from dataclasses import dataclass

from models.catalog import Catalog
from models.embedding_backends import RetrievalModel
from models.engine import Engine
from serve.batches.endpoints import Endpoints, endpoints_of
from serve.chat.service import ChatService
from serve.compress.demo_limits import DemoLimits
from serve.compress.prompt import MessagesService
from serve.compress.route import CompressRoutes
from serve.compress.service import CompressService
from serve.compressors.compressor import RunningModel, ServedCompressor, served_compressors
from serve.config.compression_models import CompressionSettingsSection
from serve.config.settings import Settings
from serve.metrics.charged_requests import CompressMetrics
from serve.metrics.service import ServiceMetrics
from serve.money.admission import Admissions
from serve.money.pepper import read_pepper
from serve.originals.originals import Originals
from serve.prompt_compression.compressing import BlockCompressor
from serve.prompt_compression.outcome import ResultCache
from serve.prompt_compression.service import PromptCompressor
from serve.retrieval.service import RetrievalService, retrieval_service

DEMO_IN_FLIGHT = 2
BATCH_CONCURRENCY = 4


def compress_collaborators(
    settings: CompressionSettingsSection,
    models: Mapping[str, ServedCompressor],
    *,
    blocks: BlockCompressor,
    admissions: Admissions,
    metrics: CompressMetrics,
    originals: Originals,
) -> CompressRoutes | None:
    """The collaborators of the compression routes, or None where the configuration has no compression model."""
    if not models:
        return None
    return CompressRoutes(
        messages=MessagesService(
            models=models, blocks=blocks, admissions=admissions, metrics=metrics, originals=originals
        ),
        service=CompressService(models=models, admissions=admissions, metrics=metrics, originals=originals),
        demo=DemoLimits(
            admissions.limiter,
            requests_per_minute_per_address=settings.demo.requests_per_minute_per_address,
            requests_per_minute=settings.demo.requests_per_minute,
            max_in_flight=DEMO_IN_FLIGHT,
            clock=admissions.clock,
        ),
        demo_max_chars=settings.demo.max_chars,
        batch_concurrency=BATCH_CONCURRENCY,
        demo_deadline_s=settings.demo.deadline_s,
    )


@dataclass(frozen=True, slots=True)
class Work:
    """The services behind the routes: compressions, where there are models for it, chats, and the rest."""

    compress: CompressRoutes | None
    chat: ChatService
    retrieval: RetrievalService

    def endpoints(self, catalog: Catalog) -> Endpoints:
        """For the lines of batches."""
        compress = self.compress.service if self.compress is not None else None
        return endpoints_of(catalog, self.chat, compress, self.retrieval)


def work_of(
    settings: Settings,
    catalog: Catalog,
    admissions: Admissions,
    metrics: ServiceMetrics,
    originals: Originals,
    engines: Mapping[str, Engine],
    compressors: Mapping[str, RunningModel],
    retrievers: Mapping[str, RetrievalModel],
) -> Work:
    """From what was opened. `compressors` and `retrievers` are what runs of the configured models, by id."""
    served = served_compressors(settings.compression, compressors) if compressors else {}
    blocks = _block_compressor(settings)
    compress = compress_collaborators(
        settings.compression,
        served,
        blocks=blocks,
        admissions=admissions,
        metrics=metrics.compress,
        originals=originals,
    )
    chat = ChatService(
        catalog=catalog,
        engines=engines,
        admissions=admissions,
        metrics=metrics.chat,
        compressor=_prompt_compressor(served, blocks, originals, metrics),
    )
    return Work(compress, chat, retrieval_service(settings, retrievers, admissions, metrics.retrieval))


def _block_compressor(settings: Settings) -> BlockCompressor:
    chat = settings.compression.chat
    return BlockCompressor(
        ResultCache(chat.cache_mb * 2**20), chat.deadline_s, read_pepper(settings.state_dir)
    )


def _prompt_compressor(
    served: Mapping[str, ServedCompressor],
    blocks: BlockCompressor,
    originals: Originals,
    metrics: ServiceMetrics,
) -> PromptCompressor:
    return PromptCompressor(
        models=served,
        blocks=blocks,
        metrics=metrics.compress,
        prompt_metrics=metrics.prompt_compression,
        originals=originals,
        key=blocks.key,
    )
