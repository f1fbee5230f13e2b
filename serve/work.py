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
from serve.config.settings import Settings
from serve.metrics.charged_requests import ServiceMetrics
from serve.money.admission import Admissions
from serve.money.pepper import read_pepper
from serve.originals.originals import Originals
from serve.prompt_compression.compressing import BlockCompressor
from serve.prompt_compression.outcome import ResultCache
from serve.prompt_compression.service import PromptCompressor
from serve.retrieval.service import RetrievalService, retrieval_service

DEMO_IN_FLIGHT = 2
BATCH_CONCURRENCY = 4


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
    asked = settings.compression.chat
    blocks = BlockCompressor(
        ResultCache(asked.cache_mb * 2**20), asked.deadline_s, read_pepper(settings.state_dir)
    )
    compressor = PromptCompressor(
        models=served,
        blocks=blocks,
        metrics=metrics.compress,
        prompt_metrics=metrics.prompt_compression,
        originals=originals,
    )
    chat = ChatService(
        catalog=catalog,
        engines=engines,
        admissions=admissions,
        metrics=metrics.chat,
        compressor=compressor,
    )
    compress = _compress_routes(settings, served, blocks, admissions, metrics, originals) if served else None
    return Work(compress, chat, retrieval_service(settings, retrievers, admissions, metrics.retrieval))


def _compress_routes(
    settings: Settings,
    served: Mapping[str, ServedCompressor],
    blocks: BlockCompressor,
    admissions: Admissions,
    metrics: ServiceMetrics,
    originals: Originals,
) -> CompressRoutes:
    demo = settings.compression.demo
    return CompressRoutes(
        messages=MessagesService(
            models=served,
            blocks=blocks,
            admissions=admissions,
            metrics=metrics.compress,
            originals=originals,
        ),
        service=CompressService(
            models=served, admissions=admissions, metrics=metrics.compress, originals=originals
        ),
        demo=DemoLimits(
            admissions.limiter,
            requests_per_minute_per_address=demo.requests_per_minute_per_address,
            requests_per_minute=demo.requests_per_minute,
            max_in_flight=DEMO_IN_FLIGHT,
            clock=admissions.clock,
        ),
        demo_max_chars=demo.max_chars,
        batch_concurrency=BATCH_CONCURRENCY,
        demo_deadline_s=demo.deadline_s,
    )
