"""Everything that one HTTP process counts, built once."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from serve.metrics.chat import ChatMetrics
from serve.metrics.compress import CompressMetrics
from serve.metrics.http import HttpMetrics
from serve.metrics.money import MoneyMetrics
from serve.metrics.originals import OriginalMetrics
from serve.metrics.prompt_compression import PromptCompressionMetrics
from serve.metrics.retrieval import RetrievalMetrics


class ServiceMetrics:
    """`registry` is read in tests only: a server's process counts in its files (`serve.metrics.process_files`)."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        chat_models: Iterable[str],
        compression_models: Iterable[str],
        retrieval_models: Iterable[str] = (),
    ) -> None:
        chat_models = tuple(chat_models)
        money = MoneyMetrics(registry)
        self.http = HttpMetrics(registry)
        self.chat = ChatMetrics(registry, chat_models, money)
        self.compress = CompressMetrics(registry, compression_models, money)
        self.prompt_compression = PromptCompressionMetrics(registry, chat_models)
        self.retrieval = RetrievalMetrics(registry, retrieval_models, money)
        self.originals = OriginalMetrics(registry)
