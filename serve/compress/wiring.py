"""The compression side of the service, from its settings: models behind Ray, their prices, the demo's limits."""

from collections.abc import Mapping

from serve.compress.demo_limits import DemoLimits
from serve.compress.prompt import MessagesService
from serve.compress.route import CompressRoutes
from serve.compress.service import CompressService
from serve.compressors.compressor import ServedCompressor
from serve.config.compression_models import CompressionSettingsSection
from serve.metrics.charged_requests import CompressMetrics
from serve.money.admission import Admissions
from serve.originals.originals import Originals
from serve.prompt_compression.compressing import BlockCompressor

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
    """What the compression routes need, or None where the configuration has no compression model."""
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
