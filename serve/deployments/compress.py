"""The deployment of one compression model; the lexical kind's process carries no torch."""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve

from compression.model import CompressionFault, answer
from compression.request import CompressionRequest, CompressionResult
from serve.compression_settings import CompressionModelSettings, spec_of
from serve.deployments import HEALTH_CHECK_PERIOD_S, HEALTH_CHECK_TIMEOUT_S


class CompressReplica:
    """A compression model's replica. Its logic is what `compression.build.build_model` returns."""

    def __init__(self, model: CompressionModelSettings) -> None:
        from compression.build import build_model, load_counter

        spec = spec_of(model)
        self._model = build_model(spec)
        self._counter = load_counter(spec.tokenizer, name=spec.tokenizer_name)

    async def compress(self, request: CompressionRequest) -> CompressionResult | CompressionFault:
        return await answer(self._model, request)

    async def count_tokens(self, text: str) -> int:
        # In a thread: megabytes take longer than the event loop may stand still.
        return await asyncio.to_thread(self._counter.count, text)

    async def __del__(self) -> None:
        await self._model.close()


def build_compressor(model: CompressionModelSettings) -> Any:
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
        max_ongoing_requests=replicas.max_ongoing_requests,
        max_queued_requests=model.max_waiting,
        ray_actor_options={"num_cpus": 1, "num_gpus": replicas.gpus},
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
    )
    return deployment.bind(model)
