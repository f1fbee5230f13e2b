"""The deployment of one compression model. Its process has no model: worker processes do, so that work can be ended."""

from typing import Any

from ray import serve

from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.served import CompressionFault, JobTerms, as_value
from serve.cluster.ray_insides.loopback import PortCheck
from serve.cluster.replicas.applications import HEALTH_CHECK_PERIOD_S, HEALTH_CHECK_TIMEOUT_S, SETTLE_S
from serve.config.compression_models import CompressionModelSettings, plan_of_model, spec_of
from serve.config.settings import Settings
from serve.metrics.process_files import FOLDER_VARIABLE, count_in_files, metrics_folder

# Above what may wait in a replica: the replica refuses a request too many itself, instead of leaving it in Ray's queue.
REFUSED_AT_ONCE = 64


class CompressReplica:
    """A compression model's replica. Its logic is `compression.workers.pooled_model.PooledModel`."""

    async def __init__(self, model: CompressionModelSettings, settings: Settings) -> None:  # type: ignore[misc]
        # Before anything imports prometheus_client.
        count_in_files(settings)
        from prometheus_client import CollectorRegistry

        from compression.workers.pooled_model import start_model
        from serve.metrics.compression_workers import PoolMetrics

        self._ports = PortCheck(on_loopback=not settings.ray.address)
        metrics = PoolMetrics(CollectorRegistry(), model.id)
        self._model = await start_model(spec_of(model), plan_of_model(model), metrics)

    async def compress(
        self, request: CompressionRequest, terms: JobTerms
    ) -> CompressionResult | CompressionFault:
        return await as_value(self._model.compress(request, terms))

    async def count_tokens(self, text: str, terms: JobTerms) -> int | CompressionFault:
        return await as_value(self._model.count_tokens(text, terms))

    async def check_health(self) -> None:
        self._ports.pass_once()
        self._model.check()

    async def __del__(self) -> None:
        await self._model.close()


def build_compressor(model: CompressionModelSettings, settings: Settings) -> Any:
    """The Ray Serve application of one compression model."""
    replicas = model.replicas
    deployment = serve.deployment(
        CompressReplica,
        name=model.id.replace("/", "--"),
        autoscaling_config={
            "min_replicas": replicas.min,
            "initial_replicas": replicas.min,
            "max_replicas": replicas.max,
            "target_ongoing_requests": max(1, replicas.max_ongoing_requests // 2),
            "upscale_delay_s": 0,
        },
        # All that waits is in the replica, where it is put in order; Ray's queue is for a replica that starts.
        max_ongoing_requests=model.max_waiting + REFUSED_AT_ONCE,
        max_queued_requests=model.max_waiting,
        ray_actor_options={
            "num_cpus": 1,
            "num_gpus": replicas.gpus,
            "runtime_env": {"env_vars": _environment(settings)},
        },
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        # A replica that is not needed any more may end what it has.
        graceful_shutdown_timeout_s=model.deadline_s + SETTLE_S,
    )
    return deployment.bind(model, settings)


def _environment(settings: Settings) -> dict[str, str]:
    folder = metrics_folder(settings)
    return {} if folder is None else {FOLDER_VARIABLE: str(folder)}
