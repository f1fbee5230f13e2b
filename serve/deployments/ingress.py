"""The deployment that answers on the HTTP port; it imports no vLLM, whose weight its process need not carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from serve.deployments import (
    HEALTH_CHECK_PERIOD_S,
    HEALTH_CHECK_TIMEOUT_S,
    INGRESS_APP,
    SETTLE_S,
    compressor_app,
    model_app,
)
from serve.heap import freeze_heap
from serve.metrics.files import FOLDER_VARIABLE, count_in_files, metrics_folder
from serve.settings import Settings


class IngressReplica:
    """The HTTP server. Its logic is `serve.app.Service`, which takes connections by itself."""

    async def __init__(self, settings: Settings, desk: Path | None) -> None:  # type: ignore[misc]
        # Before anything imports prometheus_client.
        count_in_files(settings)
        from serve.app import start_service

        self._service = await start_service(settings, engine_handle, compressor_handle, desk=desk)
        freeze_heap()

    async def check_health(self) -> None:
        self._service.check()

    async def __del__(self) -> None:
        await self._service.stop()


def engine_handle(model_id: str) -> DeploymentHandle:
    """A handle to a model's replicas, which need not be up."""
    return serve.get_app_handle(model_app(model_id))


def compressor_handle(model_id: str) -> DeploymentHandle:
    """A handle to a compression model's replicas."""
    return serve.get_app_handle(compressor_app(model_id))


def build_ingress(settings: Settings, desk: Path | None) -> Any:
    """The Ray Serve application that answers on the HTTP port. `desk` is the folder where its processes get the
    listening socket; without one each listens by itself."""
    deployment = serve.deployment(
        IngressReplica,
        name=INGRESS_APP,
        num_replicas=settings.server.ingress_replicas,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        # Ray's own is 2 s that it waits before it says a word; a drain time of 1 s was over by then.
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=settings.server.drain_s + SETTLE_S,
        ray_actor_options={"runtime_env": {"env_vars": _environment(settings)}},
    )
    return deployment.bind(settings, desk)


def _environment(settings: Settings) -> dict[str, str]:
    folder = metrics_folder(settings)
    return {} if folder is None else {FOLDER_VARIABLE: str(folder)}
