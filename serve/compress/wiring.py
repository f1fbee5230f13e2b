"""The compression side of the service, from its settings: models behind Ray, their prices, the demo's limits."""

from collections.abc import Mapping
from typing import Protocol

from serve.compress.demo_limits import DemoLimits
from serve.compress.route import CompressRoutes
from serve.compress.service import CompressService, CountingModel, ServedCompressor
from serve.config.compression_models import CompressionSettingsSection, spec_of
from serve.metrics.compress import CompressMetrics
from serve.money.admission import Admissions
from serve.money.tokenizer_growth import tokens_per_byte_of


class RunningModel(CountingModel, Protocol):
    """A compression model that may be starting."""

    async def ready(self) -> bool:
        """Say whether a replica is up, without starting one."""
        ...


DEMO_IN_FLIGHT = 2
BATCH_CONCURRENCY = 4


def compress_collaborators(
    settings: CompressionSettingsSection,
    models: Mapping[str, CountingModel],
    *,
    admissions: Admissions,
    metrics: CompressMetrics,
) -> CompressRoutes | None:
    """What the compression routes need, or None where the configuration has no compression model."""
    if not settings.models:
        return None
    served = {
        model.id: ServedCompressor(
            model=models[model.id],
            default_ratio=model.ratio.default,
            longest_input_bytes=model.max_input_bytes,
            tokens_per_byte=tokens_per_byte_of(spec_of(model).tokenizer),
            keeps_json=model.fidelity == "default",
        )
        for model in settings.models
    }
    return CompressRoutes(
        service=CompressService(models=served, admissions=admissions, metrics=metrics),
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
